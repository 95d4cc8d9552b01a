"""Jobs on a real cluster: started once, cancelled, waited for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from stateferry.airflow.flink.errors import FlinkError, FlinkJobError, FlinkTimeoutError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.identity import flink_id
from stateferry.airflow.flink.jobs import Goal, JarRun
from stateferry.airflow.flink.operators import FlinkCancelJobOperator
from stateferry.airflow.flink.sensors import FlinkJobSensor
from tests.airflow.flink_provider.conftest import end
from tests.airflow.flink_provider.tries import Try, run_jar, running
from tests.flink.cluster import FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import FAILING_JOB, LEGACY_JOB, RemoteJob

pytestmark = pytest.mark.flink


@pytest.fixture(autouse=True)
def _all_end(cluster: FlinkCluster, connection: None) -> Iterator[None]:
    yield
    for job in cluster.get("/jobs/overview")["jobs"]:
        end(RemoteJob(cluster, job["jid"]))


@pytest.fixture
def arguments(sink: Path) -> list[str]:
    return ["--sink", str(sink)]


def test_starts_a_job_once(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    first = Try()
    operator = run_jar(arguments, wait_until="checkpoint")
    result = operator.execute(first.context)
    assert running(cluster) == [result["job_id"]] == [first.pushed["job_id"]]
    assert result["state"] == "RUNNING"
    assert FlinkHook().has_checkpointed(result["job_id"])
    assert operator.execute(first.next().context)["job_id"] == result["job_id"]
    assert running(cluster) == [result["job_id"]]


def test_another_run_starts_another_job(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    started = {run_jar(arguments).execute(Try().context)["job_id"] for _ in range(2)}
    assert started == set(running(cluster))
    assert len(started) == 2


def test_two_tries_at_a_time_start_one_job(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    first = Try()
    with ThreadPoolExecutor(2) as threads:
        started = list(threads.map(lambda each: run_jar(arguments).execute(each.context), [first, first.next()]))
    assert {result["job_id"] for result in started} == set(running(cluster))
    assert len(running(cluster)) == 1


def test_a_lost_answer_starts_no_second_job(
    cluster: FlinkCluster, jar: str, arguments: list[str], through_proxy: Proxy
) -> None:
    through_proxy.lost = 1
    result = run_jar(arguments, jar=jar).execute(Try().context)
    assert through_proxy.lost == 0
    assert running(cluster) == [result["job_id"]]


def test_a_try_that_died_before_it_could_write_anything_down(
    cluster: FlinkCluster, jar: str, arguments: list[str]
) -> None:
    first = Try()
    started = run_jar(arguments).execute(first.context)["job_id"]
    first.store.held.clear()
    assert run_jar(arguments).execute(first.next().context)["job_id"] == started
    assert running(cluster) == [started]


def test_a_job_neither_claims_nor_deletes_its_savepoint(
    cluster: FlinkCluster, jar: str, arguments: list[str], tmp_path: Path
) -> None:
    savepoint = _savepoint(cluster, jar, arguments)
    slowly = [*arguments, "--checkpoint-millis", "3000"]
    started = run_jar(slowly, savepoint=str(savepoint)).execute(Try().context)["job_id"]
    # What a job was restored from is no checkpoint of its own.
    assert not FlinkHook().has_checkpointed(started)
    before = {path: path.read_bytes() for path in savepoint.rglob("*") if path.is_file()}
    result = run_jar(arguments, savepoint=str(savepoint), wait_until="checkpoint").execute(Try().context)
    job = RemoteJob(cluster, result["job_id"])
    restored = cluster.get(f"/jobs/{job.id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"] == f"file:{savepoint}"
    job.wait_for_checkpoints(3)
    job.cancel()
    assert {path: path.read_bytes() for path in savepoint.rglob("*") if path.is_file()} == before


def test_state_that_finds_no_place_is_not_left_behind(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    savepoint = _savepoint(cluster, jar, arguments)
    operator = run_jar([*arguments, "--uid", "other"], savepoint=str(savepoint))
    for attempt in (first := Try(), first.next()):
        with pytest.raises(AirflowFailException, match="Cannot map checkpoint/savepoint state for operator"):
            operator.execute(attempt.context)
        assert FlinkHook().job_state(attempt.pushed["job_id"]) == "FAILED"
        assert not FlinkHook().has_checkpointed(attempt.pushed["job_id"])


def test_a_job_that_fails_says_why_and_is_not_started_again(
    cluster: FlinkCluster, jar: str, arguments: list[str]
) -> None:
    first = Try()
    operator = run_jar(arguments, FAILING_JOB, wait_until="checkpoint")
    words = "has failed: .*the price list cannot be found"
    with pytest.raises(AirflowFailException, match=words):
        operator.execute(first.context)
    assert not FlinkHook().has_checkpointed(first.pushed["job_id"])
    jobs = len(cluster.get("/jobs/overview")["jobs"])
    with pytest.raises(AirflowFailException, match=words):
        operator.execute(first.next().context)
    assert len(cluster.get("/jobs/overview")["jobs"]) == jobs


def test_a_job_that_is_restarted_when_it_fails_is_given_up(jar: str, arguments: list[str]) -> None:
    for_ever = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000000"}
    for_ever["restart-strategy.fixed-delay.delay"] = "200 ms"
    operator = run_jar(arguments, FAILING_JOB, wait_until="checkpoint", configuration=for_ever, max_failures=2)
    first = Try()
    with pytest.raises(AirflowFailException, match=r"has failed 3 times, .* the 2 that are allowed.*the price list"):
        operator.execute(first.context)
    job_id = first.pushed["job_id"]
    with pytest.raises(FlinkTimeoutError, match=r"newest failure: .*the price list"):
        FlinkHook().wait_for(job_id, Goal(checkpoint=True), timeout=1, poll_interval=0.1)
    assert FlinkHook().cancel(job_id, timeout=200, poll_interval=0.1) == "CANCELED"
    assert not FlinkHook().has_checkpointed(job_id)


def test_a_program_that_does_not_come_as_far_as_a_job(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    first = Try()
    with pytest.raises(AirflowFailException, match="--sink is missing"):
        run_jar(["--zink", "nowhere"]).execute(first.context)
    assert first.pushed["job_id"] is None
    # Its id is still free.
    assert run_jar(arguments).execute(first.next().context)["state"] == "RUNNING"


def test_an_unknown_jar_is_answered_with_those_there_are(cluster: FlinkCluster, jar: str) -> None:
    with pytest.raises(FlinkError, match=r"no jar 'total.jar' was uploaded to .*; Flink has these jars: totals.jar"):
        run_jar([], jar="total.jar").execute(Try().context)


def test_cancels_a_job(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    job_id = run_jar(arguments).execute(Try().context)["job_id"]
    cancel = FlinkCancelJobOperator(task_id="task", job="totals", poll_interval=0.1)
    first = Try()
    assert cancel.execute(first.context) == {"job_id": job_id, "state": "CANCELED"}
    successor = run_jar(arguments).execute(Try().context)["job_id"]
    # A retry means the same job, not the one that has the name now.
    assert cancel.execute(first.next().context) == {"job_id": job_id, "state": "CANCELED"}
    assert running(cluster) == [successor]


def test_a_task_that_is_killed_cancels_its_job_if_it_is_to(
    cluster: FlinkCluster, jar: str, arguments: list[str]
) -> None:
    for cancel, states in ((False, {"RUNNING"}), (True, {"CANCELED", "CANCELLING"})):
        operator = run_jar(arguments, cancel_on_kill=cancel)
        job_id = operator.execute(Try().context)["job_id"]
        operator.on_kill()
        assert FlinkHook().job_state(job_id) in states


def sensor(job: str, **more: Any) -> FlinkJobSensor:
    return FlinkJobSensor(task_id="task", job=job, **{"poke_interval": 0.1, "timeout": 60} | more)


def test_waits_for_a_job_that_somebody_starts(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    job_id = flink_id("later", Try().run_id)
    run = JarRun(job_id, jar, LEGACY_JOB, arguments, 2)
    later = Timer(1, lambda: FlinkHook().run_jar(run))
    later.start()
    sensor(job_id, checkpoint=True).execute(Try().context)
    later.join()
    assert FlinkHook().has_checkpointed(job_id)
    with pytest.raises(AirflowSensorTimeout):
        sensor(job_id, states=["FINISHED"], timeout=1).execute(Try().context)
    sensor(job_id, states=["FINISHED", "RUNNING"]).execute(Try().context)
    FlinkHook().cancel(job_id, timeout=200)
    with pytest.raises(AirflowFailException, match=f"job {job_id} is CANCELED; expected: RUNNING"):
        sensor(job_id).execute(Try().context)
    sensor(job_id, states=["CANCELED"]).execute(Try().context)


def test_from_python(cluster: FlinkCluster, jar: str, arguments: list[str]) -> None:
    hook = FlinkHook()
    run = JarRun(flink_id("test", Try().run_id), jar, FAILING_JOB, arguments)
    assert hook.job_state(run.job_id) is None
    assert hook.run_jar(run)
    assert not hook.run_jar(run)
    with pytest.raises(FlinkJobError, match="the price list cannot be found"):
        hook.wait_for(run.job_id, Goal(checkpoint=True), timeout=200, poll_interval=0.1)
    assert hook.job_state(run.job_id) == "FAILED"


def _savepoint(cluster: FlinkCluster, jar: str, arguments: list[str]) -> Path:
    job = RemoteJob.start(cluster, jar, LEGACY_JOB, *arguments)
    job.wait_for_checkpoints(1)
    return job.stop_with_savepoint()
