"""Jobs on a session cluster: Flink's REST API stops them, and starts programs of jars that were uploaded to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from stateferry.airflow.dag_runs.dag_run import fail_if_refused
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import TERMINAL, JarRun
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.stopping import find, found_in_the_end
from stateferry.airflow.flink.task import HOUR, UP, UP_WITH_CHECKPOINT, FlinkTask, for_good
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.port import MOST_FAILURES, POLL_SECONDS
from stateferry.airflow.runs_on.programs import check_programs, check_stop, jar_run_of
from stateferry.runs.control.claimable import offered_claimable
from stateferry.runs.control.outage_limit import check_may_start
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run

_log = logging.getLogger(__name__)
_SECONDS_FOR_OTHERS = 10.0


class Session:
    """The session cluster of the old job, and that of the new one, which may be another."""

    def __init__(self, old: FlinkTask, request: MigrationRequest) -> None:
        self._old, self._request = old, request
        self._new = FlinkTask(FlinkHook(request.new_job_conn_id), old.context)

    def check(self) -> None:
        check_programs(self._request)
        check_stop(self._request)
        self._check_new_flink()

    def preview(self) -> Iterator[str]:
        yield from ()

    def is_stopping(self, order: SavepointOrder) -> bool:
        return self._old.hook.run(lambda rest: find(rest, order)) is not None

    def stop(self, order: SavepointOrder) -> TakenSavepoint:
        return self._old.take_savepoint(order, timeout=6 * HOUR, poll_interval=POLL_SECONDS)

    def stopped_in_the_end(self, order: SavepointOrder) -> TakenSavepoint | None:
        with for_good():
            return self._old.hook.run(
                lambda rest: found_in_the_end(rest, order, timeout=HOUR, poll_interval=POLL_SECONDS)
            )

    @property
    def new_job_id(self) -> str | None:
        return self._new.job_id

    def has_started(self, savepoint: str) -> bool:
        return self._new.hook.job_state(self._new.job_id) is not None

    def start(self, run: Run, savepoint: str, *, timeout: float) -> dict[str, Any]:
        jar_run = jar_run_of(self._new.job_id, self._request.new_program(), savepoint)
        if (claimable := offered_claimable(run)) is not None:
            _log.info("the job claims %s", claimable.shown)
            jar_run = replace(jar_run, savepoint=claimable.shown, claims=True)
        goal = replace(UP_WITH_CHECKPOINT, max_failures=MOST_FAILURES)
        if not self.has_started(savepoint):
            self._check_no_other(self._new)
            with fail_if_refused():
                # Flink may have taken its time to answer, and the way back may have begun meanwhile.
                check_may_start(run)
        return self._new.start(jar_run, goal, timeout=timeout, poll_interval=POLL_SECONDS)

    def new_job(self, run: Run) -> str | None:
        recorded = run.facts_if_sound(NewJob)
        return None if recorded is None else recorded.job_id

    def start_old(self, savepoint: str) -> dict[str, Any]:
        self._check_no_other(self._old)
        return start_old_program(self._old, jar_run_of(self._old.job_id, self._request.old_program(), savepoint))

    def _check_new_flink(self) -> None:
        """Fails for good if another Flink, on which the new job is to start, runs a job of this name already."""
        request = self._request
        name, connection = request.flink_job, request.new_job_conn_id
        if not (request.stops_job and request.start_job and name) or connection == request.flink_conn_id:
            return
        if (other := other_job(name, self._new.job_id, (connection,))) is not None:
            raise refusal(f"{other}, is {name}, so the new job couldn't start there. Nothing has been stopped")

    def _check_no_other(self, starts: FlinkTask) -> None:
        if (name := self._request.flink_job) is not None:
            connections = (starts.hook.flink_conn_id, self._request.flink_conn_id, self._request.new_job_conn_id)
            check_no_other(name, starts.job_id, connections)


def check_no_other(name: str, own: str, connections: Sequence[str]) -> None:
    """Fails for good if a job of this name or id runs that isn't `own`, the one that a task starts."""
    if (other := other_job(name, own, connections)) is not None:
        raise refusal(
            f"{other}, is {name}, and this task hasn't started it. If another job started now, both would read the "
            "same input, so this task starts none. Leave that job alone if it is the right one; else cancel it, and "
            "clear the last task that was to start a job"
        )


def other_job(name: str, own: str | None, connections: Sequence[str]) -> str | None:
    """A job of this name or id that hasn't ended, in words, if there is one that isn't `own`.

    The first connection is of the Flink that has work to do. Another one that doesn't answer soon, or refuses to, keeps
    nobody from that: a job stands still.
    """
    for connection in dict.fromkeys(connections):
        hook = FlinkHook(connection, patience=None if connection == connections[0] else _SECONDS_FOR_OTHERS)
        try:
            for job in hook.jobs():
                # The list may be older than what Flink says of one job.
                if job.is_called(name) and job.id != own and not job.is_over and _runs(state := hook.job_state(job.id)):
                    return f"job {job.id}, which is {state} with connection {connection}"
        except FlinkError as error:
            if connection == connections[0]:
                raise
            _log.warning("whether job %s runs with connection %s isn't known: %s", name, connection, error)
    return None


def _runs(state: str | None) -> bool:
    return state is not None and state not in TERMINAL


def start_old_program(flink: FlinkTask, jar_run: JarRun) -> dict[str, Any]:
    """Starts the old job, and waits until it has completed a checkpoint, if it takes any: only then it surely runs."""
    started = flink.start(jar_run, UP, timeout=HOUR, poll_interval=POLL_SECONDS)
    if started["state"] not in TERMINAL:
        wait_for_old_job(flink, jar_run.job_id)
    return started


def wait_for_old_job(flink: FlinkTask, job_id: str) -> None:
    """Waits for the first checkpoint of the old job, if it takes any by itself."""
    if flink.hook.checkpoint_interval(job_id) is None:
        _log.info("job %s takes no checkpoints by itself, so none is waited for", job_id)
        return
    _log.info("the first checkpoint of job %s is waited for", job_id)
    flink.wait_for(job_id, UP_WITH_CHECKPOINT, timeout=HOUR, poll_interval=POLL_SECONDS)
