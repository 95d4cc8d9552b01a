"""Gives each task that a DAG run has left out its note, when the run has ended: why it was skipped.

A task that was skipped by another one has no log. Airflow calls this in the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import object_session

from stateferry.airflow.dag_runs.dag_run import LEFT_OUT
from stateferry.airflow.dag_runs.task_names import RETURN
from stateferry.airflow.pages.page_notes import is_ours

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

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
    if session is None or not is_ours(dag_run):
        return
    try:
        with session.no_autoflush:
            why = _BY_RULE | {name: text for said in _left_out(dag_run, session) for name, text in said.items()}
            for task in dag_run.get_task_instances(state=[TaskInstanceState.SKIPPED], session=session):
                # A person's own note stays.
                if task.task_id in why and task.note is None:
                    task.note = why[task.task_id]
    except SQLAlchemyError as error:
        _log.warning("the tasks of %s have no notes: %s", dag_run.run_id, error)


def _left_out(dag_run: DagRun, session: Session) -> Iterator[Mapping[str, str]]:
    # Airflow's models are heavy, and a DAG's process loads the plugin, too.
    from airflow.models.xcom import XComModel

    where = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == LEFT_OUT)
    for one in session.execute(select(XComModel.value).where(*where)):
        said: Any = XComModel.deserialize_value(one)
        if isinstance(said, dict):
            yield said
