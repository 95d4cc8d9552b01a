"""A rollback while a new job may run that was never seen up."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

from flinkstate.errors import PlanError
from stateferry.airflow.dag_runs import notices
from stateferry.airflow.flink.errors import FlinkError, FlinkTimeoutError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.identity import flink_id
from stateferry.airflow.flink.jobs import Goal, JarRun, JobOverview
from stateferry.airflow.flink.task import UP_WITH_CHECKPOINT, FlinkTask
from stateferry.airflow.requests.planning import Occasion, default_catalog
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.rollback_request import rollback_request
from stateferry.airflow.tasks.flink_tasks import StartJob
from stateferry.airflow.tasks.rollback_tasks import CancelNewJob, PlanRollback, RollBack, StartOldJob
from stateferry.runs.catalog.lease import LeaseHeldError
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.rollback import Rollback
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.facts import JobStarted, Returned
from stateferry.runs.record.runs import Run
from tests.airflow.state_migration.conftest import AS_OF
from tests.airflow.state_migration.savepoints import planned_run, write_metadata
from tests.airflow.state_migration.test_approval import context
from tests.airflow.state_migration.test_steps import TaskInstance
from tests.support.records import record_of

STARTING = {"dag_id": "state_migration", "task_id": "start_job", "map_index": -1, "run_id": "manual"}
NEW_JOB = flink_id("job", *map(str, STARTING.values()))


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that Flink was asked for; it has all but one."""
    checked: list[str] = []

    def check(_: FlinkHook, run: JarRun) -> None:
        checked.append(run.jar)
        if run.jar == "gone.jar":
            raise FlinkError("there is no gone.jar")

    monkeypatch.setattr(FlinkHook, "check_program", check)
    return checked


@pytest.fixture
def published(home: Path, occasion: Occasion) -> Run:
    run = planned_run(MigrationRequest(), occasion)
    plan = run.plan
    record = record_of(plan)
    with Control(default_catalog()) as control:
        lease = control.acquire(plan.job, plan.run_id)
        control.publish(lease, record, replaces=None)
        control.release(lease)
    return run


def start_too_late(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object, **__: object) -> NoReturn:
        raise FlinkTimeoutError("no checkpoint yet")

    monkeypatch.setattr(FlinkHook, "job_state", lambda *_: None)
    monkeypatch.setattr(FlinkTask, "start", wait)
    starting = context(run, MigrationRequest(start_job=True, jar="new.jar"))
    vars(starting["ti"]).update(STARTING)
    with pytest.raises(AirflowFailException, match="no checkpoint yet"):
        StartJob(task_id="start_job").execute(starting)


def cancel(run: Run) -> Any:
    """What the rollback does before it undoes anything, if Flink runs no job of the name."""
    return cancel_as_planned(planned_rollback(run))


def cancel_as_planned(said: dict[str, Any]) -> Any:
    # Of its context the task uses these alone.
    here: Any = {"ti": TaskInstance(said), "dag_run": SimpleNamespace(run_id="manual__1", dag_id="state_rollback")}
    return CancelNewJob(task_id="cancel_new_job").execute(here)


def job(job_id: str, state: str = "RUNNING", name: str = "totals") -> JobOverview:
    return JobOverview(job_id, name, state, 1, is_up=state == "RUNNING")


class Store(dict[str, str]):
    """What a task keeps between its tries."""

    set = dict.__setitem__


def planned_rollback(run: Run, store: Store | None = None, **others: object) -> dict[str, Any]:
    asked = {"job": run.plan.job, "restart_job": True, "old_jar": "old.jar", "flink_job": "totals", **others}
    dag_run = SimpleNamespace(conf=None, triggering_user_name=None, run_id="manual__1", dag_id="state_rollback")
    here: Any = {"params": asked, "dag_run": dag_run, "task_state_store": store}
    return PlanRollback(task_id="plan").execute(here)


def test_a_program_that_flink_does_not_have_is_named_before_anything_is_cancelled(
    published: Run, programs: list[str]
) -> None:
    with pytest.raises(AirflowFailException, match=r"the old job can't be started.* there is no gone.jar"):
        planned_rollback(published, old_jar="gone.jar")
    assert programs == ["gone.jar"]


