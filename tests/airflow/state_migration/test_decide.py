"""The decision before the outage: what is asked, what follows from the answer, and when the job may be stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskAwaitingInput,
)

from stateferry.airflow.dag_runs import when_to_stop
from stateferry.airflow.dag_runs.decided_cut_over import approve_if_nobody_is_asked, check_like_rehearsal
from stateferry.airflow.dag_runs.task_names import IN_OUTAGE
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import Goal, JarRun, JobOverview
from stateferry.airflow.flink.savepoints import Pending, SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import UP_WITH_CHECKPOINT, FlinkTask
from stateferry.airflow.migration_dag import migration_dags
from stateferry.airflow.requests.planning import Occasion, plan_for
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.request_parts import APPROVAL_IS_OFF
from stateferry.airflow.tasks import flink_tasks
from stateferry.airflow.tasks.approval import ApproveRun
from stateferry.airflow.tasks.conclusion import Conclude
from stateferry.airflow.tasks.decide_task import Decide, WaitToStop
from stateferry.airflow.tasks.flink_tasks import TakeSavepoint, stop_order
from stateferry.airflow.tasks.plan_task import PlanOperator
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.basics.durations import now_ms
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.catalog.lease import BETWEEN_STEPS_MS, LEASE_MS, LeaseHeldError, LeaseLostError
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.predict.differences import SourceLayout
from stateferry.runs.predict.estimates import Estimate, Prediction
from stateferry.runs.record.catch_ups import CatchUps, OneCatchUp
from stateferry.runs.record.facts import Began, RunFacts, SavepointTaken
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize, ValidateFacts
from stateferry.runs.report.decision import Answer, Decision, Sign
from stateferry.runs.report.report import Report, SavepointDigests
from tests.airflow.state_migration.conftest import AS_OF
from tests.airflow.state_migration.savepoints import planned_run, write_metadata
from tests.airflow.state_migration.test_approval import ANSWERED
from tests.support.facts import kept_facts
from tests.support.records import record_of

JOB = "0123456789abcdef0123456789abcdef"
OUTAGE = Estimate(40.0, 30.0, 60.0, 3)
YES = {"chosen_options": ["Approve"], "params_input": {}, **ANSWERED}
NO = {"chosen_options": ["Reject"], "params_input": {}, **ANSWERED}


@pytest.fixture
def request_(tmp_path: Path) -> MigrationRequest:
    return asked(tmp_path)


def asked(tmp_path: Path, **others: object) -> MigrationRequest:
    values = {
        "source": "flink", "flink_job": "orders", "savepoint_directory": str(tmp_path / "savepoints"),
        "operator": "main", "legacy_state": "mainState", "new_state": "newMainState",
        "start_job": True, "jar": "new.jar", "entry_class": "a.New`Job", "old_jar": "old.jar",
    }  # fmt: skip
    return MigrationRequest.model_validate(values | others)


@pytest.fixture
def rehearsal(home: Path, occasion: Occasion, request_: MigrationRequest) -> Run:
    return rehearsed(home, occasion.rehearsal(), request_)


def rehearsed(home: Path, occasion: Occasion, request: MigrationRequest, entries: int = 1000) -> Run:
    run = Run.create(plan_for(request.rehearsal(), occasion, str(home / "demo" / "legacy")), occasion.now)
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(entries, 10 * entries)}, seconds=5.0, ended_at=0))
    run.keep(SourceLayout(7, {"main": (2, 128)}))
    run.keep(ValidateFacts(green=True, seconds=6.0, ended_at=0))
    for state in (RunState.RUNNING, RunState.VERIFIED):
        run.enter(state, 1)
    reported(run)
    return run


def reported(run: Run) -> None:
    savepoint = SavepointDigests("/in", 7, {})
    checks = (Check("main/a|b: rows", Outcome.PASSED, "10", "10"),)
    Report(run.plan.job, run.plan.run_id, "f", now_ms(), savepoint, savepoint, checks).write(run.report)


def decided(rehearsal: Run, answer: Answer = Answer.APPROVED) -> Decision:
    foreseen = Prediction(10_000, 3, 10_000, 10_000, {"snapshot": OUTAGE}, OUTAGE, OUTAGE)
    decision = Decision(rehearsal.plan.run_id, answer, f"{answer.value} by ada", 1, 0.1, foreseen)
    rehearsal.keep(decision)
    return decision


def context(rehearsal: Run, request: MigrationRequest, occasion: Occasion) -> Any:
    final = run_folder(rehearsal.plan.home, rehearsal.plan.job, occasion.short_id)
    said = {
        "job": rehearsal.plan.job, "folder": final.shown, "rehearsal": rehearsal.folder.shown,
        "rehearsal_again": run_folder(
            rehearsal.plan.home, rehearsal.plan.job, occasion.rehearsal("rehearsal_again").short_id
        ).shown,
        "request": request.model_dump(),
    }  # fmt: skip
    ti = SimpleNamespace(
        id="the task", dag_id="d", task_id="t", map_index=-1, run_id="r", try_number=1,
        xcom_pull=lambda **_: said, xcom_push=lambda **_: None, get_task_states=lambda **_: {},
    )  # fmt: skip
    dag_run = SimpleNamespace(
        run_id=occasion.run_id, data_interval_end=AS_OF, run_after=AS_OF, start_date=AS_OF, run_type="manual",
        triggering_user_name="grace",
    )  # fmt: skip
    return {"ti": ti, "dag_run": dag_run}


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Subject and body of what was asked."""
    asked: list[tuple[str, str]] = []

    def ask(_id: str, _options: list[str], subject: str, body: str, **_: Any) -> None:
        asked.append((subject, body))

    monkeypatch.setattr("stateferry.airflow.tasks.approval.upsert_hitl_detail", ask)
    return asked


