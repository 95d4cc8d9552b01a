"""What the tasks of one DAG run share: the request, and the run's folder, which has everything else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException
from airflow.sdk.timezone import utcnow

from state_migration.request import MigrationRequest
from stateferry.errors import PassingError, StateferryError
from stateferry.printable import printable
from stateferry.runs.facts import Returned
from stateferry.runs.lease import LeaseHeldError
from stateferry.runs.publications import Control, Publication
from stateferry.runs.rejecting import check_not_ended
from stateferry.runs.runs import Run
from stateferry.savepoint.storage import Location

if TYPE_CHECKING:
    from airflow.sdk import Context

_LOOK_AGAIN = timedelta(seconds=20)
_log = logging.getLogger(__name__)

PLAN_TASK = "plan"


def planned_by(context: Context) -> dict[str, Any] | None:
    """What the task `plan` returned; None if it was skipped or failed."""
    said: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    return said


def request_of(context: Context) -> MigrationRequest:
    """The request of the DAG run."""
    said = planned_by(context)
    assert said is not None, "this task comes after plan"
    return MigrationRequest.model_validate(said["request"])


def run_of(context: Context) -> Run:
    """The run that the DAG run has created."""
    said = planned_by(context)
    assert said is not None, "this task comes after plan"
    return Run.open(Location.of(said["folder"]))


def skip(log: Any, reason: str) -> NoReturn:
    """Skips the task and logs the reason, which Airflow doesn't show by itself."""
    log.info("skipped: %s", printable(reason))
    raise AirflowSkipException(printable(reason))


def check_not_returned(run: Run) -> None:
    """Refuses to continue after the old job was started again: a person may clear a task later."""
    with fail_if_refused():
        returned = run.facts(Returned)
    if returned is not None:
        raise AirflowFailException(
            f"run {run.plan.run_id} is over: {returned.reason}. The old job has processed input since then, so this "
            "run's savepoint is out of date: trigger a new run"
        )


def check_not_rejected(run: Run) -> None:
    """Refuses to continue after a rejection or a rollback: a person may clear a task later."""
    with fail_if_refused(), Control(run.plan.catalog_uri) as control:
        check_not_ended(run, control)


def publication_of(run: Run) -> Publication:
    """The run's publication; refuses to continue if it doesn't stand."""
    plan = run.plan
    with Control(plan.catalog_uri) as control:
        standing = control.standing(plan.job)
    if standing is None or standing.record.run_id != plan.run_id:
        found = "none stands" if standing is None else f"the one of run {standing.record.run_id} stands"
        raise AirflowFailException(
            f"the publication of run {plan.run_id} doesn't stand: of job {plan.job}'s publications {found}. It was "
            "rolled back, or a later run has replaced it"
        )
    return standing


def wait_for_lease(why: str) -> NoReturn:
    """Frees the worker and has the task start again later, which is neither a failure nor another try."""
    _log.warning("waiting: %s", printable(why))
    raise AirflowRescheduleException(utcnow() + _LOOK_AGAIN)  # type: ignore[no-untyped-call]


@contextmanager
def fail_if_refused() -> Iterator[None]:
    """Fails the task for good after an error that a retry can't fix.

    If another run has the lease, the task waits. After a passing error, the task is tried again.
    """
    try:
        yield
    except LeaseHeldError as error:
        wait_for_lease(str(error))
    except PassingError:
        raise
    except StateferryError as error:
        raise AirflowFailException(printable(str(error))) from None
