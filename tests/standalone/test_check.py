"""Mode *check only*, in Airflow: the savepoint is looked into by its path alone, and nothing else is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local_airflow.server import Server
from tests.standalone.migration import DAG, Migration
from tests.standalone.orders import Orders
from tests.support.legacy_states import LEGACY

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3000)]


@pytest.mark.full
def test_a_savepoint_is_looked_into(airflow: Server, job: str, tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint"
    Orders().write(savepoint)
    migration = Migration(airflow, job, {"source": "path", "savepoint": str(savepoint)})
    run = airflow.api.trigger(DAG, {**migration.source, "mode": "check only"})
    assert migration.end_of(run) == "success", migration.told(run)
    states = migration.states(run)
    assert {name for name, state in states.items() if state == "success"} == {"plan", "check", "conclude"}
    answer = migration.xcom(run, "conclude")
    assert answer["migratable"] == [f"main/{LEGACY}"]
    assert json.loads(Path(answer["report"]).read_text())["path"] == str(savepoint)
    said = migration.log(run, "conclude")
    assert f"- {LEGACY}: VALUE of Map<String,Long>" in said
    assert "how long a cut-over takes isn't known" in said
    note = airflow.api.get(f"/dags/{DAG}/dagRuns/{run}")["note"]
    assert note.startswith(f"check {savepoint}: 3 keyed states; can be migrated: {LEGACY} of main")
    assert not (airflow.settings.stateferry_home / "runs" / job).exists()