def test_who_is_asked_learns_what_stands_still_how_long_what_starts_and_the_way_back(
    home: Path, rehearsal: Run, request_: MigrationRequest, occasion: Occasion, questions: list[tuple[str, str]]
) -> None:
    for number, entries in enumerate((700, 800)):
        rehearsed(home, Occasion(f"night-{number}", AS_OF - timedelta(days=2 - number)), request_, entries)
    with pytest.raises(TaskAwaitingInput):
        Decide(task_id="decide").execute(context(rehearsal, request_, occasion))
    ((subject, body),) = questions
    # 5 s and 6 s for the steps that were timed, and a little that is assumed.
    assert subject == "Cut over job main? Ready: it will stand still for about 14 s, at most 23"
    assert "**Nothing stands still: job `orders` runs**, and is stopped only after a yes." in body
    assert "snapshot, migrate, rescale and validate in the last rehearsals, the newest first: 11 s, 11 s, 11 s" in body
    assert "| snapshot | 5 | " in body
    assert "| entries of main/mainState | 800 | 1,000 |" in body
    assert "the new job is started: `new.jar 'a.New'Job'`" in body
    assert "the old job is started again by itself (`old.jar`)" in body
    assert "the job is stopped at once" in body
    assert "| main/a\\|b: rows | passed | 10 | 10 |" in body
    # On Airflow's page lines of a paragraph run together: each is of a list or table, or has an empty one after it.
    lines = body.split("\n")
    loose = [
        one for one, after in zip(lines, [*lines[1:], ""], strict=True) if one and one.lstrip()[0] not in "-|" and after
    ]
    assert loose == []
    decision = kept_facts(rehearsal, Decision)
    assert (decision.answer, decision.foreseen is not None) == (Answer.ASKED, True)


@pytest.mark.parametrize("why_not", ["", "it took 1.5 s, more than"])
def test_who_is_asked_learns_how_fast_the_state_changes_or_why_everything_is_converted(
    why_not: str, rehearsal: Run, request_: MigrationRequest, occasion: Occasion, questions: list[tuple[str, str]]
) -> None:
    plan = rehearsal.plan.model_copy(
        update={"run_id": "later", "since": rehearsal.plan.run_id, "output_format": "native"}
    )
    last = Run.create(plan, 0)
    last.keep(SnapshotFacts(states={"main/mainState": StateSize(1000, 10_000)}, seconds=1.0, ended_at=0))
    last.keep(ValidateFacts(green=True, seconds=0.5, ended_at=0))
    rehearsal.keep(CatchUps(0, (OneCatchUp("later", 4000, 5000, 1.5),), why_not, 1.25))
    with pytest.raises(TaskAwaitingInput):
        Decide(task_id="decide").execute(context(rehearsal, request_, occasion))
    ((subject, body),) = questions
    if why_not:
        assert f"**The cut-over converts everything**, and not only what has changed: {why_not}" in body
        assert "about 14 s" in subject
    else:
        assert "**The cut-over converts only what has changed** since the last catch-up" in body
        assert "| snapshot | 1 | " in body
    assert "- about 1,250 keys change in a second" in body
    assert "- the copy, which converted everything, took 1.2 s for the same steps" in body
    assert "| `later` | 1970-01-01 00:00:04 UTC | 5,000 | 1.5 |" in body


def test_without_way_back_and_start_the_body_says_so(
    tmp_path: Path, rehearsal: Run, occasion: Occasion, questions: list[tuple[str, str]]
) -> None:
    bare = asked(tmp_path, start_job=False, jar=None, old_jar=None, window="02:00-04:00", on_sign=True)
    with pytest.raises(TaskAwaitingInput):
        Decide(task_id="decide").execute(context(rehearsal, bare, occasion))
    body = questions[0][1]
    assert "**there is no way back by itself**" in body
    assert "**no job is started**" in body
    assert "the job is stopped when a person gives the sign and its window 02:00-04:00 (UTC) is open" in body


