"""Nights fill every slot of Airflow for minutes, and no task of a job that stands still waits for one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from local_airflow import __main__ as command
from local_airflow.api import ENDED
from local_airflow.server import Server, running
from local_airflow.settings import REPOSITORY, Settings, free_port
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import FAILING_JOB, NEW_JOB, RemoteJob, jobs
from tests.standalone.cut_over.ferry import PATIENCE, Ferry
from tests.standalone.migration import answer, wait_for_question

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(3000)]

# They end when they are told to, for the tasks before the stop, or after many minutes.
_NIGHTS = """
import time
from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG, task

with DAG("nights", schedule=None, start_date=datetime(2026, 1, 1), max_active_tasks=100) as dag:

    @task
    def night(number: int, dag_run=None) -> None:
        told, end = Path(dag_run.conf["folder"]) / str(number), time.monotonic() + 900
        while not told.exists() and time.monotonic() < end:
            time.sleep(0.2)

    night.expand(number=list(range(45)))
"""
JOB, DAG_OF_JOB = "held", "state_migration_held"
AFTER_STOP = ("snapshot", "migrate", "rescale", "validate", "cut_over", "start_job")
QUEUED_AT_MOST = 2.0
_AT_WORK = ("queued", "running", "restarting")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An Airflow with four slots, and a DAG that fills them; the job has a pool of its own."""
    home = tmp_path_factory.mktemp("airflow")
    dags = home / "dags"
    dags.mkdir()
    for file in (REPOSITORY / "dags").glob("*.py"):
        (dags / file.name).write_text(file.read_text())
    (dags / "nights.py").write_text(_NIGHTS)
    request = {"source": "flink", "flink_job": JOB, "savepoint_directory": "/savepoints", "operator": "main"}
    request |= {"legacy_state": "mainState", "new_state": "newMainState"}
    jobs = {JOB: {"request": request, "schedule": None, "pool": "ferry"}}
    extra = {"AIRFLOW__CORE__DAGS_FOLDER": str(dags), "AIRFLOW_VAR_STATE_MIGRATION": json.dumps({"jobs": jobs})}
    extra |= {
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
    }
    with running(Settings(home / "airflow", home / "stateferry", free_port(), extra=extra)) as server:
        server.api.call("POST", "/pools", {"name": "ferry", "slots": 2})
        for dag in ("nights", DAG_OF_JOB):
            server.api.wait_for_dag(dag, PATIENCE)
        yield server


@pytest.fixture
def left_as_before(busy: Server, flink: FlinkCluster) -> Iterator[None]:
    """No DAG run, no job and no full pool of a case is in the way of the next one, however the case ends."""
    yield
    if not busy.lives("scheduler"):
        command._is_there(busy)
    for dag in ("nights", DAG_OF_JOB):
        for run in unfinished(busy, dag):
            end_run(busy, dag, run)
    for job in jobs(flink):
        RemoteJob(flink, job).cancel()
    leave_in_pool(busy, 2)


