"""The tasks of a rollback: back to the publication before, and to the old job where it stopped, after approval."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from flinkstate.errors import RejectedError, StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from stateferry.airflow.dag_runs.dag_run import PLAN_TASK, fail_if_refused, skip
from stateferry.airflow.dag_runs.notices import tell, telling_of_failure
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.identity import flink_id
from stateferry.airflow.flink.jobs import TERMINAL
from stateferry.airflow.flink.task import HOUR, FlinkTask
from stateferry.airflow.requests.planning import default_catalog
from stateferry.airflow.requests.request_parts import APPROVAL_IS_OFF, Approval
from stateferry.airflow.requests.rollback_request import RollbackRequest, rollback_request
from stateferry.airflow.requests.sources import home_folder, read_metadata
from stateferry.airflow.runs_on.places import operator_of
from stateferry.airflow.runs_on.port import POLL_SECONDS
from stateferry.airflow.runs_on.programs import OLD_PROGRAM, check_program, jar_run_of
from stateferry.airflow.runs_on.session import check_no_other, other_job, start_old_program
from stateferry.airflow.tasks.approval import AskForApproval
from stateferry.airflow.tasks.flink_tasks import TaskWithFlink
from stateferry.airflow.tasks.plan_task import check_somebody_may_approve
from stateferry.airflow.tasks.way_back import consequences_of, conversion_of, converting_dag, migration_of
from stateferry.basics.durations import moment, now_ms, rough_duration
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.control.rollback import Rollback, check_source, nothing_to_roll_back
from stateferry.runs.control.target_metadata import published_run
from stateferry.runs.record.facts import NewJob, Returned
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

START_OLD_JOB = "start_old_job"
# A key in the store of `plan`, which outlives a clear: the sequence of the publication.
_UNDO = "publication_to_undo"


class PlanRollback(BaseOperator):
    """Finds the publication to roll back, the savepoint for the old job, and the consequences of the rollback."""

    def execute(self, context: Context) -> dict[str, Any]:
        with fail_if_refused():
            request = rollback_request({**context["params"], **(context["dag_run"].conf or {})}, "the form")
            check_somebody_may_approve(request, context["dag_run"].triggering_user_name)
            job = str(request.job)
            with _control() as control:
                undo = _to_undo(context, control, job)
                if not request.converts:
                    check_source(undo)
            savepoint = undo.record.source
            conversion = conversion_of(request, undo) if request.converts else None
            converts_by = converting_dag(request) if request.converts else None
            new_job = _new_job(undo)
            consequences = _consequences(undo, savepoint)
            if conversion is not None and converts_by is not None:
                consequences = consequences_of(request, conversion, converts_by)
        cancels = None
        if not (request.converts or request.by_operator):
            cancels = _checked_in_flink(request, context)
            if request.flink_job is not None and cancels is None:
                consequences.append(_cancels_none(request))
        if request.by_operator:
            consequences += operator_of(_published(undo), request, context).changes_back(savepoint)
        for line in consequences:
            self.log.warning("%s", line)
        return {
            "request": request.model_dump(),
            "undo": undo.sequence,
            "new_job": new_job,
            "cancels": cancels,
            "savepoint": savepoint,
            "consequences": consequences,
            "conversion": conversion,
            "converting_dag": converts_by,
        }


class ApproveRollback(AskForApproval):
    """Asks whether to roll back."""

    def execute(self, context: Context) -> Any:
        request = _request(context)
        if not request.approval:
            skip(self.log, APPROVAL_IS_OFF)
        body = "\n".join(f"- {line}" for line in _planned(context)["consequences"])
        self.ask(context, str(request.job), f"Roll back job {request.job}?", body, request)

    def how(self, context: Context) -> Approval:
        return _request(context)

    def job(self, context: Context) -> str:
        return str(_request(context).job)

    def subject(self, context: Context) -> str:
        return f"Roll back job {self.job(context)}?"

    def rejected(self, context: Context, reason: str) -> None:
        tell(context, "rejected", self.job(context), f"job {self.job(context)} is not rolled back: {reason}")


class CancelNewJob(TaskWithFlink):
    """Cancels the new job, if the request names it, and makes sure that it has ended before the old job starts."""

    def execute(self, context: Context) -> dict[str, Any]:
        request, new_job = _request(context), _planned(context)["new_job"]
        _skip_if_converted(self.log, request)
        if request.by_operator:
            skip(self.log, "the operator ends the new job when it starts the old one")
        if not request.restart_job:
            skip(self.log, "restart_job is off, so no job is cancelled")
        flink, cancelled = FlinkTask(FlinkHook(request.new_job_conn_id), context), None
        with _telling(context):
            job_id = _planned(context)["cancels"]
            _check_no_other(request, job_id, context)
            if job_id is not None:
                with fail_if_refused(), _control() as control:
                    # While another run works on the job, the new job runs on: roll_back would wait for that run.
                    undo = _undone(control, str(request.job), _planned(context))
                    _rollback(control, _planned(context), undo.job).reserve(undo)
                cancelled = flink.cancel(job_id, timeout=HOUR, poll_interval=POLL_SECONDS)
            if new_job is not None:
                _check_over(flink.hook, new_job)
        if cancelled is None:
            skip(self.log, f"Flink ran no job '{request.flink_job}', so no job is cancelled")
        return cancelled


def _check_no_other(request: RollbackRequest, approved: str | None, context: Context) -> None:
    """Fails for good if another job has the name of the one whose end was approved, as after a start by hand.

    If the task is cleared after the rollback, the old job that this DAG run has started is no such job.
    """
    name, connections = str(request.flink_job), (request.new_job_conn_id, request.flink_conn_id)
    other = other_job(name, approved, connections)
    if other is not None and other_job(name, _old_job_of(context), connections) is not None:
        raise refusal(
            f"{other}, is {request.flink_job}, and nobody has approved its end. If the old job started now, both would "
            "read the same input. Nothing has been cancelled or rolled back: trigger a new rollback"
        )


def _check_over(hook: FlinkHook, new_job: str) -> None:
    state = hook.job_state(new_job)
    if state is not None and state not in TERMINAL:
        raise refusal(
            f"the new job {new_job} is {state}. If the old job started now, both would read the same input. Nothing "
            "has been rolled back. Name the new job in flink_job, or cancel it and clear this task"
        )


class RollBack(BaseOperator):
    """Rolls the publication back."""

    def execute(self, context: Context) -> dict[str, Any]:
        request, planned = _request(context), _planned(context)
        _skip_if_converted(self.log, request)
        with _telling(context), fail_if_refused(), _control() as control:
            undo = _undone(control, str(request.job), planned)
            # After cancel_new_job no job runs, whether it has cancelled one or not.
            no_job_runs = request.restart_job and not request.by_operator
            force = no_job_runs and _may_be_interrupted(control, undo)
            rolled_back = _rollback(control, planned, undo.job).carry_out(undo, force=force)
        self.log.info("rolled back publication %s (run %s)", undo.sequence, undo.record.run_id)
        if rolled_back.problem:
            self.log.warning("of what stands again: %s", rolled_back.problem)
        self.log.info("restore the job from %s", rolled_back.restore_from)
        if not request.restart_job:
            text = f"publication {undo.sequence} of job {undo.job} is rolled back: restore the job from "
            tell(context, "done", undo.job, text + rolled_back.restore_from)
        return {"undone": undo.sequence, "savepoint": rolled_back.restore_from}


class StartOldJob(TaskWithFlink):
    """Starts the old job from the savepoint that the undone run read, if the request asks for that."""

    def execute(self, context: Context) -> dict[str, Any]:
        request, savepoint = _request(context), _planned(context)["savepoint"]
        if not request.restart_job:
            skip(self.log, f"restart_job is off: restore the job from {savepoint}")
        job = str(request.job)
        with _telling(context):
            if request.by_operator:
                with fail_if_refused(), _control() as control:
                    run = _published(_undone(control, job, _planned(context)))
                started = operator_of(run, request, context).go_back(savepoint)
            else:
                flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
                check_no_other(str(request.flink_job), flink.job_id, (request.flink_conn_id, request.new_job_conn_id))
                started = start_old_program(flink, jar_run_of(flink.job_id, request.old_program(), savepoint))
            with fail_if_refused(), _control() as control:
                undone = published_run(home_folder(), _undone(control, job, _planned(context)))
                if undone is not None:
                    undone.keep(Returned("the old job was started again", savepoint, now_ms()))
        tell(context, "done", job, f"job {job} is rolled back, and the old job runs again from {savepoint}")
        return started


def _to_undo(context: Context, control: Control, job: str) -> Publication:
    """The publication that stood when the DAG run was planned first: however often it is cleared, it undoes that one.

    Raises an error if another one stands by now than before this DAG run's rollback, or after it, or if all is done:
    what runs by now may be another job.
    """
    store = context.get("task_state_store")
    kept = None if store is None else store.get(_UNDO)
    if kept is None:
        undo = Rollback(home_folder(), control, job).publication()
        if undo is None:
            raise nothing_to_roll_back(job)
        if store is not None:
            store.set(_UNDO, str(undo.sequence))
        return undo
    undo, standing = _by_sequence(control, job, int(str(kept))), control.standing(job)
    now = None if standing is None else standing.sequence
    if now != (undo.sequence if undo.rolled_back_at is None else undo.previous):
        raise RejectedError(
            f"this DAG run rolls back publication {undo.sequence} of job {job}, and "
            f"{'none' if now is None else f'publication {now}'} stands by now. This try has changed nothing: trigger "
            "a new rollback"
        )
    run = None if undo.rolled_back_at is None else published_run(home_folder(), undo)
    returned = None if run is None else run.facts_if_sound(Returned)
    if returned is not None and returned.ended_at is not None:
        raise RejectedError(
            f"publication {undo.sequence} of job {job} is rolled back, and the old job was started again from "
            f"{returned.savepoint} at {moment(returned.ended_at)}, so this DAG run has no more to do. This try has "
            "changed nothing"
        )
    return undo


def _old_job_of(context: Context) -> str:
    """The id of the old job, if this DAG run has started it."""
    dag_run = context["dag_run"]
    return flink_id("job", dag_run.dag_id, START_OLD_JOB, "-1", dag_run.run_id)


def _checked_in_flink(request: RollbackRequest, context: Context) -> str | None:
    """The id of the job to cancel, if there is one; fails for good if Flink can't start the old program instead."""
    if request.restart_job:
        check_program("old", OLD_PROGRAM, request.old_program(), request.flink_conn_id)
    if request.flink_job is None:
        return None
    hook = FlinkHook(request.new_job_conn_id)
    if not any(job.is_called(request.flink_job) and not job.is_over for job in hook.jobs()):
        # Flink forgets a job that has ended, perhaps while the approval is waited for.
        return None
    try:
        job_id = hook.job_id(request.flink_job)
    except FlinkUnreachableError:
        raise
    except FlinkError as error:
        raise refusal(f"flink_job: {error}. Nothing has been rolled back") from None
    if job_id == _old_job_of(context):
        raise refusal(f"this DAG run has started the old job already, as job {job_id}. Nothing has been cancelled")
    return job_id


