"""What tasks of one DAG run know of each other: what was asked for, and the run's folder, which says the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from state_migration.request import MigrationRequest
from stateferry.errors import StateferryError
from stateferry.runs.runs import Run
from stateferry.savepoint.storage import Location

if TYPE_CHECKING:
    from airflow.sdk import Context

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
    log.info("skipped: %s", reason)
    raise AirflowSkipException(reason)


def check_not_returned(run: Run) -> None:
    """A task that a person clears after the old job was started again must not go on."""
    returned = run.facts(RETURNED)
    if returned is not None:
        raise AirflowFailException(
            f"run {run.plan.run_id} is over: {returned['reason']}. The old job has gone on since, so this run's "
            "savepoint is out of date: trigger a new run"
        )


@contextmanager
def refused_in_words() -> Iterator[None]:
    """What no retry can better."""
    try:
        yield
    except StateferryError as error:
        raise AirflowFailException(str(error)) from None
