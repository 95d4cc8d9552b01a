"""The limit of an outage: who ends it, when, and what must not happen afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from flinkstate.errors import PlanError, RejectedError
from stateferry.airflow.dag_runs import notices
from stateferry.airflow.flink.checkpoints import Checkpoint
from stateferry.airflow.flink.errors import FlinkTimeoutError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.task import FlinkTask
from stateferry.airflow.migration_dag import migration_dags
from stateferry.airflow.requests.planning import Occasion, plan_for
from stateferry.airflow.tasks import outage_task, return_task
from stateferry.airflow.tasks.conclusion import Conclude
from stateferry.airflow.tasks.decide_task import Decide
from stateferry.airflow.tasks.flink_tasks import StartJob, TakeSavepoint
from stateferry.airflow.tasks.outage_task import OutageTrigger, WatchOutage
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.airflow.tasks.steps import StepOperator
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.lease import LeaseLostError
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import (
    OutageExceeded,
    StopAsked,
    check_not_returned,
    record_return,
    record_start,
)
from stateferry.runs.predict.estimates import Estimate, Prediction
from stateferry.runs.record.facts import JobStarted, NewJob, Returned, SavepointTaken
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.report.decision import Decision
from tests.airflow.state_migration.test_decide import Flink, asked, context, decided, rehearsed
from tests.support.facts import kept_facts
from tests.support.records import record_of

MINUTE = 60_000


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> Flink:
    return Flink(monkeypatch)


class Cut:
    """A cut-over whose job was stopped some minutes ago."""

    def __init__(self, tmp_path: Path, home: Path, occasion: Occasion, *, minutes: float, **others: object) -> None:
        self.request = asked(tmp_path, **{"outage_limit": "5m", **others})
        self.rehearsal = rehearsed(home, occasion.rehearsal(), self.request)
        decided(self.rehearsal)
        self.run = Run.create(plan_for(self.request, occasion, str(home / "demo" / "legacy")), occasion.now)
        self.run.enter(RunState.RUNNING, 1)
        since = now_ms() - round(minutes * MINUTE)
        self.run.keep(SavepointTaken(seconds=1.0, ended_at=since + 1000, requested_at=since, savepoint="/old"))
        self.context = context(self.rehearsal, self.request, occasion)
        self.xcoms: dict[tuple[str, str], Any] = {("take_savepoint", "stopped"): "/old"}
        said = self.context["ti"].xcom_pull()
        self.context["ti"].xcom_pull = lambda task_ids, key="return_value": (
            said if task_ids == "plan" else self.xcoms.get((task_ids, key))
        )

    def publish(self) -> None:
        plan = self.run.plan
        for state in (RunState.STAGED, RunState.VERIFIED, RunState.APPROVED):
            self.run.enter(state, 2)
        with Control(plan.catalog_uri) as control:
            held = control.acquire(plan.job, plan.run_id)
            control.publish(held, record_of(plan), replaces=None)
            self.run.enter(RunState.PUBLISHED, 3)
            # As a driver that was killed leaves it.

    def standing(self) -> object:
        with Control(self.run.plan.catalog_uri) as control:
            return control.standing(self.run.plan.job)

    def watch(self) -> None:
        WatchOutage(task_id="watch_outage").execute(self.context)


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """The jobs that Flink knows, and whether each has completed a checkpoint."""
    known: dict[str, bool] = {}
    monkeypatch.setattr(FlinkHook, "job_state", lambda _, job: "RUNNING" if job in known else None)
    monkeypatch.setattr(FlinkHook, "has_checkpointed", lambda _, job: known[job])
    monkeypatch.setattr(FlinkHook, "cancel", lambda _, job, **__: "CANCELED")
    return known


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, checkpoints: dict[str, bool]) -> list[str]:
    """The jars that were started."""
    jars: list[str] = []

    def start(task: FlinkTask, run: Any, *_: Any, **__: Any) -> dict[str, Any]:
        jars.append(run.jar)
        return {"job_id": run.job_id, "state": "RUNNING", "seconds": 1.0}

    monkeypatch.setattr(FlinkTask, "start", start)
    monkeypatch.setattr(FlinkHook, "checkpoint_interval", lambda *_: None)
    return jars


def test_a_limit_needs_a_job_that_is_stopped_started_and_may_come_back(tmp_path: Path) -> None:
    for others, words in (
        ({"start_job": False, "jar": None}, "outage_limit: given, but start_job is off"),
        ({"old_jar": None}, "old_jar: missing, and outage_limit needs it"),
        ({"mode": "rehearse", "start_job": False, "jar": None}, "outage_limit: given, but this run stops no job"),
        ({"outage_limit": "soon"}, "expected a duration"),
        ({"outage_limit": None, "outage_alert": "1m", "start_job": False, "jar": None}, "outage_alert: given, but"),
    ):
        with pytest.raises((PlanError, ValueError), match=words):
            asked(tmp_path, **{"outage_limit": "5m", **others})
    assert asked(tmp_path, outage_limit="5m").rehearsal().outage_limit is None


def test_nobody_is_asked_if_the_outage_is_predicted_to_exceed_its_limit(
    tmp_path: Path, home: Path, occasion: Occasion
) -> None:
    request = asked(tmp_path, outage_limit="9s")
    here = context(rehearsed(home, occasion.rehearsal(), request), request, occasion)
    with pytest.raises(AirflowFailException, match=r"outage_limit is 9s, and .* take 14 s .*The job was not stopped"):
        Decide(task_id="decide").execute(here)


def test_without_a_limit_nothing_is_watched(tmp_path: Path, home: Path, occasion: Occasion) -> None:
    with pytest.raises(AirflowSkipException):
        Cut(tmp_path, home, occasion, minutes=9, outage_limit=None).watch()


def test_until_the_limit_the_task_waits_in_the_triggerer_and_the_scheduler_ends_it_without_one(
    tmp_path: Path, home: Path, occasion: Occasion
) -> None:
    with pytest.raises(TaskDeferred) as waits:
        Cut(tmp_path, home, occasion, minutes=1).watch()
    assert isinstance(waits.value.trigger, OutageTrigger)
    name, values = waits.value.trigger.serialize()
    assert name == "stateferry.airflow.tasks.outage_task.OutageTrigger"
    assert OutageTrigger(**values).serialize() == (name, values)
    left = values["until"] - now_ms() / 1000
    assert 4 * 60 - 6 < left < 4 * 60
    assert waits.value.timeout is not None
    assert timedelta(seconds=left) < waits.value.timeout < timedelta(seconds=left + 30)


class Store(dict[str, str]):
    """What a task keeps between its tries."""

    set = dict.__setitem__


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The notices that were sent."""
    notices: list[tuple[str, str]] = []
    monkeypatch.setattr(outage_task, "tell", lambda _, event, job, text: notices.append((event, f"{job}: {text}")))
    return notices