def _cancels_none(request: RollbackRequest) -> str:
    """What a person should see who has mistyped the job's name."""
    running = [f"'{job.name}' ({job.id})" for job in FlinkHook(request.new_job_conn_id).jobs() if not job.is_over]
    return f"no job '{request.flink_job}' is cancelled, as Flink runs none; it runs: {', '.join(running) or 'none'}"


def _telling(context: Context) -> AbstractContextManager[None]:
    """Tells of a failure: no job may run then."""
    job = str(_request(context).job)
    return telling_of_failure(context, "red", job, f"the rollback of job {job} has failed, and perhaps no job runs")


def _skip_if_converted(log: Any, request: RollbackRequest) -> None:
    if request.converts:
        skip(log, "way_back is 'convert': the DAG run that convert_back triggers stops the job and publishes")


def _planned(context: Context) -> dict[str, Any]:
    planned: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    if planned is None:
        raise refusal("this task comes after plan")
    return planned


def _request(context: Context) -> RollbackRequest:
    return RollbackRequest.model_validate(_planned(context)["request"])


def _new_job(undo: Publication) -> str | None:
    """The id of the job that was, or was to be, started from the publication."""
    run = published_run(home_folder(), undo)
    new_job = run.facts(NewJob) if run is not None else None
    return new_job.job_id if new_job is not None else None


