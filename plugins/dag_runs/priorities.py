"""Who goes first when tasks wait for a slot: those of a job that stands still, then what a person has triggered.

Airflow takes the waiting task with the highest weight whenever a slot is free. It takes no slot away from a task that
runs. So a cut-over has all the slots that it needs before it stops the job, and the task `hold_slot` keeps one more for
a task that was lost. No other task has their pool, so that no slot of it is taken between the end of one task and the
start of the next.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.task.priority_strategy import PriorityWeightStrategy

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

POOL = "stateferry_outage"
_UNLIMITED = -1
# Of one DAG run: a smaller default of an Airflow would have the tasks of a stopped job wait for each other.
MOST_TASKS = 16

# Weights of other DAGs are far below a million.
_NIGHT, _BY_HAND, _OF_STOPPED_JOB = 1, 1_000, 1_000_000
_BY_SCHEDULE = ("scheduled__", "backfill__")
_log = logging.getLogger(__name__)


class NightsGiveWay(PriorityWeightStrategy):
    """A task's weight is its own, without those of later tasks; that of a night or a backfill is the lowest.

    Airflow asks for it when it makes a DAG run, in the scheduler or in the API server. The plugin tells it this class.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        """The weight of the task in its DAG run."""
        assert ti.task is not None, "Airflow asks about the instance of a task"
        own = int(ti.task.priority_weight)
        of_night = str(ti.run_id or "").startswith(_BY_SCHEDULE)
        return _NIGHT if of_night and own < _OF_STOPPED_JOB else own


ORDER: dict[str, Any] = {"weight_rule": NightsGiveWay(), "priority_weight": _BY_HAND}
"""Arguments of every task."""
HELD: dict[str, Any] = {"pool": POOL, "priority_weight": _OF_STOPPED_JOB}
"""Of what is held before the job is stopped."""
BEFORE_STOP: dict[str, Any] = {"pool": POOL, "priority_weight": _OF_STOPPED_JOB + 1}
"""Of the task that stops the job: it goes before another job's application, and after a job that stands still."""
WATCHES = BEFORE_STOP
"""Of the task that watches the outage: it takes no slot from the next step, and gets that of `hold_slot`."""
STOPPED: dict[str, Any] = {"pool": POOL, "priority_weight": _OF_STOPPED_JOB + 2}
"""Of the tasks for which the job stands still."""
RETURNS: dict[str, Any] = {"pool": POOL, "priority_weight": _OF_STOPPED_JOB + 3}
"""Of the tasks that end an outage and start the old job again."""


@hookimpl
def on_starting(component: Any) -> None:
    """Called by Airflow when one of its components starts: makes the pool, if it isn't there."""
    # The process of a task is called as well, and has no database.
    if type(component).__name__ != "Job":
        return
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with create_session() as session:
            if session.scalar(select(Pool).where(Pool.pool == POOL)) is None:
                description = "The tasks of cut-overs that have stopped a job; nobody else's"
                session.add(Pool(pool=POOL, slots=_UNLIMITED, description=description, include_deferred=False))
    except SQLAlchemyError as error:
        # Another component may have made it at the same time.
        _log.info("the pool %s was not made: %s", POOL, error)
