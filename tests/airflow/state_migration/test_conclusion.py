"""How a run ended, as its last task tells it."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException
from state_migration.conclusion import Conclude
from state_migration.planning import Occasion, planned
from state_migration.request import MigrationRequest

from stateferry.runs.facts import SnapshotFacts, StateSize, TablesProblem
from stateferry.runs.prediction import PARTS
from stateferry.runs.publications import Control, Record
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run
from tests.airflow.state_migration.test_approval import context


def a_run(occasion: Occasion, request: MigrationRequest, **seconds: float) -> Run:
    run = planned(request, occasion)[1]
    assert run is not None
    for at, state in enumerate((RunState.RUNNING, RunState.VERIFIED)):
        run.enter(state, at)
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(1, 1000)}, seconds=1.0))
    kinds = {kind.name: kind for kind in PARTS}
    for part, taken in seconds.items():
        run.keep(kinds[part](seconds=taken))
    return run


@pytest.mark.usefixtures("home")
def test_each_part_of_a_cut_over_is_told_beside_what_was_predicted(
    occasion: Occasion, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(Occasion("a rehearsal", occasion.as_of), MigrationRequest().rehearsal(), take_savepoint=2.0)
    run = a_run(Occasion("later", occasion.as_of), MigrationRequest(), take_savepoint=3.0, start_job=4.0)
    run.enter(RunState.PUBLISHED, 3)
    said = Conclude(task_id="conclude").execute(context(run))
    assert said["times"] == {
        "take_savepoint": {"seconds": 3.0, "predicted": 2.0},
        "snapshot": {"seconds": 1.0, "predicted": 1.0},
        "start_job": {"seconds": 4.0, "predicted": None},
    }
    told = "took: take_savepoint 3.0 s (predicted 2.0), snapshot 1.0 s (predicted 1.0), start_job 4.0 s (not predicted)"
    assert told in capsys.readouterr().out


@pytest.mark.usefixtures("home")
def test_pending_tables_fail_the_dag_run_with_their_reason(occasion: Occasion) -> None:
    run = a_run(occasion, MigrationRequest())
    plan = run.plan
    record = Record(
        run_id=plan.run_id,
        plan_fingerprint=plan.fingerprint,
        source=plan.source,
        checkpoint_id=1,
        target=plan.target,
        metadata_digest="",
        tables={},
        tables_pending=True,
    )
    run.enter(RunState.PUBLISHED, 3)
    with Control(plan.catalog_uri) as control:
        held = control.acquire(plan.job, plan.run_id)
        control.publish(held, record, replaces=None)
        for reason in ("the task tables has not ended", "they failed their checks"):
            with pytest.raises(AirflowFailException, match=f"is not affected; but its tables are pending: {reason}"):
                Conclude(task_id="conclude").execute(context(run))
            run.keep(TablesProblem("they failed their checks"))
        control.complete(held, plan.run_id, {"orders.map_entry": 1})
        control.release(held)
    assert Conclude(task_id="conclude").execute(context(run))["state"] == "published"
