"""A person's yes publishes; a no, and no answer in time, end the run as rejected. A rollback asks in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateferry.runs.record.run_states import RunState
from tests.standalone.migration import BEFORE_PUBLICATION, DAG, PATIENCE, ROLLBACK, Migration, answer, log_of
from tests.standalone.orders import Orders, entries_of

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(3000)]


def test_what_is_approved_is_published_and_can_be_rolled_back(migration: Migration) -> None:
    run = migration.trigger()
    migration.wait_for(run, "approve", "awaiting_input")
    plan = migration.run_of(run).plan
    question = migration.question(run)
    assert question["subject"] == f"Cut over job {migration.job}?"
    assert "**The report is green**" in question["body"]
    assert plan.source in question["body"]
    assert question["options"] == ["Approve", "Reject"]
    assert migration.published() is None
    assert not Path(plan.target, "_metadata").exists()
    assert migration.lease_holder() is None, "while people think, the job is free"

    migration.answer(run, "Approve")
    assert migration.end_of(run) == "success", migration.told(run)
    publication = migration.published()
    assert publication is not None
    assert publication.record.target == plan.target
    assert entries_of(Path(plan.target)) == Orders().entries
    assert migration.in_tables(migration.run_of(run)) == Orders().entries
    assert [change.state for change in migration.run_of(run).changes()][-2:] == [RunState.APPROVED, RunState.PUBLISHED]

    facts = {step: migration.xcom(run, step) for step in (*BEFORE_PUBLICATION, "tables")}
    assert all(of_step["seconds"] > 0 for step, of_step in facts.items() if step != "rescale")
    assert facts["migrate"]["rows"] == len(Orders().entries)
    assert {"rows", "bytes", "rate"} <= facts["snapshot"].keys()
    events = migration.airflow.api.get("/assets/events?order_by=-timestamp&limit=2")["asset_events"]
    assert {event["name"] for event in events} == {"stateferry_published_savepoint", "stateferry_state_tables"}
    assert all(event["extra"]["target"] == plan.target for event in events)

    _refused_rollback_changes_nothing(migration)
    _rollback(migration, plan.source)


def _refused_rollback_changes_nothing(migration: Migration) -> None:
    api, before = migration.airflow.api, migration.published()
    run = api.trigger(ROLLBACK, {"job": migration.job})
    answer(migration.airflow, ROLLBACK, run, "Reject")
    assert api.wait_for_end(ROLLBACK, run, PATIENCE) == "failed"
    assert migration.published() == before


def _rollback(migration: Migration, source: str) -> None:
    api = migration.airflow.api
    run = api.trigger(ROLLBACK, {"job": migration.job})
    api.wait(ROLLBACK, run, lambda tasks, _: tasks["plan"]["state"] == "success", PATIENCE)
    said = log_of(migration.airflow, ROLLBACK, run, "plan")
    assert f"the job starts again from {source} (checkpoint 1)" in said
    assert "the job reads input since checkpoint 1 again" in said
    answer(migration.airflow, ROLLBACK, run, "Approve")
    assert api.wait_for_end(ROLLBACK, run, PATIENCE) == "success"
    assert api.xcom(ROLLBACK, run, "roll_back")["savepoint"] == source
    assert migration.published() is None


def test_no_answer_in_time_and_a_no_end_the_run_as_rejected_for_good(migration: Migration) -> None:
    run = migration.trigger(approval_timeout="30s")
    assert migration.end_of(run) == "failed"
    _check_rejected(migration, run, "no answer came in time")

    for option, reason in (("Reject", "rejected by admin"), ("Approve", "can't become approved")):
        _ask_again(migration, run)
        migration.answer(run, option)
        assert migration.end_of(run) == "failed"
        assert reason in migration.log(run, "approve")
        _check_rejected(migration, run, "rejected by admin")


def _ask_again(migration: Migration, run: str) -> None:
    """As a person does who clears the task, with what comes after it."""
    path = f"/dags/{DAG}/clearTaskInstances"
    body = {"dag_run_id": run, "task_ids": ["approve"], "include_downstream": True, "only_failed": False}
    migration.airflow.api.call("POST", path, {**body, "dry_run": False, "reset_dag_runs": True})
    migration.wait_for(run, "approve", "awaiting_input")


def _check_rejected(migration: Migration, run: str, reason: str) -> None:
    last = migration.run_of(run).changes()[-1]
    assert (last.state, last.reason) == (RunState.REJECTED, reason)
    states = migration.states(run)
    assert {states[step] for step in BEFORE_PUBLICATION} == {"success"}
    assert (states["approve"], states["cut_over"], states["conclude"]) == ("failed", "upstream_failed", "failed")
    assert reason in migration.log(run, "approve")
    assert reason in migration.log(run, "conclude")
    assert migration.published() is None
    assert not Path(migration.run_of(run).plan.target, "_metadata").exists()
    assert migration.airflow.api.run(DAG, run)["state"] == "failed"
