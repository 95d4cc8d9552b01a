"""The tasks that use Flink: taking the savepoint at the start of a cut-over, starting the new job at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from flinkstate.errors import RefusedError, TransientError, UsageError
from stateferry.airflow.dag_runs.dag_run import (
    FOLDER,
    REFUSED,
    REHEARSAL_AGAIN,
    began,
    check_not_returned,
    fail_if_refused,
    newest_rehearsal_of,
    publication_of,
    rehearsal_of,
    request_of,
    run_of,
    skip,
    stop_asked,
)
from stateferry.airflow.dag_runs.decided_cut_over import begin_as_decided
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.when_to_stop import (
    NOT_STOPPED,
    approved_decision,
    job_that_runs,
    wait_until_the_job_may_stop,
)
from stateferry.airflow.flink.errors import FlinkError, FlinkTimeoutError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.links import FlinkJobLink
from stateferry.airflow.flink.savepoints import CANONICAL, CHECKPOINT, NATIVE, SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import FlinkTask, task_key
from stateferry.airflow.requests.planning import Occasion, default_catalog, plan_for, planned
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.sources import check_operators, completed_at, home_folder, read_metadata
from stateferry.airflow.runs_on.own_tasks import asked, asked_to_stop
from stateferry.airflow.runs_on.places import place_of, savepoint_of_running_job
from stateferry.airflow.runs_on.session import other_job
from stateferry.airflow.tasks.hold_slot import wait_for_slots
from stateferry.airflow.tasks.outage_task import end_if_exceeded, ends_by
from stateferry.airflow.tasks.plan_task import occasion_of
from stateferry.airflow.tasks.shared_application_task import wait_until_ready
from stateferry.basics.durations import now_ms, parse_duration
from stateferry.runs.catalog.lease import LeaseRenewal
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.claimable import offered_claimable
from stateferry.runs.control.outage_limit import StopAsked, record_start
from stateferry.runs.guards.timers import are_in_native_savepoints
from stateferry.runs.record.catch_ups import base_of_cut_over
from stateferry.runs.record.facts import Began, JobStarted, NewJob, SavepointTaken
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_states import ENDED
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Decision

if TYPE_CHECKING:
    from airflow.sdk import Context

STOPPED = "stopped"
"""An XCom of `take_savepoint`: the savepoint with which the job was stopped for this run."""

# A key in the task's own store, which outlives a try.
_ASKED_AT = "savepoint_asked_for_at"
# As many tries of a savepoint are looked for; a person may have cleared the task.
_MOST_RETRIES = 9


class TaskWithFlink(BaseOperator):
    """A task that uses Flink as a request says; it shows a link to its job."""

    operator_extra_links = (FlinkJobLink(),)
    ui_color = "#fbe1e8"


class TakeSavepoint(TaskWithFlink):
    """Takes the savepoint and creates the run that reads it; for a cut-over, stops the job with the savepoint.

    `rehearsal` names the rehearsal before a cut-over, in which the job runs on, if the task is of one. The job is
    stopped only if the cut-over was decided on that rehearsal, and only at a time at which it may be stopped: this is
    checked anew by each try that would be the first to stop it. If it `asks`, it doesn't stop the job itself: own tasks
    of the team do, and another task of this kind goes on with their savepoint.
    """

    def __init__(self, *, rehearsal: str | None = None, asks: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rehearsal, self.asks = rehearsal, asks

    def _of_checkpoint(self, context: Context, request: MigrationRequest, occasion: Occasion) -> dict[str, Any]:
        """Creates the run that reads the newest checkpoint: only now it is known that there is another rehearsal."""
        with fail_if_refused():
            plan, run = planned(request, occasion, holds=request_of(context).keeps_base)
            assert run is not None, "a checkpoint is there already"
            if run.stored(Began) is None:
                run.keep(replace(began(context), at=now_ms(), flink_job=job_that_runs(request_of(context))))
        return {"savepoint": plan.source}

    def execute(self, context: Context) -> dict[str, Any]:
        request, occasion = request_of(context), occasion_of(context)
        if self.rehearsal is not None and not request.rehearses:
            request, occasion = request.rehearsal(), occasion.rehearsal(self.rehearsal)
        if self.rehearsal == REHEARSAL_AGAIN and not request.takes_savepoint:
            return self._of_checkpoint(context, request, occasion)
        if not request.takes_savepoint:
            skip(self.log, "the savepoint exists already, so Flink takes none")
        flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
        kind = kind_of(request)
        base = _base(context, kind) if request.stops_job else None
        self.log.info("the savepoint is %s", kind.lower())
        directory = str(request.savepoint_directory)
        by_flink = request.stops_job and request.runs_on != "own tasks"
        order = flink.savepoint_order(str(request.flink_job), directory, stop=by_flink, savepoint_format=kind)
        if request.stops_job:
            # The old job may have been started again before there was a run that could say so.
            check_not_returned(rehearsal_of(context))
        decision = approved_decision(rehearsal_of(context)) if request.stops_job else None
        is_stopping = self._wait(context, request, order, base)
        with _leased(request, occasion.short_id, force=is_stopping) if request.stops_job else nullcontext():
            return self._take(context, request, occasion, order, base, decision, is_stopping=is_stopping)

    def _take(
        self,
        context: Context,
        request: MigrationRequest,
        occasion: Occasion,
        order: SavepointOrder,
        base: Run | None,
        decision: Decision | None,
        *,
        is_stopping: bool,
    ) -> dict[str, Any]:
        """Takes the savepoint, or asks own tasks for it, and creates the run."""
        requested_at = _asked_at(context, request, is_stopping=is_stopping)
        if self.asks:
            return asked_to_stop(context, order, requested_at)
        asked_at = now_ms() if order.stop or not request.stops_job else requested_at
        savepoint = (
            place_of(request, context).stop(order)
            if request.stops_job
            else savepoint_of_running_job(request, context, order)
        )
        ended_at = now_ms()
        self.log.info("savepoint: %s", savepoint.location)
        if request.stops_job:
            context["ti"].xcom_push(key=STOPPED, value=savepoint.location)
        with fail_if_refused(context):
            # The savepoint's timestamps may be later than the DAG run's time. So `now` is at least the time when the
            # savepoint was completed, which is the same in every try.
            occasion = occasion.not_before(completed_at(savepoint.location))
            of_base = None if base is None else base.plan
            plan = plan_for(request, occasion, savepoint.location, no_timers=order.format == NATIVE, base=of_base)
            metadata = read_metadata(plan.source)
            check_operators(metadata, plan.operator_names, plan.source)
            run = Run.create(plan, occasion.now)
            fresh = decision is None and self.rehearsal != REHEARSAL_AGAIN
            run.keep(began(context) if fresh else replace(began(context), at=requested_at))
            taken = SavepointTaken(
                seconds=(ended_at - asked_at) / 1000,
                ended_at=ended_at,
                savepoint=savepoint.location,
                job_id=savepoint.job_id,
                checkpoint_id=metadata.checkpoint_id,
                requested_at=requested_at,
                checkpoint_interval=self._checkpoint_interval(request, savepoint) if decision is None else None,
            )
            run.keep(taken)
            if decision is not None:
                begin_as_decided(run, decision)
        if request.stops_job:
            end_if_exceeded(context, request, run, self.log)
        return taken.to_json()

    def _wait(self, context: Context, request: MigrationRequest, order: SavepointOrder, base: Run | None) -> bool:
        """Waits, while the job runs, for all that the steps need, and until the job may be stopped.

        Returns whether an earlier try has begun to stop it.
        """
        if not request.stops_job:
            # Nothing stands still, but then a rehearsal takes its steps as the cut-over does.
            wait_until_ready(context, self.rehearsal or FOLDER, self.log)
            return False
        place = place_of(request, context)
        is_stopping, was_asked = place.is_stopping(order), stop_asked(context) is not None
        if is_stopping and not was_asked:
            raise refusal(
                f"job {order.job} has ended, and this run hasn't asked Flink to stop it: somebody else has stopped it. "
                "This run doesn't take what it was stopped with, because another job may go on from there: look which "
                "job runs, and trigger a new run"
            )
        if is_stopping and order.format == CHECKPOINT and request.runs_on == "session":
            _check_nobody_goes_on(request, order)
        if not is_stopping:
            place.check()
            wait_for_slots(context, self.log)
            wait_until_ready(context, FOLDER, self.log)
            wait_until_the_job_may_stop(context, self.log, base)
        return is_stopping

    def _checkpoint_interval(self, request: MigrationRequest, savepoint: TakenSavepoint) -> int | None:
        """The job's interval, for the prediction; the task does without it if Flink doesn't say it."""
        try:
            hook = FlinkHook(request.flink_conn_id)
            return None if savepoint.job_id is None else hook.checkpoint_interval(savepoint.job_id)
        except FlinkError as error:
            self.log.info("the job's checkpoint interval isn't known: %s", error)
            return None


def _base(context: Context, kind: str) -> Run | None:
    """What the run builds on, if anything; before the job is stopped for it, what is gone or can't be is refused."""
    with fail_if_refused():
        base = base_of_cut_over(newest_rehearsal_of(context))
        if base is None:
            return None
        if kind == CANONICAL:
            raise RefusedError(f"a canonical savepoint can't be caught up with. {NOT_STOPPED}: trigger a new run")
        for place in (base.plan.source, base.staged.shown):
            try:
                read_metadata(place)
            except UsageError as error:
                raise UsageError(f"{error}: so catch-up {base.plan.run_id} can't be gone on from") from None
        return base


