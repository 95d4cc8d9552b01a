"""Waiting in the triggerer: one event each, and the same after a restart of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.triggers.base import BaseTrigger

from stateferry.airflow.flink import jobs
from stateferry.airflow.flink.errors import FlinkSavepointError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.operators import FlinkCancelJobOperator
from stateferry.airflow.flink.sensors import FlinkJobSensor
from stateferry.airflow.flink.triggers import FlinkJobTrigger, FlinkSavepointTrigger
from stateferry.runs.control.claimable import CLAIMABLE
from tests.airflow.flink_provider.conftest import connect, end
from tests.airflow.flink_provider.tries import Try, complete, local, run_jar, running, savepoint
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import FAILING_JOB, RemoteJob

COMMON: dict[str, Any] = {"flink_conn_id": "flink_default", "job_id": "0" * 32, "poll_interval": 0.1, "deadline": 9e9}


@pytest.mark.parametrize(
    "trigger",
    [
        FlinkSavepointTrigger(trigger="1" * 32, **COMMON),
        FlinkJobTrigger(states=["RUNNING"], **COMMON),
        FlinkJobTrigger(
            states=["RUNNING", "FINISHED"],
            checkpoint=True,
            max_failures=3,
            may_appear=True,
            cancel_on_kill=True,
            **COMMON,
        ),
    ],
)
def test_a_trigger_comes_back_from_its_serialized_form(trigger: BaseTrigger) -> None:
    assert rebuilt(trigger).serialize() == trigger.serialize()


def test_a_job_manager_that_is_down_is_told_with_its_address(monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    connect(monkeypatch, free_port, patience=1)
    (event,) = events(FlinkJobTrigger(states=["RUNNING"], **COMMON))
    assert event["kind"] == "FlinkUnreachableError"
    assert f"http://127.0.0.1:{free_port}/jobs/{'0' * 32}/status" in event["message"]


@pytest.mark.flink
class TestWithFlink:
    @pytest.fixture(autouse=True)
    def _all_end(self, cluster: FlinkCluster, jar: str, connection: None) -> Iterator[None]:
        yield
        for job in cluster.get("/jobs/overview")["jobs"]:
            end(RemoteJob(cluster, job["jid"]))

    @pytest.fixture
    def arguments(self, sink: Path) -> list[str]:
        return ["--sink", str(sink)]

    def test_the_whole_way(self, cluster: FlinkCluster, arguments: list[str], tmp_path: Path) -> None:
        run = run_jar(arguments, wait_until="checkpoint", deferrable=True)
        job_id = finished(run, start := Try())["job_id"]
        assert running(cluster) == [job_id] == [finished(run, start.next())["job_id"]]
        taken = finished(savepoint("totals", tmp_path, deferrable=True), Try())
        stop = Try()
        stopped = finished(savepoint("totals", tmp_path, stop=True, deferrable=True), stop)
        assert {local(taken["savepoint"]), local(stopped["savepoint"])} == set(complete(tmp_path))
        assert stop.pushed["job_id"] == job_id
        # Known already: there is nothing to wait for.
        again = savepoint("totals", tmp_path, stop=True, deferrable=True).execute(stop.next().context)
        assert again["savepoint"] == stopped["savepoint"]
        successor = finished(run_jar(arguments, savepoint=stopped["savepoint"], deferrable=True), Try())["job_id"]
        cancel = FlinkCancelJobOperator(task_id="task", job="totals", poll_interval=0.1, deferrable=True)
        assert finished(cancel, Try()) == {"job_id": successor, "state": "CANCELED"}

    def test_a_savepoint_that_fails(self, arguments: list[str], tmp_path: Path) -> None:
        finished(run_jar(arguments, wait_until="checkpoint"), Try())
        (blocked := tmp_path / "blocked").write_text("in the way")
        with pytest.raises(FlinkSavepointError, match="FileAlreadyExistsException"):
            finished(savepoint("totals", blocked, deferrable=True), Try())

    def test_a_job_that_fails(self, arguments: list[str]) -> None:
        with pytest.raises(AirflowFailException, match="the price list cannot be found"):
            finished(run_jar(arguments, FAILING_JOB, wait_until="checkpoint", deferrable=True), Try())

    def test_a_trigger_that_flink_has_forgotten_is_looked_for(self, arguments: list[str], tmp_path: Path) -> None:
        job_id = finished(run_jar(arguments, wait_until="checkpoint"), Try())["job_id"]
        operator, first = savepoint("totals", tmp_path, deferrable=True), Try()
        with pytest.raises(TaskDeferred) as deferred:
            operator.execute(first.context)
        unknown = FlinkSavepointTrigger(trigger="2" * 32, **COMMON | {"job_id": job_id})
        assert events(unknown) == [{"status": "forgotten"}]
        assert events(deferred.value.trigger)[0]["status"] == "taken"
        taken = operator.execute_complete(first.context, {"status": "forgotten"}, **deferred.value.kwargs or {})
        assert [local(taken["savepoint"])] == complete(tmp_path)

    def test_what_does_not_come_in_time(self, arguments: list[str]) -> None:
        job_id = finished(run_jar(arguments), Try())["job_id"]
        late = COMMON | {"job_id": job_id, "deadline": time.time() + 0.3}
        (event,) = events(FlinkJobTrigger(states=["FINISHED"], **late))
        assert event["kind"] == "FlinkTimeoutError"
        assert f"job {job_id} is RUNNING, not FINISHED" in event["message"]
        with pytest.raises(AirflowSensorTimeout, match="'nobody' isn't RUNNING within"):
            finished(sensor("nobody", timeout=0.3), Try())

    def test_a_sensor(self, cluster: FlinkCluster, arguments: list[str]) -> None:
        later = Timer(0.5, lambda: run_jar(arguments).execute(Try().context))
        later.start()
        finished(sensor("totals", checkpoint=True), Try())
        later.join()
        (job_id,) = running(cluster)
        FlinkHook().cancel(job_id, timeout=200, poll_interval=0.1)
        with pytest.raises(AirflowFailException, match="is CANCELED; expected: RUNNING"):
            finished(sensor(job_id), Try())
        with pytest.raises(AirflowSensorTimeout):
            finished(sensor("totals", timeout=0.3), Try())
        finished(sensor("totals", states=["CANCELED"]), Try())

    def test_a_person_who_ends_the_task_may_end_the_job(self, arguments: list[str]) -> None:
        job_id = finished(run_jar(arguments), Try())["job_id"]
        for cancel, states in ((False, {"RUNNING"}), (True, {"CANCELED", "CANCELLING"})):
            trigger = FlinkJobTrigger(states=["FINISHED"], cancel_on_kill=cancel, **COMMON | {"job_id": job_id})
            asyncio.run(rebuilt(trigger).on_kill())
            assert FlinkHook().job_state(job_id) in states

    def test_a_job_manager_that_goes_away_meanwhile(
        self, cluster: FlinkCluster, arguments: list[str], monkeypatch: pytest.MonkeyPatch, free_port: int
    ) -> None:
        operator = run_jar(arguments, wait_until="checkpoint", deferrable=True)
        with pytest.raises(TaskDeferred) as deferred:
            operator.execute((first := Try()).context)
        connect(monkeypatch, free_port, patience=0.5)
        (event,) = events(deferred.value.trigger)
        with pytest.raises(FlinkUnreachableError, match=f"no answer from Flink within 0.5 s: .*:{free_port}/"):
            operator.execute_complete(first.context, event, **deferred.value.kwargs or {})


@pytest.mark.parametrize("setting", ["soft_fail", "never_fail"])
@pytest.mark.parametrize("kind", ["FlinkJobError", "FlinkTimeoutError", "FlinkUnreachableError"])
def test_a_sensor_that_waits_in_the_triggerer_is_skipped_as_one_in_a_worker(kind: str, setting: str) -> None:
    event, context = {"status": "error", "kind": kind, "message": "of Flink"}, Try().context
    # In a worker too soft_fail is of what the sensor waits for alone.
    skips = setting == "never_fail" or kind != "FlinkUnreachableError"
    with pytest.raises(AirflowSkipException if skips else FlinkUnreachableError):
        sensor("totals", **{setting: True}).resume_execution("execute_complete", {"event": event}, context)
    with pytest.raises((AirflowException, FlinkUnreachableError), match="of Flink"):
        sensor("totals").resume_execution("execute_complete", {"event": event}, context)


def sensor(job: str, **more: Any) -> FlinkJobSensor:
    return FlinkJobSensor(task_id="task", job=job, deferrable=True, **{"poke_interval": 0.1, "timeout": 30} | more)


def finished(operator: Any, of: Try) -> Any:
    """What the task returns in the end, from the worker to the triggerer and back."""
    try:
        return operator.execute(of.context)
    except TaskDeferred as deferred:
        (event,) = events(deferred.trigger)
        return getattr(operator, deferred.method_name)(of.context, event=event, **deferred.kwargs or {})


def events(trigger: BaseTrigger) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return [event.payload async for event in rebuilt(trigger).run()]

    return asyncio.run(all_of_them())


def rebuilt(trigger: BaseTrigger) -> BaseTrigger:
    """As the triggerer makes it."""
    path, kwargs = trigger.serialize()
    module, _, name = path.rpartition(".")
    built: BaseTrigger = getattr(import_module(module), name)(**kwargs)
    return built


class _Restored:
    """Flink's answers on a job that has completed no checkpoint yet, by the place that it was restored from."""

    def __init__(self, place: str) -> None:
        self.place = place

    async def get(self, *_: object) -> Any:
        restored = {"is_savepoint": False, "external_path": self.place}
        return {"latest": {"completed": None, "savepoint": None, "restored": restored}}


@pytest.mark.parametrize(
    ("place", "is_own"), [("file:/new/job" + CLAIMABLE, False), ("file:/checkpoints/1/chk-7", True)]
)
def test_what_a_job_has_claimed_is_no_checkpoint_of_its_own(place: str, is_own: bool) -> None:
    assert asyncio.run(jobs._shows_checkpoint(_Restored(place), "1" * 32)) is is_own  # type: ignore[arg-type]