def test_the_job_is_cancelled_that_the_name_meant_when_it_was_planned(
    published: Run, monkeypatch: pytest.MonkeyPatch, jobs: list[JobOverview]
) -> None:
    """Somebody may have started another one under that name while the approval was waited for, beside it or later."""
    cancelled, states = list[str](), {"a1": "RUNNING", "b2": "RUNNING"}
    monkeypatch.setattr(FlinkHook, "job_id", lambda _, job: next(one.id for one in jobs if one.is_called(job)))
    monkeypatch.setattr(FlinkHook, "job_state", lambda _, job: states[job])
    monkeypatch.setattr(FlinkTask, "cancel", lambda _, job, **__: cancelled.append(job))
    jobs.append(job("a1"))
    said = planned_rollback(published)
    for a1 in ("RUNNING", "CANCELED"):
        jobs[:] = [job("b2"), job("a1", a1)]
        with pytest.raises(AirflowFailException, match=r"job b2, which is RUNNING .*, is totals, and nobody has appr"):
            cancel_as_planned(said)
    assert not cancelled
    states["b2"] = "FINISHED"
    with pytest.raises(AirflowSkipException):
        cancel_as_planned(said)
    assert cancelled == ["a1"]


def test_no_job_is_cancelled_while_another_run_works_on_it_nor_does_one_begin_before_the_rollback(
    published: Run, monkeypatch: pytest.MonkeyPatch, jobs: list[JobOverview]
) -> None:
    """Such as the cut-over, whose tables may take long: until it has ended, the rollback would wait, and no job run."""
    cancelled: list[str] = []
    monkeypatch.setattr(FlinkHook, "job_id", lambda *_: "a1")

    def cancel(_: FlinkTask, job_id: str, **__: object) -> dict[str, Any]:
        cancelled.append(job_id)
        return {"job_id": job_id}

    monkeypatch.setattr(FlinkTask, "cancel", cancel)
    jobs.append(job("a1"))
    said, plan = planned_rollback(published), published.plan
    with Control(default_catalog()) as control:
        tables = control.acquire(plan.job, plan.run_id)
        with pytest.raises(AirflowRescheduleException):
            cancel_as_planned(said)
        assert cancelled == []
        control.release(tables)
        # A try that is lost is repeated.
        for _ in range(2):
            cancel_as_planned(said)
        assert cancelled == ["a1", "a1"]
        with pytest.raises(LeaseHeldError, match="is being worked on by run rollback-of-1"):
            control.acquire(plan.job, "a night")
        # The next task may begin before the process of this one has ended, or after the time of its lease.
        other = Process(os.getppid(), socket.gethostname(), 0)
        monkeypatch.setattr(Process, "this", lambda: other)
        assert control.why_not_free(plan.job, "rollback-of-1") == ""
        control.acquire(plan.job, plan.run_id, force=True)
        RollBack(task_id="roll_back").execute({"ti": TaskInstance(said)})  # type: ignore[typeddict-item]
        assert control.standing(plan.job) is None
        assert control.lease_of(plan.job) is None


def test_while_no_job_runs_the_rollback_waits_for_no_rehearsal(published: Run) -> None:
    """The new job has crashed. Without restart_job, and under the operator, a job runs on."""
    plan = published.plan
    Run.create(plan.model_copy(update={"run_id": "a-night", "target": f"{plan.target}-night", "rehearse": True}), 1)
    with Control(default_catalog()) as control:
        control.acquire(plan.job, "a-night")
        here: Any = {"ti": TaskInstance(planned_rollback(published, restart_job=False, old_jar=None, flink_job=None))}
        with pytest.raises(AirflowRescheduleException):
            RollBack(task_id="roll_back").execute(here)
        here = {"ti": TaskInstance(planned_rollback(published))}
        # One that has stopped the job may be about to publish; at first it has no folder.
        for other in ("a-cut-over", plan.run_id + "-2"):
            control.acquire(plan.job, other, force=True)
            with pytest.raises(AirflowRescheduleException):
                RollBack(task_id="roll_back").execute(here)
            Run.create(plan.model_copy(update={"run_id": plan.run_id + "-2", "target": f"{plan.target}-2"}), 1)
        control.acquire(plan.job, "a-night", force=True)
        RollBack(task_id="roll_back").execute(here)
        assert control.standing(plan.job) is None


def test_a_dag_run_that_is_cleared_as_a_whole_rolls_back_one_publication(
    published: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TargetMetadata, "roll_forward", lambda *_: None)
    store, others = Store(), Store()
    with Control(default_catalog()) as control:
        publish_again(control, published, "the second")
        for _ in range(2):
            said = planned_rollback(published, store)
            assert said["undo"] == 2
            RollBack(task_id="roll_back").execute({"ti": TaskInstance(said)})  # type: ignore[typeddict-item]
        assert planned_rollback(published, others)["undo"] == 1
        with monkeypatch.context() as flink:
            # start_old_job has done its work, too.
            old_job = flink_id("job", "state_rollback", "start_old_job", "-1", "manual__1")
            flink.setattr(FlinkHook, "jobs", lambda _: [job(old_job)])
            flink.setattr(FlinkHook, "job_id", lambda *_: old_job)
            with pytest.raises(AirflowFailException, match=f"has started the old job already, as job {old_job}"):
                planned_rollback(published, store)
        publish_again(control, published, "the third")
        for kept in (store, others):
            with pytest.raises(AirflowFailException, match=r"publication 3 stands by now.*: trigger a new rollback"):
                planned_rollback(published, kept)
        standing = control.standing(published.plan.job)
    assert standing is not None
    assert standing.sequence == 3