def foreseen(cut: Cut, seconds: float) -> None:
    decision = kept_facts(cut.rehearsal, Decision)
    prediction = Prediction(1, outage=Estimate(seconds, seconds / 2, 2 * seconds, 3))
    cut.rehearsal.keep(replace(decision, foreseen=prediction))
    cut.context["task_state_store"] = Store()


def test_people_are_told_once_that_the_outage_takes_longer_than_predicted_and_then_the_limit_holds(
    tmp_path: Path, home: Path, occasion: Occasion, told: list[tuple[str, str]]
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=2, outage_alert="30s")
    foreseen(cut, 60)
    for _ in range(2):
        with pytest.raises(TaskDeferred) as waits:
            cut.watch()
        assert isinstance(waits.value.trigger, OutageTrigger)
        assert 3 * 60 - 6 < waits.value.trigger.until - now_ms() / 1000 < 3 * 60
    ((event, text),) = told
    assert event == "late"
    assert "was predicted to do so for 60 s" in text
    assert "the old job is started again" in text


def test_until_the_outage_is_late_the_task_waits_for_that(
    tmp_path: Path, home: Path, occasion: Occasion, told: list[tuple[str, str]]
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=2, outage_alert="90s", outage_limit=None, old_jar=None)
    foreseen(cut, 60)
    with pytest.raises(TaskDeferred) as waits:
        cut.watch()
    assert isinstance(waits.value.trigger, OutageTrigger)
    assert 20 < waits.value.trigger.until - now_ms() / 1000 < 30
    late = Cut(tmp_path / "late", home, occasion, minutes=3, outage_alert="90s", outage_limit=None, old_jar=None)
    foreseen(late, 60)
    late.watch()
    assert [event for event, _ in told] == ["late"]
    late.context["task_state_store"] = Store()
    late.run.keep(JobStarted(seconds=1.0, ended_at=now_ms(), job_id="ab"))
    late.watch()
    assert len(told) == 1


