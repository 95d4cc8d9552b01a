"""Gives a DAG run its note when it has ended, what came of it, and each task that it has left out one: why.

A task that was skipped by another one has no log. Airflow calls this in the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import object_session

from stateferry.airflow.dag_runs.dag_run import LEFT_OUT
from stateferry.airflow.dag_runs.page_links import NOTE
from stateferry.airflow.dag_runs.task_names import RETURN

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

# Of its DAGs the ids begin so.
_DAGS = "state_migration"
_LONGEST = 1000
# Of tasks that no task has left out, but Airflow's rules.
_BY_RULE = {RETURN: "nothing has failed after the job was stopped"}
_log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Called by Airflow."""
    _note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Called by Airflow."""
    _note(dag_run)


def _note(dag_run: DagRun) -> None:
    session = object_session(dag_run)
    if session is None or not dag_run.dag_id.startswith(_DAGS):
        return
    for give in (_note_run, _note_tasks):
        try:
            with session.no_autoflush:
                give(dag_run, session)
        except SQLAlchemyError as error:
            _log.warning("%s lacks notes: %s", dag_run.run_id, error)


def _note_run(dag_run: DagRun, session: Session) -> None:
    before = dag_run.dag_run_note
    # A person's own note stays.
    note = None if before is not None and before.user_id is not None else next(_xcoms(dag_run, NOTE, session), None)
    if note:
        dag_run.note = str(note).strip('"')[:_LONGEST]


def _note_tasks(dag_run: DagRun, session: Session) -> None:
    left_out = (tasks for tasks in _xcoms(dag_run, LEFT_OUT, session) if isinstance(tasks, dict))
    why = _BY_RULE | {name: text for tasks in left_out for name, text in tasks.items()}
    for task in dag_run.get_task_instances(state=[TaskInstanceState.SKIPPED], session=session):
        # A person's own note stays.
        if task.task_id in why and task.note is None:
            task.note = why[task.task_id]


def _xcoms(dag_run: DagRun, key: str, session: Session) -> Iterator[Any]:
    """The XComs of the DAG run that have this key."""
    # Airflow's models are heavy, and a DAG's process loads the plugin, too.
    from airflow.models.xcom import XComModel

    where = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == key)
    for one in session.execute(select(XComModel.value).where(*where)):
        yield XComModel.deserialize_value(one)