def stop_order(flink: FlinkTask, request: MigrationRequest) -> SavepointOrder:
    """The order with which the task `take_savepoint` of this DAG run stops the job, as another task finds it."""
    dag_id, _, _, run_id = task_key(flink.context)
    key = (dag_id, SavepointTaken.name, "-1", run_id)
    tries = 1 + _MOST_RETRIES
    kind = CHECKPOINT if request.stops_with_checkpoint else CANONICAL
    return SavepointOrder(key, str(request.flink_job), str(request.savepoint_directory), True, kind, tries)


def kind_of(request: MigrationRequest) -> str:
    """What Flink takes: a native savepoint takes less time, but lacks timers that the job keeps on the heap."""
    if request.stops_job and request.stops_with_checkpoint:
        return CHECKPOINT
    wants_native = request.source == "checkpoint" or request.is_native
    has_none = "no_timers" in request.given_options()
    return NATIVE if wants_native and (has_none or _holds_timers(request)) else CANONICAL


@contextmanager
def _leased(request: MigrationRequest, run_id: str, *, force: bool) -> Iterator[None]:
    """Has the job's lease for the run while the job is stopped, and leaves it to the run's first step.

    Those steps would wait for a run that begins meanwhile. If a try fails, the lease ends in a minute, as the job may
    run on; with `force`, once an earlier try has begun to stop the job, another run loses the lease again. A run that
    has ended, whose task was cleared, has no more steps.
    """
    run = Run.if_there(run_folder(home_folder(), str(request.plan_values()["job"]), run_id))
    if run is not None and run.state in ENDED:
        yield
        return
    with Control(default_catalog()) as control:
        with fail_if_refused():
            lease = control.acquire(str(request.plan_values()["job"]), run_id, force=force)
        with LeaseRenewal(control, lease):
            yield
        with suppress(TransientError):  # If this fails, the lease expires.
            control.leave(lease)


