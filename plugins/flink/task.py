"""What a task instance of Airflow has Flink do: each thing once, however often the task is tried."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink.errors import FlinkJobError, FlinkJobLostError, FlinkRefusedError, FlinkSavepointError
from stateferry.airflow.flink.foreseen_failures import foreseen
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.identity import flink_id
from stateferry.airflow.flink.jobs import Goal, JarRun, known_state
from stateferry.airflow.flink.links import FlinkJobLink, job_url
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint, facts
from stateferry.airflow.flink.stopping import take

if TYPE_CHECKING:
    from airflow.sdk import Context

HOUR = 3600.0
JOB_ID = "job_id"
"""The XCom with the id of the job that was started, or may have been started."""
STOP_FAILED = "flink_stop_failed"
"""An XCom, and a key in the task's own store: "yes" if a stop has failed, after which the job may have gone on."""
UP = Goal(frozenset({"RUNNING", "FINISHED"}))
UP_WITH_CHECKPOINT = Goal(UP.states, checkpoint=True)
# Keys in the task's own store, which outlives a try: the id of the job that every try must mean, and the id of a job
# that Flink has known.
_MEANT, _SUBMITTED = "flink_job_meant", "flink_job_submitted"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlinkTask:
    """A task instance and the hook that it uses."""

    hook: FlinkHook
    context: Context

    @property
    def job_id(self) -> str:
        """The id of the job that this task instance starts."""
        return flink_id("job", *task_key(self.context))

    def show(self, job_id: str) -> None:
        """Publishes the job's id and address before the job is waited for, so that they exist if the wait fails."""
        self.context["ti"].xcom_push(key=JOB_ID, value=job_id)
        self.context["ti"].xcom_push(key=FlinkJobLink.xcom_key, value=job_url(self.hook.get_conn(), job_id))

    def job_meant(self, job: str) -> str:
        """The job's id as the first try found it, so that a retry doesn't stop a later job of the same name."""
        store = self.context.get("task_state_store")
        if store is None:
            return job
        meant = store.get(_MEANT)
        if meant is None:
            meant = self.hook.job_id(job)
            store.set(_MEANT, meant)
        return str(meant)

    def savepoint_order(
        self, job: str, directory: str, *, stop: bool = False, savepoint_format: str = "CANONICAL"
    ) -> SavepointOrder:
        """The order for a savepoint of the job in a folder of its own in the directory."""
        tries = max(self.context["ti"].try_number, 1)
        job = self.job_meant(job) if stop else job
        order = SavepointOrder(task_key(self.context), job, directory, stop, savepoint_format, tries)
        if not stop:
            return order
        if has_failed := self._stop_has_failed():
            # Airflow has removed what an earlier try has said.
            self._keep_stop_failed(True)
        return replace(order, has_failed=has_failed, on_failure=lambda: self._keep_stop_failed(True))

    @contextmanager
    def stopping(self, stop: bool) -> Iterator[None]:
        """Keeps whether a stop has failed, until one succeeds."""
        try:
            yield
        except FlinkSavepointError:
            if stop:
                self._keep_stop_failed(True)
            raise
        if stop and self._stop_has_failed():
            self._keep_stop_failed(False)

    def _stop_has_failed(self) -> bool:
        store = self.context.get("task_state_store")
        return store is not None and store.get(STOP_FAILED) == "yes"

    def _keep_stop_failed(self, has_failed: bool) -> None:
        value = "yes" if has_failed else "no"
        if (store := self.context.get("task_state_store")) is not None:
            store.set(STOP_FAILED, value)
        self.context["ti"].xcom_push(key=STOP_FAILED, value=value)

    def take_savepoint(self, order: SavepointOrder, *, timeout: float, poll_interval: float) -> TakenSavepoint:
        """Takes the savepoint and waits until it is complete."""
        with self.stopping(order.stop):
            savepoint = self.hook.run(lambda rest: take(rest, order, timeout=timeout, poll_interval=poll_interval))
        if savepoint.job_id is not None:
            self.show(savepoint.job_id)
        return savepoint

    def savepoint_taken(self, savepoint: TakenSavepoint, started: float) -> dict[str, Any]:
        """What an operator returns for a complete savepoint.

        This may take seconds, because Flink tells about a savepoint from a cache.
        """
        seconds = {"seconds": round(time.time() - started, 3)}
        result = {"savepoint": savepoint.location, "job_id": savepoint.job_id} | seconds
        result |= self.hook.run(lambda rest: facts(rest, savepoint))
        _log.info("savepoint: %s", result)
        return result

    def submit(self, run: JarRun, *, restart_lost: bool = False) -> None:
        """Starts the program, unless an earlier try has started it."""
        self.show(run.job_id)
        store = self.context.get("task_state_store")
        if store is not None and store.get(_SUBMITTED) == run.job_id and not restart_lost:
            with for_good():
                self.hook.run(lambda rest: known_state(rest, run.job_id))
            return
        with for_good():
            try:
                now = self.hook.run_jar(run)
            except FlinkRefusedError:
                # If the state doesn't fit, the job finds out: then the job exists and has failed.
                if self.hook.job_state(run.job_id) is None:
                    self.context["ti"].xcom_push(key=JOB_ID, value=None)
                raise
        _log.info("job %s %s", run.job_id, "was started" if now else "had been started by an earlier try")
        if store is not None:
            store.set(_SUBMITTED, run.job_id)

    def wait_for(self, job_id: str, goal: Goal, *, timeout: float, poll_interval: float) -> str:
        """Waits until the job has reached the goal, and returns its state."""
        with for_good():
            return self.hook.wait_for(job_id, goal, timeout=timeout, poll_interval=poll_interval)

    def start(self, run: JarRun, goal: Goal, *, timeout: float, poll_interval: float) -> dict[str, Any]:
        """Starts the program, waits until its job has reached the goal, and returns what the task returns."""
        started = time.time()
        self.submit(run)
        state = self.wait_for(run.job_id, goal, timeout=timeout, poll_interval=poll_interval)
        return job_started(run.job_id, state, started)

    def cancel(self, job: str, *, timeout: float, poll_interval: float) -> dict[str, Any]:
        """Cancels the job, waits until it has ended, and returns what the task returns."""
        job_id = self.job_to_cancel(job)
        return {"job_id": job_id, "state": self.hook.cancel(job_id, timeout=timeout, poll_interval=poll_interval)}

    def job_to_cancel(self, job: str) -> str:
        """The id of the job to cancel, which is published."""
        job_id = self.hook.job_id(self.job_meant(job))
        self.show(job_id)
        return job_id


def job_started(job_id: str, state: str, started: float) -> dict[str, Any]:
    """What a task returns for a job that it has started."""
    return {"job_id": job_id, "state": state, "seconds": round(time.time() - started, 3)}


def task_key(context: Context) -> tuple[str, ...]:
    """The identity of the task instance, which is the same in every try."""
    ti = context["ti"]
    return (ti.dag_id, ti.task_id, str(ti.map_index), ti.run_id)


@contextmanager
def for_good() -> Iterator[None]:
    """Fails the task without a retry, because a retry can't help.

    The id of a job that has ended can't be used again, and a program that Flink refuses stays refused.
    """
    try:
        yield
    except (FlinkJobError, FlinkJobLostError, FlinkRefusedError) as error:
        raise foreseen(AirflowFailException(str(error))) from None
