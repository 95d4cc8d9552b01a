"""A slot that is kept free for a job that stands still."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException
from airflow.sdk.timezone import utcnow

from stateferry.airflow.dag_runs.dag_run import task_state, task_states
from stateferry.airflow.dag_runs.task_names import AFTER_STOP, APPLICATION, ASKS, HOLD_SLOT, RETURN, WATCH_OUTAGE
from stateferry.runs.record.facts import JobStarted, SavepointTaken

if TYPE_CHECKING:
    from airflow.sdk import Context

_WATCHED = (SavepointTaken.name, *AFTER_STOP, JobStarted.name, WATCH_OUTAGE, RETURN, *ASKS)
_ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
_WAITS = ("None", "scheduled", "queued", "up_for_reschedule", "up_for_retry")
# A task that gets a free slot waits for it for a fraction of a second.
_POLL = 0.25
_COMES_BACK = timedelta(seconds=1)
# Two cut-overs that each have a part of the slots would wait for each other, so one gives up its own before the other.
_PATIENCE, _BACK_AFTER = (60.0, 180.0), timedelta(seconds=15)


class HoldSlot(BaseOperator):
    """Has a slot as long as the job may stand still, and gives it to a task of the cut-over that waits for one.

    The task that ends leaves its slot to the next one. Between a lost task and its next try, another DAG may take it.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(task_id=HOLD_SLOT, **kwargs)

    def execute(self, context: Context) -> None:
        waited: set[str] = set()
        while True:
            states = task_states(context, _WATCHED)
            if all(states.get(task) in _ENDED for task in (JobStarted.name, RETURN)):
                return
            waits = {task for task, state in states.items() if state == "scheduled"}
            if for_long := waits & waited:
                self.log.info("%s waits for a slot, and gets this one", ", ".join(sorted(for_long)))
                raise AirflowRescheduleException(utcnow() + _COMES_BACK)  # type: ignore[no-untyped-call]
            waited = waits
            time.sleep(_POLL)


def wait_for_slots(context: Context, log: Any) -> None:
    """Waits, while the job still runs, until the cut-over has all the slots that it needs."""
    until = time.monotonic() + random.uniform(*_PATIENCE)
    for task in (APPLICATION, HOLD_SLOT):
        if task_state(context, task) in _WAITS:
            log.info("the job runs on until there is a slot for the task %s", task)
        while task_state(context, task) in _WAITS:
            if time.monotonic() > until:
                log.info("there is none yet: this task gives its own, and comes back")
                raise AirflowRescheduleException(utcnow() + _BACK_AFTER)  # type: ignore[no-untyped-call]
            time.sleep(_POLL)
