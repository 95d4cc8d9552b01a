"""The DAG files: quickly imported, in the right order, and knowing neither Spark nor compiled kernels."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from airflow.sdk import DAG, BaseOperator
from state_migration.flink_tasks import TaskWithFlink

REPOSITORY = Path(__file__).parents[3]
DAGS = {"state_migration": "state_migration.py", "state_rollback": "state_rollback.py"}
_IMPORT = """
import json, sys, time
import airflow.sdk
began = time.process_time()
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__name__": "dag_file", "__doc__": ""})
print(json.dumps({"seconds": time.process_time() - began, "modules": sorted(sys.modules)}))
"""


def load(name: str) -> DAG:
    spec = importlib.util.spec_from_file_location(f"dag_file_{name}", REPOSITORY / "dags" / DAGS[name])
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dag: DAG = module.dag
    return dag


@pytest.mark.parametrize("name", DAGS)
def test_a_dag_is_imported_in_less_than_two_seconds_without_spark(name: str) -> None:
    command = [sys.executable, "-c", _IMPORT, str(REPOSITORY / "dags" / DAGS[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY / "plugins")
    said = json.loads(done.stdout.splitlines()[-1])
    assert not {"pyspark", "numba", "py4j", "spark_jobs", "pyiceberg"} & set(said["modules"])
    assert said["seconds"] < 2


def test_the_steps_come_in_order() -> None:
    dag = load("state_migration")
    order = ["plan", "take_savepoint", "snapshot", "migrate", "rescale", "validate", "approve", "cut_over", "start_job"]
    order += ["tables", "conclude"]
    for before, after in pairwise(order):
        assert after in dag.task_dict[before].downstream_task_ids
    # A cut-over skips migrate, a rehearsal what comes after validate; a cut-over need not start the job.
    for before, after in (("snapshot", "rescale"), ("validate", "cut_over"), ("cut_over", "tables")):
        assert after in dag.task_dict[before].downstream_task_ids
        assert dag.task_dict[after].trigger_rule == "none_failed_min_one_success"
    assert dag.task_dict["return_to_old_job"].upstream_task_ids == {"take_savepoint", "start_job"}
    assert [task.task_id for task in dag.leaves] == ["conclude"]


def test_who_ends_a_task_ends_no_job() -> None:
    tasks = [task for name in DAGS for task in load(name).tasks if isinstance(task, TaskWithFlink)]
    assert {task.task_id for task in tasks} == {
        *("take_savepoint", "start_job", "return_to_old_job", "cancel_new_job", "start_old_job")
    }
    assert all(type(task).on_kill is BaseOperator.on_kill for task in tasks)


def test_a_schedule_is_set_and_nothing_is_caught_up() -> None:
    dag = load("state_migration")
    assert dag.timetable is not None
    assert dag.timetable.can_be_scheduled
    assert dag.catchup is False
    assert dag.max_active_runs == 1


def test_a_lost_process_is_no_answer() -> None:
    """Neither to a question nor of a step."""
    for name in DAGS:
        assert load(name).task_dict["approve"].retries
    assert load("state_migration").task_dict["snapshot"].retries
