"""The tasks that use Flink: taking the savepoint at the start of a cut-over, starting the new job at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from flink_provider.errors import FlinkTimeoutError
from flink_provider.operators import FlinkRunJarOperator, FlinkSavepointOperator

from state_migration.plan_task import occasion_of
from state_migration.planning import plan_for
from state_migration.request_parts import Program
from state_migration.sources import check_operators, completed_at, read_metadata
from state_migration.the_run import check_not_returned, check_published, refused_in_words, request_of, run_of, skip
from stateferry.durations import parse_duration
from stateferry.runs.facts import JobStarted, NewJob, SavepointTaken
from stateferry.runs.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

STOPPED = "stopped"
"""An XCom of `take_savepoint`: the savepoint with which the job was stopped for this run."""

# If Flink restarts the job without limit, the job never gets the state FAILED.
_FAILURES = 3


class TakeSavepoint(FlinkSavepointOperator):
    """Takes the savepoint and creates the run that reads it; before a cut-over, stops the job with the savepoint."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="", savepoint_directory="", deferrable=False, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        request = request_of(context)
        if request.source != "flink":
            skip(self.log, "the savepoint is there already")
        self.flink_conn_id = request.flink_conn_id
        self.job, self.savepoint_directory = str(request.flink_job), str(request.savepoint_directory)
        self.stop = request.stops_job
        taken = super().execute(context)
        if self.stop:
            context["ti"].xcom_push(key=STOPPED, value=taken["savepoint"])
        with refused_in_words():
            # The savepoint's timestamps may be later than the DAG run's time. So `now` is at least the time when the
            # savepoint was completed, which is the same in every try.
            occasion = occasion_of(context).not_before(completed_at(taken["savepoint"]))
            plan = plan_for(request, occasion, taken["savepoint"])
            check_operators(read_metadata(plan.source), [one.operator for one in plan.operators], plan.source)
            run = Run.create(plan, occasion.now)
            run.keep(SavepointTaken(**taken))
        return taken


class StartingJob(FlinkRunJarOperator):
    """Starts a job that a request names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(jar="", deferrable=False, poll_interval=2, **kwargs)

    def start(self, context: Context, program: Program, savepoint: str) -> dict[str, Any]:
        """Starts the program from the savepoint."""
        self.jar, self.entry_class, self.arguments, self.parallelism = program
        self.savepoint = savepoint
        return super().execute(context)


class StartJob(StartingJob):
    """Starts the new job from the published savepoint, and waits until the job has completed a checkpoint."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(wait_until="checkpoint", max_failures=_FAILURES, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        request, run = request_of(context), run_of(context)
        if not request.start_job:
            skip(self.log, f"not asked for: start the new job from {run.plan.target}")
        check_not_returned(run)
        check_published(run)
        self.flink_conn_id = request.flink_conn_id
        self.timeout = parse_duration(request.start_timeout) / 1000
        # Recorded before the start: a job that isn't up in time may still run, and the way back must know its id.
        run.keep(NewJob(self._run(context).job_id))
        try:
            started = self.start(context, request.new_program(), run.plan.target)
        except FlinkTimeoutError as error:
            raise AirflowFailException(str(error)) from None
        run.keep(JobStarted(**started))
        return started
