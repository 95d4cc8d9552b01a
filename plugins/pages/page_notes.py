"""Gives a DAG run its note, when it has ended: what came of it, in a line. Airflow calls this in the scheduler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import object_session

from stateferry.airflow.dag_runs.page_links import NOTE

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

# Of its DAGs the ids begin so.
_DAGS = "state_migration"
_LONGEST = 1000
_log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Called by Airflow."""
    _note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Called by Airflow."""
    _note(dag_run)


def is_ours(dag_run: DagRun) -> bool:
    """Whether it is of a DAG of `state_migration`."""
    return dag_run.dag_id.startswith(_DAGS)


def _note(dag_run: DagRun) -> None:
    if not is_ours(dag_run):
        return
    # Airflow's models are heavy, and a DAG's process loads the plugin, too.
    from airflow.models.xcom import XComModel

    session = object_session(dag_run)
    before = dag_run.dag_run_note
    if session is None or (before is not None and before.user_id is not None):
        # A person's own note stays.
        return
    where = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == NOTE)
    try:
        with session.no_autoflush:
            said = session.scalars(select(XComModel.value).where(*where)).first()
    except SQLAlchemyError as error:
        _log.warning("the note of %s could not be read: %s", dag_run.run_id, error)
        return
    if said:
        dag_run.note = str(said).strip('"')[:_LONGEST]
