"""The last task: says how the run ended, and fails if it didn't end as requested."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats

from flinkstate.errors import StateferryError, TransientError
from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs.dag_run import (
    PLAN_TASK,
    REHEARSAL,
    REHEARSAL_AGAIN,
    fail_if_refused,
    job_of,
    planned_by,
    run_if_begun,
    skip,
    task_state,
    why_refused,
)
from stateferry.airflow.dag_runs.notices import tell
from stateferry.airflow.dag_runs.page_links import NOTE
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.task_names import CHECK, RETURN, task_of_run
from stateferry.airflow.dag_runs.when_to_stop import NOT_STOPPED
from stateferry.airflow.requests.jobs import Event
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks.shared_application_task import dismiss
from stateferry.basics.durations import moment
from stateferry.basics.printable import printable
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import OutageExceeded, StopAsked
from stateferry.runs.predict.estimates import Prediction, estimate_text
from stateferry.runs.predict.prediction import outage_of, part_times, predicted, predicted_after
from stateferry.runs.record.catch_ups import CatchUps
from stateferry.runs.record.facts import JobStarted, Returned, SavepointTaken, TablesProblem
from stateferry.runs.record.run_folder import HELD
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import ENDED, RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import TablesFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.decision import Answer, Decision
from stateferry.runs.report.report import Report
from stateferry.runs.report.report_text import show_report, show_tables, time_line
from stateferry.show.outcome import outcome_line
from stateferry.show.run_view import RunView

if TYPE_CHECKING:
    from airflow.sdk import Context

# Airflow's page shows so many columns of a log beside the list of tasks, on a usual screen.
_LOG_WIDTH = 100


class Conclude(BaseOperator):
    """Runs in any case, and decides whether the DAG run counts as successful."""

    def execute(self, context: Context) -> dict[str, Any]:
        dismiss(context)
        try:
            return self._conclude(context)
        except AirflowFailException as error:
            event: Event = "rejected" if _was_rejected(context) else "red"
            tell(context, event, job_of(context), str(error))
            raise

    def _conclude(self, context: Context) -> dict[str, Any]:
        planned = planned_by(context)
        if planned is None:
            self._without_plan(context)
        if MigrationRequest.model_validate(planned["request"]).checks_only:
            return self._checked(context)
        try:
            run = Run.open(Location.of(planned["folder"]))
        except TransientError:
            raise
        except StateferryError:
            why = _why_no_run(context, planned)
            context["ti"].xcom_push(key=NOTE, value=why)
            raise refusal(why) from None
        context["ti"].xcom_push(key=NOTE, value=outcome_line(RunView.of(run)))
        self._show_report(run)
        last = run.changes()[-1]
        snapshot = task_of_run(run.plan.rehearse, Step.SNAPSHOT.value)
        if run.state is RunState.PLANNED and task_state(context, snapshot) == "skipped":
            why = f"the run had nothing to do: see the log of the task {snapshot}"
            tell(context, "nothing", run.plan.job, f"{outcome_line(RunView.of(run))}: {why}")
            skip(self.log, why)
        times, outage = part_times(run), outage_of(run)
        self.log.info("%s", time_line(times))
        foreseen = predicted(run)
        if outage is not None:
            self.log.info("the job stood still for %.0f s%s", outage, _foreseen(foreseen))
        with fail_if_refused():
            problem = _problem(run, MigrationRequest.model_validate(planned["request"]), context)
        if problem:
            raise refusal(printable(problem))
        if run.state is RunState.PUBLISHED:
            _let_go(context)
        elif run.plan.is_night:
            _let_go_of_nights_before(run)
        send_metrics(run)
        done = f"staged at {run.staged.shown}" if run.plan.rehearse else f"restore the new job from {run.plan.target}"
        self.log.info("run %s of job %s is %s: %s", run.plan.run_id, run.plan.job, last.state.value, printable(done))
        tell(context, "done", run.plan.job, outcome_line(RunView.of(run)))
        summary: dict[str, Any] = {"state": last.state.value, "folder": run.folder.shown, "report": run.report.shown}
        summary |= {} if outage is None else {"outage": outage}
        return {
            **summary,
            "times": {time.part: {"seconds": time.seconds, "predicted": time.predicted} for time in times},
        }

    def _checked(self, context: Context) -> dict[str, Any]:
        """The answer of a look into a savepoint; there is no run."""
        found = context["ti"].xcom_pull(task_ids=CHECK)
        if found is None:
            raise refusal(f"the savepoint was not checked{_why(context, CHECK)}")
        for line in found["answer"]:
            self.log.info("%s", line)
        return {name: value for name, value in found.items() if name != "answer"}

    def _without_plan(self, context: Context) -> NoReturn:
        if task_state(context, PLAN_TASK) == "skipped":
            skip(self.log, "this DAG run was skipped: see the log of the task plan")
        raise refusal(f"this DAG run was refused{_why(context, PLAN_TASK)}")

    def _show_report(self, run: Run) -> None:
        if run.report.exists():
            text = StringIO()
            show_report(Report.read(run.report), text, width=_LOG_WIDTH, is_over=run.state in ENDED)
            if Report.read(run.report).tables:
                show_tables(Report.read(run.report), text, width=_LOG_WIDTH)
            for line in text.getvalue().splitlines():
                self.log.info("%s", line)


def _let_go(context: Context) -> None:
    """Lets go of the checkpoints on which the publication was built: Flink may have their room."""
    for which in (REHEARSAL, REHEARSAL_AGAIN):
        rehearsal = run_if_begun(context, which)
        if rehearsal is not None:
            rehearsal.held.remove()
            for one in (rehearsal.facts_if_sound(CatchUps) or CatchUps(0)).done:
                rehearsal.folder.parent.child(one.run_id).child(HELD).remove()


def _let_go_of_nights_before(run: Run) -> None:
    """Lets go of the checkpoints of nights before this one: the next night goes on from this one.

    One that was planned later, or waits for its turn, still has to read its own.
    """
    planned_at = run.changes()[0].at
    for one in runs_of(run.plan.home, run.plan.job):
        was_before = one.planned_at < planned_at and one.state is not RunState.PLANNED
        if one.run_id != run.plan.run_id and one.plan is not None and one.plan.is_night and was_before:
            one.held.remove()


def _foreseen(foreseen: Prediction) -> str:
    return "" if foreseen.outage is None else f"; predicted were {estimate_text(foreseen.outage)}"


def _why_no_run(context: Context, planned: dict[str, Any]) -> str:
    """Why the run was never begun: what became of the rehearsal before it, during which the job runs on."""
    rehearsal = run_if_begun(context, REHEARSAL)
    if rehearsal is None:
        task = task_of_run(planned.get(REHEARSAL) is not None, SavepointTaken.name)
        return f"this DAG run has no run, because no savepoint was taken{_why(context, task)}"
    asked = rehearsal.facts_if_sound(StopAsked)
    if asked is not None:
        back = _back(rehearsal.facts_if_sound(Returned)) or f"; whether it runs says the log of the task {RETURN}"
        return printable(
            f"the job was asked to stop at {moment(asked.at)}, and this DAG run has no run"
            f"{_why(context, SavepointTaken.name)}{back}"
        )
    decision = rehearsal.facts_if_sound(Decision)
    name, last = f"rehearsal {rehearsal.plan.run_id}", rehearsal.changes()[-1]
    if decision is not None and decision.answer is not Answer.ASKED:
        what = f"the cut-over was {decision.in_words}"
        after = "" if decision.answer is Answer.REJECTED else ": see the logs of wait_to_stop and take_savepoint"
    elif rehearsal.state is RunState.VERIFIED:
        what, after = f"{name} is green, and the cut-over was not decided", ": see the log of the task decide"
    else:
        what, after = f"{name} is {last.state.value}", f": {last.reason}" if last.reason else ""
    return printable(f"{what}, and no savepoint of the cut-over is known{after}. {NOT_STOPPED}")


def _was_rejected(context: Context) -> bool:
    """Whether a person has rejected the run or the cut-over after its rehearsal."""
    if (run := run_if_begun(context)) is not None:
        return run.state is RunState.REJECTED
    rehearsal = run_if_begun(context, REHEARSAL)
    decision = None if rehearsal is None else rehearsal.facts_if_sound(Decision)
    return decision is not None and decision.answer is Answer.REJECTED


def _why(context: Context, task: str) -> str:
    why = why_refused(context, task)
    return f": {why}" if why else f": see the log of the task {task}"


def _problem(run: Run, request: MigrationRequest, context: Context) -> str:
    last = run.changes()[-1]
    name, back = f"run {run.plan.run_id} of job {run.plan.job}", _back(run.facts(Returned))
    if not back and request.stops_job and task_state(context, RETURN) == "failed":
        back = f"; the old job was not started again: see the log of the task {RETURN}"
    wanted = RunState.VERIFIED if run.plan.rehearse else RunState.PUBLISHED
    if run.state is not wanted:
        exceeded = run.facts(OutageExceeded)
        why = last.reason or (exceeded.reason if exceeded else why_refused(context, JobStarted.name))
        reason = f": {why}" if why else ""
        return f"{name} is {last.state.value}, not {wanted.value}{reason}{back}"
    if request.start_job and run.facts(JobStarted) is None:
        why = why_refused(context, JobStarted.name) or "see the logs of start_job and return_to_old_job"
        return f"{name} is published, but the new job doesn't run: {why}{back}"
    return _pending_tables(run, name)


def _back(returned: Returned | None) -> str:
    """Whether the old job runs again."""
    if returned is None:
        return ""
    if returned.ended_at is None:
        return f"; the old job was to run again from {returned.savepoint}: see the log of the task {RETURN}"
    return f"; the old job runs again from {returned.savepoint}"


def _pending_tables(run: Run, name: str) -> str:
    with Control(run.plan.catalog_uri) as control:
        if not control.are_tables_pending(run.plan.job, run.plan.run_id):
            return ""
    problem = run.facts(TablesProblem)
    if problem is not None and problem.published_differs:
        return problem.reason
    why = problem.reason if problem else "the task tables has not ended"
    return (
        f"{name} is published, and a job that runs from it is not affected; but its tables are pending: {why}. When "
        "the cause is removed, clear the task tables"
    )


def send_metrics(run: Run) -> None:
    """Sends each metric by Airflow's own stats: they go where Airflow's go, and nowhere if it sends none.

    Each has the job as a tag, and goes once more with the job in its name, for receivers without tags.
    """
    job = stats.normalize_name_for_stats(run.plan.job, log_warning=False)
    for name, value in _metrics(run):
        stats.gauge(f"stateferry.{name}", value, tags={"job": job})
        stats.gauge(f"stateferry.{job}.{name}", value)


def _metrics(run: Run) -> Iterator[tuple[str, float]]:
    if run.plan.rehearse:
        yield "rehearsal_seconds", sum(time.seconds for time in part_times(run))
        outage = predicted_after(run).outage
        if outage is not None:
            yield "predicted_outage_seconds", outage.seconds
    tables = run.facts(TablesFacts)
    if tables is not None:
        yield "keys_left", sum(counts.keys_left for counts in tables.counts.values())
