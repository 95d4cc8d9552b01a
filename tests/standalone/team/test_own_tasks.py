"""A team's own tasks, by a real Airflow and real Flink: a copy of the example stops, starts and brings back a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from local_airflow.server import Server
from local_airflow.settings import REPOSITORY
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import FAILING_JOB, LEGACY_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.conftest import flink as flink
from tests.standalone.cut_over.ferry import PATIENCE, Ferry
from tests.standalone.cut_over.test_with_airflow import check_that_it_started_from_what_was_published
from tests.standalone.migration import log_of
from tests.standalone.team.events import ends, inputs, outputs

pytestmark = [
    *(pytest.mark.full, pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark),
    pytest.mark.timeout(1800),
]
EXAMPLE = REPOSITORY / "examples" / "own_tasks.py"
STOP, START = ("stop_asked", "own_stop.stop", "take_savepoint"), ("start_asked", "own_start.start", "start_job")
BACK = ("return_asked", "own_return.end_new_job", "own_return.start_old_job", "return_to_old_job")


@pytest.fixture
def ready(
    airflow: Server, flink: FlinkCluster, configured: Callable[[str], None], tmp_path: Path
) -> Callable[[str, str], Ferry]:
    """Configures a job with own tasks, which start this class as the new job."""

    def made(job: str, new_job: str) -> Ferry:
        ferry = replace(Ferry.ready(airflow, flink, job, tmp_path), dag=f"state_migration_{job}")
        own = {"FLINK": job, "JAR": ferry.jar, "OLD": LEGACY_JOB, "NEW": new_job, "ARGUMENTS": ferry.arguments.split()}
        copy = Path(airflow.settings.environment()["AIRFLOW__CORE__DAGS_FOLDER"]) / f"{job}_tasks.py"
        copy.write_text("\n".join([EXAMPLE.read_text(), *(f"{name} = {value!r}" for name, value in own.items()), ""]))
        request: dict[str, object] = {
            "source": "flink",
            "flink_conn_id": job,
            "flink_job": "totals",
            "runs_on": "own tasks",
        }
        request |= {"savepoint_directory": flink.savepoints_uri, "start_job": True}
        request |= {"operator": "main", "legacy_state": "mainState", "new_state": "newMainState"}
        configured(json.dumps({"jobs": {job: {"own_tasks": copy.stem, "request": request, "schedule": None}}}))
        airflow.api.wait_for_dag(ferry.dag, PATIENCE)
        return ferry

    return made


def cut_over(ferry: Ferry) -> str:
    return ferry.airflow.api.trigger(ferry.dag, {"mode": "cut over", "approval": False})


def states(ferry: Ferry, run: str, *names: str) -> list[str]:
    tasks = ferry.airflow.api.tasks(ferry.dag, run)
    return [tasks[name]["state"] for name in names]


def restored_from(job: RemoteJob) -> str:
    return str(job.cluster.get(f"/jobs/{job.id}/checkpoints")["latest"]["restored"]["external_path"])


def test_own_tasks_stop_the_old_job_and_start_the_new_one(ready: Callable[[str, str], Ferry], events: Path) -> None:
    ferry = ready("settled", NEW_JOB)
    old = ferry.start_old_job()
    run = cut_over(ferry)
    assert ferry.end_of(run) == "success", ferry.logs(run)
    assert set(states(ferry, run, *STOP, *START, "tables")) == {"success"}
    assert set(states(ferry, run, *BACK)) == {"skipped"}
    tasks = ferry.airflow.api.tasks(ferry.dag, run)
    # They wait for nobody's slot while the job stands still.
    assert {tasks[name]["pool"] for name in (*STOP, *START, *BACK)} == {"stateferry_outage"}
    assert tasks["own_start.start"]["priority_weight"] == tasks["start_job"]["priority_weight"] > 1_000_000

    publication, new = ferry.published(), ferry.running()
    assert publication is not None
    stopped = ferry.xcom(run, "own_stop.stop")
    assert (old.status, stopped["job_id"]) == ("FINISHED", old.id)
    assert stopped["savepoint"] == f"file:{publication.record.source}"
    assert ferry.xcom(run, "start_asked", "savepoint") == publication.record.target
    assert ferry.xcom(run, "own_start.start")["job_id"] == new.id
    check_that_it_started_from_what_was_published(ferry, run, new)
    told = ends(ferry.airflow, events, ferry.dag, run)
    assert list(outputs(told["own_stop.stop"])) == [("file", publication.record.source)]
    assert list(inputs(told["own_start.start"])) == [("file", publication.record.target)]
    ferry.check_that_nothing_was_lost("newMainState")


def test_own_tasks_bring_the_old_job_back_when_the_new_one_fails(
    ready: Callable[[str, str], Ferry], events: Path
) -> None:
    ferry = ready("unsettled", FAILING_JOB)
    old = ferry.start_old_job()
    run = cut_over(ferry)
    assert ferry.end_of(run) == "failed"
    assert set(states(ferry, run, *STOP, "cut_over", "start_asked", *BACK)) == {"success"}, ferry.logs(run)
    assert states(ferry, run, "own_start.start", "start_job", "tables") == ["failed", *2 * ["upstream_failed"]]
    assert "the price list cannot be found" in log_of(ferry.airflow, ferry.dag, run, "own_start.start")

    failed, back = RemoteJob(ferry.cluster, ferry.xcom(run, "own_start.start", "job_id")), ferry.running()
    assert old.status == "FINISHED"
    # Flink may have given it up before it is cancelled.
    assert failed.status in ("CANCELED", "FAILED")
    stopped = ferry.xcom(run, "own_stop.stop")["savepoint"]
    asked = {key: ferry.xcom(run, "return_asked", key) for key in ("savepoint", "old_job", "new_job_asked")}
    assert asked == {"savepoint": stopped, "old_job": old.id, "new_job_asked": True}
    assert ferry.xcom(run, "return_to_old_job")["job_id"] == back.id
    assert restored_from(back) == stopped
    assert ferry.published() is None
    told = ends(ferry.airflow, events, ferry.dag, run)
    start = told["own_start.start"]
    assert (start["eventType"], len(inputs(start))) == ("FAIL", 1)
    assert list(inputs(told["own_return.start_old_job"])) == [("file", stopped.removeprefix("file:"))]
    ferry.check_that_nothing_was_lost("mainState")
