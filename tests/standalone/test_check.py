"""Mode *check only*, in Airflow: the savepoint is looked into by its path alone, and nothing else is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from local_airflow.server import Server
from stateferry.cli import main
from tests.standalone.migration import DAG, Migration
from tests.standalone.orders import Orders
from tests.support.legacy_states import LEGACY

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
JAR = Path(__file__).parents[1] / "kryo" / "totals-classes.jar"
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


@pytest.mark.full
def test_what_another_flink_does_with_it_is_what_the_command_says(
    airflow: Server, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    savepoint = tmp_path / "savepoint"
    shutil.copytree(SAVEPOINTS / "in-objects-1.20-rocksdb", savepoint)
    migration = Migration(airflow, job, {"source": "path", "savepoint": str(savepoint)})
    run = airflow.api.trigger(
        DAG, {**migration.source, "mode": "check only", "to": "flink-2", "classes": str(JAR), "read_all": True}
    )
    assert migration.end_of(run) == "success", migration.told(run)
    answer = migration.xcom(run, "conclude")
    capsys.readouterr()
    assert main(["check", str(savepoint), "--for", "flink-2", "--classes", str(JAR), "--all", "--json"]) == 1
    wanted = json.loads(capsys.readouterr().out)
    assert wanted["counts"] == {"refused": 2}
    assert json.loads(Path(answer["report"]).read_text())["verdict"] == wanted
    assert answer["verdict"] == wanted
    said = migration.log(run, "conclude")
    assert "in Flink 2.3, of its states: 2 is refused at the start" in said
    for state in wanted["states"]:
        assert f"- {state['operator']}: {state['state']}: is refused at the start: {state['reason']}" in said
