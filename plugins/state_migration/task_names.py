"""The names of the DAG's tasks, and which of them a request needs."""

from __future__ import annotations

from collections.abc import Iterator

from state_migration.dag_run import REHEARSAL, REHEARSAL_AGAIN
from state_migration.request import MigrationRequest
from stateferry.runs.facts import IN_REHEARSAL, JobStarted, SavepointTaken, Step

APPLICATION = "application"
CHECK, DECIDE, WAIT_TO_STOP, APPROVE = "check", "decide", "wait_to_stop", "approve"
WATCH_OUTAGE = "watch_outage"


def of_group(group: str) -> Iterator[str]:
    """The names of the tasks of a rehearsal before a cut-over."""
    yield from (
        f"{group}.{name}" for name in (SavepointTaken.name, *(step.value for step in IN_REHEARSAL), APPLICATION)
    )


def not_needed(request: MigrationRequest) -> Iterator[str]:
    """The tasks that have nothing to do.

    If the job is stopped for the cut-over, a person decides before that, on a rehearsal. Else there is no rehearsal,
    and a person decides on the run itself. A check alone has a task of its own.
    """
    if not request.checks_only:
        yield CHECK
    if request.outage_limit is None:
        yield WATCH_OUTAGE
    if request.stops_job:
        yield from (APPROVE, Step.MIGRATE.value)
        if not request.rehearsal().takes_savepoint:
            yield next(of_group(REHEARSAL))
        return
    yield from (*of_group(REHEARSAL), *of_group(REHEARSAL_AGAIN))
    yield from (DECIDE, WAIT_TO_STOP)
    if not request.takes_savepoint:
        yield SavepointTaken.name
    if request.checks_only:
        yield from (step.value for step in Step)
        yield from (APPLICATION, APPROVE, JobStarted.name)
    elif request.rehearses:
        yield from (APPROVE, Step.CUT_OVER.value, Step.TABLES.value)
    else:
        yield Step.MIGRATE.value
        yield from () if request.approval else (APPROVE,)
        yield from () if request.start_job else (JobStarted.name,)
