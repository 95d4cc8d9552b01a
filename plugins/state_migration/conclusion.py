"""The last task: says how the run ended, and fails if it didn't end as requested."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from state_migration.dag_run import PLAN_TASK, fail_if_refused, planned_by, skip
from state_migration.request import MigrationRequest
from stateferry.errors import PassingError, StateferryError
from stateferry.printable import printable
from stateferry.runs.facts import JobStarted, Returned, Step, TablesProblem
from stateferry.runs.prediction import part_times
from stateferry.runs.publications import Control
from stateferry.runs.report import Report
from stateferry.runs.report_text import show_report, show_tables, time_line
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run
from stateferry.savepoint.storage import Location

if TYPE_CHECKING:
    from airflow.sdk import Context


class Conclude(BaseOperator):
    """Runs in any case, and decides whether the DAG run counts as successful."""

    def execute(self, context: Context) -> dict[str, Any]:
        planned = planned_by(context)
        if planned is None:
            self._without_plan(context)
        try:
            run = Run.open(Location.of(planned["folder"]))
        except PassingError:
            raise
        except StateferryError:
            raise AirflowFailException(
                "this DAG run has no run, because no savepoint was taken: see the log of the task take_savepoint"
            ) from None
        self._show_report(run)
        last = run.changes()[-1]
        if run.state is RunState.PLANNED and _task_state(context, Step.SNAPSHOT.value) == "skipped":
            skip(self.log, "the run had nothing to do: see the log of the task snapshot")
        times = part_times(run)
        self.log.info("%s", time_line(times))
        with fail_if_refused():
            problem = _problem(run, MigrationRequest.model_validate(planned["request"]))
        if problem:
            raise AirflowFailException(printable(problem))
        done = f"staged at {run.staged.shown}" if run.plan.rehearse else f"restore the new job from {run.plan.target}"
        self.log.info("run %s of job %s is %s: %s", run.plan.run_id, run.plan.job, last.state.value, printable(done))
        said = {"state": last.state.value, "folder": run.folder.shown, "report": run.report.shown}
        return {**said, "times": {time.part: {"seconds": time.seconds, "predicted": time.predicted} for time in times}}

    def _without_plan(self, context: Context) -> NoReturn:
        if _task_state(context, PLAN_TASK) == "skipped":
            skip(self.log, "this DAG run was skipped: see the log of the task plan")
        raise AirflowFailException("this DAG run was refused: see the log of the task plan")

    def _show_report(self, run: Run) -> None:
        if run.report.exists():
            text = StringIO()
            show_report(Report.read(run.report), text)
            if run.state is RunState.PUBLISHED:
                show_tables(Report.read(run.report), text)
            for line in text.getvalue().splitlines():
                self.log.info("%s", line)


def _task_state(context: Context, task: str) -> str | None:
    ti = context["ti"]
    by_run = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task], run_ids=[ti.run_id])
    return next((str(states[task]) for states in by_run.values() if task in states), None)


def _problem(run: Run, request: MigrationRequest) -> str:
    last = run.changes()[-1]
    returned = run.facts(Returned)
    name = f"run {run.plan.run_id} of job {run.plan.job}"
    back = f". The old job was started again from {returned.savepoint}" if returned else ""
    wanted = RunState.VERIFIED if run.plan.rehearse else RunState.PUBLISHED
    if run.state is not wanted:
        reason = f": {last.reason}" if last.reason else ""
        return f"{name} is {last.state.value}, not {wanted.value}{reason}{back}"
    if request.start_job and run.facts(JobStarted) is None:
        return (
            f"{name} is published, but the new job doesn't run: see the logs of start_job and return_to_old_job{back}"
        )
    return _pending_tables(run, name)


def _pending_tables(run: Run, name: str) -> str:
    with Control(run.plan.catalog_uri) as control:
        if not control.are_tables_pending(run.plan.job, run.plan.run_id):
            return ""
    problem = run.facts(TablesProblem)
    why = problem.reason if problem else "the task tables has not ended"
    return (
        f"{name} is published, and a job that runs from it is not affected; but its tables are pending: {why}. When "
        "the cause is removed, clear the task tables"
    )
