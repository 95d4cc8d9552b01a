"""Tasks that a person ends while they wait (marked as failed, cleared), and what another try finds then."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskDeferred

from stateferry.airflow.flink.identity import flink_id
from stateferry.airflow.flink.operators import FlinkCancelJobOperator
from stateferry.airflow.flink.task import task_key
from tests.airflow.flink_provider.conftest import end
from tests.airflow.flink_provider.test_savepoints import history
from tests.airflow.flink_provider.test_triggers import finished, rebuilt
from tests.airflow.flink_provider.tries import Try, complete, local, run_jar, running, savepoint
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, RemoteJob

pytestmark = pytest.mark.flink

# Nothing comes of it before the task is ended.
WAITS = {"poll_interval": 600, "timeout": 900}


@pytest.fixture(autouse=True)
def _all_end(cluster: FlinkCluster, connection: None) -> Iterator[None]:
    yield
    for job in cluster.get("/jobs/overview")["jobs"]:
        end(RemoteJob(cluster, job["jid"]))


@pytest.fixture
def job(cluster: FlinkCluster, jar: str, sink: Path) -> RemoteJob:
    job = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    job.wait_for_checkpoints(1)
    return job


@pytest.mark.parametrize(("stop", "state"), [(False, "RUNNING"), (True, "FINISHED")])
def test_a_savepoint_is_not_taken_twice(job: RemoteJob, tmp_path: Path, stop: bool, state: str) -> None:
    first, folder = Try(), tmp_path / "savepoints"
    task = (savepoint, (job.id, folder), {"stop": stop, **WAITS})
    assert ended_while_at_work(job.cluster, task, first, lambda: bool(history(job)))
    taken = savepoint(job.id, folder, stop=stop).execute(first.next().context)
    assert complete(folder) == [local(taken["savepoint"])]
    assert len({entry["id"] for entry in history(job)}) == 1
    # It goes on, or has stopped with the savepoint: nobody has cancelled it.
    assert job.status == state


@pytest.mark.parametrize("stop", [False, True])
def test_nor_is_one_that_the_triggerer_waits_for(job: RemoteJob, tmp_path: Path, stop: bool) -> None:
    first, operator = Try(), savepoint(job.id, tmp_path, stop=stop, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(first.context)
    asyncio.run(rebuilt(deferred.value.trigger).on_kill())
    taken = finished(operator, first.next())
    assert complete(tmp_path) == [local(taken["savepoint"])]
    assert len({entry["id"] for entry in history(job)}) == 1


@pytest.mark.parametrize(("cancel", "runs_on"), [(False, True), (True, False)])
def test_a_job_runs_on_unless_it_is_to_be_cancelled(
    cluster: FlinkCluster, jar: str, sink: Path, cancel: bool, runs_on: bool
) -> None:
    first, arguments = Try(), ["--sink", str(sink)]
    task = (run_jar, (arguments,), {"wait_until": "finished", "cancel_on_kill": cancel, **WAITS})
    job = RemoteJob(cluster, flink_id("job", *task_key(first.context)))
    assert ended_while_at_work(cluster, task, first, lambda: running(cluster) == [job.id])
    if runs_on:
        assert run_jar(arguments).execute(first.next().context)["job_id"] == job.id
        assert running(cluster) == [job.id]
    else:
        cluster.wait_until("the job is cancelled", lambda: job.status == "CANCELED")


def test_a_job_that_is_being_cancelled_is_no_other_for_the_next_try(job: RemoteJob) -> None:
    first = Try()
    task = (FlinkCancelJobOperator, (), {"task_id": "task", "job": job.id, **WAITS})
    ended_while_at_work(job.cluster, task, first, lambda: job.status != "RUNNING")
    again = FlinkCancelJobOperator(task_id="task", job=job.id, poll_interval=0.1)
    assert again.execute(first.next().context) == {"job_id": job.id, "state": "CANCELED"}


def ended_while_at_work(cluster: FlinkCluster, task: Any, of: Try, when: Callable[[], bool]) -> bool:
    """As Airflow's supervisor does it: the task hears of it by SIGTERM, and is killed if it is still there then."""
    process = multiprocessing.get_context("spawn").Process(target=_execute, args=(task, of))
    process.start()
    try:
        cluster.wait_until("the task is at work", when)
        was_at_work = process.is_alive()
        process.terminate()
        process.join(3)
    finally:
        process.kill()
        process.join()
    return was_at_work


def _execute(task: Any, of: Try) -> None:
    make, arguments, named = task
    operator: BaseOperator = make(*arguments, **named)
    ExecutorSafeguard.test_mode = True
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    operator.execute(of.context)
