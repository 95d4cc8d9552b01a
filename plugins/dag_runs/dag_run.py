"""What the tasks of one DAG run share: the request, and the run's folder, which has everything else."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException, DownstreamTasksSkipped
from airflow.sdk.timezone import utcnow

from flinkstate.errors import StateferryError, TransientError
from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.foreseen_failures import foreseen
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.basics.printable import printable
from stateferry.runs.catalog.lease import LeaseHeldError
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.control import outage_limit
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.control.rejecting import check_may_continue
from stateferry.runs.record.facts import Began
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

_LOOK_AGAIN = timedelta(seconds=20)
_log = logging.getLogger(__name__)

# A job may stand still meanwhile: the first pause is short, and all together outlast the restart of a machine.
RETRIES = {"retries": 5, "retry_delay": timedelta(seconds=5), "retry_exponential_backoff": True}
PLAN_TASK = "plan"
# What `plan` returns: the folder of the run; if the job is stopped for the run, also that of the rehearsal before it,
# and that of another one, which is made if the first is too old when the job may be stopped.
FOLDER, REHEARSAL, REHEARSAL_AGAIN = "folder", "rehearsal", "rehearsal_again"
REFUSED = "refused"
"""An XCom: why there is no run, or why the new job didn't start."""
LEFT_OUT = "left_out"
"""An XCom of a task that has skipped others: each with the reason."""


def planned_by(context: Context) -> dict[str, Any] | None:
    """What the task `plan` returned; None if it was skipped or failed."""
    planned: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    return planned


def why_refused(context: Context, task: str) -> str | None:
    """What a task refused, if it has said so."""
    why: str | None = context["ti"].xcom_pull(task_ids=task, key=REFUSED)
    return why


def request_of(context: Context) -> MigrationRequest:
    """The request of the DAG run."""
    planned = planned_by(context)
    assert planned is not None, "this task comes after plan"
    return MigrationRequest.model_validate(planned["request"])


def job_of(context: Context) -> str:
    """The name of the job; empty if the DAG run has no plan."""
    return str((planned_by(context) or {}).get("job", ""))


def run_of(context: Context, which: str = FOLDER) -> Run:
    """One of the runs of the DAG run: the one that was asked for, or a rehearsal before it."""
    planned = planned_by(context)
    assert planned is not None, "this task comes after plan"
    return Run.open(Location.of(planned[which]))


def run_if_begun(context: Context, which: str = FOLDER) -> Run | None:
    """The same, if the run has begun; None also if the DAG run has no plan."""
    folder = (planned_by(context) or {}).get(which)
    return Run.if_there(Location.of(folder)) if folder else None


def rehearsal_of(context: Context) -> Run:
    """The rehearsal on which the cut-over of this DAG run is decided."""
    return run_of(context, REHEARSAL)


def stop_asked(context: Context) -> StopAsked | None:
    """That this DAG run has asked for the stop of the job, which is kept before it is asked for."""
    with fail_if_refused():
        return rehearsal_of(context).facts(StopAsked)


def newest_rehearsal_of(context: Context) -> Run:
    """The newest green rehearsal of the whole state in this DAG run."""
    again = run_if_begun(context, REHEARSAL_AGAIN)
    return again if again is not None and again.state is RunState.VERIFIED else rehearsal_of(context)


def task_state(context: Context, task: str) -> str | None:
    """The state of a task of the DAG run, "None" if it hasn't one yet; None if the DAG run doesn't have the task."""
    return task_states(context, [task]).get(task)


def task_states(context: Context, tasks: Iterable[str]) -> dict[str, str]:
    """The states of those of the tasks that the DAG run has, "None" for a task that hasn't one yet."""
    ti = context["ti"]
    by_run = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(tasks), run_ids=[ti.run_id])
    return {task: str(state) for states in by_run.values() for task, state in states.items()}


def as_of(context: Context) -> datetime:
    """The moment for which the DAG run was made: the end of its night, or of its backfilled day."""
    dag_run = context["dag_run"]
    moment: datetime = dag_run.data_interval_end or dag_run.run_after
    return moment


def began(context: Context) -> Began:
    """Which DAG run it is, and when its work began, which is later than the time that it is for."""
    dag_run = context["dag_run"]
    start = dag_run.start_date or utcnow()
    return Began(int(start.timestamp() * 1000), context["ti"].dag_id, dag_run.run_id)


def skip(log: Any, reason: str) -> NoReturn:
    """Skips the task and logs the reason, which Airflow doesn't show by itself."""
    log.info("skipped: %s", printable(reason))
    raise AirflowSkipException(printable(reason))


def leave_out(task: BaseOperator, context: Context, tasks: Mapping[str, str]) -> None:
    """Skips those of the tasks that come later, and says why; each task has the reason as its note in the end.

    They are skipped at once, because a task that starts only to skip itself takes seconds.
    """
    downstream = task.get_flat_relative_ids(upstream=False)
    if here := {name: why for name, why in tasks.items() if name in downstream}:
        for reason in dict.fromkeys(here.values()):
            _log.info("skipped: %s: %s", ", ".join(name for name, why in here.items() if why == reason), reason)
        context["ti"].xcom_push(key=LEFT_OUT, value=here)
        raise DownstreamTasksSkipped(tasks=list(here))  # type: ignore[no-untyped-call]


def check_not_returned(run: Run) -> None:
    """Refuses to continue after the old job was started again: a person may clear a task later."""
    with fail_if_refused():
        outage_limit.check_not_returned(run)


def check_not_rejected(run: Run) -> None:
    """Refuses to continue after a rejection or a rollback: a person may clear a task later."""
    with fail_if_refused(), Control(run.plan.catalog_uri) as control:
        check_may_continue(run, control)


def publication_of(run: Run) -> Publication:
    """The run's publication; refuses to continue if it doesn't stand."""
    plan = run.plan
    with Control(plan.catalog_uri) as control:
        standing = control.standing(plan.job)
    if standing is None or standing.record.run_id != plan.run_id:
        found = "none stands" if standing is None else f"the one of run {standing.record.run_id} stands"
        raise refusal(
            f"the publication of run {plan.run_id} doesn't stand: of job {plan.job}'s publications {found}. It was "
            "rolled back, or a later run has replaced it"
        )
    return standing


def wait_for_lease(why: str) -> NoReturn:
    """Frees the worker and has the task start again later, which is neither a failure nor another try."""
    _log.warning("waiting: %s", printable(why))
    raise AirflowRescheduleException(utcnow() + _LOOK_AGAIN)  # type: ignore[no-untyped-call]


@contextmanager
def fail_if_refused(context: Context | None = None) -> Iterator[None]:
    """Fails the task for good after an error that a retry can't fix; with a context, the last task says why as well.

    If another run has the lease, the task waits. After a transient error, the task is tried again.
    """
    try:
        yield
    except LeaseHeldError as error:
        wait_for_lease(str(error))
    except TransientError as error:
        raise foreseen(error) from None
    except StateferryError as error:
        if context is not None:
            context["ti"].xcom_push(key=REFUSED, value=printable(str(error)))
        raise refusal(printable(str(error))) from None
