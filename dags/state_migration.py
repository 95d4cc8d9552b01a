"""Migrate a job's state: snapshot → rescale → validate → approve → cut over → tables; a rehearsal checks the tables."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, CronTriggerTimetable, TriggerRule
from state_migration.approval import ApproveRun
from state_migration.conclusion import Conclude
from state_migration.flink_tasks import StartJob, TakeSavepoint
from state_migration.form import migration_params
from state_migration.plan_task import PlanOperator
from state_migration.return_task import ReturnToOldJob
from state_migration.steps import PUBLISHED_SAVEPOINT, STATE_TABLES, TABLES_IF_MOVED, StepOperator

from stateferry.runs.facts import Step

with DAG(
    dag_id="state_migration",
    description="Migrate the state of a Flink job into a new savepoint, which is validated before it is published",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    params=migration_params(),
    default_args={"retries": 3, "retry_delay": timedelta(seconds=20), "retry_exponential_backoff": True},
    tags=["stateferry"],
) as dag:
    unless_skipped = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    plan = PlanOperator(task_id="plan")
    take_savepoint = TakeSavepoint(task_id="take_savepoint")
    snapshot = StepOperator.of(Step.SNAPSHOT, trigger_rule=unless_skipped)
    migrate = StepOperator.of(Step.MIGRATE)
    rescale = StepOperator.of(Step.RESCALE, trigger_rule=unless_skipped)
    validate = StepOperator.of(Step.VALIDATE, outlets=[TABLES_IF_MOVED])
    approve = ApproveRun(task_id="approve")
    cut_over = StepOperator.of(Step.CUT_OVER, trigger_rule=unless_skipped, outlets=[PUBLISHED_SAVEPOINT])
    start_job = StartJob(task_id="start_job")
    tables = StepOperator.of(Step.TABLES, trigger_rule=unless_skipped, outlets=[STATE_TABLES])
    return_to_old_job = ReturnToOldJob(task_id="return_to_old_job", trigger_rule=TriggerRule.ONE_FAILED)
    conclude = Conclude(task_id="conclude", trigger_rule=TriggerRule.ALL_DONE)

    plan >> take_savepoint >> snapshot >> migrate >> rescale >> validate >> approve >> cut_over >> start_job >> tables
    plan >> snapshot >> rescale
    validate >> cut_over >> tables >> conclude
    [take_savepoint, start_job] >> return_to_old_job >> conclude