def _undone(control: Control, job: str, planned: dict[str, Any]) -> Publication:
    return _by_sequence(control, job, planned["undo"])


def _by_sequence(control: Control, job: str, sequence: int) -> Publication:
    return next(one for one in control.history(job) if one.sequence == sequence)


def _rollback(control: Control, planned: dict[str, Any], job: str) -> Rollback:
    """The rollback, which each task of the DAG run may go on with."""
    return Rollback(home_folder(), control, job, f"rollback-of-{planned['undo']}")


def _may_be_interrupted(control: Control, undo: Publication) -> bool:
    """Whether the run that has the lease is a rehearsal, or the undone run, and not the cut-over of another one."""
    held = control.lease_of(undo.job)
    if held is None:
        return False
    try:
        run = Run.if_there(run_folder(home_folder(), undo.job, held.run_id))
    except StateferryError:
        return False
    return run is not None and (run.plan.rehearse or held.run_id == undo.record.run_id)


def _published(undo: Publication) -> Run:
    run = published_run(home_folder(), undo)
    if run is None:
        raise refusal(f"the folder of run {undo.record.run_id} is gone, and with it the spec of the old job")
    return run


def _control() -> Control:
    return Control(default_catalog())


def _consequences(undo: Publication, savepoint: str) -> list[str]:
    metadata = Location.of(savepoint).child(METADATA)
    checkpoint = read_metadata(savepoint).checkpoint_id
    written = metadata.modified_at()
    since = f"{moment(written)}, {rough_duration(max(now_ms() - written, 0))} ago"
    withdrawn = f"publication {undo.sequence} of {moment(undo.published_at)} (run {undo.record.run_id})"
    lines = [
        f"the rollback withdraws {withdrawn}; it removes no file",
        f"the job starts again from {savepoint} (checkpoint {checkpoint})",
        f"the job reads input since checkpoint {checkpoint} again; that savepoint was written at {since}",
        "the job writes all output since then again, unless the sink recognizes duplicates",
        "state that only the new job has built up is lost",
    ]
    with suppress(RejectedError):
        migration_of(undo)
        lines.append("if the new job can still be stopped with a savepoint, way_back 'convert' loses nothing")
    return lines
