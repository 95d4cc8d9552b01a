"""The pages in Airflow: each shows what its reader may read, and nothing to somebody without a login."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from airflow.api_fastapi.common.db.common import _get_session
from airflow.api_fastapi.core_api import security
from airflow.jobs.job import Job
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskreschedule import TaskReschedule
from airflow.models.xcom import XComModel
from fastapi import FastAPI
from jwt import InvalidTokenError
from sqlalchemy import create_engine, delete, insert, update
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from starlette.testclient import TestClient

from stateferry.airflow.dag_runs.page_links import NOTE, PREFIX, RunPageLink
from stateferry.airflow.pages import page_app, page_notes, page_overview
from stateferry.airflow.pages.page_overview import Overview
from stateferry.airflow.pages.page_plugin import StateferryPlugin
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import OutageExceeded, StopAsked
from stateferry.runs.predict.estimates import OUTAGE, Estimate, Prediction
from stateferry.runs.record.facts import Began, JobStarted, Returned, SavepointTaken
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, TablesFacts
from stateferry.runs.report.decision import Answer, Decision
from stateferry.show import jobs_page
from stateferry.tables.counts import TableCounts
from tests.airflow.state_migration.savepoints import planned_run
from tests.support.records import record_of

ORDERS, BILLS, FORM = "state_migration_orders", "state_migration_bills", "state_migration"
USERS = {"all": {ORDERS, BILLS, FORM}, "ada": {ORDERS}, "nobody": set[str]()}


LATER = Occasion("later", datetime(2026, 11, 21, tzinfo=UTC))


class AuthManager:
    """Knows users by their token, and of each the DAGs that are readable."""

    async def get_user_from_token(self, token: str) -> str:
        if token not in USERS:
            raise InvalidTokenError
        return token

    def get_authorized_dag_ids(self, *, user: str, method: str) -> set[str]:
        assert method == "GET"
        return USERS[user]

    def is_authorized_dag(self, *, method: str, user: str, details: Any, access_entity: Any = None) -> bool:
        assert method == "GET"
        return details.id in USERS[user]


@dataclass(frozen=True, slots=True)
class World:
    client: TestClient
    session: Session
    orders: Run
    bills: Run
    by_hand: Run

    def status(self, user: str | None, path: str) -> int:
        return int(self.get(user, path).status_code)

    def get(self, user: str | None, path: str) -> Any:
        headers = {} if user is None else {"Authorization": f"Bearer {user}"}
        return self.client.get(f"{PREFIX}{path}", headers=headers)

    def words(self, user: str, path: str) -> str:
        answer = self.get(user, path)
        assert answer.status_code == 200, answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "<script" not in answer.text
        return str(answer.text)

    def task(self, dag_id: str, dag_run_id: str, task_id: str, state: str | None = None) -> UUID:
        id_ = uuid4()
        of_task = {"id": id_, "dag_id": dag_id, "run_id": dag_run_id, "task_id": task_id, "map_index": -1}
        needed = {"pool": "default_pool", "pool_slots": 1, "max_tries": 3, "try_number": 1, "state": state}
        columns = {column.name for column in TaskInstance.__table__.columns}
        known = {name: value for name, value in needed.items() if name in columns}
        self.session.execute(insert(TaskInstance.__table__).values(**of_task, **known))
        return id_

    def dag_run(self, dag_id: str, dag_run_id: str, state: str, **values: object) -> None:
        at = datetime(2026, 11, 22, tzinfo=UTC)
        needed = {"run_type": "manual", "triggered_by": "ui", "triggering_user_name": "grace", "start_date": at}
        needed |= {
            "queued_at": at,
            "run_after": at,
            "logical_date": at,
            "clear_number": 0,
            "conf": {},
            "log_template_id": 1,
        }
        columns = {column.name for column in DagRun.__table__.columns}
        known = {name: value for name, value in (needed | values).items() if name in columns}
        where = (DagRun.dag_id == dag_id, DagRun.run_id == dag_run_id)
        self.session.execute(delete(DagRun.__table__).where(*where))
        self.session.execute(insert(DagRun.__table__).values(dag_id=dag_id, run_id=dag_run_id, state=state, **known))
        self.session.commit()

    def delay(self, dag_id: str, dag_run_id: str, *until: datetime) -> None:
        of_task = self.task(dag_id, dag_run_id, "wait_to_stop", "up_for_reschedule")
        for at in until:
            self.session.add(TaskReschedule(of_task, at, at, at))
        self.session.commit()

    def ask(self, dag_id: str, dag_run_id: str, people: list[dict[str, str]]) -> None:
        id_, now = self.task(dag_id, dag_run_id, "approve"), datetime(2026, 11, 22, tzinfo=UTC)
        asked = HITLDetail(
            ti_id=id_, options=["Approve"], subject="Cut over <b>orders</b>?", assignees=people, params={}
        )
        asked.created_at = now
        self.session.add(asked)
        self.session.commit()


def a_run(home: Path, job: str, occasion: Occasion, dag_id: str | None, state: RunState) -> Run:
    request = MigrationRequest.model_validate({"job": job, "target": f"{home}/{job}"}).rehearsal()
    run = planned_run(request, Occasion(f"{job}-{occasion.run_id}", occasion.as_of))
    run.keep(Began(1, dag_id, None if dag_id is None else f"manual__{job}+1"))
    run.enter(RunState.RUNNING, 5)
    if state is not RunState.RUNNING:
        run.enter(state, 6, "no room" if state is RunState.FAILED else "")
    return run


@pytest.fixture
def world(home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    import_all_models()  # type: ignore[no-untyped-call]
    shown = (TaskInstance, HITLDetail, XComModel, TaskReschedule, DagRun, DagModel, Job)
    Base.metadata.create_all(engine, [one.__table__ for one in shown])
    for module in (security, page_app):
        monkeypatch.setattr(module, "get_auth_manager", AuthManager)
    monkeypatch.setattr(DagModel, "get_team_name", lambda _: None)
    page_app._overview.cache_clear()
    page_app.pages_app.cache_clear()
    runs = (
        a_run(home, "orders", occasion, ORDERS, RunState.RUNNING),
        a_run(home, "bills", occasion, BILLS, RunState.FAILED),
        a_run(home, "by hand", occasion, None, RunState.FAILED),
    )
    (mounted,) = StateferryPlugin.fastapi_apps
    app = FastAPI()
    app.mount(mounted["url_prefix"], mounted["app"])
    with Session(engine) as session:
        page_app.pages_app().dependency_overrides[_get_session] = lambda: session
        with TestClient(app) as client:
            yield World(client, session, *runs)
    page_app._overview.cache_clear()
    page_app.pages_app.cache_clear()


def pages_of(run: Run) -> list[str]:
    job = run.folder.parent.name
    return [f"/jobs/{job}/history", f"/jobs/{job}/runs/{run.plan.run_id}"]


def test_nothing_is_shown_without_a_login(world: World) -> None:
    pages = ["/", *pages_of(world.orders), f"/dags/{ORDERS}/runs/manual__orders+1", "/jobs/x/runs/y"]
    for page in pages:
        assert world.status(None, page) == 401, page
        assert world.status("a forged token", page) == 403, page
    for page in ("/docs", "/openapi.json", "/redoc"):
        assert world.status(None, page) == 404, page


def test_nothing_is_changed_by_a_page(world: World) -> None:
    for page in ("/", *pages_of(world.orders)):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = world.client.request(method, f"{PREFIX}{page}", headers={"Authorization": "Bearer all"})
            assert answer.status_code == 405, page


@pytest.mark.parametrize("text", ['{"format": 999}', "no JSON"])
def test_a_home_that_cant_be_read_is_told(world: World, home: Path, text: str) -> None:
    (home / "format.json").write_text(text)
    pages = ["/", *pages_of(world.orders), f"/dags/{ORDERS}/runs/manual__orders%2B1"]
    for page in pages:
        answer = world.get("ada", page)
        assert answer.status_code == 503, page
        assert str(home) in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert world.status(None, page) == 401, page
        assert world.status("a forged token", page) == 403, page
    (home / "format.json").unlink()
    world.words("ada", "/")


def test_a_list_has_what_the_reader_may_read(world: World) -> None:
    assert "There is no run yet that you may look at" in world.words("nobody", "/")
    ada = world.words("ada", "/")
    assert "/stateferry/jobs/orders/history" in ada
    assert "bills" not in ada
    assert "by hand" not in ada
    everything = world.words("all", "/")
    for name in ("orders", "bills", "by hand", "no room", "Room on disk"):
        assert name in everything


def test_a_page_needs_the_right_to_read_its_dag(world: World) -> None:
    for page in (*pages_of(world.orders), f"/dags/{ORDERS}/runs/manual__orders%2B1"):
        assert world.status("ada", page) == 200, page
        assert world.status("nobody", page) in (403, 404), page
    for run in (world.bills, world.by_hand):
        for page in pages_of(run):
            assert world.status("all", page) == 200, page
            assert world.status("ada", page) in (403, 404), page
    assert world.status("ada", pages_of(world.bills)[1]) == 403
    assert world.status("ada", f"/dags/{BILLS}/runs/manual__bills%2B1") == 403
    # The DAG of the address must be that of the run.
    assert world.status("ada", f"/dags/{ORDERS}/runs/manual__bills%2B1") == 404
    # Whether a run exists is told to those who might read it.
    assert world.status("ada", "/jobs/orders/runs/none") == 403
    assert world.status("all", "/jobs/orders/runs/none") == 404
    assert world.status("all", "/jobs/orders/history?page=0") == 422
    assert world.status("all", "/jobs/orders/history?page=99") == 200


def test_what_is_at_work_and_who_is_waited_for(world: World) -> None:
    plan = world.orders.plan
    record = record_of(plan)
    with Control(plan.catalog_uri) as control:
        held = control.acquire(plan.job, plan.run_id)
        control.publish(held, record, replaces=None)
        LiveProgress("rescale", 3, 8, 10.0, 5_000_000, "B", at=now_ms()).keep(world.orders.progress)
        world.ask(ORDERS, "manual__orders+1", [{"id": "1", "name": "Bob"}, {"id": "2", "name": "Eve"}])
        world.ask(BILLS, "manual__bills+1", [])
        said = world.words("ada", "/")
    for words in (
        "rescale: 3 of 8 tasks, 500.0 kB/s, about 17 s left",
        "publication 1",
        "<strong>Bob, Eve</strong>",
        "Cut over &lt;b&gt;orders&lt;/b&gt;?",
        f"/dags/{ORDERS}/runs/manual__orders%2B1/tasks/approve/required_actions",
        'http-equiv="refresh" content="5"',
    ):
        assert words in said, words
    assert "anybody" not in said
    assert "anybody who may answer" in world.words("all", "/")


def test_what_waits_for_its_time_is_told_to_its_readers(world: World) -> None:
    first, last = datetime(2026, 11, 22, 1, tzinfo=UTC), datetime(2026, 11, 22, 2, tzinfo=UTC)
    world.delay(ORDERS, "manual__orders+1", first, last)
    said = world.words("ada", "/")
    assert f'/dags/{ORDERS}/runs/manual__orders%2B1/tasks/wait_to_stop">wait_to_stop</a> looks again at' in said
    assert "2026-11-22 02:00:00 UTC; its log says for what" in said
    assert 'http-equiv="refresh" content="5"' in said
    assert "looks again" not in world.words("nobody", "/")


DAG_RUN = "manual__orders+1"


def cutting_over(world: World, *, asked: bool = True, now: int | None = None) -> tuple[Run, Run]:
    """The rehearsal and the run of a cut-over that ada has approved; a minute ago Flink was asked to stop the job."""
    rehearsal, now = world.orders, now or now_ms()
    foreseen = {part.name: Estimate(20.0, 10.0, 90.0, 3) for part in OUTAGE}
    prediction = Prediction(1, 3, 1, 1, foreseen, Estimate(120.0, 60.0, 540.0, 3))
    decision = Decision(rehearsal.plan.run_id, Answer.APPROVED, "approved by ada", now - 70_000, 0.1, prediction)
    rehearsal.keep(decision)
    values = {"job": "orders", "target": f"{rehearsal.plan.home}/final"}
    final = planned_run(MigrationRequest.model_validate(values), LATER)
    final.keep(Began(now - 100_000, ORDERS, DAG_RUN))
    if asked:
        rehearsal.keep(StopAsked(now - 60_000, 300_000, way_back=True))
        final.keep(SavepointTaken(seconds=9.0, ended_at=now - 50_000, requested_at=now - 60_000, savepoint="/old"))
        final.keep(SnapshotFacts(seconds=9.0, ended_at=now - 40_000))
    page_app._overview.cache_clear()
    return rehearsal, final


def test_the_page_of_the_outage_says_since_when_until_when_and_whom_to_ask(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = now_ms()
    for module in (page_overview, jobs_page):
        monkeypatch.setattr(module, "now_ms", lambda: now)
    cutting_over(world, now=now)
    world.dag_run(ORDERS, DAG_RUN, "running")
    for task, state in (("snapshot", "success"), ("migrate", "running"), ("application", "running")):
        world.task(ORDERS, DAG_RUN, task, state)
    world.session.commit()
    said = world.words("ada", "/")
    for words in (
        "1 job, 1 stands still",
        "<strong>The job stands still.</strong>",
        "for 60 s",
        # What is left of 20 s for the part at work, and four times 20 s for what follows.
        "in about 80 s (between",
        "without a checkpoint of the new job by then, the old job is started again by itself",
        "in 4.0 m",
        ">migrate</a> running",
        "compared with the old one; it is published; the new job starts, and its first checkpoint ends the outage",
        "the old job is started again by itself, unless the new one has completed a checkpoint",
        "approved by ada; triggered by grace: ",
        "<td>snapshot</td>",
        'http-equiv="refresh" content="2"',
    ):
        assert words in said, (words, said)
    # What doesn't belong to the outage is not at work on it.
    assert ">application</a> running" not in said
    assert "stands still" not in world.words("nobody", "/")


def test_while_flink_takes_the_savepoint_the_page_says_how_to_go_back(world: World) -> None:
    rehearsal, _ = cutting_over(world, asked=False)
    rehearsal.keep(StopAsked(now_ms() - 5_000, None, way_back=True))
    world.dag_run(ORDERS, DAG_RUN, "running")
    world.task(ORDERS, DAG_RUN, "take_savepoint", "running")
    world.session.commit()
    said = world.words("ada", "/")
    assert "The job is being stopped" in said
    assert f'mark the task <a href="/dags/{ORDERS}/runs/manual__orders%2B1/tasks/take_savepoint">take_savepoint' in said
    assert "the old job is started again from its savepoint, as soon as Flink has completed that" in said
    rehearsal.keep(StopAsked(now_ms() - 5_000, None, way_back=False))
    assert "to go back" not in world.words("ada", "/")


NEVER = "Airflow&#x27;s scheduler has given no sign of life"


def test_a_night_that_is_due_and_has_not_begun_is_shown_at_once(world: World) -> None:
    due = datetime.now(UTC) - timedelta(hours=2)
    night(world, ORDERS, due)
    night(world, BILLS, due, is_paused=True)
    # The DAG of orders has had a night, that of the form none.
    world.orders.keep(Began(1, ORDERS, "scheduled__1"))
    page_app._overview.cache_clear()
    said = world.words("ada", "/")
    at = f"a scheduled run was due at {due:%Y-%m-%d %H:%M:%S} UTC and hasn&#x27;t begun: "
    assert f'/dags/{ORDERS}">{ORDERS}</a>: {at}{NEVER}' in said
    assert said.index("/stateferry/jobs/orders/history") < said.index(at)
    night(world, FORM, due)
    said = world.words("all", "/")
    assert f"{FORM}: {at}{NEVER}" in said
    assert said.index(f"{FORM}: {at}") < said.index("/stateferry/jobs/bills/history")
    assert said.count(at) == 2
    assert at not in world.words("nobody", "/")


def test_why_a_night_has_not_begun(world: World) -> None:
    begun = Job(heartrate=5)  # type: ignore[no-untyped-call]
    begun.job_type, begun.state, begun.latest_heartbeat = "SchedulerJob", "running", datetime.now(UTC)
    world.session.add(begun)
    due = datetime.now(UTC) - timedelta(hours=2)
    night(world, ORDERS, due, exceeds_max_non_backfill=True)
    why = "hasn&#x27;t begun: an earlier run of this DAG is still at work, or waits for an answer"
    assert why in world.words("ada", "/")
    begun.latest_heartbeat = due
    world.session.commit()
    assert f"{NEVER} since {due:%Y-%m-%d %H:%M:%S} UTC" in world.words("ada", "/")
    begun.latest_heartbeat = datetime.now(UTC)
    # The scheduler begins it a few seconds after it is due; what is no more isn't due.
    night(world, ORDERS, datetime.now(UTC) - timedelta(minutes=1))
    night(world, FORM, due, is_stale=True)
    assert "was due" not in world.words("all", "/")


def night(world: World, dag_id: str, due: datetime, **values: object) -> None:
    """As the DAG processor tells it."""
    of_dag = {"is_paused": False, "is_stale": False, "exceeds_max_non_backfill": False, **values}
    world.session.execute(delete(DagModel.__table__).where(DagModel.dag_id == dag_id))
    needed = {"max_active_tasks": 16, "max_active_runs": 1, "max_consecutive_failed_dag_runs": 0, "fail_fast": False}
    of_dag |= {"has_task_concurrency_limits": False, "bundle_name": "dags-folder", **needed}
    known = DagModel.__table__.columns.keys()
    of_dag = {name: value for name, value in of_dag.items() if name in known}
    world.session.execute(insert(DagModel.__table__).values(dag_id=dag_id, next_dagrun_create_after=due, **of_dag))
    world.session.commit()


def test_from_the_yes_on_the_page_says_that_the_job_still_runs(world: World) -> None:
    cutting_over(world, asked=False)
    world.dag_run(ORDERS, DAG_RUN, "running")
    world.task(ORDERS, DAG_RUN, "wait_to_stop", "up_for_reschedule")
    world.session.commit()
    said = world.words("ada", "/")
    assert "The cut-over is approved. The job runs, and is stopped as soon as it may." in said
    assert "about 120 s, at most 540" in said
    assert "Flink stops the job with a savepoint; the savepoint is read" in said
    assert "stands still" not in said


def test_the_way_back_is_told_until_the_old_job_runs(world: World) -> None:
    _, final = cutting_over(world)
    world.dag_run(ORDERS, DAG_RUN, "running")
    final.keep(OutageExceeded(now_ms(), 300_000))
    id_ = world.task(ORDERS, DAG_RUN, "return_to_old_job", "running")
    world.session.commit()
    said = world.words("ada", "/")
    assert "The old job is started again, because the outage has taken longer than outage_limit (5.0 m)." in said
    assert ">return_to_old_job</a> running" in said
    assert "expected until" not in said
    # The task has failed, and with it the DAG run: that must not look as if all were well.
    at = TaskInstance.__table__.c
    world.session.execute(update(TaskInstance.__table__).where(at.id == id_).values(state="failed"))
    world.dag_run(ORDERS, DAG_RUN, "failed")
    said = world.words("ada", "/")
    assert "The DAG run has ended, and neither the new job nor the old one is known to run." in said
    assert "start the old job from /old" in said
    final.keep(Returned("the old job was started again", "/old", ended_at=now_ms()))
    assert "is known to run" not in world.words("ada", "/")


@pytest.mark.parametrize("facts", [JobStarted(seconds=1.0), None])
def test_an_outage_that_is_over_is_not_shown(world: World, facts: JobStarted | None) -> None:
    _, final = cutting_over(world)
    world.dag_run(ORDERS, DAG_RUN, "running")
    if facts is not None:
        final.keep(facts)
    else:
        # Flink has never stopped the job.
        world.task(ORDERS, DAG_RUN, "return_to_old_job", "skipped")
        world.session.commit()
    assert "stands still" not in world.words("ada", "/")


def test_a_rollback_that_waits_or_is_at_work_is_shown_with_its_job(world: World) -> None:
    world.dag_run("state_rollback", "back-1", "running", conf={"job": "orders"})
    world.dag_run("state_rollback", "back-2", "success", conf={"job": "bills"}, logical_date=None)
    world.ask("state_rollback", "back-1", [])
    assert "back-1" not in world.words("ada", "/")
    USERS["ada"].add("state_rollback")
    try:
        said = world.words("ada", "/")
    finally:
        USERS["ada"].remove("state_rollback")
    assert "/dags/state_rollback/runs/back-1/tasks/approve/required_actions" in said
    assert '/dags/state_rollback/runs/back-1">between two tasks</a>, since 2026-11-22 00:00:00 UTC' in said
    assert "back-2" not in said


def test_a_run_links_to_its_jobs_in_flink(world: World) -> None:
    known = {"dag_run_id": 1, "map_index": -1, "key": "flink_job_url", "dag_id": ORDERS, "run_id": "manual__orders+1"}
    for task, address in (("start_job", "http://flink:8081/#/job/running/ab/overview"), ("bad", "javascript:alert(1)")):
        world.session.execute(insert(XComModel.__table__).values(**known, task_id=task, value=f'"{address}"'))
    world.session.commit()
    page = pages_of(world.orders)[1]
    said = world.words("ada", page)
    assert 'href="http://flink:8081/#/job/running/ab/overview">Flink job of start_job</a>' in said
    assert "javascript" not in said
    assert "flink:8081" not in world.words("all", pages_of(world.bills)[1])


def test_how_a_lazy_migration_converges_is_told_to_who_may_read_all_runs(world: World, home: Path) -> None:
    counts = TableCounts(keys_migrated_by_job=60, keys_migrated_by_ferry=20, keys_left=20)
    run = world.orders
    run.keep(TablesFacts(counts={"main/mainState": counts}))
    line = "main/mainState: 80.0 % of 100 keys migrated: 60 by the job, 20 by Stateferry; 20 left"
    assert line in world.words("ada", "/")
    others = planned_run(MigrationRequest.model_validate({"job": "orders", "target": f"{home}/x"}).rehearsal(), LATER)
    others.keep(Began(1, BILLS, "manual__bills+2"))
    page_app._overview.cache_clear()
    assert line not in world.words("ada", "/")
    assert line in world.words("all", "/")


def test_a_publication_of_a_run_that_is_not_readable_is_not_shown(world: World) -> None:
    with Control(world.orders.plan.catalog_uri) as control:
        control.acquire("orders", "another-run")
    (job,) = Overview().jobs({ORDERS}, "")
    assert (job.published, job.lease) == (None, None)


def test_a_catalog_that_cannot_be_read_is_told(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("STATEFERRY_CATALOG", f"sqlite:///{tmp_path}/broken.db")
    assert "the catalog" in world.words("all", "/")


def test_each_task_links_to_its_run() -> None:
    key: Any = SimpleNamespace(dag_id=ORDERS, run_id="manual__2026-11-22T00:00:00+00:00")
    made = RunPageLink().get_link(SimpleNamespace(), ti_key=key)  # type: ignore[arg-type]
    assert made == f"/stateferry/dags/{ORDERS}/runs/manual__2026-11-22T00%3A00%3A00%2B00%3A00"


def dag_run(**values: Any) -> Any:
    """As the listener gets it."""
    return SimpleNamespace(**values, get_task_instances=lambda state, session: [])


def test_the_note_of_a_dag_run_says_what_came_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_notes, "object_session", lambda _: world.session)
    values = {"dag_run_id": 1, "task_id": "conclude", "map_index": -1, "key": NOTE, "dag_id": ORDERS, "run_id": "one"}
    world.session.execute(insert(XComModel.__table__).values(**values, value="cut over orders: published"))
    world.session.commit()
    own = dag_run(dag_id=ORDERS, run_id="one", dag_run_note=None, note=None)
    page_notes.on_dag_run_success(own, "")
    assert own.note == "cut over orders: published"
    by_a_person = dag_run(dag_id=ORDERS, run_id="one", dag_run_note=SimpleNamespace(user_id="ada"), note="mine")
    page_notes.on_dag_run_failed(by_a_person, "")
    assert by_a_person.note == "mine"
    of_others = dag_run(dag_id="another", run_id="one", dag_run_note=None, note=None)
    page_notes.on_dag_run_failed(of_others, "")
    assert of_others.note is None
