"""Starts the old job again if a cut-over fails before the new job has completed a checkpoint.

After a checkpoint, the old job would read again what the new job has processed, so a person must decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stateferry.airflow.dag_runs.dag_run import (
    REHEARSAL,
    fail_if_refused,
    job_of,
    planned_by,
    request_of,
    run_if_begun,
    skip,
    stop_asked,
    why_refused,
)
from stateferry.airflow.dag_runs.notices import tell, telling_of_failure
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.when_to_stop import is_approved
from stateferry.airflow.flink.errors import FlinkError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import TERMINAL
from stateferry.airflow.flink.task import JOB_ID, STOP_FAILED, FlinkTask
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.own_tasks import asked, is_starting
from stateferry.airflow.runs_on.places import place_of
from stateferry.airflow.runs_on.port import POLL_SECONDS, RunsOn
from stateferry.airflow.tasks.flink_tasks import STOPPED, TaskWithFlink, stop_order
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.control.outage_limit import OutageExceeded, record_return
from stateferry.runs.control.rollback import Rollback
from stateferry.runs.record.facts import JobStarted, NewJob, Returned, SavepointTaken
from stateferry.runs.record.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

_CANCELLED_WITHIN = 300.0
_STARTED_WITHIN = 30.0
_HAS_PROCESSED = (
    "has completed a checkpoint, so it has processed input that the old job would read again. This task has started no "
    "job and rolled nothing back. Repair the new job, or trigger the DAG state_rollback to return to the old job"
)


class ReturnToOldJob(TaskWithFlink):
    """Makes sure that the new job has ended, rolls the publication back, and starts the old job again.

    If it `asks`, own tasks of the team do the first and the last, and another task of this kind does the rest once they
    have: they may find that the new job has completed a checkpoint.
    """

    def __init__(self, *, asks: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asks = asks

    def execute(self, context: Context) -> dict[str, Any]:
        job = job_of(context)
        with telling_of_failure(context, "returned", job, f"the cut-over of job {job} has failed"):
            started = self._return(context)
            if self.asks:
                return started
        _tell_returned(context, str(started["savepoint"]))
        return started

    def _return(self, context: Context) -> dict[str, Any]:
        if planned_by(context) is None:
            skip(self.log, "the task plan has made no plan, so nothing has to be rolled back")
        request, ti = request_of(context), context["ti"]
        flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
        stopped_with = ti.xcom_pull(task_ids=SavepointTaken.name, key=STOPPED)
        if stopped_with is None and request.stops_job and is_approved(context):
            stopped_with = self._stopped_unheard(flink, request)
        run = run_if_begun(context)
        published = _publication(run) if run is not None else None
        if stopped_with is None and (published is None or not request.start_job):
            skip(self.log, _nothing_happened(request))
        keepers = _keepers(context, run)
        self._skip_if_returned(context, keepers)
        new_flink = FlinkHook(request.new_job_conn_id)
        place = place_of(request, context)
        waited_for: set[str] = set()
        ended = self._undo(context, new_flink, run, place, waited_for)
        # What the run has read, wherever a link that was its source leads by now.
        read = published.record.source if published is not None else None
        savepoint = stopped_with if run is None else stopped_with or read or run.plan.source
        if not request.has_way_back:
            raise refusal(
                "the old job doesn't run, and this task can't start it, because the request has no old_jar: start the "
                f"old job from {savepoint}"
            )
        returned = Returned("the old job was started again", savepoint)
        for one in keepers:
            record_return(one, returned)
        if self.asks:
            _wait_for_own_start(context)
            return _asked(request, context, run, savepoint)
        # A step that a person has marked as failed may have gone on until the return was recorded.
        self._undo(context, new_flink, run, place, waited_for, ended)
        started = place.start_old(savepoint)
        for one in keepers:
            one.keep(replace(returned, ended_at=now_ms()))
        self.log.warning("the old job runs again, as job %s, from %s", started["job_id"], savepoint)
        return started | {"savepoint": savepoint}

    def _undo(
        self,
        context: Context,
        new_flink: FlinkHook,
        run: Run | None,
        place: RunsOn,
        waited_for: set[str],
        ended: str | None = None,
    ) -> str | None:
        """Makes sure that the new job has ended without a checkpoint, and that the run's publication doesn't stand.

        Returns the new job, if there was one; `ended` is known to have ended. A job that may be about to start is
        waited for once.
        """
        new_job = self._new_job(context, new_flink, run, place, waited_for)
        if new_job is not None and new_job != ended:
            self._end(new_flink, new_job)
        if self.asks and run is not None and run.facts_if_sound(JobStarted) is not None:
            raise refusal(f"the new job {_HAS_PROCESSED}")
        with fail_if_refused():
            if not self.asks and run is not None and (published := _publication(run)) is not None:
                _roll_back(run, published)
        return new_job

    def _skip_if_returned(self, context: Context, keepers: Iterable[Run]) -> None:
        for one in keepers:
            if (before := one.facts_if_sound(Returned)) is not None and before.ended_at is not None:
                # An earlier try may have been lost before it told anybody.
                _tell_returned(context, before.savepoint)
                skip(self.log, f"the old job was started again already, from {before.savepoint}")

    def _new_job(
        self, context: Context, hook: FlinkHook, run: Run | None, place: RunsOn, waited_for: set[str]
    ) -> str | None:
        """The id of the new job, if there may be one; it is waited for unless it was `waited_for` before."""
        started: str | None = context["ti"].xcom_pull(task_ids=JobStarted.name, key=JOB_ID)
        recorded = None if run is None else place.new_job(run)
        if recorded is None:
            return started
        # A program may be about to start it, whatever has become of the task. If the outage has exceeded its limit, the
        # last try has asked Flink nothing, so what it refused is not what Flink says of the program.
        exceeded = run is not None and run.facts_if_sound(OutageExceeded) is not None
        comes = exceeded or why_refused(context, JobStarted.name) is None
        known = hook.job_state(recorded) is not None
        # From when Flink has answered.
        until = time.monotonic() + (_STARTED_WITHIN if comes and recorded not in waited_for else 0)
        waited_for.add(recorded)
        while not known and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            known = hook.job_state(recorded) is not None
        # A later try of start_job has forgotten what an earlier one has started.
        return recorded if known else started

    def _stopped_unheard(self, flink: FlinkTask, request: MigrationRequest) -> str | None:
        """The savepoint with which `take_savepoint` has stopped the job, if its last try ended before it reported so.

        It was lost, or a person has marked it as failed while Flink took the savepoint, which is waited for.
        """
        if stop_asked(flink.context) is None:
            # If the job has ended, somebody else has stopped it.
            return None
        has_failed = flink.context["ti"].xcom_pull(task_ids=SavepointTaken.name, key=STOP_FAILED) == "yes"
        order = replace(stop_order(flink, request), has_failed=has_failed)
        found = place_of(request, flink.context).stopped_in_the_end(order)
        if found is None:
            return None
        self.log.warning("take_savepoint has ended before it knew that the job was stopped with %s", found.location)
        return found.location

    def _end(self, hook: FlinkHook, new_job: str) -> None:
        """Makes sure that the new job has ended and has never completed a checkpoint."""
        state = _state(hook, new_job)
        if cancels := state not in TERMINAL:
            _check_no_checkpoint(hook, new_job, state)
            self.log.info("job %s is %s without a completed checkpoint: cancelling it", new_job, state)
            state = hook.cancel(new_job, timeout=_CANCELLED_WITHIN)
        # The job may have completed a checkpoint before it ended.
        _check_no_checkpoint(hook, new_job, state, cancelled=cancels)
        self.log.info("job %s is %s", new_job, state)


def _wait_for_own_start(context: Context) -> None:
    """Waits for an own task that has begun to start the new job before the return was recorded."""
    end = time.monotonic() + _STARTED_WITHIN
    while is_starting(context) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)


def _tell_returned(context: Context, savepoint: str) -> None:
    job = job_of(context)
    text = f"the cut-over of job {job} has failed{_why(context)}, and the old job runs again from {savepoint}"
    tell(context, "returned", job, text)


def _asked(request: MigrationRequest, context: Context, run: Run | None, savepoint: str) -> dict[str, Any]:
    """What own tasks are asked to go back from and to."""
    new_job = None if run is None else run.facts_if_sound(NewJob)
    taken = None if run is None else run.facts_if_sound(SavepointTaken)
    return asked(
        context,
        job=job_of(context),
        flink_job=request.flink_job,
        savepoint=savepoint or None,
        old_job=None if taken is None else taken.job_id,
        new_job_asked=new_job is not None,
        new_job=None if new_job is None else new_job.job_id,
        asked_at=now_ms(),
    )


def _check_no_checkpoint(hook: FlinkHook, new_job: str, state: str, *, cancelled: bool = False) -> None:
    if not hook.has_checkpointed(new_job):
        return
    if cancelled:
        newest = "Flink doesn't say"
        # The next try wouldn't know any more that this one has cancelled it.
        with suppress(FlinkError):
            newest = next((one.location for one in hook.completed_checkpoints(new_job)), "none whose files are there")
        state += f" (this task has just cancelled it, so no job runs; its newest checkpoint: {newest})"
    raise refusal(f"the new job {new_job}, which is {state}, {_HAS_PROCESSED}")


def _state(hook: FlinkHook, job: str) -> str:
    state = hook.job_state(job)
    if state is None:
        raise refusal(
            f"Flink doesn't know the new job {job}, so this task can't find out whether the job has completed a "
            "checkpoint. It has changed nothing. Look whether the job runs. If it has never run, trigger the DAG "
            "state_rollback"
        )
    return state


def _why(context: Context) -> str:
    """That the outage took too long, or why the new job didn't start; else the logs of the failed tasks say more."""
    run = run_if_begun(context)
    exceeded = None if run is None else run.facts_if_sound(OutageExceeded)
    why = exceeded.reason if exceeded else why_refused(context, JobStarted.name)
    return f" ({why})" if why else ""


