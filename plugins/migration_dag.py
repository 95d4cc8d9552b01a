"""The DAGs that migrate state: `state_migration` with its form, and one for each configured job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, TaskGroup, TriggerRule, chain

from stateferry.airflow.dag_runs.dag_run import PLAN_TASK, REHEARSAL, REHEARSAL_AGAIN, RETRIES
from stateferry.airflow.dag_runs.notices import notice_problems
from stateferry.airflow.dag_runs.page_links import RunPageLink
from stateferry.airflow.dag_runs.priorities import BEFORE_STOP, HELD, MOST_TASKS, ORDER, RETURNS, STOPPED, WATCHES
from stateferry.airflow.dag_runs.task_names import APPROVE, CHECK, DECIDE, OUTAGE, RETURN, WAIT_TO_STOP, WATCH_OUTAGE
from stateferry.airflow.requests.form import migration_params
from stateferry.airflow.requests.jobs import DAG_ID, ConfiguredJob, configuration
from stateferry.airflow.tasks.approval import ApproveRun
from stateferry.airflow.tasks.catch_up_task import CatchUp
from stateferry.airflow.tasks.check_task import CheckSavepoint
from stateferry.airflow.tasks.conclusion import Conclude
from stateferry.airflow.tasks.decide_task import Decide, WaitToStop
from stateferry.airflow.tasks.flink_tasks import StartJob, TakeSavepoint
from stateferry.airflow.tasks.hold_slot import HoldSlot
from stateferry.airflow.tasks.outage_task import WatchOutage
from stateferry.airflow.tasks.own_groups import with_own_groups
from stateferry.airflow.tasks.plan_task import PlanOperator
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.airflow.tasks.shared_application_task import ShareApplication
from stateferry.airflow.tasks.steps import JobAssets, StepOperator
from stateferry.airflow.tasks.task_docs import DAG_DOC, TASK_DOCS
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.steps import Step, steps_of

_UNLESS_FAILED = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
_TITLE = "Migrate the state of a Flink job into a new savepoint, which is validated before it is published"


def migration_dags() -> Iterator[DAG]:
    """The DAG `state_migration`, which has a schedule only if one is configured, and a DAG for each configured job."""
    found = configuration()
    yield _dag(found.of_dag(DAG_ID))
    for job in found.jobs:
        if job.dag_id != DAG_ID and isinstance(made := _dag_or_problem(job), DAG):
            yield made


def tell_problems() -> None:
    """Raises if something in the configuration is wrong, for a file that makes no DAG: Airflow's page then shows it.

    In the file of the DAGs it would take all of them down.
    """
    found = configuration()
    of_jobs = [made for job in found.jobs if isinstance(made := _dag_or_problem(job), str)]
    problems = [*found.problems, *notice_problems(found), *of_jobs]
    if problems:
        raise ValueError("\n".join(["the configuration of state_migration has problems:", *problems]))


def _dag_or_problem(job: ConfiguredJob) -> DAG | str:
    """The DAG of the job, or why its own tasks, or its request in the form, make none."""
    try:
        return _dag(job)
    except ValueError as error:
        return f"{job.origin.removesuffix('.request')}: {error}"


def _dag(job: ConfiguredJob | None) -> DAG:
    """The DAG of the job, or that of the form alone."""
    schedule = (
        None if job is None or job.schedule is None else CronTriggerTimetable(job.schedule, timezone=job.timezone)
    )
    is_of_one = job is not None and bool(job.name)
    assets = JobAssets() if job is None else JobAssets(job.name or None, job.timezone)
    pool = {"pool": job.pool} if job is not None and job.pool is not None else {}
    with DAG(
        dag_id=DAG_ID if job is None else job.dag_id,
        description=f"{_TITLE}: job {job.job}" if job is not None and is_of_one else _TITLE,
        doc_md=DAG_DOC,
        schedule=schedule,
        start_date=datetime(2026, 1, 1),
        catchup=False,
        max_active_runs=1,
        params=migration_params(job.request if job is not None and is_of_one else None),
        max_active_tasks=MOST_TASKS,
        default_args=RETRIES | ORDER,
        tags=["stateferry"],
        # The file that only tells problems makes DAGs to find them: it would count as theirs.
        auto_register=False,
    ) as dag:
        _tasks(assets, pool, None if job is None else job.own_tasks)
        for task in dag.tasks:
            # Those of a rehearsal have its name before their own; those of a team have their own words.
            assert isinstance(task, BaseOperator)
            task.doc_md = TASK_DOCS.get(task.task_id.rpartition(".")[2], task.doc_md)
            task.operator_extra_links = (*task.operator_extra_links, RunPageLink())
    return dag


def _tasks(assets: JobAssets, pool: dict[str, str], own: str | None) -> None:
    """The tasks in their order; `plan` skips what a run doesn't need.

    A cut-over that stops the job is decided on a rehearsal, while the job runs; from `take_savepoint` on nobody is
    asked. Any other cut-over is approved when it is validated. A night has the tasks of the rehearsal alone.
    """
    plan = PlanOperator(task_id=PLAN_TASK)
    check = CheckSavepoint(task_id=CHECK, **pool)
    rehearsal, of_rehearsal, catch_up = _rehearsal(REHEARSAL, assets, pool)
    decide, wait_to_stop = Decide(task_id=DECIDE, trigger_rule=_UNLESS_FAILED), WaitToStop(task_id=WAIT_TO_STOP)
    again, of_another, catch_up_again = _rehearsal(REHEARSAL_AGAIN, assets, pool)
    outage = _outage(assets, own)
    tables = StepOperator.of(Step.TABLES, assets, trigger_rule=_UNLESS_FAILED, **pool)
    conclude = Conclude(task_id="conclude", trigger_rule=TriggerRule.ALL_DONE)

    chain(plan, *rehearsal, catch_up, decide, wait_to_stop, *again, catch_up_again, outage.take_savepoint)
    # Spark starts while Flink takes the savepoint.
    plan >> of_rehearsal
    wait_to_stop >> of_another
    [plan, wait_to_stop, *again[-2:], catch_up_again] >> outage.application
    [plan, wait_to_stop, *again[-2:], catch_up_again] >> outage.hold_slot
    # Without states to migrate there are no tables, and validate is the last task of a rehearsal.
    rehearsal[-2] >> catch_up
    rehearsal[-2] >> decide
    [wait_to_stop, again[-2]] >> catch_up_again
    again[-2:] >> outage.take_savepoint
    # A checkpoint needs no savepoint, and a rehearsal that isn't too old isn't made again.
    plan >> rehearsal[1]
    wait_to_stop >> outage.take_savepoint
    plan >> outage.take_savepoint
    plan >> outage.snapshot
    [outage.cut_over, outage.start_job] >> tables
    plan >> check >> conclude
    # Whatever `plan` skips, one of these is the last task at work.
    [*rehearsal[-2:], outage.validate, outage.cut_over, outage.start_job, outage.return_to_old_job, tables] >> conclude


def _rehearsal(
    which: str, assets: JobAssets, pool: dict[str, str]
) -> tuple[list[BaseOperator], ShareApplication, CatchUp]:
    """The tasks of a rehearsal, in which the job runs on, its application, and what catches up with it."""
    tooltip = "A rehearsal, while the job runs: of a night, or the one on which a cut-over is decided"
    if which == REHEARSAL_AGAIN:
        tooltip = "The rehearsal once more, if the first one is too old when the job may be stopped"
    with TaskGroup(which, tooltip=tooltip):
        application = ShareApplication(of_run=which)
        take_savepoint = TakeSavepoint(task_id=SavepointTaken.name, rehearsal=which)
        steps = {
            step: StepOperator.of(step, assets, of_run=which, trigger_rule=_UNLESS_FAILED, **pool)
            for step in steps_of(rehearses=True)
        }
        catch_up = CatchUp(of_run=which, trigger_rule=_UNLESS_FAILED, **pool)
        return [take_savepoint, *steps.values()], application, catch_up


@dataclass(frozen=True, slots=True)
class _Outage:
    """The tasks for which the job stands still."""

    take_savepoint: TakeSavepoint
    application: ShareApplication
    hold_slot: HoldSlot
    snapshot: StepOperator
    validate: StepOperator
    cut_over: StepOperator
    start_job: StartJob
    return_to_old_job: ReturnToOldJob


def _outage(assets: JobAssets, own: str | None) -> _Outage:
    """From the stop of the old job to the start of the new one, or of the old one again if that fails.

    The job's own pool isn't theirs: nights may fill it.
    """
    tooltip = "From the stop of the job to the first checkpoint of the new one; without a job that runs, the cut-over"
    with TaskGroup(OUTAGE, prefix_group_id=False, tooltip=tooltip):
        take_savepoint = TakeSavepoint(task_id=SavepointTaken.name, trigger_rule=_UNLESS_FAILED, **BEFORE_STOP)
        application = ShareApplication(trigger_rule=_UNLESS_FAILED, **HELD)
        hold_slot = HoldSlot(trigger_rule=_UNLESS_FAILED, **HELD)
        snapshot = StepOperator.of(Step.SNAPSHOT, assets, trigger_rule=_UNLESS_FAILED, **STOPPED)
        migrate = StepOperator.of(Step.MIGRATE, assets, **STOPPED)
        rescale = StepOperator.of(Step.RESCALE, assets, **STOPPED)
        validate = StepOperator.of(Step.VALIDATE, assets, **STOPPED)
        approve = ApproveRun(task_id=APPROVE)
        cut_over = StepOperator.of(Step.CUT_OVER, assets, trigger_rule=_UNLESS_FAILED, **STOPPED)
        start_job = StartJob(task_id=JobStarted.name, **STOPPED)
        watch_outage = WatchOutage(task_id=WATCH_OUTAGE, **WATCHES)
        return_to_old_job = ReturnToOldJob(task_id=RETURN, trigger_rule=TriggerRule.ONE_FAILED, **RETURNS)
        chain(take_savepoint, snapshot, migrate, rescale, validate, approve, cut_over, start_job)
        validate >> cut_over
        take_savepoint >> watch_outage
        begins, goes_back = take_savepoint, return_to_old_job
        if own is not None:
            begins, goes_back = with_own_groups(own, take_savepoint, cut_over, start_job, return_to_old_job)
        [take_savepoint, watch_outage, start_job] >> goes_back
        return _Outage(begins, application, hold_slot, snapshot, validate, cut_over, start_job, return_to_old_job)
