"""DAGs by import: what a team has in its own DAGs folder, loaded as Airflow loads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from stateferry.airflow.requests.request import migration_request
from tests.airflow.state_migration.test_jobs import REQUEST

REPOSITORY = Path(__file__).parents[3]


def documented() -> dict[str, str]:
    """The files that docs/airflow.md shows, by their names."""
    text = (REPOSITORY / "docs/airflow.md").read_text()
    section = text[text.index("### DAGs by import") :]
    return dict(re.findall(r"```python\n# ([a-z_]+\.py)\n(.*?)```", section, re.DOTALL))


def loaded(folder: Path) -> DagBag:
    # A file without the words dag and airflow isn't looked at.
    return DagBag(str(folder), safe_mode=True, known_pools={"default_pool", "stateferry_outage", "ferry"})


def test_two_lines_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = documented()
    assert sorted(files) == ["state_migration.py", "state_migration_configuration.py", "state_rollback.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert len([line for line in text.splitlines() if line]) == 2
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps({"jobs": {"orders": {"request": REQUEST}, "bad": {}}}))
    found = loaded(tmp_path)
    assert sorted(found.dags) == ["state_migration", "state_migration_orders", "state_rollback"]
    ((file, said),) = found.import_errors.items()
    assert Path(file).name == "state_migration_configuration.py"
    assert "jobs.bad: request: missing" in said


def test_the_file_that_tells_problems_makes_no_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it looks at own tasks by making the DAG that has them."""
    for name, text in documented().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "their_tasks.py").write_text((REPOSITORY / "examples/own_tasks.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    request = {"source": "flink", "flink_job": "orders", "savepoint_directory": "/savepoints", "operator": "main"}
    request |= {"legacy_state": "maps", "new_state": "rows", "runs_on": "own tasks"}
    job = {"own_tasks": "their_tasks", "request": {**request, "start_job": True}}
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps({"jobs": {"orders": job}}))
    found = loaded(tmp_path)
    assert found.import_errors == {}
    assert sorted(found.dags) == ["state_migration", "state_migration_orders", "state_rollback"]


def test_the_repositorys_own_files_are_these_lines() -> None:
    for name, text in documented().items():
        lines = (REPOSITORY / "dags" / name).read_text().splitlines()
        assert set(text.strip().splitlines()) <= set(lines)


def test_the_example_of_an_own_dag_is_one(tmp_path: Path) -> None:
    (tmp_path / "own_dag.py").write_text((REPOSITORY / "examples/own_dag.py").read_text())
    found = loaded(tmp_path)
    assert found.import_errors == {}
    assert sorted(found.dags) == ["orders_on_mondays", "state_migration", "state_rollback"]
    dag = found.dags["orders_on_mondays"]
    assert [(task.task_id, *task.downstream_task_ids) for task in dag.tasks] == [
        ("take_savepoint", "look"),
        ("look", "rehearse"),
        ("rehearse",),
    ]
    for name in ("look", "rehearse"):
        trigger: Any = dag.task_dict[name]
        conf = {**trigger.conf, "savepoint": "/savepoints/orders/savepoint-1"}
        assert migration_request(conf, "own_dag.py").savepoint == conf["savepoint"]
