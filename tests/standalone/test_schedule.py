"""Every night, by the schedule: nothing as long as nothing is configured, else a rehearsal; each job by its own DAG."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from local_airflow.server import Server
from stateferry.runs.record.run_states import RunState
from tests.standalone.migration import PATIENCE, STEPS, Migration, scheduled_run, scheduled_runs
from tests.standalone.orders import Orders, entries_of

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(3000)]


@pytest.mark.full
def test_an_unconfigured_night_has_no_run_and_a_configured_one_rehearses(
    migration: Migration, configured: Callable[[str], None]
) -> None:
    airflow = migration.airflow
    assert scheduled_runs(airflow) == []

    configured(json.dumps(migration.params()))
    # The schedule makes last midnight's run when it appears.
    night = scheduled_run(airflow)
    assert migration.end_of(night) == "success", migration.told(night)
    assert "this run is scheduled: it rehearses what is configured in the Airflow variable" in migration.log(
        night, "plan"
    )
    states = migration.states(night)
    assert {step: states[step] for step in STEPS} == dict.fromkeys(STEPS, "success")
    assert {states[task] for task in ("approve", "cut_over", "start_job", "tables")} == {"skipped"}
    run = migration.run_of(night)
    assert run.plan.rehearse
    assert run.state is RunState.VERIFIED
    assert entries_of(Path(run.staged.path)) == Orders().entries
    assert migration.in_tables(run) == Orders().entries
    assert migration.published() is None
    assert not Path(run.plan.target).exists()


# A plain run of the tests makes the DAGs of two jobs in `test_pages.py`; what is told of them is in
# `tests/airflow/state_migration`.
@pytest.mark.full
def test_each_job_has_a_dag_and_a_mistake_in_one_is_told_and_leaves_the_others(
    airflow: Server, configured: Callable[[str], None]
) -> None:
    nowhere = {"source": "path", "savepoint": "/nowhere", "operator": "main", "legacy_state": "a", "new_state": "b"}
    jobs = {
        "carts": {"request": nowhere, "schedule": "30 2 * * *", "timezone": "Europe/Berlin"},
        "baskets": {"request": {**nowhere, "sauce": "x"}},
    }
    configured(json.dumps({"jobs": jobs}))
    night = scheduled_run(airflow, "state_migration_carts")
    # It finds no savepoint; which one it looked for shows that the request is its own.
    assert airflow.api.wait_for_end("state_migration_carts", night, PATIENCE) == "failed"
    assert "/nowhere is no savepoint" in airflow.api.log("state_migration_carts", night, "plan")
    check_that_missed_nights_are_told(airflow, "state_migration_carts", night)
    params = airflow.api.get("/dags/state_migration_carts/details")["params"]
    assert params["savepoint"]["value"] == "/nowhere"
    assert "state_migration_baskets" not in {dag["dag_id"] for dag in airflow.api.get("/dags")["dags"]}
    assert scheduled_runs(airflow) == []


def check_that_missed_nights_are_told(airflow: Server, dag: str, night: str) -> None:
    """Before the night, there was a run three nights ago, and none since."""
    runs = f"/dags/{dag}/dagRuns"
    last = datetime.fromisoformat(airflow.api.get(f"{runs}/{quote(night, safe='')}")["logical_date"])
    earlier = {"logical_date": (last - timedelta(days=3)).isoformat(), "dag_run_id": "three-nights-ago"}
    airflow.api.call("POST", runs, earlier)
    airflow.api.wait_for_end(dag, "three-nights-ago", PATIENCE)
    again = {"dag_run_id": night, "task_ids": ["plan"], "only_failed": False}
    again |= {"include_downstream": True, "dry_run": False, "reset_dag_runs": True}
    airflow.api.call("POST", f"/dags/{dag}/clearTaskInstances", again)
    airflow.api.wait_for_end(dag, night, PATIENCE)
    said = airflow.api.log(dag, night, "plan", 2)
    missed = [f"{last - timedelta(days=ago):%Y-%m-%d %H:%M} UTC" for ago in (1, 2)]
    assert f"2 scheduled runs of job carts didn't take place: {', '.join(missed)}. Airflow was stopped" in said


@pytest.mark.full
def test_what_is_wrong_in_the_configuration_is_an_import_error(
    airflow: Server, configured: Callable[[str], None]
) -> None:
    configured(json.dumps({"jobs": {"orders": {"request": {"sauce": "x"}}}}))
    end = time.monotonic() + PATIENCE
    while not (errors := airflow.api.get("/importErrors")["import_errors"]):
        assert time.monotonic() < end, "Airflow shows no import error"
        time.sleep(1)
    assert "jobs.orders.request: sauce: unknown field" in errors[0]["stack_trace"]
