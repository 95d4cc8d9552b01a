"""The tasks that use Flink: taking the savepoint at the start of a cut-over, starting the new job at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from flink_provider.errors import FlinkTimeoutError
from flink_provider.hook import FlinkHook
from flink_provider.jobs import JarRun
from flink_provider.links import FlinkJobLink
from flink_provider.task import HOUR, UP_WITH_CHECKPOINT, FlinkTask

from state_migration.dag_run import check_not_returned, fail_if_refused, publication_of, request_of, run_of, skip
from state_migration.plan_task import occasion_of
from state_migration.planning import plan_for
from state_migration.request import MigrationRequest
from state_migration.request_parts import Program
from state_migration.sources import check_operators, completed_at, home_folder, read_metadata
from stateferry.durations import parse_duration
from stateferry.runs.facts import JobStarted, NewJob, SavepointTaken
from stateferry.runs.runs import Run
from stateferry.runs.timers import are_in_native_savepoints

if TYPE_CHECKING:
    from airflow.sdk import Context

STOPPED = "stopped"
"""An XCom of `take_savepoint`: the savepoint with which the job was stopped for this run."""

POLL_SECONDS = 2
# If Flink restarts the job without limit, the job never gets the state FAILED.
_FAILURES = 3


class TaskWithFlink(BaseOperator):
    """A task that uses Flink as a request says; it shows a link to its job."""

    operator_extra_links = (FlinkJobLink(),)
    ui_color = "#fbe1e8"


class TakeSavepoint(TaskWithFlink):
    """Takes the savepoint and creates the run that reads it; before a cut-over, stops the job with the savepoint."""

    def execute(self, context: Context) -> dict[str, Any]:
        request = request_of(context)
        if not request.takes_savepoint:
            skip(self.log, "the savepoint exists already, so Flink takes none")
        flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
        # A native savepoint takes less time, but lacks timers that the job keeps on the heap.
        native = request.source == "checkpoint" and _holds_timers(request)
        kind = "NATIVE" if native else "CANONICAL"
        self.log.info("the savepoint is %s", kind.lower())
        directory = str(request.savepoint_directory)
        order = flink.savepoint_order(str(request.flink_job), directory, stop=request.stops_job, savepoint_format=kind)
        taken = flink.take_savepoint(order, timeout=6 * HOUR, poll_interval=5)
        if request.stops_job:
            context["ti"].xcom_push(key=STOPPED, value=taken["savepoint"])
        with fail_if_refused():
            # The savepoint's timestamps may be later than the DAG run's time. So `now` is at least the time when the
            # savepoint was completed, which is the same in every try.
            occasion = occasion_of(context).not_before(completed_at(taken["savepoint"]))
            plan = plan_for(request, occasion, taken["savepoint"], no_timers=native)
            check_operators(read_metadata(plan.source), [one.operator for one in plan.operators], plan.source)
            run = Run.create(plan, occasion.now)
            run.keep(SavepointTaken.of_json(taken, "the answer of Flink"))
        return taken


def _holds_timers(request: MigrationRequest) -> bool:
    """Whether a rehearsal has shown that a native savepoint of the job holds all its timers."""
    return are_in_native_savepoints(home_folder(), str(request.plan_values()["job"]))


class StartJob(TaskWithFlink):
    """Starts the new job from the published savepoint, and waits until the job has completed a checkpoint."""

    def execute(self, context: Context) -> dict[str, Any]:
        request, run = request_of(context), run_of(context)
        if not request.start_job:
            skip(self.log, f"start_job is off: start the new job from {run.plan.target}")
        check_not_returned(run)
        publication_of(run)
        flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
        # Recorded before the start: a job that isn't up in time may still run, and a rollback must know its id.
        run.keep(NewJob(flink.job_id))
        jar_run = jar_run_of(flink, request.new_program(), run.plan.target)
        goal = replace(UP_WITH_CHECKPOINT, max_failures=_FAILURES)
        timeout = parse_duration(request.start_timeout) / 1000
        try:
            started = flink.start(jar_run, goal, timeout=timeout, poll_interval=POLL_SECONDS)
        except FlinkTimeoutError as error:
            raise AirflowFailException(str(error)) from None
        run.keep(JobStarted.of_json(started, "the answer of Flink"))
        return started


def jar_run_of(flink: FlinkTask, program: Program, savepoint: str) -> JarRun:
    """The start of the program from the savepoint, as the job of this task instance."""
    return JarRun(
        flink.job_id, program.jar, program.entry_class, tuple(program.arguments), program.parallelism, savepoint
    )
