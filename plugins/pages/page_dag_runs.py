"""What the pages show of DAG runs, from Airflow's own tables: who waits for whom, what is at work, and since when."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from airflow.jobs.job import Job, most_recent_job
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskreschedule import TaskReschedule
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from stateferry.airflow.dag_runs.page_links import question_path
from stateferry.basics.durations import moment
from stateferry.show.jobs_page import Delayed, Overdue, RollingBack, Waiting
from stateferry.show.outage_view import DagRunLook, TaskLook

ROLLBACK = "state_rollback"
_ACTIVE = (DagRunState.QUEUED, DagRunState.RUNNING)
# The scheduler begins what is due a few seconds later.
_BEGUN_WITHIN = timedelta(minutes=5)
_ENDED = ("success", "failed", "skipped", "upstream_failed", "removed", "None")


class DagRuns:
    """Airflow's tables, with the address of its pages."""

    def __init__(self, session: Session, root: str) -> None:
        self._session, self._root = session, root

    def look(self, dag_id: str, run_id: str) -> DagRunLook | None:
        """The DAG run with its tasks; None if Airflow doesn't know it any more."""
        wanted = (DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        found = self._session.execute(select(DagRun.state, DagRun.triggering_user_name).where(*wanted)).first()
        if found is None:
            return None
        state, triggered_by = found
        tasks = {one.name: one for one in self._tasks(dag_id, run_id)}
        return DagRunLook(
            self._address(dag_id, run_id), state in _ACTIVE, tasks, triggered_by, self._asked(dag_id, run_id)
        )

    def rollbacks(self) -> Iterator[tuple[str, RollingBack]]:
        """The rollbacks that aren't over, each with the id of its DAG run."""
        wanted = (DagRun.dag_id == ROLLBACK, DagRun.state.in_(_ACTIVE))
        found = select(DagRun.run_id, DagRun.conf, DagRun.start_date, DagRun.queued_at).where(*wanted)
        for run_id, conf, start, queued in self._session.execute(found).all():
            job = conf.get("job") if isinstance(conf, dict) else None
            if not isinstance(job, str):
                continue
            busy = [one for one in self._tasks(ROLLBACK, run_id) if one.state not in _ENDED]
            since = _ms(start or queued) or 0
            address = busy[0].address if busy else self._address(ROLLBACK, run_id)
            yield run_id, RollingBack(job, since, busy[0].name if busy else "", address)

    def delayed(self, readable: Collection[str]) -> Iterator[Delayed]:
        """The tasks that wait for a window or for another run."""
        until = select(func.max(TaskReschedule.reschedule_date)).where(TaskReschedule.ti_id == TaskInstance.id)
        late = (
            select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, until.scalar_subquery())
            .where(TaskInstance.state == TaskInstanceState.UP_FOR_RESCHEDULE)
            .where(TaskInstance.dag_id.in_(readable))
        )
        for dag_id, run_id, task_id, at in self._session.execute(late).all():
            if at is not None:
                yield Delayed(run_id, task_id, int(at.timestamp() * 1000), self._address(dag_id, run_id, task_id))

    def overdue(self, readable: Collection[str]) -> Iterator[Overdue]:
        """The scheduled runs that are due and haven't begun; those of a DAG that is paused aren't wanted."""
        due = (
            select(DagModel.dag_id, DagModel.next_dagrun_create_after, DagModel.exceeds_max_non_backfill)
            .where(DagModel.dag_id.in_(readable), DagModel.is_paused.is_(False), DagModel.is_stale.is_(False))
            .where(DagModel.next_dagrun_create_after < datetime.now(UTC) - _BEGUN_WITHIN)
        )
        for dag_id, at, is_full in self._session.execute(due).all():
            why = "an earlier run of this DAG is still at work, or waits for an answer" if is_full else ""
            why = self._scheduler_is_gone() or why
            yield Overdue(dag_id, _ms(at) or 0, why, f"{self._root}/dags/{quote(dag_id)}")

    def _scheduler_is_gone(self) -> str:
        """Since when it gives no sign of life; empty if it does."""
        job: Job | None = most_recent_job("SchedulerJob", session=self._session)
        if job is not None and job.is_alive():
            return ""
        since = None if job is None else _ms(job.latest_heartbeat)
        return f"Airflow's scheduler has given no sign of life{f' since {moment(since)}' if since else ''}"

    def waiting(self, readable: Collection[str]) -> Iterator[tuple[str, Waiting]]:
        """The questions that wait for a person, each with its DAG."""
        asked = (
            select(
                HITLDetail.subject,
                HITLDetail.assignees,
                HITLDetail.created_at,
                TaskInstance.dag_id,
                TaskInstance.run_id,
                TaskInstance.task_id,
            )
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(HITLDetail.responded_at.is_(None), TaskInstance.end_date.is_(None))
            .where(TaskInstance.dag_id.in_(readable))
        )
        of_rollbacks = {run_id: one.job for run_id, one in self.rollbacks()} if ROLLBACK in readable else {}
        for subject, assignees, created_at, dag_id, run_id, task_id in self._session.execute(asked).all():
            address = f"{self._root}{question_path(dag_id, run_id, task_id)}"
            since = int(created_at.timestamp() * 1000)
            job = of_rollbacks.get(run_id) if dag_id == ROLLBACK else None
            yield dag_id, Waiting(run_id, subject, _names(assignees), since, address, job)

    def _tasks(self, dag_id: str, run_id: str) -> Iterator[TaskLook]:
        columns = (
            TaskInstance.task_id,
            TaskInstance.state,
            TaskInstance.start_date,
            TaskInstance.queued_dttm,
            TaskInstance.try_number,
        )
        found = select(*columns).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        for one in self._session.execute(found).all():
            yield _task_look(one, self._address(dag_id, run_id, one.task_id))

    def _asked(self, dag_id: str, run_id: str) -> tuple[str, ...]:
        """The people whom the DAG run has asked, by name."""
        found = (
            select(HITLDetail.assignees)
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        )
        named = [name for (assignees,) in self._session.execute(found).all() for name in _names(assignees)]
        return tuple(dict.fromkeys(named))

    def _address(self, dag_id: str, run_id: str, task_id: str = "") -> str:
        task = f"/tasks/{quote(task_id)}" if task_id else ""
        return f"{self._root}/dags/{quote(dag_id)}/runs/{quote(run_id)}{task}"


def _task_look(one: Any, address: str) -> TaskLook:
    state = "None" if one.state is None else str(getattr(one.state, "value", one.state))
    since = one.start_date if state == "running" else one.queued_dttm if state == "queued" else None
    return TaskLook(one.task_id, state, _ms(since), one.try_number, address)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


def _names(assignees: list[dict[str, str]] | None) -> tuple[str, ...]:
    return tuple(str(one["name"] or one["id"]) for one in assignees or ())
