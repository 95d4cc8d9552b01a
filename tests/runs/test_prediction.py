"""What earlier runs say of the length of a run, and of the outage of a cut-over."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest

from flinkstate.files.storage import Location
from stateferry.changes.counts import ConversionCounts, InventoryCounts
from stateferry.runs.guards.lazy_choice import measured_rate
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.predict.assumed_parts import FlinkWork, flink_work
from stateferry.runs.predict.differences import SourceLayout
from stateferry.runs.predict.estimates import Estimate, Prediction, Spent, estimate, prediction_lines
from stateferry.runs.predict.prediction import (
    PARTS,
    Taken,
    TimedRun,
    outage_of,
    part_times,
    predict,
    predicted,
    predicted_after,
    predicted_of_size,
    steady_times_of,
    times_of,
)
from stateferry.runs.record.facts import Began, JobStarted, SavepointTaken
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, SnapshotFacts, StateSize
from stateferry.runs.report.report import Report, SavepointDigests
from stateferry.runs.report.report_text import show_report, time_line

KINDS = {kind.name: kind for kind in PARTS}
REHEARSAL = ("take_savepoint", "snapshot", "migrate", "rescale", "validate", "tables")
CUT_OVER = ("take_savepoint", "snapshot", "migrate", "rescale", "validate", "cut_over", "start_job", "tables")


_CHOSEN = ("compression", "output_format", "parallelism", "since", "lazy", "share", "budget_ms", "reverse")


def a_run(home: Path, number: int, size: int, *, rehearse: bool = False, **given: Any) -> Run:
    """A run whose parts waited for nothing: by the clock they took the seconds of their own work."""
    chosen: dict[str, object] = {name: given.pop(name) for name in _CHOSEN if name in given}
    seconds: dict[str, float] = given
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState" if "lazy" in chosen else None}
    values = {"job": "orders", "source": "/in", "target": "/out", "home": str(home), "run_id": f"run-{number}"}
    operators = [{"operator": "main", "states": [state]}]
    run = Run.create(plan_of({**values, **chosen, "rehearse": rehearse, "operators": operators}), number)
    states = {"main/mainState": StateSize(1, size)}
    run.keep(SnapshotFacts(states=states, seconds=seconds.pop("snapshot", 1.0), ended_at=0))
    for part, taken in seconds.items():
        run.keep(KINDS[part](seconds=taken, ended_at=0))
    return run


def recorded(size: int, parts: tuple[str, ...], rng: random.Random, busy: str = "") -> TimedRun:
    """The times of a run: each part waits for Airflow and Spark, then works a fixed time and a time by the size.

    On a busy machine a part takes four times as long.
    """
    times = {}
    for part in parts:
        wait = (2.0 if part in ("take_savepoint", "start_job") else 8.0) * rng.uniform(0.93, 1.07)
        work = (1.5 + WORK[part] * size / 1e9) * rng.uniform(0.93, 1.07) * (4 if part == busy else 1)
        times[part] = Taken(wait + work, work)
    # Flink restores half as fast here as where that was measured.
    return TimedRun(size, times, FlinkWork(restore=WORK["start_job"] * size / 2e9))


# Seconds of each part's work for a gigabyte.
WORK = {"take_savepoint": 6.0, "snapshot": 9.0, "migrate": 12.0, "rescale": 14.0, "validate": 18.0, "cut_over": 0.2}
WORK |= {"start_job": 20.0, "tables": 1.0}


def seconds(run: TimedRun, *parts: str) -> float:
    return sum(time.wall for part, time in run.times.items() if part in parts)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("size", [1_000_000, 1_000_000_000, 20_000_000_000])
def test_after_three_rehearsals_the_prediction_is_within_a_quarter(size: int, times: int, seed: int) -> None:
    """Of a rehearsal, and of the outage as far as rehearsals show it; at the same and at twice the size."""
    rng = random.Random(seed)
    nights = [recorded(size, REHEARSAL, rng) for _ in range(3)]
    night, cut_over = recorded(size * times, REHEARSAL, rng), recorded(size * times, CUT_OVER, rng)
    foreseen = predict(nights, size * times, REHEARSAL)
    assert foreseen.whole is not None
    assert foreseen.outage is not None
    assert foreseen.missing == ()
    assert foreseen.whole.seconds == pytest.approx(seconds(night, *REHEARSAL), rel=0.25)
    # What only a cut-over does is assumed.
    assert [part for part in CUT_OVER if not foreseen.parts[part].runs] == ["cut_over", "start_job"]
    steps = sum(foreseen.parts[part].seconds for part in CUT_OVER[:5])
    assert steps == pytest.approx(seconds(cut_over, *CUT_OVER[:5]), rel=0.25)
    assert foreseen.outage.low <= seconds(cut_over, *CUT_OVER[:7]) <= foreseen.outage.high


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_other_sizes_predict_the_whole_outage_although_one_was_slow(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [8, 9, 10, 12, 14]
    runs = [recorded(size * 10**8, CUT_OVER, rng, busy="rescale" if size == 12 else "") for size in sizes]
    now = recorded(28 * 10**8, CUT_OVER, rng)
    foreseen = predict(runs, now.size, CUT_OVER)
    assert foreseen.missing == ()
    assert foreseen.outage is not None
    assert foreseen.outage.seconds == pytest.approx(seconds(now, *CUT_OVER[:7]), rel=0.25)


def test_the_first_run_is_said_to_be_unknown(tmp_path: Path) -> None:
    foreseen = predicted(a_run(tmp_path, 0, 1000))
    assert (foreseen.outage, foreseen.whole, foreseen.parts) == (None, None, {})
    said = "how long a cut-over takes isn't known yet: no earlier run of this job has been timed"
    assert prediction_lines(foreseen) == [said]
    (afterwards,) = prediction_lines(foreseen, is_over=True)
    assert afterwards == "how long this cut-over would take wasn't known: no earlier run of this job has been timed"


def test_what_is_kept_is_what_everybody_is_told(tmp_path: Path) -> None:
    for number in range(3):
        a_run(tmp_path, number, 1000, rescale=4.0)
    now = a_run(tmp_path, 3, 1000, rescale=5.0)
    foreseen = predicted(now)
    now.keep(foreseen)
    for earlier in (tmp_path / "runs" / "orders").glob("run-[012]"):
        Run.open(Location.of(str(earlier))).keep(KINDS["rescale"](seconds=100.0, ended_at=0))
    assert predicted(Run.open(now.folder)) == foreseen
    assert {time.part: time.predicted for time in part_times(now)}["rescale"] == 4.0


def test_who_is_asked_is_told_of_the_rehearsal_too(tmp_path: Path) -> None:
    rehearsal = a_run(tmp_path, 0, 1000, rehearse=True, rescale=3.0)
    assert predicted(rehearsal).parts == {}
    assert predicted_after(rehearsal).parts["rescale"].seconds == 3.0


def test_a_part_lasts_from_the_end_of_the_one_before_it_so_starts_are_in_it(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0, 1000)
    run.keep(Began(100_000))
    run.keep(SavepointTaken(seconds=0.5, requested_at=103_000, ended_at=105_000))
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(1, 1000)}, seconds=2.0, ended_at=117_000))
    run.keep(KINDS["rescale"](seconds=4.0, ended_at=131_000))
    run.keep(KINDS["validate"](seconds=3.0, ended_at=131_500))
    assert times_of(run) == {
        "take_savepoint": Taken(2.0, 0.5),
        "snapshot": Taken(12.0, 2.0),
        "rescale": Taken(14.0, 4.0),
        "validate": Taken(3.0, 3.0),
    }


@pytest.mark.parametrize("of_others", [0, 30_000])
def test_a_rehearsal_that_was_stopped_and_continued_did_not_take_all_night(tmp_path: Path, of_others: int) -> None:
    night = 36_000_000
    for number, rehearse in enumerate([True, False]):
        run = a_run(tmp_path, number, 1000, rehearse=rehearse)
        run.keep(Began(0))
        run.keep(SnapshotFacts(states={"main/mainState": StateSize(1, 1000)}, seconds=5.0, ended_at=5_000 + of_others))
        run.keep(KINDS["migrate"](seconds=9.0, ended_at=night))
        run.keep(KINDS["validate"](seconds=9.0, ended_at=night + of_others + 9_000))
        waited = of_others / 1000
        assert steady_times_of(run)["validate"] == Taken(9.0 + waited, 9.0)
        # A job that stands still waits for whoever continues.
        assert steady_times_of(run)["migrate"].wall == (
            9.0 + waited if rehearse else (night - 5_000 - of_others) / 1000
        )


def test_a_rehearsal_whose_steps_all_wait_long_counts_as_it_was(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0, 1000, rehearse=True)
    run.keep(Began(0))
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(1, 1000)}, seconds=5.0, ended_at=905_000))
    run.keep(KINDS["migrate"](seconds=5.0, ended_at=3_610_000))
    assert [time.wall for time in steady_times_of(run).values()] == [905, 2705]


def test_waiting_for_a_person_counts_for_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0, 1000)
    run.keep(KINDS["validate"](seconds=2.0, ended_at=10_000))
    run.enter(RunState.RUNNING, 1)
    run.enter(RunState.VERIFIED, 10_000)
    run.enter(RunState.APPROVED, 3_600_000, "approved by ada")
    run.keep(KINDS["cut_over"](seconds=1.0, ended_at=3_608_000))
    assert times_of(run)["cut_over"].wall == 8.0


def test_the_outage_is_from_the_request_to_the_first_checkpoint(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0, 1000)
    assert outage_of(run) is None
    run.keep(SavepointTaken(seconds=1.0, requested_at=5_000, ended_at=9_000))
    run.keep(JobStarted(seconds=1.0, ended_at=65_500))
    assert outage_of(run) == 60.5


def test_only_the_newest_runs_count() -> None:
    newest_first = [TimedRun(100, {"rescale": Taken(seconds, seconds)}) for seconds in (9.0, 9.0, 9.0, 9.0)]
    older = [TimedRun(100, {"rescale": Taken(1.0, 1.0)})] * 9
    assert predict([*newest_first, *older], 100, REHEARSAL).parts["rescale"].seconds == 9.0


def test_nights_that_catch_up_leave_the_last_one_that_converted_everything() -> None:
    night = TimedRun(1000, {"tables": Taken(3.0, 1.0)})
    whole = TimedRun(1000, {"migrate": Taken(200.0, 195.0), "tables": Taken(60.0, 55.0)})
    foreseen = predict([*[night] * 7, whole], 1000, CUT_OVER)
    assert (foreseen.parts["migrate"].seconds, foreseen.parts["tables"].seconds) == (200.0, 3.0)
    assert foreseen.runs == 8


@pytest.mark.parametrize("other", [{"lazy": True, "share": 0.05}, {"reverse": True}])
def test_runs_of_another_kind_say_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    a_run(tmp_path, 0, 1000, migrate=300.0)
    for number in (1, 2, 3):
        a_run(tmp_path, number, 1000, migrate=45.0, **other)
    assert predicted(a_run(tmp_path, 4, 1000)).parts["migrate"].seconds == 300.0
    assert predicted(a_run(tmp_path, 5, 1000, **other)).parts["migrate"].seconds == 45.0
    assert predicted_of_size(str(tmp_path), "orders", 1000, rescales_only=False).parts["migrate"].seconds == 300.0


def test_a_budget_goes_by_runs_that_handle_all_state(tmp_path: Path) -> None:
    done: dict[str, Any] = {"migrate": 30.0, "rescale": 0.0, "validate": 70.0}
    budget: dict[str, Any] = {"lazy": True, "budget_ms": 60_000}
    a_run(tmp_path, 0, 10**9, **done)
    for number in (1, 2, 3):
        quick: dict[str, Any] = dict.fromkeys(done, 0.5)
        a_run(tmp_path, number, 10**9, rehearse=True, since="run-0", output_format="native", **quick)
        a_run(tmp_path, number + 3, 10**9, reverse=True, **quick)
    assert measured_rate(a_run(tmp_path, 7, 10**9, **budget).plan) == 10**7


def test_one_slow_run_changes_little_and_widens_the_range() -> None:
    seen = [Spent(1000, 12.0, 4.0), Spent(1000, 12.0, 4.0), Spent(1000, 95.0, 87.0)]
    assert estimate(seen, 1000) == Estimate(12.0, 10.8, 95.0, 3)


def test_the_fewer_runs_there_are_the_wider_is_the_range() -> None:
    ranges = [estimate([Spent(1000, 100.0, 90.0)] * runs, 1000) for runs in (1, 2, 3, 7)]
    assert [(one.low, one.high) for one in ranges] == [(70, 130), (85, 115), (90, 110), (90, 110)]


def test_without_sizes_to_compare_the_range_has_both_no_growth_and_full_growth() -> None:
    found = estimate([Spent(1000, 30.0, 20.0)], 2000)
    assert found.low <= 30.0
    assert found.high >= 50.0
    assert found.seconds == 10 + 2 + 18 * 2


def test_a_step_that_no_run_has_timed_is_assumed_and_said_to_be(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0, 1000, migrate=5.0)
    foreseen = predicted_after(run)
    assert foreseen.parts["cut_over"].runs == 0
    assert "cut_over 0 s (assumed)" in prediction_lines(foreseen)[0]
    assert foreseen.missing == ("rescale", "validate")
    assert "not in it, as no run has a time for it yet: rescale, validate" in prediction_lines(foreseen)


@pytest.mark.parametrize(
    ("chosen", "start"),
    [
        # A canonical savepoint of a million entries takes 0.25 s of two subtasks, and each way of writing has its pace.
        ({"compression": "auto"}, 1.5 + 0.8),
        ({"compression": "none"}, 1.5 + 5.0),
        ({"output_format": "native"}, 1.5),
        ({"compression": "auto", "parallelism": 4}, 1.5 + 0.4),
        ({"compression": "auto", "parallelism": {"sink": 1}}, 1.5 + 0.8),
        ({"compression": "auto", "parallelism": {"main": 8}}, 1.5 + 0.2),
    ],
)
def test_the_start_of_the_new_job_is_assumed_by_what_flink_restores(
    tmp_path: Path, chosen: dict[str, Any], start: float
) -> None:
    run = a_run(tmp_path, 0, 1000, rescale=1.0, **chosen)
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(1_000_000, 44_000_000)}, seconds=1.0, ended_at=0))
    run.keep(SourceLayout(7, {"main": (2, 128), "sink": (1, 128)}))
    assert flink_work(run).take == 0.25
    parts = predicted_after(run).parts
    assert (parts["take_savepoint"].seconds, parts["start_job"].seconds) == (1.25, start)


@pytest.mark.parametrize(
    ("counts", "entries"),
    [
        (ConversionCounts(rows_written=1_000_000, rows_kept=500_000), 1_500_000 + 7_000_000),
        # What a lazy run leaves is restored, too.
        (ConversionCounts(rows_written=1_000_000, blobs_left=9_000), 1_009_000 + 7_000_000),
        (ConversionCounts(blobs_written=10_000), 10_000 + 7_000_000),
    ],
)
@pytest.mark.parametrize("label", ["main", "0a448493b4782967b150582570326227"])
def test_flink_restores_the_entries_of_other_states_too(
    tmp_path: Path, label: str, counts: ConversionCounts, entries: int
) -> None:
    """The snapshot of a savepoint that names no operator calls it by its id, whatever the plan calls it."""
    run = a_run(tmp_path, 0, 1000)
    of_main = {"mainState": 10_000, "newMainState": 600_000, "sessions": 6_000_000}
    states = {f"{label}/{name}": of for name, of in of_main.items()} | {"sink/x": 1_000_000}
    sizes = {name: StateSize(of, 100 * of) for name, of in states.items()}
    run.keep(SnapshotFacts(states=sizes, met={f"{label}/mainState": InventoryCounts()}))
    run.keep(SourceLayout(7, {"main": (1, 128), "sink": (1, 128)}))
    assert flink_work(run).restore == pytest.approx(7_610_000 * 1.6e-6)
    run.keep(MigrateFacts(counts={"mainState": counts}), RescaleFacts())
    assert flink_work(run).restore == pytest.approx(entries * 1.6e-6)


def test_the_first_checkpoint_of_the_new_job_comes_within_its_interval(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0, 1000, rescale=1.0)
    run.keep(SavepointTaken(seconds=0.5, checkpoint_interval=60_000))
    start = predicted_after(run).parts["start_job"]
    assert (start.seconds, start.low, start.high) == (31.5, 0.375, 66.0)


def test_what_a_cut_over_took_is_held_against_what_the_runs_before_it_had_shown(tmp_path: Path) -> None:
    for number, seconds in enumerate((2.0, 4.0, 30.0)):
        a_run(tmp_path, number, 1000, take_savepoint=0.5, rescale=seconds)
    cut_over = a_run(tmp_path, 3, 2000, take_savepoint=3.0, snapshot=2.5, rescale=9.0, start_job=6.0)
    # What comes after it changes nothing of what was predicted for it.
    a_run(tmp_path, 4, 1000, rescale=1000.0, start_job=1000.0)
    said = "take_savepoint 3.0 s (predicted 0.5), snapshot 2.5 s (predicted 1.0), rescale 9.0 s (predicted 6.0)"
    assert time_line(part_times(cut_over)) == f"took: {said}, start_job 6.0 s (predicted 1.5)"
    (first,) = part_times(a_run(tmp_path / "of its own", 0, 1000))
    assert time_line([first]) == "took: snapshot 1.0 s"


def test_a_run_whose_facts_are_damaged_predicts_nothing(tmp_path: Path) -> None:
    a_run(tmp_path, 0, 1000, rescale=2.0)
    damaged = a_run(tmp_path, 1, 1000, rescale=50.0)
    file = damaged.file_of(SnapshotFacts)
    file.write_atomically(file.read().replace(b'"bytes": 1000', b'"bytes": "many"'))
    assert predicted(a_run(tmp_path, 2, 1000)).parts["rescale"].seconds == 2.0


def test_the_report_says_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    none = SavepointDigests("/in", 1, {})
    parts = {"rescale": Estimate(8.0, 7.0, 9.0, 3)}
    foreseen = Prediction(2000, 3, 1000, 1500, parts, parts["rescale"], parts["rescale"], ("snapshot", "start_job"))
    report = Report("orders", "one", "plan", 0, none, none, (), {}, prediction=foreseen)
    out = io.StringIO()
    show_report(Report.of_json(report.to_json()), out)
    told = out.getvalue()
    assert "a cut-over is likely to keep the job still for 8 s (7 to 9 s): rescale 8 s" in told
    assert "not in it, as no run has a time for it yet: snapshot, start_job" in told
    assert "this rests on the last 3 runs of this job, with 1,000 to 1,500 bytes of state; now there are 2,000" in told
    out = io.StringIO()
    show_report(report, out, is_over=True)
    told = out.getvalue()
    assert "this cut-over was expected to keep the job still for 8 s (7 to 9 s): rescale 8 s" in told
    assert "the whole run was expected to take 8 s (7 to 9 s)" in told
    assert "likely" not in told


def test_of_a_cut_over_that_catches_up_the_catch_ups_say_how_long_it_takes_and_of_others_they_say_nothing(
    tmp_path: Path,
) -> None:
    native, size = {"output_format": "native"}, 10**9
    conversion = ("snapshot", "migrate", "rescale", "validate")
    whole = a_run(tmp_path, 1, size, rehearse=True, **native, **dict.fromkeys(conversion, 100.0), take_savepoint=3.0)
    after_whole = predicted_after(whole)
    for number in (2, 3):
        last = a_run(tmp_path, number, size, rehearse=True, since="run-1", **native, **dict.fromkeys(conversion, 1.0))
    caught_up = predicted_after(last)
    for part in conversion:
        assert caught_up.parts[part].seconds == pytest.approx(1.0, abs=0.3)
        assert predicted_after(whole).parts[part].seconds == after_whole.parts[part].seconds == 100
    assert caught_up.outage is not None
    assert after_whole.outage is not None
    assert after_whole.outage.seconds - caught_up.outage.seconds == pytest.approx(396, abs=3)
    # Another rehearsal of everything isn't taken for a short one.
    night = a_run(tmp_path, 4, size, rehearse=True, **native)
    assert predicted(night).parts["migrate"].seconds == 100