def test_an_answer_is_kept_with_the_rehearsal_and_a_no_is_final(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion
) -> None:
    decided(rehearsal, Answer.ASKED)
    here = context(rehearsal, request_, occasion)
    Decide(task_id="decide").execute_complete(here, YES)
    # A try that is lost after the answer asks nobody again.
    assert Decide(task_id="decide").execute(here)["answer"] == "approved by ada"
    WaitToStop(task_id="wait_to_stop").execute(here)
    with pytest.raises(AirflowFailException, match="rejected by ada"):
        Decide(task_id="decide").execute_complete(here, NO)
    for task in (Decide(task_id="decide"), WaitToStop(task_id="wait_to_stop")):
        with pytest.raises(AirflowFailException, match=r"rejected by ada\. The job was not stopped, and runs on"):
            task.execute(here)
    with pytest.raises(AirflowFailException, match="trigger a new run"):
        Decide(task_id="decide").execute_complete(here, YES)
    with pytest.raises(AirflowFailException, match=r"the cut-over was rejected by ada.*runs on"):
        Conclude(task_id="conclude").execute(here)
    # The rehearsal itself stays what it was.
    assert rehearsal.state is RunState.VERIFIED


def test_nobody_is_asked_about_a_job_that_the_cut_over_would_refuse(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, questions: list[tuple[str, str]]
) -> None:
    plan, here = rehearsal.plan, context(rehearsal, request_, occasion)
    with Control(plan.catalog_uri) as control:
        control.publish(control.acquire(plan.job, "before"), record_of(plan, checkpoint_id=8), replaces=None)
    with pytest.raises(AirflowFailException, match=r"is of checkpoint 7, older than checkpoint 8 .*\. The job was not"):
        Decide(task_id="decide").execute(here)
    assert questions == []
    # What follows a publication has a later one.
    rehearsal.keep(SourceLayout(8, {}))
    with pytest.raises(TaskAwaitingInput):
        Decide(task_id="decide").execute(here)


def test_approval_that_is_switched_off_is_kept_too(
    tmp_path: Path, rehearsal: Run, occasion: Occasion, questions: list[tuple[str, str]]
) -> None:
    here = context(rehearsal, asked(tmp_path, approval=False), occasion)
    assert Decide(task_id="decide").execute(here)["answer"] == "approval is switched off"
    assert questions == []


