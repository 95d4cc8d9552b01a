"""Every night, by the schedule: skipped as long as nothing is configured, else a rehearsal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from stateferry.runs.run_states import RunState
from tests.standalone.migration import DAG, STEPS, Migration, scheduled_run
from tests.standalone.orders import Orders, entries_of

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(3000)]


def test_an_unconfigured_night_is_skipped_and_a_configured_one_rehearses(
    migration: Migration, configured: Callable[[str], None]
) -> None:
    airflow = migration.airflow
    unconfigured = scheduled_run(airflow)
    assert migration.end_of(unconfigured) == "success"
    assert set(migration.states(unconfigured).values()) == {"skipped"}
    assert "nothing is configured: the Airflow variable state_migration is not set" in migration.log(
        unconfigured, "plan"
    )

    configured(json.dumps(migration.params()))
    # The schedule makes last night's run anew.
    airflow.api.call("DELETE", f"/dags/{DAG}/dagRuns/{quote(unconfigured, safe='')}")
    night = scheduled_run(airflow)
    assert migration.end_of(night) == "success", migration.told(night)
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
