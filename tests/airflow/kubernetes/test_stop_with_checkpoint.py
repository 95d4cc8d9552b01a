"""Jobs that the operator cancels: each goes on from its newest checkpoint, as Flink says, or isn't stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink.errors import FlinkError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import CHECKPOINT, TakenSavepoint
from stateferry.airflow.kubernetes.resource import FlinkResource, Resource
from stateferry.airflow.requests.planning import Occasion
from tests.airflow.kubernetes.conftest import OLD_JOB, CutOver, run_of
from tests.airflow.kubernetes.stand_in import Body
from tests.airflow.state_migration.savepoints import write_metadata
from tests.support.operator_crds import WHOLE, versions

OTHER_JOB = "b" * 32
STOP = {"source": "checkpoint", "stop_with": "checkpoint", "may_repeat": True}


@dataclass
class Checkpoints:
    """What Flink says over REST of the old job's checkpoints, and what is in their folder."""

    folder: Path
    delete: bool = False
    running: str = OLD_JOB
    says: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    """What it says until its answer is out of date."""

    def take(self) -> int:
        number = len(self.says) + 1
        write_metadata(self.path(number), checkpoint_id=number)
        self.says.append(number)
        return number

    def path(self, number: int) -> Path:
        return self.folder / f"chk-{number}"

    async def get(self, path: str) -> Any:
        if path == "/jobs/overview":
            tasks = {"running": 2, "finished": 0, "total": 2}
            return {
                "jobs": [{"jid": self.running, "name": "orders", "state": "RUNNING", "start-time": 1, "tasks": tasks}]
            }
        if path.endswith("/checkpoints/config"):
            return {"externalization": {"enabled": True, "delete_on_cancellation": self.delete}}
        if path == "/config":
            self.cached = []
            return {"refresh-interval": 0}
        if path.endswith("/checkpoints"):
            says = self.cached or self.says
            return {"history": [self._entry(one) for one in says], "latest": {"completed": None}}
        return {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": self.says[-1]}}

    def _entry(self, number: int) -> Body:
        place = self.path(number).as_uri()
        return {
            "id": number, "status": "COMPLETED", "is_savepoint": False, "external_path": place,
            "latest_ack_timestamp": number,
        }  # fmt: skip

    async def post_once(self, *_: Any) -> None:
        self.take()


@pytest.fixture
def made(request: pytest.FixtureRequest, cut_over: Callable[..., CutOver], monkeypatch: pytest.MonkeyPatch) -> CutOver:
    made = cut_over(getattr(request, "param", WHOLE), **STOP)
    monkeypatch.setattr(FlinkHook, "job_state", lambda _, job: "RUNNING" if job == made.flinks.running else "CANCELED")
    return made


@pytest.fixture
def checkpoints(made: CutOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoints:
    """The operator cancels the job after one more, and tells of the one before, as Flink's cache had it."""
    there = Checkpoints(tmp_path / "checkpoints" / OLD_JOB)
    there.take()

    def cancel(_: str, kind: str) -> str:
        assert kind == CHECKPOINT
        there.cached = list(there.says)
        made.flinks.running = None
        return there.path(there.take() - 1).as_uri()

    made.operator.stop = cancel
    monkeypatch.setattr(FlinkHook, "run", lambda _, work: asyncio.run(work(there)))
    return there


@pytest.mark.parametrize(
    ("made", "seen"),
    [*((version, True) for version in versions()), pytest.param(WHOLE, False, id="not seen from here")],
    indirect=["made"],
)
def test_a_job_goes_on_from_its_newest_checkpoint(
    made: CutOver, checkpoints: Checkpoints, occasion: Occasion, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not seen:
        monkeypatch.setattr("stateferry.airflow.flink.stopping.newest_completed", lambda _: None)
    made.place.check()
    assert made.kubernetes.patches == []
    order = made.order(CHECKPOINT)
    taken = made.place.stop(order)
    assert made.kubernetes.patches == [
        {
            "job": {"state": "suspended", "upgradeMode": "last-state"},
            "flinkConfiguration": {
                "state.savepoints.dir": f"file://{order.directory}",
                "kubernetes.operator.job.upgrade.last-state.job-cancel.enabled": "true",
                "kubernetes.operator.job.upgrade.last-state.max.allowed.checkpoint.age": "3650 d",
                "kubernetes.operator.job.upgrade.last-state-fallback.enabled": "false",
                "kubernetes.operator.job.drain-on-savepoint-deletion": "false",
                "kubernetes.operator.savepoint.dispose-on-delete": "false",
                "kubernetes.operator.deployment.rollback.enabled": "false",
                "kubernetes.operator.job.restart.failed": "false",
            },
        }
    ]
    # Of three: one before, one that was asked for, and one that the job has completed before it was cancelled.
    assert taken == TakenSavepoint(OLD_JOB, checkpoints.path(3).as_uri())
    # Every other try does nothing more.
    assert made.place.is_stopping(order)
    assert made.place.stop(order) == made.place.stopped_in_the_end(order) == taken
    assert len(made.kubernetes.patches) == 1
    started = made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    assert made.flinks.restored[started["job_id"]] == "/new"
    made.flinks.checkpointed.clear()
    back = made.place.start_old(taken.location)
    assert made.flinks.restored[back["job_id"]] == taken.location


def test_a_job_whose_checkpoints_flink_removes_is_not_stopped(made: CutOver, checkpoints: Checkpoints) -> None:
    checkpoints.delete = True
    with pytest.raises(AirflowFailException, match="Flink removes its checkpoints when it is cancelled"):
        made.place.check()
    with pytest.raises(FlinkError, match="Flink removes its checkpoints when it is cancelled"):
        made.place.stop(made.order(CHECKPOINT))
    assert made.kubernetes.patches == []
    assert made.flinks.running == OLD_JOB


def test_a_job_that_the_operator_suspends_without_cancelling_it_runs_on(
    made: CutOver, checkpoints: Checkpoints
) -> None:
    """Only it knows then where the job has stopped."""
    made.operator.cancels = False
    order = made.order(CHECKPOINT)
    with pytest.raises(AirflowFailException, match=r"its job wasn't cancelled: upgradeMode is last-state"):
        made.place.stop(order)
    assert made.place.stopped_in_the_end(order) is None
    assert made.spec == made.before


def test_a_job_that_the_operator_cannot_cancel_runs_on(made: CutOver, checkpoints: Checkpoints) -> None:
    def fails(*_: str) -> str:
        raise ValueError("Cancellation Error")

    made.operator.stop = fails
    order = made.order(CHECKPOINT)
    with pytest.raises(AirflowFailException, match=r"could not stop .*Cancellation Error"):
        made.place.stop(order)
    assert made.place.stopped_in_the_end(order) is None
    assert made.spec == made.before


def test_a_job_that_is_cancelled_before_the_operator_says_so_is_stopped(
    made: CutOver, checkpoints: Checkpoints
) -> None:
    """It looks after such a job once in ten seconds, by default."""
    made.operator.is_down = True
    made.kubernetes.after_change = lambda: setattr(made.flinks, "running", None)
    assert made.place.stop(made.order(CHECKPOINT)).location == checkpoints.path(2).as_uri()
    assert made.kubernetes.resource["status"]["lifecycleState"] == "STABLE"


def test_where_a_job_has_stopped_is_asked_again_if_flink_gave_no_answer(
    made: CutOver, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object) -> str:
        raise FlinkUnreachableError("no answer")

    order = made.order(CHECKPOINT)
    with monkeypatch.context() as patch:
        patch.setattr(FlinkHook, "job_state", no_answer)
        for stop in (made.place.stop, made.place.stopped_in_the_end):
            with pytest.raises(FlinkUnreachableError):
                stop(order)
    assert made.place.stop(order).location == checkpoints.path(3).as_uri()
    assert len(made.kubernetes.patches) == 1


def test_a_job_that_ends_by_itself_meanwhile_goes_on_from_no_checkpoint(
    made: CutOver, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlinkHook, "job_state", lambda *_: "FINISHED")
    with pytest.raises(AirflowFailException, match=f"job {OLD_JOB} is FINISHED, not cancelled, so no checkpoint"):
        made.place.stop(made.order(CHECKPOINT))


def test_a_job_that_the_operator_starts_again_after_the_patch_is_not_taken_for_stopped(
    made: CutOver, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had failed right before: what the other job commits until it is cancelled, the next one would do again."""
    made.operator.is_down = True
    states = {OLD_JOB: "RUNNING"}

    def state(_: FlinkHook, job: str) -> str:
        if states[OLD_JOB] == "RUNNING":
            # The patch is there, and the operator's own restart of the job follows it.
            states[OLD_JOB] = "FAILED"
            made.kubernetes.set_status(jobStatus={"jobId": OTHER_JOB, "state": "RUNNING"}, lifecycleState="DEPLOYED")
            return "RUNNING"
        return states[job]

    monkeypatch.setattr(FlinkHook, "job_state", state)
    order = made.order(CHECKPOINT)
    for stop in (made.place.stop, made.place.stopped_in_the_end):
        with pytest.raises(AirflowFailException, match=f"is {OTHER_JOB}, not {OLD_JOB}, which this run has stopped"):
            stop(order)


def test_no_job_starts_while_the_old_one_runs_anew(made: CutOver, checkpoints: Checkpoints, occasion: Occasion) -> None:
    """Kubernetes has replaced the JobManager of a job without high availability."""
    taken = made.place.stop(made.order(CHECKPOINT))
    run = run_of(made, occasion, taken.location)
    made.flinks.running = OLD_JOB
    says = f"job {OLD_JOB} of .* was cancelled, and now job {OLD_JOB} is RUNNING there.* clear this task"
    with pytest.raises(AirflowFailException, match=says):
        made.place.start(run, "/new", timeout=10)
    with pytest.raises(AirflowFailException, match=says):
        made.place.start_old(taken.location)
    assert len(made.kubernetes.patches) == 1
    # As the message says: once it is cancelled, the task is cleared.
    made.flinks.running = None
    started = made.place.start(run, "/new", timeout=10)
    assert made.flinks.restored[started["job_id"]] == "/new"


def test_no_job_starts_where_another_one_runs(made: CutOver, checkpoints: Checkpoints, occasion: Occasion) -> None:
    taken = made.place.stop(made.order(CHECKPOINT))
    run = run_of(made, occasion, taken.location)
    checkpoints.running, made.flinks.running = OTHER_JOB, OTHER_JOB
    with pytest.raises(AirflowFailException, match=f"and now job {OTHER_JOB} is RUNNING there"):
        made.place.start(run, "/new", timeout=10)
    checkpoints.running, made.flinks.running = OLD_JOB, None
    made.kubernetes.set_status(jobStatus={"jobId": OTHER_JOB})
    with pytest.raises(AirflowFailException, match=f"is {OTHER_JOB}, not {OLD_JOB}.* so no job is started"):
        made.place.start(run, "/new", timeout=10)
    assert len(made.kubernetes.patches) == 1


def test_a_start_waits_for_flinks_answer_unless_its_jobmanager_is_gone(
    made: CutOver, checkpoints: Checkpoints, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object) -> str:
        raise FlinkUnreachableError("no answer")

    taken = made.place.stop(made.order(CHECKPOINT))
    run = run_of(made, occasion, taken.location)
    monkeypatch.setattr(FlinkHook, "job_state", no_answer)
    with pytest.raises(FlinkUnreachableError):
        made.place.start(run, "/new", timeout=10)
    assert len(made.kubernetes.patches) == 1
    made.kubernetes.set_status(jobManagerDeploymentStatus="MISSING")
    started = made.place.start(run, "/new", timeout=10)
    assert made.flinks.restored[started["job_id"]] == "/new"


@pytest.mark.parametrize("told", [True, False], ids=["told", "forgotten by the operator"])
def test_a_job_that_the_operator_starts_again_before_a_shown_patch_is_applied_is_the_one_that_stops(
    cut_over: Callable[..., CutOver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """The patch may be applied a day later, and the new JobManager knows the other job alone."""
    made = cut_over(patch="show", **STOP)
    there = Checkpoints(tmp_path / "checkpoints" / OTHER_JOB, running=OTHER_JOB)
    # Its checkpoints have lower numbers than those that the run has seen.
    before = Checkpoints(tmp_path / "checkpoints" / OLD_JOB, says=list(range(1, 7)))

    def state(_: FlinkHook, job: str) -> str | None:
        return "RUNNING" if job == made.flinks.running else "CANCELED" if job == OTHER_JOB else None

    def cancel(*_: str) -> str:
        made.flinks.running = None
        return there.path(there.take()).as_uri()

    def applies(patch: Any) -> None:
        made.flinks.running = OTHER_JOB
        made.kubernetes.set_status(jobStatus={"jobId": OTHER_JOB, "state": "RUNNING"})
        seen.wait(10)
        made.kubernetes.change_spec(patch["spec"])
        made.operator.reconcile()
        if not told:
            made.kubernetes.set_status(jobStatus={"jobId": None})

    def read(resource: Resource) -> FlinkResource:
        found = reads(resource)
        if found.job_status.get("jobId") == OTHER_JOB:
            seen.set()
        return found

    seen, reads = threading.Event(), Resource.read
    monkeypatch.setattr(Resource, "read", read)
    monkeypatch.setattr(FlinkHook, "job_state", state)
    monkeypatch.setattr(
        FlinkHook, "run", lambda _, work: asyncio.run(work(before if made.flinks.running == OLD_JOB else there))
    )
    made.operator.stop = cancel
    made.context["ti"].xcom_push = lambda key, value: threading.Timer(0.1, applies, [value]).start()
    taken = made.place.stop(made.order(CHECKPOINT))
    assert taken == TakenSavepoint(OTHER_JOB, there.path(1).as_uri())
    assert made.place.stopped_in_the_end(made.order(CHECKPOINT)) == taken
