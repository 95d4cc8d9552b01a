"""Estimates a time from earlier times: a part that is the same for every size, and a part that grows with the size.

What a person waits for is the time by the clock: the step's own work, and what comes before it (Airflow's task, the
start of Spark). The latter is taken to be the same for every size. The work is fitted against the size, robustly, so
that one slow run doesn't count. If the sizes seen are too much alike to tell the two parts of the work apart, the usual
seconds of a start count as fixed, and the rest grows with the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import ClassVar

from stateferry.basics.quantities import noun
from stateferry.runs.record.facts import JobStarted, RunFacts, SavepointTaken, TimedFacts
from stateferry.runs.record.step_facts import FACTS_OF
from stateferry.runs.record.steps import Step

# The parts of an outage, in their order; the tables follow after the new job has started.
OUTAGE: tuple[type[TimedFacts], ...] = (
    SavepointTaken,
    *(FACTS_OF[step] for step in Step.TABLES.earlier(rehearses=False)),
    JobStarted,
)
AFTERWARDS: tuple[type[TimedFacts], ...] = (FACTS_OF[Step.TABLES],)

START = "start"
"""What passes in a rehearsal before Flink is asked for the savepoint: Airflow's tasks, and the start of Spark."""

# Of a step's own work, about this much is its start: imports, reading `_metadata`, the first Spark job.
_USUAL_START = 2.0
# Sizes tell the fixed part from the rest if the largest is this many times the smallest.
_LEAST_RATIO = 1.4
_LEAST_TO_FIT = 3
# No range is narrower than this, on either side; with one or two runs it is wider, by this share divided by the runs.
_LEAST_SHARE, _LEAST_SECONDS, _FEW_SHARE = 0.1, 0.5, 0.3


@dataclass(frozen=True, slots=True)
class Spent:
    """What a part of a run took, in seconds by the clock, and its own work in it, for a source of `size` bytes."""

    size: int
    wall: float
    work: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds, with a range; `runs` is the number of earlier runs that it rests on, 0 if it is only assumed."""

    seconds: float
    low: float
    high: float
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Prediction(RunFacts):
    """What is predicted for a run, made once: when the size of its source is known, or when a person is asked.

    The `outage` is that of a cut-over, `whole` the time of the run itself without the waiting for people; both are None
    if nothing is known. `missing` are the parts of the outage that have no estimate, so the outage leaves them out.
    """

    name: ClassVar[str] = "prediction"

    size: int
    runs: int = 0
    smallest: int = 0
    largest: int = 0
    parts: Mapping[str, Estimate] = field(default_factory=dict)
    outage: Estimate | None = None
    whole: Estimate | None = None
    missing: tuple[str, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each part."""
        return {part: estimate.seconds for part, estimate in self.parts.items()}


def estimate(seen: Sequence[Spent], size: int) -> Estimate:
    """The time for this size, from at least one time that was seen."""
    before_work = median(max(one.wall - one.work, 0.0) for one in seen)
    fixed, rate = _work(seen)
    seconds = before_work + fixed + rate * size
    # How far each run was from what is estimated for its own size, as a share.
    off = [one.wall / max(before_work + fixed + rate * one.size, 0.001) for one in seen]
    low, high = min(1.0, *off) * seconds, max(1.0, *off) * seconds
    if not _sizes_differ(seen):
        # The work may grow not at all, or in proportion.
        work, at = median(one.work for one in seen), median(one.size for one in seen)
        bounds = (before_work + work, before_work + work * size / at)
        low, high = min(low, *bounds), max(high, *bounds)
    margin = max(max(_LEAST_SHARE, _FEW_SHARE / len(seen)) * seconds, _LEAST_SECONDS)
    return Estimate(
        round(seconds, 3),
        round(max(min(low, seconds - margin), 0.0), 3),
        round(max(high, seconds + margin), 3),
        len(seen),
    )


def total(estimates: Iterable[Estimate]) -> Estimate | None:
    """The sum; None of nothing. It rests on as many runs as the part that rests on most."""
    parts = tuple(estimates)
    if not parts:
        return None
    seconds, low, high = (round(sum(getattr(one, name) for one in parts), 3) for name in ("seconds", "low", "high"))
    return Estimate(seconds, low, high, max(one.runs for one in parts))


def _sizes_differ(seen: Sequence[Spent]) -> bool:
    sizes = [one.size for one in seen]
    return len(seen) >= _LEAST_TO_FIT and max(sizes) >= _LEAST_RATIO * min(sizes)


def _work(seen: Sequence[Spent]) -> tuple[float, float]:
    """The fixed seconds of the work, and its seconds for each byte."""
    if _sizes_differ(seen):
        # Theil and Sen: the median of the slopes between any two runs.
        pairs = [(one, other) for one, other in combinations(seen, 2) if one.size != other.size]
        rate = max(median((one.work - other.work) / (one.size - other.size) for one, other in pairs), 0.0)
        fixed = median(one.work - rate * one.size for one in seen)
        return (fixed, rate) if fixed >= 0 else (0.0, median(one.work / one.size for one in seen))
    work, at = median(one.work for one in seen), median(one.size for one in seen)
    fixed = min(work, _USUAL_START)
    return fixed, (work - fixed) / at


def prediction_lines(prediction: Prediction, *, is_over: bool = False) -> list[str]:
    """What is predicted, for people: the outage with its parts, the whole run, and what that rests on.

    If the cut-over `is_over`, the lines say what was predicted for it.
    """
    if prediction.outage is None:
        unknown = (
            "how long this cut-over would take wasn't known" if is_over else "how long a cut-over takes isn't known yet"
        )
        return [f"{unknown}: no earlier run of this job has been timed"]
    about = "this cut-over was expected" if is_over else "a cut-over is likely"
    lines = [f"{about} to keep the job still for {estimate_text(prediction.outage)}: {_parts_text(prediction)}"]
    if prediction.missing:
        lines.append(
            f"not in it, as no run {'had' if is_over else 'has'} a time for it yet: {', '.join(prediction.missing)}"
        )
    if prediction.whole is not None:
        about = "was expected" if is_over else "is likely"
        lines.append(f"the whole run {about} to take {estimate_text(prediction.whole)}, without waiting for people")
    lines.append(basis_text(prediction))
    return lines


def estimate_text(one: Estimate) -> str:
    """The seconds and their range: `38 s (31 to 52 s)`."""
    return f"{one.seconds:.0f} s ({one.low:.0f} to {one.high:.0f} s)"


def forecast_text(one: Estimate) -> str:
    """The seconds and their end, for a line: `58 s, at most 589`."""
    return f"{one.seconds:.0f} s, at most {one.high:.0f}"


def _parts_text(prediction: Prediction) -> str:
    """The seconds of the outage's parts."""
    found = [(part.name, prediction.parts[part.name]) for part in OUTAGE if part.name in prediction.parts]
    return ", ".join(f"{name} {one.seconds:.0f} s{'' if one.runs else ' (assumed)'}" for name, one in found)


def basis_text(prediction: Prediction) -> str:
    """What the prediction rests on."""
    sizes = (prediction.smallest, prediction.largest)
    of_size = f"{sizes[0]:,}" if sizes[0] == sizes[1] else f"{sizes[0]:,} to {sizes[1]:,}"
    runs = f"the last {prediction.runs} {noun(prediction.runs, 'run')} of this job"
    return f"this rests on {runs}, with {of_size} bytes of state; now there are {prediction.size:,}"