def test_without_a_prediction_nobody_is_told(
    tmp_path: Path, home: Path, occasion: Occasion, told: list[tuple[str, str]]
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=9, outage_alert="1s", outage_limit=None)
    decision = kept_facts(cut.rehearsal, Decision)
    cut.rehearsal.keep(replace(decision, foreseen=None))
    with pytest.raises(AirflowSkipException):
        cut.watch()
    assert told == []


def test_a_run_that_is_not_published_by_then_never_is(
    tmp_path: Path, home: Path, occasion: Occasion, started: list[str]
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=6)
    # A try that is lost after it has recorded the end is repeated.
    for _ in range(2):
        with pytest.raises(AirflowFailException, match=r"longer than outage_limit \(5.0 m\): the old job is started"):
            cut.watch()
    assert cut.run.state is RunState.REJECTED
    with pytest.raises(RejectedError, match="starts no new job"):
        record_start(cut.run, NewJob("ab"))
    step = StepOperator(task_id="rescale", step=Step.RESCALE.value)
    with pytest.raises(AirflowFailException, match="was rejected"):
        step.execute(cut.context)
    ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
    assert started == ["old.jar"]
    returned = kept_facts(cut.run, Returned)
    assert returned.ended_at is not None


def test_a_new_job_without_a_checkpoint_goes_and_its_publication_with_it(
    tmp_path: Path,
    home: Path,
    occasion: Occasion,
    started: list[str],
    checkpoints: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=6)
    cut.publish()
    record_start(cut.run, NewJob("ab"))
    checkpoints["ab"] = False
    with pytest.raises(AirflowFailException, match="outage_limit"):
        cut.watch()
    # Its id is known, though a later try of start_job has forgotten it.
    with pytest.raises(AirflowFailException, match="longer than outage_limit"):
        StartJob(task_id="start_job").execute(cut.context)
    assert ("start_job", "job_id") not in cut.xcoms
    ended: list[str] = []
    told: list[tuple[str, ...]] = []
    task = ReturnToOldJob(task_id="return_to_old_job")
    monkeypatch.setattr(task, "_end", lambda _, job: ended.append(job))
    monkeypatch.setattr(return_task, "tell", lambda _, *said: told.append(said))
    task.execute(cut.context)
    assert (ended, started, cut.standing()) == (["ab"], ["old.jar"], None)
    why = "the outage has taken longer than outage_limit (5.0 m)"
    assert told == [
        ("returned", "main", f"the cut-over of job main has failed ({why}), and the old job runs again from /old")
    ]
    with pytest.raises(AirflowFailException, match="is rolled back, not published: the outage has taken longer than"):
        Conclude(task_id="conclude").execute(cut.context)


def test_the_notice_and_the_last_task_say_why_the_new_job_did_not_start(
    tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch, checkpoints: dict[str, bool]
) -> None:
    cannot, told = {"new.jar": "no checkpoint", "old.jar": "no slots"}, list[tuple[str, ...]]()

    def start(task: FlinkTask, run: Any, *_: Any, **__: Any) -> dict[str, Any]:
        if run.jar in cannot:
            raise FlinkTimeoutError(cannot[run.jar])
        return {"job_id": run.job_id, "state": "FINISHED", "seconds": 1.0}

    monkeypatch.setattr(FlinkTask, "start", start)
    for module in (return_task, notices):
        monkeypatch.setattr(module, "tell", lambda _, *said: told.append(said))
    cut = Cut(tmp_path, home, occasion, minutes=1, outage_limit=None)
    vars(cut.context["ti"])["max_tries"] = 1
    cut.publish()
    cut.context["ti"].xcom_push = lambda key, value: cut.xcoms.update({("start_job", key): value})
    with pytest.raises(AirflowFailException, match="no checkpoint"):
        StartJob(task_id="start_job").execute(cut.context)
    monkeypatch.setattr(ReturnToOldJob, "_new_job", lambda *_: None)
    for _ in range(2):
        with pytest.raises(FlinkTimeoutError, match="no slots"):
            ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
        cut.context["ti"].try_number += 1
    # Of the last try people are told.
    assert told == [("returned", "main", "the cut-over of job main has failed: no slots")]
    wanted = "rolled back, not published: no checkpoint; the old job was to run again from /old: see the log of"
    with pytest.raises(AirflowFailException, match=wanted):
        Conclude(task_id="conclude").execute(cut.context)
    cannot.pop("old.jar")
    ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
    why = "the cut-over of job main has failed (no checkpoint), and the old job runs again from /old"
    assert told[1:] == [("returned", "main", why)]
    with pytest.raises(AirflowFailException, match="not published: no checkpoint; the old job runs again from /old"):
        Conclude(task_id="conclude").execute(cut.context)