def _check_nobody_goes_on(request: MigrationRequest, order: SavepointOrder) -> None:
    """Fails for good if another job has the name of one that has ended, whose newest checkpoint is then out of date.

    Unlike a savepoint, a checkpoint doesn't say who has ended the job.
    """
    if (other := other_job(str(request.flink_job), order.job, (request.flink_conn_id,))) is not None:
        raise refusal(
            f"job {order.job} has ended, and {other}, goes on from there as {request.flink_job}: a supervisor or a "
            "person has started it. Look which job is to run, and trigger a new run"
        )


def _asked_at(context: Context, request: MigrationRequest, *, is_stopping: bool) -> int:
    """When the savepoint was asked for, in milliseconds; if the job is stopped, keeps when that try began to do so.

    Of own tasks the task before this one has asked.
    """
    if not request.stops_job:
        return _first_asked(context)
    if is_stopping and (before := stop_asked(context)) is not None:
        return before.at
    # After an earlier try that didn't stop the job, it has run on.
    at = now_ms()
    limit = None if request.outage_limit is None else parse_duration(request.outage_limit)
    rehearsal_of(context).keep(StopAsked(at, limit, request.has_way_back))
    return at


def _first_asked(context: Context) -> int:
    """When the first try of the task asked for the savepoint, in milliseconds."""
    store, now = context.get("task_state_store"), now_ms()
    if store is None:
        return now
    if (before := store.get(_ASKED_AT)) is not None:
        return int(str(before))
    store.set(_ASKED_AT, str(now))
    return now


