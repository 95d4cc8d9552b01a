"""Stops a run whose time to live or `now` contradicts the ages of the entries in the savepoint.

It stops the run in the snapshot step, before anything is written, if far too many entries would expire, or if
timestamps are later than `now`. Far too many are at least 100 of a state's entries, and

| situation | more than |
|---|---|
| without a green run of the job | a quarter |
| after a green run with the same time to live | a quarter, or twice its share; and 5 points and 100 entries more |
| after a green run with another time to live | one of the two above, and more than that run's share |
| with an accepted share (`accept_expired`) | that share; after a green run under it, also 5 points more |

Here a green run is one that has been verified or approved, or whose publication stands; a catch-up counts only if there
is no other one. So a job that goes on as yesterday isn't stopped, though its share may drift. The share that was
accepted for a green run also holds for the next run with the same time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from flinkstate.errors import RejectedError
from stateferry.basics.durations import (
    MAX_MILLISECONDS,
    MILLISECONDS_PER_UNIT,
    format_duration,
    moment,
    now_ms,
    rough_duration,
)
from stateferry.basics.quantities import noun, percent, percent_at_least
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.run_options import DEFAULT_CLOCK_TOLERANCE_MS
from stateferry.runs.record.run_list import green_before
from stateferry.runs.record.runs import Run
from stateferry.runs.record.state_ages import FoundAges, Holds, StateAges
from stateferry.runs.record.step_facts import SnapshotFacts

_USUAL_SHARE = 0.25
FEW = 100
_DRIFT = 0.05
_HOUR, _MINUTE = MILLISECONDS_PER_UNIT["h"], MILLISECONDS_PER_UNIT["m"]
# The savepoint of a running job has entries that are younger than this.
_STALE = _HOUR


class TooManyExpireError(RejectedError):
    """More entries would expire than a wrong option may drop."""


class ClockContradictedError(RejectedError):
    """Timestamps in the savepoint are later than the time that counts as now."""


@dataclass(frozen=True, slots=True)
class _Before:
    """What an earlier green run found in the same state; `ttl` is the time to live that it used."""

    run_id: str
    ttl: int | None
    accepted: float | None
    counted: int
    expired: int

    @property
    def share(self) -> float:
        return self.expired / self.counted if self.counted else 0.0


# The job's green runs, read when they are first asked for.
_GreenRuns = Callable[[], tuple[Run, ...]]


def _green_runs(plan: MigrationPlan) -> _GreenRuns:
    """The newest come first, but catch-ups last.

    What had expired by the now of their base, which may be a week old, is less than what would expire, and all that was
    written since is later than that.
    """
    return cache(lambda: tuple(sorted(green_before(plan), key=lambda run: run.plan.since is not None)))


def check_ages(plan: MigrationPlan, found: FoundAges) -> None:
    """Raises an error if the ages that were found must stop the run."""
    green = _green_runs(plan)
    for contradiction in _contradicted(plan, found, green):
        raise ClockContradictedError(contradiction)
    too_many = {one: reason for one in found.states if (reason := _why_too_many(plan, one, green))}
    if too_many:
        raise TooManyExpireError(_words(plan, found, too_many))


def needless(plan: MigrationPlan, found: FoundAges) -> Iterator[str]:
    """Yields options that allow something that this run doesn't need; called after the run has passed the check."""
    green = _green_runs(plan)
    if plan.accept_expired is not None:
        without = plan.model_copy(update={"accept_expired": None})
        if not any(_why_too_many(without, one, green) for one in found.states):
            yield "--accept-expired"
    if plan.clock_tolerance_ms != DEFAULT_CLOCK_TOLERANCE_MS:
        usual = plan.model_copy(update={"clock_tolerance_ms": DEFAULT_CLOCK_TOLERANCE_MS})
        if not any(_contradicted(usual, found, green)):
            yield "--clock-tolerance"


def _why_too_many(plan: MigrationPlan, one: StateAges, green: _GreenRuns) -> str:
    """Says why too many of the state's entries would expire; empty if they wouldn't."""
    kept = one.kept or (plan.keep_expired and one.holds is not Holds.OTHERS)
    if kept or one.holds is Holds.FLAGS or one.expired < FEW:
        return ""
    return _reason(plan.accept_expired, one, _before(one, green))


def _reason(given: float | None, one: StateAges, before: _Before | None) -> str:
    same_ttl = before is not None and before.ttl == one.ttl
    accepted = given if given is not None or before is None or not same_ttl else before.accepted
    if accepted is not None and one.share <= accepted:
        return ""
    if before is not None and given in (None, before.accepted):
        rise, more = one.share - before.share, one.expired - before.expired
        if same_ttl and (rise < _DRIFT or more < FEW):
            return ""
        if not same_ttl and rise <= 0:
            return ""
        if accepted is None and rise >= _DRIFT and more >= FEW and one.share > 2 * before.share:
            return f"more than twice as many as the {percent(before.share)} of the last green run, {before.run_id}"
    if accepted is not None:
        return f"more than the {percent(accepted)} that are accepted"
    return "more than a quarter" if one.share > _USUAL_SHARE else ""