def test_after_its_first_checkpoint_the_new_job_stays(
    tmp_path: Path, home: Path, occasion: Occasion, started: list[str], checkpoints: dict[str, bool]
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=6)
    cut.publish()
    record_start(cut.run, NewJob("ab"))
    checkpoints["ab"] = True
    cut.watch()
    assert cut.run.facts(OutageExceeded) is None
    assert cut.standing() is not None
    # Nor does what was recorded, when Flink can't be asked any more.
    checkpoints.clear()
    cut.run.keep(JobStarted(seconds=1.0, job_id="ab"))
    cut.watch()
    assert cut.run.facts(OutageExceeded) is None
    # A checkpoint that comes in the last moment keeps the old job from being started.
    cut.run.keep(OutageExceeded(1, 1))
    checkpoints["ab"] = True
    with pytest.raises(AirflowFailException, match="has completed a checkpoint"):
        ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
    assert started == []


@pytest.mark.parametrize("is_told", [True, False])
def test_a_checkpoint_that_the_cancellation_meets_is_named(
    is_told: bool,
    tmp_path: Path,
    home: Path,
    occasion: Occasion,
    started: list[str],
    checkpoints: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=6)
    cut.publish()
    record_start(cut.run, NewJob("ab"))
    checkpoints["ab"] = False
    cut.run.keep(OutageExceeded(1, 1))

    def cancel(_: FlinkHook, job: str, **__: object) -> str:
        checkpoints[job] = True
        return "CANCELED"

    monkeypatch.setattr(FlinkHook, "cancel", cancel)

    def completed(*_: object) -> list[Checkpoint]:
        if is_told:
            return [Checkpoint(1, "/checkpoints/chk-1", 1)]
        raise FlinkUnreachableError("no answer")

    monkeypatch.setattr(FlinkHook, "completed_checkpoints", completed)
    words = "/checkpoints/chk-1" if is_told else "Flink doesn't say"
    with pytest.raises(AirflowFailException, match=f"has just cancelled it, so no job runs; .*{words}"):
        ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
    assert started == []


def test_the_new_job_gets_what_is_left_of_the_time(
    tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch, checkpoints: dict[str, bool]
) -> None:
    given: list[float] = []

    def start(task: FlinkTask, run: Any, *_: Any, timeout: float, **__: Any) -> Any:
        given.append(timeout)
        raise FlinkTimeoutError("no checkpoint")

    monkeypatch.setattr(FlinkTask, "start", start)
    cut = Cut(tmp_path, home, occasion, minutes=3)
    cut.publish()
    with pytest.raises(AirflowFailException, match="no checkpoint"):
        StartJob(task_id="start_job").execute(cut.context)
    (left,) = given
    assert 100 < left <= 120
    late = Cut(tmp_path / "late", home, Occasion("late", occasion.as_of), minutes=6)
    with Control(late.run.plan.catalog_uri) as control:
        control.release(control.acquire(cut.run.plan.job, cut.run.plan.run_id))
    late.run.keep(OutageExceeded(1, 5 * MINUTE))
    with pytest.raises(AirflowFailException):
        StartJob(task_id="start_job").execute(late.context)
    assert len(given) == 1


