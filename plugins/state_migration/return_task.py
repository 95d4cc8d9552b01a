"""Goes back to the old job if a cut-over fails before the new job has completed a checkpoint.

After a checkpoint, going back would replay input that the new job has processed, so a person must decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from flink_provider.hook import FlinkHook
from flink_provider.jobs import TERMINAL

from state_migration.flink_tasks import STOPPED, StartingJob
from state_migration.request import MigrationRequest
from state_migration.the_run import planned_by, refused_in_words, request_of, skip
from stateferry.runs.facts import JobStarted, Returned, SavepointTaken
from stateferry.runs.publications import Control, Publication
from stateferry.runs.rollback import Rollback
from stateferry.runs.runs import Run
from stateferry.savepoint.storage import Location

if TYPE_CHECKING:
    from airflow.sdk import Context

_CANCELLED_WITHIN = 300.0


class ReturnToOldJob(StartingJob):
    """Makes sure that the new job has ended, undoes the publication, and starts the old job from the old savepoint."""

    def execute(self, context: Context) -> dict[str, Any]:
        if planned_by(context) is None:
            skip(self.log, "nothing was planned, so nothing was done")
        request, ti = request_of(context), context["ti"]
        self.flink_conn_id = request.flink_conn_id
        stopped_with = ti.xcom_pull(task_ids=SavepointTaken.name, key=STOPPED)
        run = _run(context)
        published = _publication(run) if run is not None else None
        if stopped_with is None and (published is None or not request.start_job):
            skip(self.log, _nothing_happened(request))
        new_job = ti.xcom_pull(task_ids=JobStarted.name, key="job_id")
        if new_job is not None:
            self._end(new_job)
        with refused_in_words():
            if run is not None and published is not None:
                _unpublish(run, published)
        savepoint = stopped_with if run is None else stopped_with or run.plan.source
        if request.old_jar is None:
            raise AirflowFailException(
                f"the job as it was is not running, and old_jar doesn't say how to start it: start it from {savepoint}"
            )
        if run is not None:
            run.keep(Returned("it went back to the old job", savepoint))
        started = self.start(context, request.old_program(), savepoint)
        self.log.warning("went back: the old job runs again, as job %s, from %s", started["job_id"], savepoint)
        return started | {"savepoint": savepoint}

    def _end(self, new_job: str) -> None:
        """Makes sure that the new job has ended and has never completed a checkpoint."""
        state = _state(self.hook, new_job)
        if state not in TERMINAL:
            self._check_no_checkpoint(new_job)
            self.log.info("job %s is %s without a completed checkpoint: cancelling it", new_job, state)
            state = self.hook.cancel(new_job, timeout=_CANCELLED_WITHIN)
        # The job may have completed a checkpoint before it ended.
        self._check_no_checkpoint(new_job)
        self.log.info("job %s is %s", new_job, state)

    def _check_no_checkpoint(self, new_job: str) -> None:
        if self.hook.has_checkpointed(new_job):
            raise AirflowFailException(
                f"the new job {new_job} has completed a checkpoint: going back now would replay the input it has "
                "worked on, so nothing was undone. Mend the new job, or trigger the DAG state_rollback"
            )


def _state(hook: FlinkHook, job: str) -> str:
    state = hook.job_state(job)
    if state is None:
        raise AirflowFailException(
            f"Flink knows nothing of the new job {job}, so whether it has completed a checkpoint can't be told: "
            "nothing was undone. Look whether it runs; if it never did, trigger the DAG state_rollback"
        )
    return state


def _run(context: Context) -> Run | None:
    said = planned_by(context)
    assert said is not None, "this task comes after plan"
    return Run.if_there(Location.of(said["folder"]))


def _publication(run: Run) -> Publication | None:
    """The run's publication, if it stands, or was undone by an earlier try."""
    plan = run.plan
    with Control(plan.catalog_uri) as control:
        own = [one for one in control.history(plan.job) if one.record.run_id == plan.run_id]
        standing = control.standing(plan.job)
    return own[-1] if own and (own[-1] == standing or own[-1].rolled_back_at is not None) else None


def _unpublish(run: Run, published: Publication) -> None:
    with Control(run.plan.catalog_uri) as control:
        Rollback(run.plan.home, control, run.plan.job).carry_out(published)


def _nothing_happened(request: MigrationRequest) -> str:
    if request.stops_job:
        return (
            f"no savepoint was taken, so job {request.flink_job} should run as before; look at it in Flink, since an "
            "answer of Flink may have been lost"
        )
    return "no job was stopped for this run, and none was started: there is nothing to return to"