def _words(plan: MigrationPlan, found: FoundAges, too_many: Mapping[StateAges, str]) -> str:
    lines = [
        f"{one.where}: {one.expired:,} of {one.counted:,} entries ({percent(one.share)}) would expire under a time to "
        f"live of {format_duration(one.ttl)} at {moment(plan.now)}, {reason}. Their ages: {one.ages}."
        for one, reason in too_many.items()
    ]
    # Entries that the job moved by itself may be no older than the time when it began to move them.
    ends = [
        one for one in found.states if any((one.operator, one.legacy) == (it.operator, it.legacy) for it in too_many)
    ]
    for one in sorted(ends, key=lambda one: one.suggested_ttl or 0)[-1:]:
        if one.sharp_end is not None and one.suggested_ttl is not None:
            lines.append(
                f"The ages of {one.state} end all at once at {rough_duration(one.sharp_end)}, which suggests a time to "
                f"live of {format_duration(one.suggested_ttl)} (or that the job has run for no longer)."
            )
    youngest = min(one.youngest for one in found.states)
    if youngest >= _STALE:
        lines.append(
            f"The youngest of all is {rough_duration(youngest)} old: if the savepoint was taken then, "
            f"--now {plan.now - youngest} counts ages from there."
        )
    options = {"--state-ttl" if one.holds is Holds.OTHERS else "--ttl" for one in too_many}
    given = " or ".join(sorted(options, reverse=True))
    meant = percent_at_least(max(one.share for one in too_many))
    lines.append(
        f"Nothing has been written. Give the time to live of the job's StateTtlConfig ({given}). If so many entries "
        f"are meant to expire, allow it: --accept-expired {meant}"
    )
    return " ".join(lines)


def _before(one: StateAges, green: _GreenRuns) -> _Before | None:
    """What the newest green run with the same time to live found in this state, or else the newest green run."""
    newest: _Before | None = None
    for run in green():
        before = _of_run(one, run)
        if before is not None and before.ttl == one.ttl:
            return before
        newest = newest or before
    return newest


def _of_run(one: StateAges, run: Run) -> _Before | None:
    for state in _ages_of(run):
        if (state.operator, state.legacy, state.state) == (one.operator, one.legacy, one.state):
            return _Before(run.plan.run_id, state.ttl, run.plan.accept_expired, state.counted, state.expired)
    return None


def _ages_of(run: Run) -> tuple[StateAges, ...]:
    facts = run.facts_if_sound(SnapshotFacts)
    return () if facts is None or facts.ages is None else facts.ages.states


def _contradicted(plan: MigrationPlan, found: FoundAges, green: _GreenRuns) -> Iterator[str]:
    latest = min(found.states, key=lambda state: state.youngest, default=None)
    # The now of a catch-up is that of its base: what is newer was written since.
    since = max(now_ms() - plan.now, 0) if plan.since is not None else 0
    if latest is None or -latest.youngest - since <= plan.clock_tolerance_ms:
        return
    ahead = -latest.youngest
    # If the timestamps of the last green run were about as far ahead, the difference is not new.
    before = (-state.youngest for run in green()[:1] if run.plan.since is None for state in _ages_of(run))
    if ahead <= 2 * max(before, default=0):
        return
    newest = f"{moment(plan.now + ahead)}, {rough_duration(ahead)} after"
    allow = f"--clock-tolerance {_tolerance(ahead)} (it is {format_duration(plan.clock_tolerance_ms)})"
    if plan.now_from == "backfill":
        yield (
            f"the savepoint is newer than the day that is backfilled: its newest timestamp, in {latest.where}, is "
            f"{newest} the end of that day, {moment(plan.now)}. Nothing has been written. Backfill the day from a "
            "savepoint that was complete by then (source 'folder' chooses the newest one), or run this savepoint by "
            f"hand, as of now. If it is clocks that differ, allow it: {allow}"
        )
    else:
        yield (
            f"{latest.where}: {latest.future:,} {noun(latest.future, 'timestamp is', 'timestamps are')} later than "
            f"what counts as now: the newest is {newest} "
            f"{moment(plan.now)}. Either --now is wrong, or a clock is: that of this run's machine, or "
            "those of the TaskManagers that wrote the timestamps. Nothing has been written. Correct the "
            f"clock or --now. If the clocks are known to differ so much, allow it: {allow}"
        )


def _tolerance(ahead: int) -> str:
    unit = _HOUR if ahead >= 2 * _HOUR else _MINUTE
    return format_duration(min(-(-ahead // unit) * unit, MAX_MILLISECONDS))