def test_a_savepoint_that_took_too_long_is_followed_by_the_old_job(
    tmp_path: Path, home: Path, occasion: Occasion, flink: Flink, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(tmp_path, outage_limit="5m")
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    here = context(rehearsal, request, occasion)
    flink.found = "a trigger"
    rehearsal.keep(StopAsked(now_ms() - 6 * MINUTE, 5 * MINUTE, True))
    with pytest.raises(AirflowFailException, match="outage_limit"):
        TakeSavepoint(task_id="take_savepoint").execute(here)
    stop = kept_facts(rehearsal, StopAsked)
    assert (stop.limit, stop.way_back) == (5 * MINUTE, True)
    assert now_ms() - stop.at >= 6 * MINUTE
    run = Run.open(rehearsal.folder.parent.child(occasion.short_id))
    assert run.state is RunState.REJECTED


def test_the_outage_counts_from_the_try_that_stops_the_job(
    tmp_path: Path, home: Path, occasion: Occasion, flink: Flink
) -> None:
    """After the first try, which has failed or was lost before Flink had answered, the job has run on for hours."""
    request = asked(tmp_path, outage_limit="5m")
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    here, before = context(rehearsal, request, occasion), now_ms()
    here["task_state_store"] = Store(savepoint_asked_for_at=str(before - 60 * MINUTE))
    rehearsal.keep(StopAsked(before - 60 * MINUTE, 5 * MINUTE, True))
    taken = TakeSavepoint(task_id="take_savepoint").execute(here)
    stop = kept_facts(rehearsal, StopAsked)
    assert stop.at == taken["requested_at"] >= before


def test_a_job_that_others_work_on_keeps_nobody_from_going_back(
    tmp_path: Path, home: Path, occasion: Occasion, started: list[str]
) -> None:
    """No job runs meanwhile. What the other run does without its lease isn't committed, and it is tried again."""
    cut = Cut(tmp_path, home, occasion, minutes=1)
    cut.publish()
    plan = cut.run.plan
    with Control(plan.catalog_uri) as control:
        control.release(control.acquire(plan.job, plan.run_id))
        night = control.acquire(plan.job, "a night")
        ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
        assert (started, control.standing(plan.job)) == (["old.jar"], None)
        with pytest.raises(LeaseLostError):
            control.renew(night)
        assert control.lease_of(plan.job) is None


async def events(trigger: OutageTrigger, *states: object) -> list[object]:
    said = list(states)

    async def state() -> str | None:
        one = said.pop(0) if len(said) > 1 else said[0]
        if isinstance(one, Exception):
            raise one
        return None if one is None else str(one)

    trigger._state = state  # type: ignore[method-assign]
    return [event async for event in trigger.run()]


@pytest.mark.parametrize("end", ["success", "failed", "upstream_failed"])
def test_the_wait_ends_with_the_new_jobs_start(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr(outage_task, "_LOOK_SECONDS", 0.01)
    trigger = OutageTrigger(dag_id="d", dag_run_id="r", until=now_ms() / 1000 + 60)
    # An answer that Airflow doesn't give ends nothing.
    (event,) = asyncio.run(events(trigger, None, RuntimeError("no answer"), "running", end))
    assert isinstance(event, TaskSuccessEvent)
    trigger = OutageTrigger(dag_id="d", dag_run_id="r", until=now_ms() / 1000 + 0.05)
    # Own tasks that are skipped have started no job.
    (event,) = asyncio.run(events(trigger, "running", "skipped"))
    assert type(event) is TriggerEvent


def test_the_limit_is_watched_beside_the_steps() -> None:
    dag = next(dag for dag in migration_dags() if dag.dag_id == "state_migration")
    watch, back = dag.task_dict["watch_outage"], dag.task_dict["return_to_old_job"]
    assert watch.upstream_task_ids >= {"take_savepoint"}
    assert watch.task_id in back.upstream_task_ids


@pytest.mark.parametrize(
    ("exceeded", "refused"),
    [(True, None), (True, "the outage has taken longer than outage_limit"), (False, None)],
    ids=["running", "tried again after the limit", "failed"],
)
def test_a_job_that_start_job_is_about_to_start_is_waited_for_and_ended(
    exceeded: bool, refused: str | None, tmp_path: Path, home: Path, occasion: Occasion, started: list[str],
    checkpoints: dict[str, bool], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The program's main may still be at work, though Airflow knows nothing of it any more."""
    cut = Cut(tmp_path, home, occasion, minutes=6)
    cut.run.keep(NewJob("ab"), *([OutageExceeded(1, 1)] if exceeded else []))
    cut.xcoms["start_job", "refused"] = refused
    looks: list[str] = []

    def state(_: Any, job: str) -> str | None:
        looks.append(job)
        if len(looks) == 3:
            # Flink has it only now.
            checkpoints["ab"] = False
        return "RUNNING" if job in checkpoints else None

    ended: list[str] = []
    task = ReturnToOldJob(task_id="return_to_old_job")
    monkeypatch.setattr(task, "_end", lambda _, job: ended.append(job))
    monkeypatch.setattr(FlinkHook, "job_state", state)
    monkeypatch.setattr(return_task, "POLL_SECONDS", 0.01)
    task.execute(cut.context)
    assert (ended, started) == (["ab"], ["old.jar"])
    assert looks[:3] == ["ab"] * 3


def test_a_job_that_flink_has_refused_is_not_waited_for_and_one_that_never_comes_for_a_while(
    tmp_path: Path, home: Path, occasion: Occasion, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=1)
    cut.run.keep(NewJob("ab"))
    cut.xcoms["start_job", "refused"] = "Flink has refused the program"
    monkeypatch.setattr(f"{return_task.__name__}.time.sleep", lambda _: pytest.fail("it was waited for"))
    ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
    assert started == ["old.jar"]
    other = Cut(tmp_path / "other", home, Occasion("other", occasion.as_of), minutes=1)
    other.run.keep(NewJob("ab"))
    sleeps: list[float] = []
    monkeypatch.setattr(f"{return_task.__name__}.time.monotonic", lambda: float(sum(sleeps)))
    monkeypatch.setattr(f"{return_task.__name__}.time.sleep", sleeps.append)
    ReturnToOldJob(task_id="return_to_old_job").execute(other.context)
    # Once, though it is looked for twice.
    assert sum(sleeps) == pytest.approx(30, abs=1)
    assert started == ["old.jar"] * 2


def test_a_checkpoint_in_the_last_seconds_of_the_limit_is_seen_by_the_next_try(
    tmp_path: Path, home: Path, occasion: Occasion, checkpoints: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Cut(tmp_path, home, occasion, minutes=6)
    cut.publish()
    job = FlinkTask(FlinkHook(), cut.context).job_id
    checkpoints[job] = False

    def start(task: FlinkTask, run: Any, *_: Any, **__: Any) -> dict[str, Any]:
        if not checkpoints[job]:
            checkpoints[job] = True
            raise FlinkTimeoutError("no checkpoint")
        return {"job_id": run.job_id, "state": "RUNNING", "seconds": 1.0}

    monkeypatch.setattr(FlinkTask, "start", start)
    with pytest.raises(FlinkTimeoutError, match="no checkpoint"):
        StartJob(task_id="start_job").execute(cut.context)
    assert cut.run.facts(OutageExceeded) is None
    assert StartJob(task_id="start_job").execute(cut.context)["job_id"] == job


def test_what_a_step_does_until_the_return_is_recorded_is_undone_and_later_it_does_nothing(
    tmp_path: Path, home: Path, occasion: Occasion, started: list[str], checkpoints: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cut = Cut(tmp_path, home, occasion, minutes=1)
    ended: list[str] = []

    def record_late(run: Run, returned: Returned) -> None:
        if run.folder == cut.run.folder:
            # A person has marked these steps as failed, and they are still at work.
            cut.publish()
            record_start(run, NewJob("ab"))
            checkpoints["ab"] = False
        record_return(run, returned)

    task = ReturnToOldJob(task_id="return_to_old_job")
    monkeypatch.setattr(return_task, "record_return", record_late)
    monkeypatch.setattr(task, "_end", lambda _, job: ended.append(job))
    task.execute(cut.context)
    assert (ended, started, cut.standing()) == (["ab"], ["old.jar"], None)
    with pytest.raises(RejectedError, match="is over: the old job was started again"):
        record_start(cut.run, NewJob("cd"))


def test_after_the_return_nothing_is_published(tmp_path: Path, home: Path, occasion: Occasion) -> None:
    run = Cut(tmp_path, home, occasion, minutes=1).run
    record_return(run, Returned("the old job was started again", "/old"))
    with Control(run.plan.catalog_uri) as control:
        held = control.acquire(run.plan.job, run.plan.run_id)
        with pytest.raises(RejectedError, match="is over: the old job was started again"):
            control.publish(held, record_of(run.plan), replaces=None, check=lambda: check_not_returned(run))
        assert control.standing(run.plan.job) is None
