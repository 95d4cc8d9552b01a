"""Nights that catch up: what they leave is, entry by entry, what a night that converts everything leaves."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.files.storage import Location
from stateferry.cli import engine, main
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.predict import earlier_night
from stateferry.runs.record import runs
from stateferry.runs.record.facts import Began, CaughtUp, NightChoice
from stateferry.runs.record.run_list import find_run, runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.show.run_view import RunView
from stateferry.steps import catch_up, snapshot
from stateferry.steps.pipeline import Pipeline
from stateferry.steps.workers import InProcess
from stateferry.tables.iceberg.commits import TableHome
from tests.flink.judge import raw_entries
from tests.steps.test_nights_since import NOW, at_work, changed, first_state, run, totals, walked
from tests.support.facts import kept_facts
from tests.support.lazy_choices import choices_of, choosing_as
from tests.support.legacy_states import FLAG, LEGACY, NEW
from tests.support.native_nights import NightlyDatabase

pytestmark = pytest.mark.slow

NIGHT: dict[str, Any] = {"output_format": "native", "full_every": 4}


def night(source: Path, folder: Path, number: int, **options: Any) -> Run:
    report, found = run(source, folder, number, **(NIGHT | options))
    assert report.is_green, report.failed
    assert found.state is RunState.VERIFIED
    return found


def why_whole(of: Run) -> str:
    choice, facts = kept_facts(of, NightChoice), kept_facts(of, SnapshotFacts)
    expected = (
        f"everything: {choice.why_whole}" if choice.why_whole else f"only what has changed since run {of.plan.since}"
    )
    assert any(note.startswith("this night converts") and note.endswith(expected) for note in facts.notes), facts.notes
    assert (of.plan.since is None) == bool(choice.why_whole)
    return choice.why_whole


def rows(home: Path, job: str = "nights") -> Counter[Any]:
    """What the tables of the job hold, without the numbers of runs and the times at which they ran."""
    catalog = TableHome(f"sqlite:///{home / 'catalog.db'}", str(home / "warehouse")).catalog()
    found: Counter[Any] = Counter()
    (namespace,) = [one for of in catalog.list_namespaces((job,)) for one in catalog.list_namespaces(of) or [of]]
    for identifier in catalog.list_tables(namespace):
        for row in catalog.load_table(identifier).scan().to_arrow().to_pylist():
            kept = {name: value for name, value in row.items() if not name.startswith(("run", "_"))}
            found[identifier[-1], repr(sorted(kept.items()))] += 1
    return found


def entries(of: Run) -> Counter[Any]:
    return raw_entries(Path(of.staged.path))


@pytest.mark.parametrize("lazily", [{}, {"lazy": True, "share": 0.3}], ids=["all keys", "some keys"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 20))])
def test_nights_leave_what_nights_of_everything_leave(seed: int, lazily: dict[str, Any], tmp_path: Path) -> None:
    chosen, database = random.Random(seed), NightlyDatabase(tmp_path / "job")
    database.flush(first_state())
    reasons = []
    for number in range(6):
        if number:
            database.flush(changed(database.state, chosen, chosen.randrange(1, 12)))
        source = database.checkpoint(number)
        one = night(source, tmp_path / "since", number, **lazily)
        with choosing_as(base_of(one)):
            all_ = night(source, tmp_path / "whole", number, full_every=1, **lazily)
        assert entries(one) == entries(all_)
        assert rows(tmp_path / "since" / "home") == rows(tmp_path / "whole" / "home")
        assert len(rows(tmp_path / "whole" / "home")) > 400
        assert totals(one) == totals(all_)
        assert walked(one) == walked(all_)
        # Of a lazy catch-up it isn't known how many of all rows were written.
        assert RunView.of(one).rows_written in (RunView.of(all_).rows_written, *([None] if lazily else ()))
        reasons.append(why_whole(one))
    of_first, *others, of_fifth, of_sixth = reasons
    assert of_first == "there is no earlier run of the job"
    assert others == ["", "", ""]
    assert of_fifth == "one night in 4 does, and 3 since then didn't"
    assert of_sixth == ""


def base_of(of: Run) -> Run:
    """The night that has converted everything before this one, or itself."""
    while of.plan.since is not None:
        of = find_run(of.plan.home, of.plan.job, of.plan.since)
    return of


def database_of(folder: Path) -> NightlyDatabase:
    found = NightlyDatabase(folder / "job")
    found.flush(first_state())
    return found


def two(folder: Path, *, share: float = 0.02) -> tuple[Path, Path]:
    database = database_of(folder)
    first = database.checkpoint(1)
    database.flush(changed(database.state, random.Random(1), int(400 * share)))
    return first, database.checkpoint(2)


@pytest.mark.full
def test_a_night_says_why_it_converts_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two(tmp_path)
    night(first, tmp_path, 1)
    assert why_whole(night(second, tmp_path, 2, nulls="keep")) == (
        "run nights-1, the last one of the job, has another nulls"
    )
    soon_gone = tmp_path / "job" / "soon gone"
    shutil.copytree(second, soon_gone)
    assert why_whole(night(soon_gone, tmp_path, 3)) == "run nights-2, the last one of the job, has another nulls"
    shutil.rmtree(soon_gone)
    assert "isn't there any more as it was" in why_whole(night(second, tmp_path, 5))
    monkeypatch.setattr(earlier_night, "_version", lambda: "another")
    assert "another version made it" in why_whole(night(second, tmp_path, 6))
    last = find_run(str(tmp_path / "home"), "nights", "nights-6")
    last.note(RunState.FAILED, NOW, "its report is red")
    assert why_whole(night(second, tmp_path, 7)) == (
        "run nights-6, the last one of the job, isn't a green rehearsal: it is failed (its report is red)"
    )


@pytest.mark.full
def test_a_large_change_of_a_large_state_is_converted_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two(tmp_path, share=0.9)
    night(first, tmp_path / "small", 1)
    assert why_whole(night(second, tmp_path / "small", 2)) == ""
    monkeypatch.setattr(snapshot, "_SMALL", 0)
    night(first, tmp_path, 1)
    assert "or is a large part of it" in why_whole(night(second, tmp_path, 2))


def spoil(staged: Path) -> None:
    file = next(one for one in sorted(staged.iterdir()) if one.name.endswith(".sst"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("lazily", [{}, {"lazy": True, "share": 0.3}], ids=["all keys", "some keys"])
def test_what_a_step_finds_in_the_way_has_it_convert_everything(lazily: dict[str, Any], tmp_path: Path) -> None:
    # So that a whole lazy night chooses clearly other keys.
    first, second = two(tmp_path, share=0.4 if lazily else 0.02)
    base = night(first, tmp_path, 1, **lazily)
    spoil(Path(base.staged.path))
    found = night(second, tmp_path, 2, **lazily)
    assert ("that its checksum fits" if lazily else "bytes that were validated") in why_whole(found)
    assert not lazily or [one.last for one in choices_of(found)] != [one.last for one in choices_of(base)]
    assert found.plan.now == NOW + 2
    assert found.facts(CaughtUp) is None
    night(first, tmp_path / "whole", 1, full_every=1, **lazily)
    whole = night(second, tmp_path / "whole", 2, full_every=1, **lazily)
    assert entries(found) == entries(whole)
    assert rows(tmp_path / "home") == rows(tmp_path / "whole" / "home")


@pytest.mark.full
def test_a_refusal_while_files_are_written_has_it_convert_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise RefusedError("no: leave --since out, which converts everything")

    first, second = two(tmp_path)
    night(first, tmp_path, 1)
    monkeypatch.setattr(catch_up, "write", refuse)
    assert why_whole(night(second, tmp_path, 2)) == "no"
    monkeypatch.undo()
    # It is the base of the next one.
    third = night(second, tmp_path, 3)
    assert (why_whole(third), third.plan.since) == ("", "nights-2")


@pytest.mark.full
def test_a_catch_up_for_a_cut_over_that_did_not_follow_is_no_night(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    night(first, tmp_path, 1)
    prepared = night(second, tmp_path, 2, since="nights-1", full_every=None, now=NOW + 1)
    # It has no tables in a cut-over by the DAG.
    prepared.note(RunState.STAGED, NOW + 2)
    found = night(second, tmp_path, 3)
    assert (why_whole(found), found.plan.since) == ("", "nights-1")


@pytest.mark.full
def test_a_backfilled_day_converts_everything_by_its_own_now_and_so_does_the_night_after_it(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    night(first, tmp_path, 1)
    backfilled = night(second, tmp_path, 2, now_from="backfill")
    assert (why_whole(backfilled), backfilled.plan.now) == ("a backfilled day has a now of its own", NOW + 2)
    after = night(second, tmp_path, 3)
    assert why_whole(after) == "run nights-2, the last one of the job, is of a backfilled day"
    assert (after.plan.now, after.plan.now_from) == (NOW + 3, "clock")


def test_the_same_run_is_created_again_by_the_plan_that_it_was_given(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    night(first, tmp_path, 1)
    found = night(second, tmp_path, 2)
    found.keep(Began(5))
    given = found.plan.model_copy(update={"since": None, "now": NOW + 2})
    again = Run.create(given, NOW)
    assert (again.plan, again.facts(Began)) == (found.plan, Began(5))
    assert found.plan.now == NOW + 1


class KilledError(BaseException):
    """Ends the process, as far as the library can tell."""


def kill(*_: Any) -> Any:
    raise KilledError


def test_killed_when_it_has_begun_again_the_step_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two(tmp_path)
    base = night(first, tmp_path, 1)

    def steps(*steps: Step) -> Run:
        with at_work(second, tmp_path, 2, "nights", NIGHT) as work:
            # As the application of a step: it knows the plan from the run's folder alone.
            work.opened = None
            Pipeline(work).carry_out(*steps)
            return work.run

    assert steps(Step.SNAPSHOT).plan.since == "nights-1"
    spoil(Path(base.staged.path))
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "count", kill)
        with pytest.raises(KilledError):
            steps(Step.MIGRATE)
    steps(Step.MIGRATE)
    found = steps(Step.RESCALE, Step.VALIDATE, Step.TABLES)
    assert found.state is RunState.VERIFIED
    assert "bytes that were validated" in why_whole(found)


def command(source: Path, folder: Path, *more: str) -> int:
    given = ["run", "--rehearse", "--savepoint", source, "--target", folder / "target", "--format", "native"]
    given += ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG]
    given += ["--full-every", "7", "--job", "nights", "--no-timers", "--on-contradiction", "rows"]
    return main([str(part) for part in [*given, *more]])


@pytest.mark.full
def test_by_the_command(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source in two(tmp_path):
        assert command(source, tmp_path) == 0
    assert "this night converts only what has changed since run" in capsys.readouterr().out
    newest, before = runs_of(str(tmp_path / "home"), "nights")
    assert newest.plan is not None
    assert newest.plan.since == before.run_id


def test_a_now_of_its_own_is_refused_unless_everything_is_converted(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = two(tmp_path)
    assert command(first, tmp_path, "--now", str(NOW)) == 2
    assert "is given (--now), or give --full-every 1, which converts everything" in capsys.readouterr().err
    assert command(first, tmp_path, "--now", str(NOW), "--full-every", "1") == 0
    (night,) = runs_of(str(tmp_path / "home"), "nights")
    assert night.plan is not None
    assert night.plan.now == NOW


@pytest.mark.full
def test_the_command_is_given_again_after_the_base_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(engine, "local_workers", workers_with_a_head_start)
    first, second = two(tmp_path)
    assert command(first, tmp_path) == 0
    with monkeypatch.context() as patch:
        patch.setattr(catch_up, "write", kill)
        with pytest.raises(KilledError):
            command(second, tmp_path)
    killed, base = runs_of(str(tmp_path / "home"), "nights")
    assert (killed.state, killed.plan and killed.plan.since) == (RunState.RUNNING, base.run_id)
    find_run(str(tmp_path / "home"), "nights", base.run_id).staged.remove()
    assert command(second, tmp_path) == 0
    found = find_run(str(tmp_path / "home"), "nights", killed.run_id)
    assert found.state is RunState.VERIFIED
    assert why_whole(found).startswith("there is no savepoint at ")


@pytest.mark.full
@pytest.mark.parametrize("which", [1, pytest.param(2, marks=pytest.mark.full)])
def test_killed_when_it_gets_another_plan_the_same_command_goes_on(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First it becomes a catch-up; then, as a file of the base isn't what was validated, it converts everything."""
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(engine, "local_workers", workers_with_a_head_start)
    first, second = two(tmp_path)
    assert command(first, tmp_path) == 0
    (base,) = runs_of(str(tmp_path / "home"), "nights")
    spoil(Path(base.staged.path))
    written, times = runs._write, count(1)

    def killed_at_the_plan(file: Location, text: str) -> None:
        if file.name == "plan.json" and file.is_file() and next(times) == which:
            kill()
        written(file, text)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_write", killed_at_the_plan)
        with pytest.raises(KilledError):
            command(second, tmp_path)
    assert command(second, tmp_path) == 0
    found, _ = runs_of(str(tmp_path / "home"), "nights")
    assert "bytes that were validated" in why_whole(find_run(str(tmp_path / "home"), "nights", found.run_id))


def workers_with_a_head_start(_: str, __: Any, comes_first: ResolvedPlan | None = None) -> Any:
    """This process, which knows its first pieces of work as Spark's driver does."""
    if comes_first is not None:
        snapshot.first_work(comes_first, 1)
    return nullcontext(InProcess())