def _holds_timers(request: MigrationRequest) -> bool:
    """Whether a rehearsal has shown that a native savepoint of the job holds all its timers."""
    return are_in_native_savepoints(home_folder(), str(request.plan_values()["job"]))


class StartJob(TaskWithFlink):
    """Starts the new job from the published savepoint, and waits until the job has completed a checkpoint.

    If it `asks`, own tasks of the team start the job, and another task of this kind goes on with it.
    """

    def __init__(self, *, asks: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asks = asks

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            return self._start(context)
        except AirflowFailException as error:
            # The tasks that follow say why.
            context["ti"].xcom_push(key=REFUSED, value=str(error))
            raise

    def _start(self, context: Context) -> dict[str, Any]:
        request, run = request_of(context), run_of(context)
        if not request.start_job:
            skip(self.log, f"start_job is off: start the new job from {run.plan.target}")
        check_not_returned(run)
        publication_of(run)
        if (before := run.facts(JobStarted)) is not None:
            # A person may clear the task long after: Flink may have forgotten the job, or others have replaced it.
            self.log.info("the new job was started already, as job %s", before.job_id)
            if self.asks:
                skip(self.log, "so nobody is asked to start it")
            return before.to_json()
        place = place_of(request, context)
        # Recorded before the start: a job that isn't up in time may still run, and a rollback must know it.
        program = (request.jar, request.entry_class, request.program_args, request.job_parallelism)
        timeout, by = parse_duration(request.start_timeout) / 1000, ends_by(request, run)
        if by is not None:
            timeout = min(timeout, max((by - now_ms()) / 1000, 0))
            # If an earlier try has started the job, it may have completed a checkpoint meanwhile.
            if timeout == 0 and not place.has_started(run.plan.target):
                end_if_exceeded(context, request, run, self.log)
        with fail_if_refused():
            record_start(run, NewJob(place.new_job_id, *program))
        if self.asks:
            claimable = offered_claimable(run)
            return asked(
                context,
                job=run.plan.job,
                claimable=None if claimable is None else claimable.shown,
                flink_job=request.flink_job,
                savepoint=run.plan.target,
                seconds=timeout,
                asked_at=now_ms(),
            )
        try:
            started = place.start(run, run.plan.target, timeout=timeout)
        except FlinkTimeoutError as error:
            end_if_exceeded(context, request, run, self.log)
            if by is not None and now_ms() >= by:
                # The job has completed a checkpoint after all: the next try sees it.
                raise
            raise refusal(str(error)) from None
        run.keep(JobStarted.of_json(started | {"ended_at": now_ms()}, "the answer of Flink"))
        return started