def clock(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return now

    monkeypatch.setattr(when_to_stop, "datetime", Clock)


def ready_at(rehearsal: Run, moment: datetime) -> None:
    report = Report.read(rehearsal.report)
    replace(report, made_at=int(moment.timestamp() * 1000)).write(rehearsal.report)


def test_the_job_waits_for_its_window_and_isnt_stopped_if_the_outage_would_end_outside(
    tmp_path: Path, rehearsal: Run, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = context(rehearsal, asked(tmp_path, window="02:00-04:00"), occasion)
    decided(rehearsal)
    ready_at(rehearsal, datetime(2026, 11, 20, 1, tzinfo=UTC))
    patient = context(rehearsal, asked(tmp_path, window="02:00-04:00", rehearsal_max_age="2d"), occasion)
    rehearsal.keep(Began(0), SavepointTaken(requested_at=20_000, seconds=30.0, ended_at=50_000))
    # The range of the prediction ends after 60 s. Steps of 11 s, before which Flink began its savepoint after 20 s and
    # took 30 s for it, are rehearsed again half as much longer, and a minute, before.
    again = datetime(2026, 11, 21, 2, tzinfo=UTC) - timedelta(seconds=60 + 1.5 * (11 + 20 + 30))
    late = datetime(2026, 11, 20, 3, 59, 30, tzinfo=UTC)
    for now, where, begins in (
        (datetime(2026, 11, 20, 1, 30, tzinfo=UTC), here, datetime(2026, 11, 20, 2, tzinfo=UTC)),
        (late, patient, datetime(2026, 11, 21, 2, tzinfo=UTC)),
        (late, here, again),
    ):
        clock(monkeypatch, now)
        with pytest.raises(AirflowRescheduleException) as waits:
            WaitToStop(task_id="wait_to_stop").execute(where)
        assert waits.value.reschedule_date == begins
    clock(monkeypatch, again)
    WaitToStop(task_id="wait_to_stop").execute(here)
    clock(monkeypatch, datetime(2026, 11, 20, 3, 59, tzinfo=UTC))
    WaitToStop(task_id="wait_to_stop").execute(here)
    short = context(rehearsal, asked(tmp_path, window="02:00-02:01", rehearsal_max_age="9d"), occasion)
    decided(rehearsal)
    assert OUTAGE.high == 60
    with pytest.raises(AirflowRescheduleException):
        WaitToStop(task_id="wait_to_stop").execute(short)
    longer = Estimate(61.0, 61.0, 61.0, 3)
    rehearsal.keep(replace(decided(rehearsal), foreseen=Prediction(1, outage=longer)))
    with pytest.raises(AirflowFailException, match="is long enough: the outage is predicted to take up to 61 s"):
        WaitToStop(task_id="wait_to_stop").execute(short)


def test_a_sign_is_asked_for_once(
    tmp_path: Path, rehearsal: Run, occasion: Occasion, questions: list[tuple[str, str]]
) -> None:
    here = context(rehearsal, asked(tmp_path, on_sign=True), occasion)
    decided(rehearsal)
    with pytest.raises(TaskAwaitingInput):
        WaitToStop(task_id="wait_to_stop").execute(here)
    assert [subject for subject, _ in questions] == ["Stop job main now?"]
    WaitToStop(task_id="wait_to_stop").execute_complete(here, YES)
    sign = kept_facts(rehearsal, Sign)
    assert sign.by == "ada"
    WaitToStop(task_id="wait_to_stop").execute(here)
    assert len(questions) == 1


@pytest.mark.parametrize("operator", [Decide(task_id="decide"), WaitToStop(task_id="wait_to_stop")])
def test_before_an_outage_the_named_people_are_asked_and_told_and_who_triggered_does_not_decide_alone(
    operator: Decide | WaitToStop, tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(tmp_path, approvers=["ada", "grace"], four_eyes=True, on_sign=True)
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    if isinstance(operator, WaitToStop):
        decided(rehearsal)
    named: list[Any] = []
    told: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        "stateferry.airflow.tasks.approval.upsert_hitl_detail", lambda *_, **how: named.append((_, how))
    )
    monkeypatch.setattr(
        "stateferry.airflow.tasks.approval.tell", lambda _, event, job, text: told.append((event, job, text))
    )
    here = context(rehearsal, request, occasion)
    with pytest.raises(TaskAwaitingInput):
        operator.execute(here)
    ((_, _, _, body), how) = named[0]
    assert how["assigned_users"] == [{"id": "ada", "name": "ada"}, {"id": "grace", "name": "grace"}]
    assert "**Four eyes**: grace has triggered this run, so another person must approve it." in body
    ((event, job, text),) = told
    assert (event, job) == ("waiting", "main")
    end = " An answer is waited for, at most 24h, by ada, grace"
    # A sentence of its own.
    assert text.endswith((f".{end}", f"?{end}"))

    before = rehearsal.facts(Decision)
    own = {**YES, "responded_by_user": {"id": "grace", "name": "grace"}}
    with pytest.raises(TaskAwaitingInput):
        operator.execute_complete(here, own, answer_by=now_ms() + 60_000)
    assert rehearsal.facts(Decision) == before
    assert rehearsal.facts(Sign) is None
    assert len(named) == 2
    assert told[1][0] == "waiting"
    assert "grace has approved, but has also triggered this run" in told[1][2]

    operator.execute_complete(here, YES)
    decision, sign = kept_facts(rehearsal, Decision), rehearsal.facts(Sign)
    if isinstance(operator, Decide):
        assert decision.reason == "approved by ada"
    else:
        assert sign is not None
        assert sign.by == "ada"


def test_who_is_asked_is_reminded_before_the_time_is_over(
    tmp_path: Path, rehearsal: Run, occasion: Occasion, questions: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        "stateferry.airflow.tasks.approval.tell", lambda _, event, job, text: told.append((event, job, text))
    )
    minutes = 60_000
    for timeout, first in (("24h", 23 * 60), ("40m", 30), ("3m", 3)):
        here = context(rehearsal, asked(tmp_path, approval_timeout=timeout, approvers="ada"), occasion)
        with pytest.raises(TaskAwaitingInput) as waits:
            Decide(task_id="decide").execute(here)
        assert waits.value.timeout == timedelta(minutes=first), timeout
    late = {"error": "none", "error_type": "timeout"}
    told.clear()
    with pytest.raises(TaskAwaitingInput) as waits:
        Decide(task_id="decide").execute_complete(here, late, answer_by=now_ms() + 10 * minutes)
    ((event, job, text),) = told
    assert (event, job) == ("reminder", "main")
    assert text.startswith(
        "Cut over job main? There is still no answer by ada. Without one in 10.0 m, the run ends as rejected"
    )
    assert timedelta(minutes=9) < waits.value.timeout <= timedelta(minutes=10)
    # The answer is taken, and the time then is over for good.
    with pytest.raises(AirflowFailException, match="no answer came in time"):
        Decide(task_id="decide").execute_complete(here, late, answer_by=now_ms() - 1)
    assert len(told) == 1


class Flink:
    """What Flink knows of the savepoint, and what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.orders: list[SavepointOrder] = []
        self.found: object = None
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(FlinkHook, "run", lambda *_: self.found)
        monkeypatch.setattr(FlinkHook, "checkpoint_interval", lambda *_: 30_000)
        monkeypatch.setattr(FlinkTask, "take_savepoint", lambda _, order, **__: self.take(order))
        monkeypatch.setattr(FlinkTask, "job_meant", lambda *_: JOB)

    def take(self, order: SavepointOrder) -> TakenSavepoint:
        self.orders.append(order)
        self.meanwhile()
        savepoint = Path(order.directory) / "savepoint-1"
        if not savepoint.exists():
            write_metadata(savepoint, completed_at=AS_OF.timestamp())
        return TakenSavepoint(JOB, str(savepoint))


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> Flink:
    return Flink(monkeypatch)


def test_nothing_stops_the_job_without_a_yes_outside_the_window_or_on_an_old_rehearsal(
    tmp_path: Path, rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here, stop = context(rehearsal, request_, occasion), TakeSavepoint(task_id="take_savepoint")
    for answer, why in ((None, "nobody has approved"), (Answer.ASKED, "nobody has"), (Answer.REJECTED, "rejected by")):
        if answer is not None:
            decided(rehearsal, answer)
        with pytest.raises(AirflowFailException, match=why):
            stop.execute(here)
    decided(rehearsal)
    now = datetime.now(UTC)
    ready_at(rehearsal, now - timedelta(hours=25))
    with pytest.raises(AirflowFailException, match="more than rehearsal_max_age"):
        stop.execute(here)
    ready_at(rehearsal, now)
    later = f"{now + timedelta(hours=2):%H:%M}-{now + timedelta(hours=3):%H:%M}"
    with pytest.raises(AirflowRescheduleException):
        stop.execute(context(rehearsal, asked(tmp_path, window=later), occasion))
    assert flink.orders == []
    # Somebody else has ended it: another job may go on from there.
    flink.found = "a trigger"
    with pytest.raises(AirflowFailException, match="somebody else has stopped it"):
        stop.execute(context(rehearsal, asked(tmp_path, window=later), occasion))
    assert flink.orders == []
    # The stop was ordered by an earlier try, which was killed: what has begun is finished, whatever the clock says.
    rehearsal.keep(StopAsked(now_ms()))
    stop.execute(context(rehearsal, asked(tmp_path, window=later), occasion))
    assert [order.stop for order in flink.orders] == [True]


def test_a_job_that_was_cut_over_after_the_rehearsal_began_is_not_stopped(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink
) -> None:
    """By the other DAG, or by a command: the job of this name is the new one by now."""
    decided(rehearsal)
    plan = rehearsal.plan
    with Control(plan.catalog_uri) as control:
        lease = control.acquire(plan.job, "another run")
        control.publish(lease, record_of(plan).model_copy(update={"run_id": "another run"}), replaces=None)
        control.release(lease)
    with pytest.raises(AirflowFailException, match=r"publication 1 of job .* was made after rehearsal .* runs on"):
        TakeSavepoint(task_id="take_savepoint").execute(context(rehearsal, request_, occasion))
    assert flink.orders == []


@pytest.mark.parametrize("of", [SavepointTaken(job_id=JOB), Began(0, flink_job=JOB)], ids=["savepoint", "checkpoint"])
def test_a_job_that_was_started_again_after_its_rehearsal_is_not_stopped(
    of: RunFacts, rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Nobody knows of which program it is. The way back would start the old one, from what this one has written."""
    decided(rehearsal)
    rehearsal.keep(of)
    here, stop = context(rehearsal, request_, occasion), TakeSavepoint(task_id="take_savepoint")
    monkeypatch.setattr(FlinkHook, "job_id", lambda *_: "f" * 32)
    with pytest.raises(
        AirflowFailException, match=rf"is job f+, and rehearsal .* was of job {JOB}: somebody has start"
    ):
        stop.execute(here)
    assert flink.orders == []
    monkeypatch.setattr(FlinkHook, "job_id", lambda *_: JOB)
    stop.execute(here)
    assert [order.stop for order in flink.orders] == [True]


def test_the_job_is_not_stopped_while_another_run_works_on_it_nor_does_one_begin_before_the_steps(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night of another DAG, or a command: the steps of the stopped job would wait for its lease."""
    decided(rehearsal)
    here, stop = context(rehearsal, request_, occasion), TakeSavepoint(task_id="take_savepoint")
    plan, own, night = rehearsal.plan, occasion.short_id, "a night"
    with Control(plan.catalog_uri) as control:
        held = control.acquire(plan.job, night)
        with pytest.raises(AirflowRescheduleException):
            stop.execute(here)
        assert flink.orders == []
        control.release(held)
        flink.meanwhile = lambda: control.acquire(plan.job, night)
        # The job runs on, perhaps, so others needn't wait for long.
        with pytest.raises(LeaseHeldError, match=f"is being worked on by run {own}"):
            stop.execute(here)
        left = control.lease_of(plan.job)
        assert left is not None
        assert left.expires_at <= now_ms() + LEASE_MS
        # Between two tries it has expired.
        night_begins = control.acquire(plan.job, night, force=True)
        flink.meanwhile, flink.found = lambda: None, Pending(JOB, "")
        stop.execute(here)
        with pytest.raises(LeaseLostError):
            control.renew(night_begins)
        assert "is being worked on by" in control.why_not_free(plan.job, night)
        # The process of the first step, which may begin before this one has ended.
        other = Process(os.getppid(), socket.gethostname(), 0)
        monkeypatch.setattr(Process, "this", lambda: other)
        assert control.acquire(plan.job, own).holder == str(other)
    assert [order.stop for order in flink.orders] == [True, True]


def test_the_checkpoint_of_an_ended_job_is_not_taken_while_another_job_goes_on_from_it(
    tmp_path: Path, home: Path, occasion: Occasion, flink: Flink, jobs: list[JobOverview],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A try has failed, and then a supervisor has ended the job and started it anew under its name."""
    by_checkpoint = {"source": "checkpoint", "stop_with": "checkpoint", "may_repeat": True}
    request = asked(tmp_path, **by_checkpoint)
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    rehearsal.keep(StopAsked(now_ms()))
    flink.found = TakenSavepoint(JOB, str(home / "demo" / "legacy"))
    monkeypatch.setattr(FlinkHook, "job_state", lambda *_: "RUNNING")
    jobs.append(JobOverview("anew", "orders", "RUNNING", 1, is_up=True))
    stop = TakeSavepoint(task_id="take_savepoint")
    with pytest.raises(AirflowFailException, match=r"job anew, which is RUNNING .*, goes on from there"):
        stop.execute(context(rehearsal, request, occasion))
    assert flink.orders == []


def test_a_rehearsal_that_was_made_again_counts_if_it_is_like_the_approved_one(
    home: Path, rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink
) -> None:
    here, stop = context(rehearsal, request_, occasion), TakeSavepoint(task_id="take_savepoint")
    decided(rehearsal)
    ready_at(rehearsal, datetime.now(UTC) - timedelta(hours=25))
    with pytest.raises(AirflowFailException, match="more than rehearsal_max_age"):
        stop.execute(here)
    again = rehearsed(home, occasion.rehearsal("rehearsal_again"), request_, entries=2000)
    with pytest.raises(AirflowFailException, match=r"differs from the approved one.*1,000 before, 2,000 now.*runs on"):
        stop.execute(here)
    again.keep(SnapshotFacts(states={"main/mainState": StateSize(1050, 1)}, seconds=5.0, ended_at=0))
    stop.execute(here)
    assert [order.stop for order in flink.orders] == [True]


def test_the_final_run_begins_with_the_decision_and_what_was_predicted(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink
) -> None:
    decision = decided(rehearsal)
    here = context(rehearsal, request_, occasion)
    for _ in range(2):
        TakeSavepoint(task_id="take_savepoint").execute(here)
    final = Run.open(run_folder(rehearsal.plan.home, rehearsal.plan.job, occasion.short_id))
    assert (final.facts(Decision), final.facts(Prediction)) == (decision, decision.foreseen)
    assert final.plan.run_id != rehearsal.plan.run_id
    assert not final.plan.rehearse
    taken = kept_facts(final, SavepointTaken)
    assert taken.requested_at is not None
    assert taken.ended_at is not None


def test_in_the_rehearsal_the_job_runs_on(rehearsal: Run, request_: MigrationRequest, home: Path, flink: Flink) -> None:
    another = Occasion("another", AS_OF)
    folder = run_folder(rehearsal.plan.home, rehearsal.plan.job, another.rehearsal().short_id)
    TakeSavepoint(task_id="take_savepoint", rehearsal="rehearsal").execute(context(rehearsal, request_, another))
    assert [order.stop for order in flink.orders] == [False]
    run = Run.open(folder)
    assert run.plan.rehearse
    taken = kept_facts(run, SavepointTaken)
    # For how long the new job may wait for its first checkpoint.
    assert taken.checkpoint_interval == 30_000


@pytest.fixture
def final(rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink) -> Run:
    decided(rehearsal)
    TakeSavepoint(task_id="take_savepoint").execute(context(rehearsal, request_, occasion))
    run = Run.open(run_folder(rehearsal.plan.home, rehearsal.plan.job, occasion.short_id))
    run.enter(RunState.RUNNING, 2)
    return run


@pytest.mark.parametrize(
    ("entries", "layout", "why"),
    [
        (1000, SourceLayout(8, {"main": (2, 128)}), ""),
        (1099, SourceLayout(8, {"main": (2, 128)}), ""),
        (1200, SourceLayout(8, {"main": (2, 128)}), "entries of main/mainState: 1,000 before, 1,200 now"),
        (1000, SourceLayout(8, {"main": (3, 128)}), "parallelism 2 of at most 128 before, parallelism 3"),
        (1000, SourceLayout(7, {"main": (2, 128)}), "is not newer than"),
    ],
)
def test_a_run_unlike_its_rehearsal_is_rejected_so_the_old_job_comes_back(
    final: Run, entries: int, layout: SourceLayout, why: str
) -> None:
    final.keep(SnapshotFacts(states={"main/mainState": StateSize(entries, 1)}, seconds=1.0, ended_at=0))
    final.keep(layout)
    with Control(final.plan.catalog_uri) as control:
        # As the step leaves it, for the next one.
        control.acquire(final.plan.job, final.plan.run_id, lease_ms=BETWEEN_STEPS_MS)
    for _ in range(2):
        if why:
            with pytest.raises(AirflowFailException, match=why):
                check_like_rehearsal(final)
        else:
            check_like_rehearsal(final)
    assert final.state is (RunState.REJECTED if why else RunState.RUNNING)
    with Control(final.plan.catalog_uri) as control:
        assert (control.lease_of(final.plan.job) is None) == bool(why)


def test_the_validated_run_is_approved_as_its_rehearsal_was(final: Run, rehearsal: Run, occasion: Occasion) -> None:
    approve_if_nobody_is_asked(final, MigrationRequest())
    assert final.changes()[-1].state is RunState.RUNNING
    final.enter(RunState.VERIFIED, 3)
    for _ in range(2):
        approve_if_nobody_is_asked(final, MigrationRequest())
    assert final.state is RunState.APPROVED
    assert final.changes()[-1].reason == f"approved by ada, on rehearsal {rehearsal.plan.run_id}"


def test_a_run_without_a_rehearsal_is_left_alone(home: Path, occasion: Occasion) -> None:
    run = planned_run(MigrationRequest(), occasion)
    for state in (RunState.RUNNING, RunState.VERIFIED):
        run.enter(state, 1)
    check_like_rehearsal(run)
    approve_if_nobody_is_asked(run, MigrationRequest())
    assert run.state is RunState.VERIFIED


@pytest.mark.parametrize("mode", ["cut over", "rehearse"])
def test_a_validated_run_is_approved_if_approval_is_off_and_there_is_something_to_approve(
    home: Path, occasion: Occasion, mode: str
) -> None:
    request = MigrationRequest.model_validate({"approval": False, "mode": mode})
    run = planned_run(request, occasion)
    for state in (RunState.RUNNING, RunState.VERIFIED):
        run.enter(state, 1)
    for _ in range(2):
        approve_if_nobody_is_asked(run, request)
    assert (run.changes()[-1].reason == APPROVAL_IS_OFF) == (run.state is RunState.APPROVED) == (mode == "cut over")


STEPS = ("take_savepoint", "snapshot", "migrate", "rescale", "validate", "tables", "application")
REHEARSAL, AGAIN = ({f"{group}.{task}" for task in STEPS} for group in ("rehearsal", "rehearsal_again"))
CATCH_UPS = {"rehearsal.catch_up", "rehearsal_again.catch_up"}
DECISION = {*AGAIN, *CATCH_UPS, "decide", "wait_to_stop"}
OF_SAVEPOINT = {*REHEARSAL, *DECISION, "take_savepoint", "hold_slot", "start_job"}
CUT_OVER = {*IN_OUTAGE, "tables"}
NO_TABLES = {"rehearsal.tables", "rehearsal_again.tables", "tables"}
RESCALED = {"source": "flink", "work": "rescale only", "parallelism": 4}


@pytest.mark.parametrize(
    ("params", "left_out"),
    [
        ({"source": "demo"}, OF_SAVEPOINT),
        ({"source": "demo", "approval": False}, {*OF_SAVEPOINT, "approve"}),
        ({"source": "demo", "mode": "rehearse"}, {*DECISION, *CUT_OVER, "rehearsal.take_savepoint"}),
        ({"source": "flink"}, {"approve", *CATCH_UPS}),
        ({"source": "flink", "format": "native"}, {"approve"}),
        ({"source": "flink", "format": "native", "catch_up": False}, {"approve", *CATCH_UPS}),
        ({"source": "flink", "format": "native", "parallelism": 4}, {"approve"}),
        ({"source": "flink", "format": "native", "to": "flink-2"}, {"approve"}),
        ({"source": "flink", "mode": "rehearse"}, {*DECISION, *CUT_OVER}),
        (RESCALED | {"format": "native"}, {"approve", *CATCH_UPS, *NO_TABLES}),
        (RESCALED | {"format": "native", "to": "flink-2"}, {"approve", "rehearsal.tables", "rehearsal_again.tables"}),
        (RESCALED, {"approve", *CATCH_UPS, *NO_TABLES}),
    ],
)
@pytest.mark.usefixtures("home")
def test_plan_skips_at_once_what_the_run_doesnt_need(
    tmp_path: Path, params: dict[str, Any], left_out: set[str], occasion: Occasion, context_of: Callable[..., Any]
) -> None:
    of_job = {"flink_job": "orders", "savepoint_directory": str(tmp_path), "job": "orders"}
    of_job |= {"operator": "main", "legacy_state": "a", "new_state": "b"} if "work" not in params else {}
    params = params | (of_job if params["source"] == "flink" else {})
    plan = next(iter(migration_dags())).task_dict["plan"]
    assert isinstance(plan, PlanOperator)
    here, pushed = context_of(params)
    with pytest.raises(DownstreamTasksSkipped) as skips:
        plan.execute(here)
    assert sorted(skips.value.tasks) == sorted({*left_out, "check", "watch_outage"})
    assert pushed["return_value"]["request"]["source"] == params["source"]
    assert pushed["left_out"].keys() == set(skips.value.tasks)
    said = pushed["return_value"]
    if params.get("mode") == "rehearse":
        assert said["rehearsal"] == said["folder"], "it is its own rehearsal"
    else:
        assert bool(said["rehearsal"]) is (params["source"] == "flink")


@pytest.fixture
def context_of(occasion: Occasion) -> Callable[..., Any]:
    def made(params: dict[str, str]) -> Any:
        pushed: dict[str, Any] = {}
        ti = SimpleNamespace(dag_id="state_migration", xcom_push=lambda key, value: pushed.update({key: value}))
        dag_run = SimpleNamespace(
            dag_id="state_migration", run_id=occasion.run_id, data_interval_end=AS_OF, run_after=AS_OF,
            start_date=AS_OF, run_type="manual", conf={}, triggering_user_name="ada",
        )  # fmt: skip
        return {"ti": ti, "dag_run": dag_run, "params": params}, pushed

    return made


def test_a_task_approve_that_is_cleared_asks_nobody_again(
    final: Run, rehearsal: Run, request_: MigrationRequest, occasion: Occasion
) -> None:
    with pytest.raises(Exception, match="it was decided on the rehearsal"):
        ApproveRun(task_id="approve").execute(context(rehearsal, request_, occasion))
    assert flink_tasks.STOPPED == "stopped"


@pytest.mark.parametrize("answer", list(Answer))
def test_a_job_that_was_stopped_by_a_task_that_was_lost_is_started_again(
    rehearsal: Run,
    request_: MigrationRequest,
    occasion: Occasion,
    flink: Flink,
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the stop and the savepoint the task was killed for the last time, before it said anything."""
    decided(rehearsal, answer)
    here = context(rehearsal, request_, occasion)
    said = here["ti"].xcom_pull()
    here["ti"].xcom_pull = lambda task_ids, key=None: said if task_ids == "plan" else None
    task = ReturnToOldJob(task_id="return_to_old_job")
    rehearsal.keep(StopAsked(now_ms()))
    with pytest.raises(AirflowSkipException, match="no savepoint was taken, so job orders was not stopped"):
        task.execute(here)
    flink.found = TakenSavepoint(JOB, "/savepoints/with-which-it-stopped")
    started: list[JarRun] = []

    def start(_: FlinkTask, run: JarRun, *__: Any, **___: Any) -> dict[str, Any]:
        started.append(run)
        return {"job_id": run.job_id, "state": "RUNNING"}

    waited: list[Goal] = []
    monkeypatch.setattr(FlinkTask, "start", start)
    monkeypatch.setattr(FlinkTask, "wait_for", lambda _, __, goal, **___: waited.append(goal))
    if answer is Answer.APPROVED:
        assert task.execute(here)["savepoint"] == "/savepoints/with-which-it-stopped"
        assert [(run.jar, run.savepoint) for run in started] == [("old.jar", "/savepoints/with-which-it-stopped")]
        # Running isn't enough: its state may still be restored.
        assert waited == [UP_WITH_CHECKPOINT]
        # The job has gone on since then: nobody starts it from that savepoint once more, and the run is over.
        with pytest.raises(AirflowSkipException, match="started again already, from /savepoints/with-which-it-stopped"):
            task.execute(here)
        with pytest.raises(AirflowFailException, match="the old job was started again"):
            TakeSavepoint(task_id="take_savepoint").execute(here)
        with pytest.raises(
            AirflowFailException, match=r"was asked to stop at .*the old job runs again from /savepoints"
        ):
            Conclude(task_id="conclude").execute(here)
        return
    with pytest.raises(AirflowSkipException, match="no savepoint was taken, so job orders was not stopped"):
        task.execute(here)


def test_a_job_that_somebody_else_has_stopped_is_left_alone(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink
) -> None:
    decided(rehearsal)
    here = context(rehearsal, request_, occasion)
    said = here["ti"].xcom_pull()
    here["ti"].xcom_pull = lambda task_ids, key=None: said if task_ids == "plan" else None
    flink.found = TakenSavepoint(JOB, "/savepoints/of-somebody-else")
    with pytest.raises(AirflowSkipException, match="no savepoint was taken, so job orders was not stopped"):
        ReturnToOldJob(task_id="return_to_old_job").execute(here)


def test_the_stop_is_looked_for_by_the_order_that_it_was_given_by(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, flink: Flink
) -> None:
    decided(rehearsal)
    here = context(rehearsal, request_, occasion)
    here["ti"].task_id = "take_savepoint"
    TakeSavepoint(task_id="take_savepoint").execute(here)
    here["ti"].task_id = "return_to_old_job"
    looked_for = stop_order(FlinkTask(FlinkHook("flink_default"), here), request_)
    (given,) = flink.orders
    assert (looked_for.directory, looked_for.trigger(0)) == (given.directory, given.trigger(0))
