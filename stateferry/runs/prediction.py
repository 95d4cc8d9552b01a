"""Predicts how long each part of a cut-over takes, from the times of the job's earlier runs.

Each step reads the savepoint from end to end, so its time is taken to grow with the savepoint's size. The same holds
for Flink's own parts: the savepoint that it takes when it stops, and the restore. A part without any time from an
earlier run is unknown, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile, islice
from statistics import median

from stateferry.runs.facts import FACTS_OF, JobStarted, SavepointTaken, SnapshotFacts, Step, TimedFacts
from stateferry.runs.runs import Run, runs_of

# In the order of a cut-over, in which the tables follow after the new job has started.
_BEFORE_START = (Step.SNAPSHOT, Step.RESCALE, Step.VALIDATE, Step.CUT_OVER)
AFTERWARDS: tuple[type[TimedFacts], ...] = (FACTS_OF[Step.MIGRATE], FACTS_OF[Step.TABLES])
PARTS: tuple[type[TimedFacts], ...] = (
    SavepointTaken,
    *(FACTS_OF[step] for step in _BEFORE_START),
    JobStarted,
    *AFTERWARDS,
)
_NAMES = tuple(part.name for part in PARTS)
# Only the newest runs count: older ones say little about today's machines and state.
_NEWEST = 5


def predict(run: Run) -> dict[str, float]:
    """The predicted seconds of each part, for a savepoint as large as the run's source."""
    return _predict(run, _with_size(run))


@dataclass(frozen=True, slots=True)
class PartTime:
    """How long a part took; `predicted` is None if no earlier run had a time for it."""

    part: str
    seconds: float
    predicted: float | None


def part_times(run: Run) -> tuple[PartTime, ...]:
    """The times of the run's parts beside their predictions, which come only from runs before this one."""
    before = islice(dropwhile(lambda one: one.plan.run_id != run.plan.run_id, _with_size(run)), 1, None)
    predicted = _predict(run, before)
    return tuple(PartTime(part, seconds, predicted.get(part)) for part, seconds in seconds_of(run).items())


def _predict(run: Run, others: Iterable[Run]) -> dict[str, float]:
    paces: dict[str, list[float]] = {}
    for earlier in others:
        for part, seconds in seconds_of(earlier).items():
            of_part = paces.setdefault(part, [])
            if len(of_part) < _NEWEST:
                of_part.append(seconds / size_of(earlier))
    return {part: round(median(paces[part]) * size_of(run), 3) for part in _NAMES if part in paces}


def _with_size(run: Run) -> Iterable[Run]:
    """The job's runs whose size is known, including this one, the newest first."""
    for summary in runs_of(run.plan.home, run.plan.job):
        if summary.plan is not None:
            found = Run(summary.plan, summary.folder)
            if size_of(found):
                yield found


def size_of(run: Run) -> int:
    """The bytes of state in the run's source; 0 if they aren't counted yet."""
    snapshot = run.facts_if_sound(SnapshotFacts)
    return 0 if snapshot is None else snapshot.size


def seconds_of(run: Run) -> dict[str, float]:
    """The seconds that each part of the run took, for the parts that are done."""
    found = ((part.name, run.facts_if_sound(part)) for part in PARTS)
    return {name: facts.seconds for name, facts in found if facts is not None and facts.seconds is not None}


def prediction_text(predictions: Mapping[str, float]) -> str:
    """The predicted times: those of the cut-over, and those of the tables, for which the new job doesn't wait."""
    later = {part.name for part in AFTERWARDS}
    now, after = (
        ", ".join(f"{part} {seconds:.0f} s" for part, seconds in predictions.items() if (part in later) is is_later)
        for is_later in (False, True)
    )
    return "; ".join((*([now] if now else ()), *([f"after it, for the tables: {after}"] if after else ())))


def unknown(predictions: Mapping[str, float]) -> tuple[str, ...]:
    """The parts that have no prediction."""
    return tuple(part for part in _NAMES if part not in predictions)