def _keepers(context: Context, run: Run | None) -> list[Run]:
    """Which runs keep that the old job was started again: before there is a run of its own, only the rehearsal can."""
    return [one for one in (run, run_if_begun(context, REHEARSAL)) if one is not None]


def _publication(run: Run) -> Publication | None:
    """The run's publication, if it stands, or if an earlier try has rolled it back."""
    plan = run.plan
    with Control(plan.catalog_uri) as control:
        own = [one for one in control.history(plan.job) if one.record.run_id == plan.run_id]
        standing = control.standing(plan.job)
    return own[-1] if own and (own[-1] == standing or own[-1].rolled_back_at is not None) else None


def _roll_back(run: Run, published: Publication) -> None:
    with Control(run.plan.catalog_uri) as control:
        # No job runs until this is done, so neither a night nor a driver that was killed in the cut-over is waited for.
        Rollback(run.plan.home, control, run.plan.job).carry_out(published, force=True)


def _nothing_happened(request: MigrationRequest) -> str:
    if request.stops_job:
        return (
            f"no savepoint was taken, so job {request.flink_job} was not stopped and should still run. Look at it in "
            "Flink: if an answer of Flink was lost, the job may have been stopped all the same"
        )
    return "this run has stopped no job and has started none, so no job has to be started again"
