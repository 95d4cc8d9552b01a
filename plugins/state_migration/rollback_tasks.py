"""The tasks of a rollback: back to the previous publication, and to the job that belongs to it, after approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from flink_provider.jobs import TERMINAL
from flink_provider.operators import FlinkCancelJobOperator

from state_migration.approval import Asking
from state_migration.flink_tasks import StartingJob
from state_migration.planning import default_catalog
from state_migration.rollback_request import RollbackRequest, rollback_request
from state_migration.sources import home_folder, read_metadata
from state_migration.the_run import PLAN_TASK, refused_in_words, skip
from stateferry.durations import moment
from stateferry.errors import RejectedError
from stateferry.runs.facts import NewJob
from stateferry.runs.publications import Control, Publication
from stateferry.runs.rollback import Rollback
from stateferry.runs.target_metadata import published_run
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.storage import Location

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanRollback(BaseOperator):
    """Says what would be undone, what the old job would start from, and which input it would read again."""

    def execute(self, context: Context) -> dict[str, Any]:
        with refused_in_words():
            request = rollback_request({**context["params"], **(context["dag_run"].conf or {})}, "the form")
            job = str(request.job)
            with _control() as control:
                undo = Rollback(home_folder(), control, job).publication()
                if undo is None:
                    raise RejectedError(f"job {job} has no publication that stands: nothing to roll back")
                before = next((one for one in control.history(job) if one.sequence == undo.previous), None)
            savepoint = before.record.target if before is not None else undo.record.source
            consequences = _consequences(undo, savepoint)
        for line in consequences:
            self.log.warning("%s", line)
        return {
            "request": request.model_dump(),
            "undo": undo.sequence,
            "new_job": _new_job(undo),
            "savepoint": savepoint,
            "consequences": consequences,
        }


class ApproveRollback(Asking):
    """Asks whether to roll back."""

    def execute(self, context: Context) -> Any:
        request = _request(context)
        if not request.approval:
            skip(self.log, "approval is switched off")
        body = "\n".join(f"- {line}" for line in _planned(context)["consequences"])
        self.ask(context, f"Roll back job {request.job}?", body, request.approval_timeout)


class CancelNewJob(FlinkCancelJobOperator):
    """Cancels the new job, if the request names it, and makes sure that it has ended before the old job starts."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="", deferrable=False, poll_interval=2, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        request, new_job = _request(context), _planned(context)["new_job"]
        self.flink_conn_id = request.flink_conn_id
        cancelled = None
        if request.flink_job is not None:
            self.job = request.flink_job
            cancelled = super().execute(context)
        if request.restart_job and new_job is not None:
            self._check_over(new_job)
        if cancelled is None:
            skip(self.log, "no job was named that is to be cancelled")
        return cancelled

    def _check_over(self, new_job: str) -> None:
        state = self.hook.job_state(new_job)
        if state is not None and state not in TERMINAL:
            raise AirflowFailException(
                f"the new job {new_job} is {state}, and beside it the old job would read the same input: nothing is "
                "undone. Name it in flink_job, or cancel it and clear this task"
            )


class RollBack(BaseOperator):
    """Undoes the publication."""

    def execute(self, context: Context) -> dict[str, Any]:
        request, planned = _request(context), _planned(context)
        with refused_in_words(), _control() as control:
            undo = next(one for one in control.history(str(request.job)) if one.sequence == planned["undo"])
            rolled_back = Rollback(home_folder(), control, undo.job).carry_out(undo)
        self.log.info("rolled back publication %s (run %s)", undo.sequence, undo.record.run_id)
        self.log.info("restore the job from %s", rolled_back.restore_from)
        return {"undone": undo.sequence, "savepoint": rolled_back.restore_from}


class StartOldJob(StartingJob):
    """Starts the old job from the savepoint that stands after the rollback, if the request asks for that."""

    def execute(self, context: Context) -> dict[str, Any]:
        request = _request(context)
        if not request.restart_job:
            skip(self.log, f"not asked for: restore the job from {_planned(context)['savepoint']}")
        self.flink_conn_id = request.flink_conn_id
        return self.start(context, request.old_program(), _planned(context)["savepoint"])


def _planned(context: Context) -> dict[str, Any]:
    said: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    if said is None:
        raise AirflowFailException("this task comes after plan")
    return said


def _request(context: Context) -> RollbackRequest:
    return RollbackRequest.model_validate(_planned(context)["request"])


def _new_job(undo: Publication) -> str | None:
    """The id of the job that was, or was to be, started from the publication."""
    run = published_run(home_folder(), undo)
    new_job = run.facts(NewJob) if run is not None else None
    return new_job.job_id if new_job is not None else None


def _control() -> Control:
    return Control(default_catalog())


def _consequences(undo: Publication, savepoint: str) -> list[str]:
    metadata = Location.of(savepoint).child(METADATA)
    checkpoint = read_metadata(savepoint).checkpoint_id
    since = moment(metadata.modified_at())
    return [
        f"publication {undo.sequence} of {moment(undo.published_at)} is undone (run {undo.record.run_id})",
        f"the job goes on from {savepoint} (checkpoint {checkpoint})",
        f"input since checkpoint {checkpoint} of the job is read again; that savepoint was written at {since}",
        "what the new job has written out since is written again, unless the sink tells twins apart",
        "what the new job's state alone has learnt is lost; no file is removed",
    ]
