"""The first task: refuses a wrong request before any work, chooses the savepoint, and creates the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from flinkstate.errors import UsageError
from stateferry.airflow.dag_runs.dag_run import (
    FOLDER,
    REHEARSAL,
    REHEARSAL_AGAIN,
    as_of,
    began,
    fail_if_refused,
    leave_out,
)
from stateferry.airflow.dag_runs.missed_nights import tell_missed
from stateferry.airflow.dag_runs.task_names import not_needed
from stateferry.airflow.dag_runs.when_to_stop import job_that_runs, rehearsed_job
from stateferry.airflow.requests.jobs import ConfiguredJob, configuration
from stateferry.airflow.requests.planning import Occasion, check_of, default_catalog, planned, requested_by_form
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.request_parts import Approval
from stateferry.airflow.requests.sources import home_folder
from stateferry.airflow.runs_on.places import check_place
from stateferry.basics.printable import printable
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.tries_by_schedule import is_try_by_schedule, published_by_schedule
from stateferry.runs.plan.plan_text import shown
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_list import runs_of

if TYPE_CHECKING:
    from airflow.sdk import Context

_BY_SCHEDULE = ("scheduled", "backfill")


class PlanOperator(BaseOperator):
    """Returns the request, and the folder of the run.

    A scheduled or backfill DAG run takes its request from the configuration. It rehearses, unless the configuration
    says that the job is cut over by schedule.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        with fail_if_refused(context):
            request = self._request(context)
            occasion = occasion_of(context)
            if request.checks_only:
                return self._to_check(request, occasion, context)
            if not request.rehearses:
                check_place(request, context)
            plan, run = planned(request, occasion, holds=request.rehearses and request.keeps_base)
            rehearsal = self._rehearsal(request, occasion, context) if request.stops_job else None
            again = occasion.rehearsal(REHEARSAL_AGAIN).short_id
            if run is not None:
                run.keep(began(context))
        folder = run.folder if run is not None else run_folder(plan.home, plan.job, plan.run_id)
        for name, value in plan.model_dump(mode="json", exclude={"catalog_uri"}).items():
            self.log.info("%s: %s", name, printable(shown(name, value)))
        result = {
            "job": plan.job,
            "run_id": plan.run_id,
            FOLDER: folder.shown,
            # A run that only rehearses is its own rehearsal.
            REHEARSAL: folder.shown if request.rehearses else rehearsal,
            REHEARSAL_AGAIN: run_folder(plan.home, plan.job, again).shown if rehearsal else None,
            "source": plan.source,
            "target": plan.target,
            "request": request.model_dump(),
        }
        self._leave_out(context, result, not_needed(request))
        return result

    def _to_check(self, request: MigrationRequest, occasion: Occasion, context: Context) -> dict[str, Any]:
        """What the task `check` needs to know; there is no run."""
        asked = check_of(request, occasion)
        self.log.info("%s is looked into, and nothing is migrated", printable(asked.savepoint))
        result = {**asdict(asked), "request": request.model_dump()}
        self._leave_out(context, result, not_needed(request))
        return result

    def _rehearsal(self, request: MigrationRequest, occasion: Occasion, context: Context) -> str:
        """The folder of the rehearsal; creates it, unless Flink must still take the savepoint that it reads."""
        rehearsed, run = planned(request.rehearsal(), occasion.rehearsal(), holds=request.keeps_base)
        if run is None:
            return run_folder(rehearsed.home, rehearsed.job, rehearsed.run_id).shown
        run.keep(replace(began(context), flink_job=rehearsed_job(run) or job_that_runs(request)))
        return run.folder.shown

    def _leave_out(self, context: Context, result: dict[str, Any], tasks: Mapping[str, str]) -> None:
        context["ti"].xcom_push(key="return_value", value=result)
        leave_out(self, context, tasks)

    def _request(self, context: Context) -> MigrationRequest:
        dag_run = context["dag_run"]
        conf, found = dag_run.conf or {}, configuration()
        # Airflow's own type of it shows as DagRunType.SCHEDULED.
        run_type = str(getattr(dag_run.run_type, "value", dag_run.run_type))
        if run_type not in _BY_SCHEDULE:
            request = requested_by_form(dict(context["params"]), conf)
            check_somebody_may_approve(request, dag_run.triggering_user_name)
            configured = found.of_job(str(request.plan_values()["job"]))
            if configured is not None and not request.rehearses:
                check_who_is_asked(request, configured)
            return request
        job = found.of_dag(dag_run.dag_id)
        if job is None:
            problems = "".join(f"\n{problem}" for problem in found.problems)
            raise UsageError(
                f"nothing is configured for the DAG {dag_run.dag_id}, so this run, which is {run_type}, has nothing to "
                f"rehearse: docs/airflow.md, *Every night*, says how to configure it{problems}"
            )
        if run_type == "scheduled":
            tell_missed(context, job, self.log)
        request = job.by_schedule(conf, is_backfill=run_type == "backfill")
        if not request.rehearses and (why := _why_no_cut_over(job.job, occasion_of(context))):
            self.log.warning("%s, so this run rehearses: cut over by the form", why)
            request = request.night()
        verb = "rehearses" if request.rehearses else "cuts over"
        self.log.info("this run is %s: it %s what is configured in %s", run_type, verb, job.origin)
        return request


def _why_no_cut_over(job: str, occasion: Occasion) -> str:
    """Why the schedule doesn't cut over; empty if it may.

    It cuts over once. It doesn't stop the job every night, neither after a cut-over nor after a failure.
    """
    with Control(default_catalog()) as control:
        standing, history = control.standing(job), control.history(job)
    if standing is not None and standing.record.run_id != occasion.short_id:
        return f"publication {standing.sequence} of job {job} stands"
    own = {occasion.short_id, occasion.rehearsal().short_id}
    tries = (run.run_id for run in runs_of(home_folder(), job) if run.run_id not in own and is_try_by_schedule(run))
    # The run of a publication may have been cleaned away since.
    for run_id in (*published_by_schedule(history), *tries):
        if run_id not in own:
            return f"the schedule has tried to cut over job {job} before (run {run_id})"
    return ""


def check_somebody_may_approve(how: Approval, triggered_by: str | None) -> None:
    """Refuses a question that nobody could answer with yes."""
    if how.four_eyes and how.asked() == [triggered_by]:
        raise UsageError(
            f"the form: approvers: only {triggered_by}, who has triggered this run, and four_eyes is on: name others"
        )


def check_who_is_asked(request: Approval, configured: ConfiguredJob) -> None:
    """Refuses a form that asks fewer people than the job's configuration wants."""
    wanted = configured.request
    says = f"{configured.origin} wants it for job {configured.job}, and the form can't change that"
    if wanted.four_eyes and not request.four_eyes:
        raise UsageError(f"the form: four_eyes: off, but {says}: turn it on")
    if wanted.has("approvers") and not (request.has("approvers") and set(request.asked()) <= set(wanted.asked())):
        raise UsageError(f"the form: approvers: expected some of {wanted.approvers}: {says}")


def occasion_of(context: Context) -> Occasion:
    """What a plan needs to know of the DAG run."""
    dag_run = context["dag_run"]
    return Occasion(dag_run.run_id, as_of(context), is_backfill=dag_run.run_type == "backfill")
