"""How long the parts of a cut-over are likely to take, by what earlier runs of the job took for how many bytes.

The ferry's steps read the savepoint from end to end, so each is taken to go with its size; so do Flink's own parts, the
savepoint it takes as it stops and the restore. A part that no run has been through is left out: it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile, islice
from statistics import median
from typing import Any

from stateferry.runs.runs import Run, runs_of

# In the order in which a cut-over goes through them.
TAKE_SAVEPOINT, START_JOB = "take_savepoint", "start_job"
PARTS = (TAKE_SAVEPOINT, "snapshot", "migrate", "rescale", "validate", "cut_over", START_JOB)
# What is long ago says little of the machines and the state of today.
_NEWEST = 5


def predict(run: Run) -> dict[str, float]:
    """Seconds by part, for a savepoint of the size of the run's own."""
    return _predict(run, _with_size(run))


@dataclass(frozen=True, slots=True)
class PartTime:
    """What a part took; `predicted` is None where no earlier run had been through it."""

    part: str
    seconds: float
    predicted: float | None


def part_times(run: Run) -> tuple[PartTime, ...]:
    """Held against what the runs before it alone had shown: the run's own figures predict nothing."""
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
    return {part: round(median(paces[part]) * size_of(run), 3) for part in PARTS if part in paces}


def _with_size(run: Run) -> Iterable[Run]:
    """The job's runs that know their size, this one too, the newest first."""
    for summary in runs_of(run.plan.home, run.plan.job):
        if summary.plan is not None:
            found = Run(summary.plan, summary.folder)
            if size_of(found):
                yield found


def size_of(run: Run) -> int:
    """Of its source's state, in bytes; 0 if it isn't known yet."""
    states = (run.facts("snapshot") or {}).get("states", {})
    return sum(int(state["bytes"]) for state in states.values())


def seconds_of(run: Run) -> dict[str, float]:
    """What its parts took, as far as it went through them."""
    found = {part: _seconds(run.facts(part)) for part in PARTS}
    return {part: seconds for part, seconds in found.items() if seconds is not None}


def _seconds(facts: Mapping[str, Any] | None) -> float | None:
    seconds = (facts or {}).get("seconds")
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


def unknown(predictions: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(part for part in PARTS if part not in predictions)
