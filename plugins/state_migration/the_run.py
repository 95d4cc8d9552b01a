"""What tasks of one DAG run know of each other: what was asked for, and the run's folder, which says the rest."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException
from airflow.sdk.timezone import utcnow

from state_migration.request import MigrationRequest
from stateferry.errors import PassingError, StateferryError
from stateferry.printable import printable
from stateferry.runs.control import Control, LeaseHeldError
from stateferry.runs.rejecting import check_not_ended
from stateferry.runs.runs import Run
from stateferry.savepoint.storage import Location

if TYPE_CHECKING:
    from airflow.sdk import Context

_LOOK_AGAIN = timedelta(seconds=20)
_log = logging.getLogger(__name__)

PLAN_TASK = "plan"
RETURNED = "returned"
"""A step of the run: the job as it was is running again, so this run's savepoint is out of date."""


def planned_by(context: Context) -> dict[str, Any] | None:
    """What the task `plan` said; None if it was skipped or failed."""
    said: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    return said


def request_of(context: Context) -> MigrationRequest:
    said = planned_by(context)
    assert said is not None, "this task comes after plan"
    return MigrationRequest.model_validate(said["request"])


def run_of(context: Context) -> Run:
    said = planned_by(context)
    assert said is not None, "this task comes after plan"
    return Run.open(Location.of(said["folder"]))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def skip(log: Any, reason: str) -> NoReturn:
    """Airflow itself doesn't show why a task was skipped."""
    log.info("skipped: %s", printable(reason))
    raise AirflowSkipException(printable(reason))


def check_not_returned(run: Run) -> None:
    """A task that a person clears after the old job was started again must not go on."""
    returned = run.facts(RETURNED)
    if returned is not None:
        raise AirflowFailException(
            f"run {run.plan.run_id} is over: {returned['reason']}. The old job has gone on since, so this run's "
            "savepoint is out of date: trigger a new run"
        )


def check_not_rejected(run: Run) -> None:
    """A task that a person clears after a no, or after a rollback, must not go on either."""
    with refused_in_words(), Control(run.plan.catalog_uri) as control:
        check_not_ended(run, control)


def check_published(run: Run) -> None:
    """A new job starts from a publication that stands, and from no other."""
    with Control(run.plan.catalog_uri) as control:
        standing = control.standing(run.plan.job)
    if standing is None or standing.record.run_id != run.plan.run_id:
        raise AirflowFailException(f"run {run.plan.run_id} is not what is published for job {run.plan.job}")


def wait_for_lease(why: str) -> NoReturn:
    """Gives up the worker, and has the task start again in a while; that is no failure, and no other try."""
    _log.warning("waiting: %s", printable(why))
    raise AirflowRescheduleException(utcnow() + _LOOK_AGAIN)  # type: ignore[no-untyped-call]


@contextmanager
def refused_in_words() -> Iterator[None]:
    """What no retry can better fails for good. A lease that another run holds will be free some time, and what can't
    be reached now may be there at the task's next try."""
    try:
        yield
    except LeaseHeldError as error:
        wait_for_lease(str(error))
    except PassingError:
        raise
    except StateferryError as error:
        raise AirflowFailException(printable(str(error))) from None