def test_a_dag_run_that_is_cleared_after_the_old_job_was_started_changes_nothing(
    published: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs by then under the job's name is another job, which a person has started."""
    store = Store()
    ti = TaskInstance(planned_rollback(published, store))
    vars(ti).update(STARTING)
    here: Any = {"ti": ti}
    RollBack(task_id="roll_back").execute(here)
    monkeypatch.setattr(FlinkTask, "start", lambda *_, **__: {"job_id": "ab", "state": "FINISHED"})
    for _ in range(2):
        assert planned_rollback(published, store)["undo"] == 1
        StartOldJob(task_id="start_old_job").execute(here)
        with pytest.raises(
            AirflowFailException, match=r"the old job was started again from .*, so this DAG run has no"
        ):
            planned_rollback(published, store)
        published.forget(Returned)


def publish_again(control: Control, before: Run, run_id: str) -> None:
    plan = before.plan
    standing = control.standing(plan.job)
    assert standing is not None
    lease = control.acquire(plan.job, run_id)
    control.publish(lease, record_of(plan, run_id=run_id, target=f"/out/{run_id}"), replaces=standing.sequence)
    control.release(lease)


def test_a_job_that_was_started_by_hand_is_not_joined_by_the_old_one(
    published: Run, monkeypatch: pytest.MonkeyPatch, jobs: list[JobOverview]
) -> None:
    """Nobody has recorded it, and Flink may know it only after the plan was made."""
    with pytest.raises(PlanError, match="flink_job: missing, and restart_job needs it"):
        rollback_request({"job": "demo", "restart_job": True, "old_jar": "old.jar"}, "the form")
    jobs.append(job("b2", name="total"))
    said = planned_rollback(published)
    assert said["cancels"] is None
    assert said["consequences"][-1] == "no job 'totals' is cancelled, as Flink runs none; it runs: 'total' (b2)"
    jobs.append(job("c3"))
    monkeypatch.setattr(FlinkHook, "job_state", lambda *_: "RUNNING")
    monkeypatch.setattr(FlinkTask, "start", lambda *_, **__: pytest.fail("it was started"))
    with pytest.raises(AirflowFailException, match=r"job c3, which is RUNNING .*, is totals"):
        cancel_as_planned(said)
    ti = TaskInstance(said)
    vars(ti).update(STARTING, try_number=1, max_tries=1)
    with pytest.raises(AirflowFailException, match=r"job c3, which is RUNNING .*, is totals, and this task hasn't sta"):
        StartOldJob(task_id="start_old_job").execute({"ti": ti})  # type: ignore[typeddict-item]


def test_the_old_job_starts_where_it_was_stopped_though_an_earlier_publication_stood(
    published: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TargetMetadata, "roll_forward", lambda *_: None)
    plan, source = published.plan, str(home / "june")
    write_metadata(home / "june", completed_at=AS_OF.timestamp())
    with Control(default_catalog()) as control:
        lease = control.acquire(plan.job, "the second")
        second = record_of(plan, run_id="the second", source=source, target="/out/second")
        control.publish(lease, second, replaces=1)
        control.release(lease)
    said = planned_rollback(published)
    assert said["savepoint"] == source
    assert any(line.startswith(f"the job starts again from {source} ") for line in said["consequences"])
    done = RollBack(task_id="roll_back").execute({"ti": TaskInstance(said)})  # type: ignore[typeddict-item]
    assert done == {"undone": 2, "savepoint": source}
    with Control(default_catalog()) as control:
        standing = control.standing(plan.job)
    assert standing is not None
    assert standing.sequence == 1


def test_no_job_is_cancelled_while_another_savepoint_is_where_the_old_job_would_start(
    published: Run, home: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[JobOverview]
) -> None:
    """Flink would start it, without the state of the old job."""
    monkeypatch.setattr(FlinkHook, "job_id", lambda *_: "a1")
    monkeypatch.setattr(FlinkTask, "cancel", lambda *_, **__: pytest.fail("it was cancelled"))
    plan, june = published.plan, home / "june"
    write_metadata(june, completed_at=AS_OF.timestamp())
    with Control(default_catalog()) as control:
        lease = control.acquire(plan.job, "the second")
        control.publish(lease, record_of(plan, run_id="the second", source=str(june)), replaces=1)
        control.release(lease)
    jobs.append(job("a1"))
    said = planned_rollback(published)
    june.rename(home / "july")
    write_metadata(june, checkpoint_id=2, completed_at=AS_OF.timestamp())
    why = f"has read checkpoint 1 at {june}, and checkpoint 2 is there now, from which the old job would start"
    with pytest.raises(AirflowFailException, match=why):
        planned_rollback(published)
    with pytest.raises(AirflowFailException, match=why):
        cancel_as_planned(said)


def test_people_are_told_of_a_rollback_that_fails_for_good(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(notices, "tell", lambda _, *said: told.append(said))

    def cannot(*_: object, **__: object) -> NoReturn:
        raise FlinkTimeoutError("no slots")

    monkeypatch.setattr(FlinkTask, "start", cannot)
    ti = TaskInstance(planned_rollback(published))
    vars(ti).update(STARTING, try_number=1, max_tries=1)
    for _ in range(2):
        with pytest.raises(FlinkTimeoutError):
            StartOldJob(task_id="start_old_job").execute({"ti": ti})  # type: ignore[typeddict-item]
        vars(ti)["try_number"] += 1
    why = "the rollback of job demo has failed, and perhaps no job runs: no slots"
    assert told == [("red", published.plan.job, why)]


def test_no_job_is_started_from_a_publication_that_does_not_stand(
    published: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Control(default_catalog()) as control:
        Rollback(published.plan.home, control, published.plan.job).carry_out()
    monkeypatch.setattr(FlinkTask, "start", lambda *_, **__: pytest.fail("it was started"))
    starting = context(published, MigrationRequest(start_job=True, jar="new.jar"))
    with pytest.raises(AirflowFailException, match="doesn't stand: of job demo's publications none stands"):
        StartJob(task_id="start_job").execute(starting)


def test_a_job_that_was_started_is_not_started_once_more(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    published.keep(JobStarted.of_json({"job_id": "ab", "state": "RUNNING", "seconds": 1.0}, "a test"))
    monkeypatch.setattr(FlinkTask, "start", lambda *_, **__: pytest.fail("it was started"))
    starting = context(published, MigrationRequest(start_job=True, jar="new.jar"))
    assert StartJob(task_id="start_job").execute(starting)["job_id"] == "ab"


@pytest.mark.parametrize("state", ["CANCELED", "FAILED", None])
def test_nothing_is_to_be_cancelled_if_the_new_job_is_over(
    published: Run, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    start_too_late(published, monkeypatch)
    monkeypatch.setattr(FlinkHook, "job_state", lambda _, job: state if job == NEW_JOB else "RUNNING")
    with pytest.raises(AirflowSkipException):
        cancel(published)


def test_a_new_job_that_came_up_too_late_is_not_joined_by_the_old_one(
    published: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_too_late(published, monkeypatch)
    monkeypatch.setattr(FlinkHook, "job_state", lambda _, job: "RUNNING" if job == NEW_JOB else None)
    with pytest.raises(AirflowFailException, match=f"the new job {NEW_JOB} is RUNNING"):
        cancel(published)


def test_a_run_that_was_to_start_no_job_has_none_to_look_for(published: Run) -> None:
    with pytest.raises(AirflowSkipException):
        cancel(published)


@pytest.mark.parametrize(
    ("interval", "state", "waits"), [(500, "RUNNING", True), (None, "RUNNING", False), (500, "FINISHED", False)]
)
def test_the_old_job_runs_when_it_has_completed_a_checkpoint(
    published: Run, monkeypatch: pytest.MonkeyPatch, interval: int | None, state: str, waits: bool
) -> None:
    form = {"job": published.plan.job, "restart_job": True, "old_jar": "old.jar", "flink_job": "totals"}
    asked = rollback_request(form, "the form")
    waited: list[Goal] = []
    monkeypatch.setattr(FlinkTask, "start", lambda *_, **__: {"job_id": "ab", "state": state})
    monkeypatch.setattr(FlinkTask, "wait_for", lambda _, __, goal, **___: waited.append(goal))
    monkeypatch.setattr(FlinkHook, "checkpoint_interval", lambda *_: interval)
    ti = TaskInstance({"request": asked.model_dump(), "savepoint": "/old", "undo": 1})
    vars(ti).update(STARTING)
    started = StartOldJob(task_id="start_old_job").execute({"ti": ti})  # type: ignore[typeddict-item]
    assert started["job_id"] == "ab"
    assert waited == ([UP_WITH_CHECKPOINT] if waits else [])
