"""Predicts how long a run takes, and the outage of a cut-over, from the times of the job's earlier runs.

What is predicted is the time by the clock, from the end of one part to the end of the next: what Airflow and Spark need
for their start is in it. A prediction is made once for a run and kept in its folder, so everybody sees the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile, islice

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location, side_by_side
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.predict.assumed_parts import NO_WORK, FlinkWork, assumed, flink_work
from stateferry.runs.predict.estimates import AFTERWARDS, OUTAGE, START, Prediction, Spent, estimate, total
from stateferry.runs.record.facts import Began, CaughtUp, JobStarted, SavepointTaken, TimedFacts
from stateferry.runs.record.run_list import find_run, readable_runs
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF, CutOverFacts, SnapshotFacts
from stateferry.runs.record.steps import Step

PARTS: tuple[type[TimedFacts], ...] = (*OUTAGE, *AFTERWARDS)
PART_NAMES = (START, *(part.name for part in PARTS))
# Of each part only the newest times count: older ones say little about today's machines and state.
_NEWEST = 7
# A part of a rehearsal that waited so many seconds, and so many times as long as any other, was stopped and continued.
_STOPPED, _TIMES_AS_LONG = 600.0, 10.0
_CONVERSION = Step.CUT_OVER.earlier(rehearses=True)
_STEPS = frozenset(facts.name for facts in FACTS_OF.values())


def predicted(run: Run) -> Prediction:
    """The run's prediction: the one that is kept, else one from the runs before it."""
    kept = run.facts_if_sound(Prediction)
    if kept is not None:
        return kept
    return predict(_timed(_before(run), catches_up=run.plan.since is not None), size_of(run), _whole(run))


def predicted_after(run: Run) -> Prediction:
    """The prediction for a cut-over that follows the run, of a source as large; the run counts as an earlier one.

    If the run is a catch-up, the cut-over is the next one.
    """
    earlier = _timed(_sized(run), catches_up=run.plan.since is not None)
    return predict(earlier, size_of(run), _parts(rescales_only=run.plan.rescales_only))


def predicted_of_size(
    home: str, job: str, size: int, *, rescales_only: bool, lazy: bool = False, reverse: bool = False
) -> Prediction:
    """The prediction for a cut-over of the job whose source has this size, though no run has read it."""
    earlier = _sized_runs(home, job, (rescales_only, lazy, reverse))
    return predict(_timed(earlier, catches_up=False), size, _parts(rescales_only=rescales_only))


def earlier_rehearsals(run: Run) -> Iterator[Run]:
    """The rehearsals of the whole state of the job that were validated before this run, the newest first."""
    for one in _before(run):
        if one.plan.rehearse and one.plan.since is None and one.has_done(Step.VALIDATE):
            yield one


def conversion_seconds(run: Run) -> float:
    """The seconds by the clock of the steps of an outage that a rehearsal has too, if everything is read."""
    times = _whole_times_of(run)
    return sum(times[part].wall for part in _CONVERSION if part in times)


def catch_up_seconds(run: Run) -> float:
    """The seconds of the work of a catch-up, without its start."""
    return _work(times_of(run))


def copy_seconds(run: Run) -> float:
    """The seconds of the same work of the run that converted everything, on which this one builds; 0 if it is gone.

    Its snapshot counts as if it had read everything, as in a cut-over it would.
    """
    with suppress(StateferryError):
        while run.plan.since is not None:
            run = find_run(run.plan.home, run.plan.job, run.plan.since)
        return _work(_whole_times_of(run))
    return 0.0


def _work(times: Mapping[str, Taken]) -> float:
    return sum(times[part].work for part in _CONVERSION if part in times)


def _whole(run: Run) -> list[str]:
    """The parts of the run, as far as that is known before it has done them."""
    parts = _parts(rescales_only=run.plan.rescales_only)
    if not run.plan.rehearse:
        return parts
    taken = [START, SavepointTaken.name] if run.stored(SavepointTaken) is not None else []
    return [*taken, *(step.value for step in run.steps)]


