"""The names of the DAG's tasks, and which of them a request doesn't need, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from stateferry.airflow.dag_runs.dag_run import REHEARSAL, REHEARSAL_AGAIN
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.steps import Step, steps_of

APPLICATION = "application"
CHECK, DECIDE, WAIT_TO_STOP, APPROVE = "check", "decide", "wait_to_stop", "approve"
CATCH_UP = "catch_up"
CATCH_UPS = tuple(f"{group}.{CATCH_UP}" for group in (REHEARSAL, REHEARSAL_AGAIN))
"""What catches up with a rehearsal, before the decision and right before the stop."""
HOLD_SLOT, WATCH_OUTAGE, RETURN = "hold_slot", "watch_outage", "return_to_old_job"

STOP_ASKED, START_ASKED, RETURN_ASKED = "stop_asked", "start_asked", "return_asked"
OWN_STOP, OWN_START, OWN_RETURN = "own_stop", "own_start", "own_return"
"""The groups of a team's own tasks, each after the task of ours that asks; only a DAG that has them has these."""
ASKS = (STOP_ASKED, START_ASKED, RETURN_ASKED)

OUTAGE = "outage"
"""The group of the tasks for which the job stands still. Their names don't begin with that of the group."""
AFTER_STOP = tuple(step.value for step in Step.TABLES.earlier(rehearses=False))
"""The steps of a cut-over, in their order."""
IN_OUTAGE = (SavepointTaken.name, APPLICATION, HOLD_SLOT, *AFTER_STOP, APPROVE, JobStarted.name, WATCH_OUTAGE, RETURN)

_THERE_ALREADY = "the savepoint exists already, so Flink takes none"


def of_group(group: str) -> Iterator[str]:
    """The names of the tasks of a rehearsal, without the one that catches up with it."""
    steps = (step.value for step in steps_of(rehearses=True))
    yield from (f"{group}.{name}" for name in (SavepointTaken.name, *steps, APPLICATION))


def task_of_run(rehearses: bool, name: str) -> str:
    """The name of the task that takes this step of a run, which is a rehearsal or a cut-over."""
    return f"{REHEARSAL}.{name}" if rehearses else name


def not_needed(request: MigrationRequest) -> dict[str, str]:
    """The tasks that have nothing to do, each with the reason.

    If the job is stopped for the cut-over, a person decides before that, on a rehearsal. Else there is no rehearsal,
    and a person decides on the run itself. A run that only rehearses has the tasks of that rehearsal. A check alone has
    a task of its own.
    """
    return {name: why for names, why in _not_needed(request) for name in names}


def _not_needed(request: MigrationRequest) -> Iterator[tuple[tuple[str, ...], str]]:
    rehearsal, again = tuple(of_group(REHEARSAL)), tuple(of_group(REHEARSAL_AGAIN))
    decision = (DECIDE, WAIT_TO_STOP, *again, *CATCH_UPS)
    if request.checks_only:
        all_names = (*rehearsal, *decision, *IN_OUTAGE, *ASKS, Step.TABLES.value)
        yield all_names, "mode is 'check only', so nothing is migrated"
        return
    yield (CHECK,), f"mode is {request.mode!r}, and only mode 'check only' needs this task"
    if request.work == "rescale only":
        why = "work is 'rescale only': no state is migrated, so there are no tables"
        yield (f"{REHEARSAL}.{Step.TABLES}", f"{REHEARSAL_AGAIN}.{Step.TABLES}"), why
        # A catch-up has the task all the same, which reads what was published.
        yield () if request.stops_job and not request.why_no_catch_up() else (Step.TABLES.value,), why
    if request.rehearses:
        why = "the run only rehearses: it asks nobody, stops no job and publishes nothing"
        yield (*decision, *IN_OUTAGE, *ASKS, Step.TABLES.value), why
    elif not request.stops_job:
        yield (*rehearsal, *decision), "this run stops no job, so the run itself is what is decided on, in approve"
        yield (STOP_ASKED, SavepointTaken.name), _THERE_ALREADY
        yield (HOLD_SLOT, WATCH_OUTAGE), "this run stops no job"
    if (request.rehearses or request.stops_job) and not request.rehearsal().takes_savepoint:
        yield (f"{REHEARSAL}.{SavepointTaken.name}",), _THERE_ALREADY
    if request.stops_job:
        yield (APPROVE,), "a cut-over that stops the job is decided before that, in decide"
        if why := request.why_no_catch_up():
            yield CATCH_UPS, why
        if request.outage_limit is None and request.outage_alert is None:
            yield (WATCH_OUTAGE,), "outage_limit is empty, so the outage may take as long as it takes"
    elif not request.rehearses:
        yield () if request.approval else (APPROVE,), "approval is off"
        yield () if request.start_job else (JobStarted.name,), "start_job is off: start the new job yourself"