@pytest.mark.usefixtures("left_as_before")
@pytest.mark.parametrize("new", [NEW_JOB, FAILING_JOB], ids=["to_the_new_job", "back_after_the_scheduler_was_lost"])
def test_no_task_of_a_stopped_job_waits_for_a_slot(busy: Server, flink: FlinkCluster, new: str, tmp_path: Path) -> None:
    fails, api = new == FAILING_JOB, busy.api
    connection = f"held_{fails}"
    ferry = Ferry.ready(busy, flink, connection, tmp_path, "--ttl-days", 30)
    old = ferry.start_old_job()
    run = api.trigger(
        DAG_OF_JOB, ferry.conf_of_cut_over(old, job=connection, ttl="30d", approval=True, entry_class=new)
    )
    wait_for_question(busy, DAG_OF_JOB, run, "decide")
    leave_in_pool(busy, 0)
    nights = api.trigger("nights", {"folder": str(tmp_path)})
    api.wait("nights", nights, lambda _, __: free_slots(busy, nights) <= 0, PATIENCE)
    answer(busy, DAG_OF_JOB, run, "Approve", "decide")
    make_room_until_the_stop(busy, run, tmp_path)

    if fails:
        until(busy, run, "start_job", "running")
        assert command._is_there(lost(busy))
        until(busy, run, "return_to_old_job", "success")
    else:
        until(busy, run, "start_job", "success")
    others = instances(busy, "nights", nights)
    # What follows needs no slot at once.
    end_run(busy, "nights", nights)
    leave_in_pool(busy, 2)
    assert api.wait_for_end(DAG_OF_JOB, run, PATIENCE) == ("failed" if fails else "success")

    tasks = api.tasks(DAG_OF_JOB, run)
    after_stop = (*AFTER_STOP, "return_to_old_job") if fails else AFTER_STOP
    # From when a task may run until it has a slot. How long its process then takes to start is the machine's affair,
    # and so is how often the scheduler looks: as often as before the nights, when slots were free.
    waits = {
        name: seconds(task, "scheduled_when", "queued_when") for name, task in tasks.items() if task["queued_when"]
    }
    quiet = max(wait for name, wait in waits.items() if name.startswith("rehearsal."))
    assert max(waits[name] for name in after_stop) <= QUEUED_AT_MOST + quiet, waits
    # The nights were in the way all the time, or this has shown nothing.
    assert [task["state"] for task in others].count("scheduled") > 20
    begin, end = tasks["take_savepoint"]["end_date"], tasks[after_stop[-1]]["start_date"]
    assert not [task for task in others if task["state"] == "success" and begin < task["end_date"] < end]
    ferry.check_that_nothing_was_lost("mainState" if fails else "newMainState")


def lost(airflow: Server) -> Server:
    """Its scheduler is killed."""
    os.kill(airflow.pid("scheduler"), signal.SIGKILL)
    # It isn't gone in the same moment.
    while airflow.lives("scheduler"):
        time.sleep(0.05)
    return airflow


def make_room_until_the_stop(airflow: Server, run: str, told: Path) -> None:
    """Ends a night after the other, until the tasks before the stop have had a slot; others take their place."""
    for number in range(10):
        (told / str(number)).touch()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if airflow.api.tasks(DAG_OF_JOB, run)["wait_to_stop"]["state"] in ("running", "success"):
                return
            time.sleep(0.5)
    raise TimeoutError("the cut-over has got no slot before the stop")


def leave_in_pool(airflow: Server, free: int) -> None:
    """Has the job's own pool so many slots. A scheduler that has just come back may hold the pools for a minute."""
    for trial in range(4):
        try:
            airflow.api.call("PATCH", "/pools/ferry", {"pool": "ferry", "slots": free, "include_deferred": False})
            return
        except TimeoutError:
            if trial == 3:
                raise


def until(airflow: Server, run: str, task: str, state: str) -> None:
    api = airflow.api
    tasks = api.wait(DAG_OF_JOB, run, lambda tasks, of_run: tasks[task]["state"] == state or of_run in ENDED, PATIENCE)
    assert tasks[task]["state"] == state


def instances(airflow: Server, dag: str, run: str) -> list[dict[str, Any]]:
    answered = airflow.api.get(f"/dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances?limit=100")
    found: list[dict[str, Any]] = answered["task_instances"]
    return found


def unfinished(airflow: Server, dag: str) -> list[str]:
    runs = airflow.api.get(f"/dags/{dag}/dagRuns?limit=100")["dag_runs"]
    return [run["dag_run_id"] for run in runs if run["state"] not in ENDED]


def end_run(airflow: Server, dag: str, run: str) -> None:
    """Ends it and its tasks."""
    airflow.api.call("PATCH", f"/dags/{dag}/dagRuns/{quote(run, safe='')}", {"state": "failed"})
    end = time.monotonic() + PATIENCE
    while any(task["state"] in _AT_WORK for task in instances(airflow, dag, run)):
        assert time.monotonic() < end, f"tasks of {run} don't end"
        time.sleep(0.5)


def free_slots(airflow: Server, nights: str) -> int:
    """Of the default pool."""
    slots = int(airflow.settings.environment()["AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT"])
    return slots - [task["state"] for task in instances(airflow, "nights", nights)].count("running")


def seconds(task: dict[str, Any], begin: str, end: str) -> float:
    since, until = (datetime.fromisoformat(task[name]) for name in (begin, end))
    return (until - since).total_seconds()