def _parts(*, rescales_only: bool) -> list[str]:
    """The parts of a cut-over; without a migration there are no tables to follow."""
    return [part.name for part in PARTS if not (rescales_only and part in AFTERWARDS)]


def _before(run: Run) -> Iterator[Run]:
    """The runs of the job before this one whose size is known, the newest first."""
    return islice(dropwhile(lambda one: one.plan.run_id != run.plan.run_id, _sized(run)), 1, None)


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds that a part took by the clock, and the seconds of its own work."""

    wall: float
    work: float


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The bytes of state in a run's source, the times of its parts, and what Flink is assumed to do for its state."""

    size: int
    times: Mapping[str, Taken]
    flink: FlinkWork = NO_WORK


def predict(earlier: Iterable[TimedRun], size: int, whole: Iterable[str]) -> Prediction:
    """What the earlier runs, the newest first, say of a run of the parts `whole` with a source of this size."""
    runs: list[TimedRun] = []
    seen: dict[str, list[Spent]] = {}
    for run in earlier:
        # Nights that catch up, of which only some parts count, don't keep out the last one that converted everything.
        wanted = {part: time for part, time in run.times.items() if len(seen.get(part, ())) < _NEWEST}
        for part, time in wanted.items():
            seen.setdefault(part, []).append(Spent(run.size, time.wall, time.work))
        if wanted:
            runs.append(run)
    if not size or not runs:
        return Prediction(size)
    steps = [one for part, spent in seen.items() if part in _STEPS for one in spent]
    parts = assumed(steps, runs[0].flink.times(size / runs[0].size))
    parts |= {part: estimate(spent, size) for part, spent in seen.items()}
    parts = {name: parts[name] for name in PART_NAMES if name in parts}
    outage = [part.name for part in OUTAGE]
    return Prediction(
        size,
        len(runs),
        min(run.size for run in runs),
        max(run.size for run in runs),
        parts,
        total(parts[name] for name in outage if name in parts),
        total(parts[name] for name in whole if name in parts),
        tuple(name for name in outage if name not in parts),
    )


@dataclass(frozen=True, slots=True)
class PartTime:
    """How long a part took by the clock; `predicted` is None if nothing was predicted for it."""

    part: str
    seconds: float
    predicted: float | None


def part_times(run: Run) -> tuple[PartTime, ...]:
    """The times of the run's parts beside their predictions."""
    seconds = predicted(run).seconds
    return tuple(PartTime(part, round(time.wall, 3), seconds.get(part)) for part, time in times_of(run).items())


def times_of(run: Run) -> dict[str, Taken]:
    """The times of the parts that are done, in the order of a cut-over.

    A part begins where the one before it ended, or when a person approved.
    """
    facts = [of for part in PARTS if (of := run.facts_if_sound(part)) is not None and of.ended_at is not None]
    found: dict[str, Taken] = {}
    last = _began_at(run)
    for one in sorted(facts, key=lambda one: one.ended_at or 0):
        ended, work = one.ended_at or 0, one.seconds or 0.0
        begins = [last, *([one.requested_at] if isinstance(one, SavepointTaken) else ())]
        if isinstance(one, CutOverFacts):
            begins += [change.at for change in run.changes() if change.state is RunState.APPROVED]
        known = [at for at in begins if at is not None and at <= ended]
        wall = (ended - max(known)) / 1000 if known else work
        found[one.name] = Taken(max(wall, work), work)
        last = ended
    savepoint, began = run.facts_if_sound(SavepointTaken), run.facts_if_sound(Began)
    if run.plan.rehearse and began is not None and savepoint is not None and savepoint.requested_at is not None:
        found[START] = Taken(max(savepoint.requested_at - began.at, 0) / 1000, 0.0)
    return {name: found[name] for name in PART_NAMES if name in found}


