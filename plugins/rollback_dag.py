"""The DAG `state_rollback`, which takes back what a cut-over has published."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG, TriggerRule

from stateferry.airflow.dag_runs.dag_run import RETRIES
from stateferry.airflow.dag_runs.priorities import MOST_TASKS, ORDER, RETURNS, STOPPED
from stateferry.airflow.requests.form import rollback_params
from stateferry.airflow.tasks.rollback_tasks import (
    START_OLD_JOB,
    ApproveRollback,
    CancelNewJob,
    PlanRollback,
    RollBack,
    StartOldJob,
)
from stateferry.airflow.tasks.way_back import ConvertBack

_DOC = """\
Roll back the publication of a job after a person has approved; can also start the old job again.

Or convert the new job's state back, in a run of the job's own DAG, or of `state_migration`, that it triggers.
"""


def rollback_dag() -> DAG:
    """The DAG with its form, for any job."""
    with DAG(
        dag_id="state_rollback",
        description="Roll back the publication of a job",
        doc_md=_DOC,
        schedule=None,
        start_date=datetime(2026, 1, 1),
        max_active_runs=1,
        params=rollback_params(),
        max_active_tasks=MOST_TASKS,
        default_args=RETRIES | ORDER,
        tags=["stateferry"],
    ) as dag:
        unless_refused = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
        plan = PlanRollback(task_id="plan")
        approve = ApproveRollback(task_id="approve")
        cancel_new_job = CancelNewJob(task_id="cancel_new_job", trigger_rule=unless_refused, **STOPPED)
        roll_back = RollBack(task_id="roll_back", trigger_rule=unless_refused, **STOPPED)
        start_old_job = StartOldJob(task_id=START_OLD_JOB, **RETURNS)
        convert_back = ConvertBack(task_id="convert_back", trigger_rule=unless_refused)

        plan >> approve >> cancel_new_job >> roll_back >> start_old_job
        plan >> cancel_new_job
        plan >> roll_back
        plan >> convert_back
        approve >> convert_back
    return dag
