"""The first task: refuses a wrong request before any work, chooses the savepoint, and creates the run's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Variable

from state_migration.dag_run import fail_if_refused, skip
from state_migration.planning import VARIABLE, Occasion, planned, requested_by_form, requested_nightly
from state_migration.request import MigrationRequest
from stateferry.printable import printable
from stateferry.runs.runs import run_folder

if TYPE_CHECKING:
    from airflow.sdk import Context

_BY_SCHEDULE = ("scheduled", "backfill")


class PlanOperator(BaseOperator):
    """Returns the request, and the folder of the run.

    A scheduled or backfill DAG run takes its request from the Airflow variable, and rehearses. It is skipped if the
    variable isn't set.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        with fail_if_refused():
            request = self._request(context)
            occasion = occasion_of(context)
            plan, run = planned(request, occasion)
        folder = run.folder if run is not None else run_folder(plan.home, plan.job, plan.run_id)
        for name, value in plan.model_dump(mode="json", exclude={"catalog_uri"}).items():
            self.log.info("%s: %s", name, printable(str(value)))
        return {
            "job": plan.job,
            "run_id": plan.run_id,
            "folder": folder.shown,
            "source": plan.source,
            "target": plan.target,
            "request": request.model_dump(),
        }

    def _request(self, context: Context) -> MigrationRequest:
        dag_run = context["dag_run"]
        conf = dag_run.conf or {}
        if dag_run.run_type not in _BY_SCHEDULE:
            return requested_by_form(dict(context["params"]), conf)
        variable = Variable.get(VARIABLE, default=None)
        if variable is None:
            skip(
                self.log,
                f"nothing is configured: the Airflow variable {VARIABLE} is not set. Give it a JSON object with the "
                'form\'s fields, such as {"source": "folder", ...}, and scheduled runs rehearse it every night',
            )
        self.log.info("this run is %s: it rehearses what the variable %s says", dag_run.run_type, VARIABLE)
        return requested_nightly(variable, conf)


def occasion_of(context: Context) -> Occasion:
    """What a plan needs to know of the DAG run."""
    dag_run = context["dag_run"]
    as_of = dag_run.data_interval_end or dag_run.run_after
    return Occasion(dag_run.run_id, as_of, is_backfill=dag_run.run_type == "backfill")