def steady_times_of(run: Run) -> dict[str, Taken]:
    """The times of the parts without those that passed until a rehearsal that had stopped was continued."""
    times, found = times_of(run), dict[str, Taken]()
    if not run.plan.rehearse:
        return times
    for part, time in times.items():
        others = max((other.wall - other.work for name, other in times.items() if name != part), default=None)
        stopped = others is not None and time.wall - time.work > max(_STOPPED, _TIMES_AS_LONG * others)
        found[part] = Taken(time.work + (others or 0.0), time.work) if stopped else time
    return found


def _timed(runs: Iterable[Run], *, catches_up: bool) -> Iterator[TimedRun]:
    """The runs, the newest first, of which only those of the same kind say how long the conversion takes.

    The steps of a catch-up follow each other at once while the job runs. In the cut-over each waits for its start, as
    it did in the last run of everything.
    """
    runs = list(islice(runs, 4 * _NEWEST))
    starts: dict[str, float] = {}
    if catches_up:
        of_all = next((times for one in runs if one.plan.since is None and (times := steady_times_of(one))), {})
        starts = {part: time.wall - time.work for part, time in of_all.items() if part in _CONVERSION}
    for one in runs:
        is_catch_up = one.plan.since is not None
        # In the cut-over none joins newer files.
        if is_catch_up and (made := one.facts_if_sound(CaughtUp)) is not None and made.joined:
            continue
        times = steady_times_of(one) if is_catch_up else _whole_times_of(one)
        if is_catch_up != catches_up:
            times = {part: time for part, time in times.items() if part not in _CONVERSION}
        if is_catch_up and one.plan.rehearse:
            times = {part: Taken(time.work + starts.get(part, 0.0), time.work) for part, time in times.items()}
        if times:
            yield TimedRun(size_of(one), times, flink_work(one))


def _whole_times_of(run: Run) -> dict[str, Taken]:
    """The times of the parts, as if the snapshot had read everything, as in a cut-over it does."""
    times, snapshot = steady_times_of(run), run.facts_if_sound(SnapshotFacts)
    if snapshot is not None and snapshot.of_all is not None and SnapshotFacts.name in times:
        taken = times[SnapshotFacts.name]
        times[SnapshotFacts.name] = Taken(taken.wall - taken.work + snapshot.of_all, snapshot.of_all)
    return times


def _began_at(run: Run) -> int | None:
    began = run.facts_if_sound(Began)
    if began is not None:
        return began.at
    return next((change.at for change in run.changes() if change.state is RunState.PLANNED), None)


def outage_of(run: Run) -> float | None:
    """The seconds from the request to stop the job to the first checkpoint of the new one; None without either."""
    taken, started = run.facts_if_sound(SavepointTaken), run.facts_if_sound(JobStarted)
    begun = None if taken is None else taken.requested_at
    ended = None if started is None else started.ended_at
    return None if begun is None or ended is None else (ended - begun) / 1000


def size_of(run: Run) -> int:
    """The bytes of state in the run's source; 0 if they aren't counted yet."""
    snapshot = run.facts_if_sound(SnapshotFacts)
    return 0 if snapshot is None else snapshot.size


def _sized(run: Run) -> Iterable[Run]:
    """The job's runs of the same kind whose size is known, including this one, the newest first."""
    return _sized_runs(run.plan.home, run.plan.job, _kind(run.plan))


def _kind(plan: MigrationPlan) -> tuple[bool, bool, bool]:
    # A migration converts each entry, a lazy one some of them, and a rescale alone none.
    return plan.rescales_only, plan.lazy, plan.reverse


def _sized_runs(home: str, job: str, kind: tuple[bool, bool, bool]) -> Iterable[Run]:
    runs = (run for run in readable_runs(home, job) if _kind(run.plan) == kind)
    times = (*PARTS, Began)
    read = side_by_side(Location.of(home), lambda run: run.read_ahead(run.state_file, kinds=times), runs)
    return filter(size_of, read)
