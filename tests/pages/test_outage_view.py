"""Until when an outage probably takes, from what is over and what was predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateferry.runs.control.outage_limit import OutageExceeded, StopAsked
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.predict.estimates import OUTAGE, Estimate, Prediction
from stateferry.runs.record.facts import JobStarted, Returned, SavepointTaken
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.runs.report.decision import Answer, Decision
from stateferry.show.outage_section import outage_section
from stateferry.show.outage_view import CutOver, DagRunLook, Phase, TaskLook, cut_over_of

STOP = 1_000_000
PREDICTED = Prediction(1, parts={part.name: Estimate(10.0, 5.0, 30.0, 3) for part in OUTAGE})


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    """The run of a cut-over, and its rehearsal, on which it was approved."""

    def made(run_id: str, *, rehearse: bool) -> Run:
        values = {"job": "orders", "run_id": run_id, "now": 0, "home": str(tmp_path / "home"), "rehearse": rehearse}
        states = [{"operator": "main", "states": [{"legacy": "old", "new": "new"}]}]
        places = {"source": "/in", "target": f"/out/{run_id}"}
        return Run.create(plan_of({**values, **places, "operators": states}, "the plan"), 0)

    rehearsal = made("rehearsal", rehearse=True)
    rehearsal.keep(Decision("rehearsal", Answer.APPROVED, "approved by ada", 1, 0.1, PREDICTED))
    return made("final", rehearse=False), rehearsal


def look(*, is_active: bool = True, **states: str) -> DagRunLook:
    return DagRunLook("/run", is_active, {name: TaskLook(name, state) for name, state in states.items()})


def seen(runs: tuple[Run, ...], now: int, dag_run: DagRunLook | None = None) -> CutOver:
    found = cut_over_of(runs, dag_run or look(), now)
    assert found is not None
    return found


def test_what_is_over_counts_as_it_was_and_the_rest_as_predicted(runs: tuple[Run, Run]) -> None:
    final, rehearsal = runs
    assert seen(runs, STOP).phase is Phase.RUNS
    rehearsal.keep(StopAsked(STOP))
    assert seen(runs, STOP).until == (STOP + 70_000, STOP + 35_000, STOP + 210_000)
    # The savepoint took half of the time.
    final.keep(SavepointTaken(seconds=5.0, ended_at=STOP + 5_000, requested_at=STOP))
    found = seen(runs, STOP + 6_000)
    assert (found.phase, found.until) == (Phase.STANDS_STILL, (STOP + 65_000, STOP + 35_000, STOP + 185_000))
    assert [part.seconds for part in found.parts] == [5.0, None, None, None, None, None, None]
    # A part that takes longer than predicted may end now, and not before.
    late = seen(runs, STOP + 105_000)
    assert late.until == (STOP + 155_000, STOP + 130_000, STOP + 255_000)
    final.keep(SnapshotFacts(seconds=90.0, ended_at=STOP + 95_000))
    assert seen(runs, STOP + 96_000).until == (STOP + 145_000, STOP + 120_000, STOP + 245_000)


def test_nothing_is_expected_without_a_prediction(runs: tuple[Run, Run]) -> None:
    runs[1].keep(Decision("rehearsal", Answer.APPROVED, "approved by ada"), StopAsked(STOP))
    assert seen(runs, STOP).until is None
    assert "not known: no earlier run of this job has been timed" in outage_section(seen(runs, STOP), STOP)


def test_it_is_over_when_a_job_surely_runs(runs: tuple[Run, Run]) -> None:
    final, rehearsal = runs
    rehearsal.keep(StopAsked(STOP, 60_000, way_back=True))
    assert cut_over_of(runs, look(return_to_old_job="skipped"), STOP) is None
    final.keep(OutageExceeded(STOP, 60_000), Returned("the old job was started again", "/old"))
    assert seen(runs, STOP).phase is Phase.RETURNS
    # It is started, but may not run yet.
    assert seen(runs, STOP, look(is_active=False, return_to_old_job="failed")).phase is Phase.ABANDONED
    final.keep(Returned("the old job was started again", "/old", ended_at=STOP))
    assert cut_over_of(runs, look(), STOP) is None


def test_a_job_with_a_checkpoint_runs_and_a_cut_over_without_a_yes_is_none(runs: tuple[Run, Run]) -> None:
    final, rehearsal = runs
    rehearsal.keep(StopAsked(STOP))
    final.keep(JobStarted(seconds=1.0))
    assert cut_over_of(runs, look(), STOP) is None
    rehearsal.keep(Decision("rehearsal"))
    assert cut_over_of((rehearsal,), look(), STOP) is None
    assert cut_over_of((), look(), STOP) is None


def test_the_tasks_of_the_outage_are_at_work_and_helpers_only_if_there_is_no_other(runs: tuple[Run, Run]) -> None:
    runs[1].keep(StopAsked(STOP))
    busy = look(hold_slot="running", validate="queued", application="running", rescale="up_for_retry", tables="None")
    assert [one.name for one in seen(runs, STOP, busy).at_work] == ["rescale", "validate"]
    helpers = look(hold_slot="running", snapshot="success")
    assert [one.name for one in seen(runs, STOP, helpers).at_work] == ["hold_slot"]
