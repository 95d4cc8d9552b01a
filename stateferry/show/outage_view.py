"""What is known of a cut-over from its yes on: whether the job stands still, since when, and until when probably."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from stateferry.runs.control.outage_limit import OutageExceeded, StopAsked
from stateferry.runs.predict.estimates import OUTAGE, Estimate
from stateferry.runs.predict.prediction import times_of
from stateferry.runs.record.facts import JobStarted, Returned, SavepointTaken
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Decision

_RETURN = "return_to_old_job"
# States of a task that has begun, or is about to.
_AT_WORK = ("running", "queued", "scheduled", "up_for_retry", "up_for_reschedule", "restarting")


@dataclass(frozen=True, slots=True)
class TaskLook:
    """A task of a DAG run as Airflow knows it; it has been in its state since `since`, in milliseconds."""

    name: str
    state: str
    since: int | None = None
    tries: int = 1
    address: str = ""


@dataclass(frozen=True, slots=True)
class DagRunLook:
    """A DAG run as Airflow knows it: whether it is at work, its tasks, and the people who have to do with it."""

    address: str
    is_active: bool
    tasks: Mapping[str, TaskLook] = field(default_factory=dict)
    triggered_by: str | None = None
    asked: tuple[str, ...] = ()

    def state_of(self, task: str) -> str:
        """The state of the task; empty if it has none."""
        return self.tasks[task].state if task in self.tasks else ""


class Phase(Enum):
    """How far the cut-over has come."""

    RUNS = "the job runs"
    STOPS = "is being stopped"
    STANDS_STILL = "stands still"
    RETURNS = "the old job is started again"
    ABANDONED = "stands still, and nobody is at work"


@dataclass(frozen=True, slots=True)
class OutagePart:
    """A part of the outage: what it took in seconds, if it is over, and what was predicted for it."""

    name: str
    seconds: float | None
    predicted: Estimate | None


@dataclass(frozen=True, slots=True)
class CutOver:
    """A cut-over that was approved and isn't over; times are in milliseconds.

    `until` is when the new job is likely to have its first checkpoint, with the range of that; None if it isn't known.
    """

    phase: Phase
    dag_run: DagRunLook
    decision: Decision
    parts: tuple[OutagePart, ...]
    asked: StopAsked | None = None
    since: int | None = None
    until: tuple[int, int, int] | None = None
    savepoint: str | None = None
    why_returns: str = ""

    @property
    def at_work(self) -> tuple[TaskLook, ...]:
        """The tasks that are at work or about to be, in the order of the outage; helpers only if there is no other."""
        order = {name: at for at, name in enumerate([*(part.name for part in self.parts), _RETURN])}
        busy = [one for one in self.dag_run.tasks.values() if one.state in _AT_WORK]
        of_outage = sorted((one for one in busy if one.name in order), key=lambda one: order[one.name])
        return tuple(of_outage or busy)


def cut_over_of(runs: Sequence[Run], dag_run: DagRunLook, now: int) -> CutOver | None:
    """The cut-over that the runs of a DAG run are of; None if it wasn't approved before the stop, or is over."""
    rehearsal = next((run for run in runs if is_approved(run)), None)
    final = next((run for run in runs if not run.plan.rehearse), None)
    decision = None if rehearsal is None else rehearsal.facts_if_sound(Decision)
    if rehearsal is None or decision is None or _is_over(final, dag_run):
        return None
    asked = rehearsal.facts_if_sound(StopAsked)
    taken = None if final is None else final.facts_if_sound(SavepointTaken)
    exceeded = None if final is None else final.facts_if_sound(OutageExceeded)
    if asked is None and not dag_run.is_active:
        return None
    parts = tuple(_parts(final, decision))
    since = None if asked is None else asked.at
    last = taken.ended_at if taken is not None and taken.ended_at is not None else since
    if final is not None:
        last = max((one for one in _ends(final)), default=last)
    return CutOver(
        _phase(asked, taken, dag_run, exceeded),
        dag_run,
        decision,
        parts,
        asked,
        since,
        None if last is None else _until(parts, last, now),
        None if taken is None else taken.savepoint,
        "" if exceeded is None else exceeded.reason,
    )


def is_approved(run: Run) -> bool:
    """Whether the run is a rehearsal on which a cut-over was approved."""
    decision = run.facts_if_sound(Decision) if run.plan.rehearse else None
    return decision is not None and decision.is_approved


def _is_over(final: Run | None, dag_run: DagRunLook) -> bool:
    """Whether the new job or the old one surely runs, or the old one was never stopped."""
    if dag_run.state_of(_RETURN) in ("success", "skipped"):
        return True
    if final is None:
        return False
    returned = final.facts_if_sound(Returned)
    return final.facts_if_sound(JobStarted) is not None or (returned is not None and returned.ended_at is not None)


def _phase(
    asked: StopAsked | None, taken: SavepointTaken | None, dag_run: DagRunLook, exceeded: OutageExceeded | None
) -> Phase:
    if asked is None:
        return Phase.RUNS
    if not dag_run.is_active:
        return Phase.ABANDONED
    if exceeded is not None or dag_run.state_of(_RETURN) in _AT_WORK:
        return Phase.RETURNS
    return Phase.STOPS if taken is None else Phase.STANDS_STILL


def _parts(final: Run | None, decision: Decision) -> Iterator[OutagePart]:
    times = {} if final is None else times_of(final)
    foreseen = {} if decision.foreseen is None else decision.foreseen.parts
    for part in OUTAGE:
        taken = times.get(part.name)
        yield OutagePart(part.name, None if taken is None else taken.wall, foreseen.get(part.name))


def _ends(final: Run) -> Iterator[int]:
    for part in OUTAGE:
        facts = final.facts_if_sound(part)
        if facts is not None and facts.ended_at is not None:
            yield facts.ended_at


def _until(parts: Sequence[OutagePart], last: int, now: int) -> tuple[int, int, int] | None:
    """When the parts that are left end: what is predicted, the earliest and the latest.

    A part that takes longer than predicted ends now at the earliest.
    """
    left = [part.predicted for part in parts if part.seconds is None]
    if not any(one is not None for one in left):
        return None
    ends: list[int] = []
    for name in ("seconds", "low", "high"):
        seconds = [0.0 if one is None else getattr(one, name) for one in left]
        first = max(last + 1000 * seconds[0], now)
        ends.append(round(first + 1000 * sum(seconds[1:])))
    return ends[0], ends[1], ends[2]
