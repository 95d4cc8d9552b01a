"""Migrate a job's state: take snapshot → migrate → rescale → validate → approve → cut over."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, TriggerRule
from state_migration.approval import ApproveRun
from state_migration.assets import PUBLISHED_SAVEPOINT, STATE_TABLES
from state_migration.form import migration_params
from state_migration.plan_task import PlanOperator
from state_migration.steps import StepOperator

with DAG(
    dag_id="state_migration",
    description="Ferry the state of a Flink job into a new savepoint, with proof before the cut-over",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    params=migration_params(),
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["stateferry"],
) as dag:
    unless_skipped = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    plan = PlanOperator(task_id="plan")
    snapshot = StepOperator(task_id="snapshot", step="snapshot")
    migrate = StepOperator(task_id="migrate", step="migrate")
    rescale = StepOperator(task_id="rescale", step="rescale")
    validate = StepOperator(task_id="validate", step="validate")
    approve = ApproveRun(task_id="approve")
    cut_over = StepOperator(
        task_id="cut_over", step="cut_over", trigger_rule=unless_skipped, outlets=[PUBLISHED_SAVEPOINT, STATE_TABLES]
    )
    plan >> snapshot >> migrate >> rescale >> validate >> approve >> cut_over
    validate >> cut_over
