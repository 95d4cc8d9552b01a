"""How a lazy migration converges over the nights: what job and runs have moved, what is left, and until when.

A night is a run that has brought the tables, and of a DAG run the last one: a rehearsal says how far its source is, a
published run how far its result is. What was rolled back is none. The pace is what the newest nights have moved on
average, whoever moved it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flinkstate.files.storage import Location, side_by_side
from stateferry.basics.durations import moment
from stateferry.basics.quantities import noun, percent
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.facts import Began
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import TablesFacts

_NEWEST = 6
MOST_NIGHTS = 60


@dataclass(frozen=True, slots=True)
class Night:
    """How far one state was: keys migrated by the job and by runs, keys left, and of these those without a change."""

    run_id: str
    at: int
    by_job: int
    by_ferry: int
    left: int
    untouched: int
    untouched_for_7_runs: int
    untouched_for_30_runs: int

    @property
    def keys(self) -> int:
        return self.by_job + self.by_ferry + self.left


@dataclass(frozen=True, slots=True)
class Convergence:
    """The newest nights of one state (`operator/state`), the oldest first.

    `pace` is the number of keys that a night moves; None if there is one night alone, or none was moved. `nights_to_go`
    and `done_at` (in milliseconds) follow from it.
    """

    state: str
    nights: tuple[Night, ...]
    pace: float | None
    nights_to_go: int | None
    done_at: int | None

    @classmethod
    def of(cls, state: str, nights: Sequence[Night]) -> Convergence:
        newest = tuple(nights)[-_NEWEST:]
        first, last, between = newest[0], newest[-1], len(newest) - 1
        pace = (first.left - last.left) / between if between and first.left > last.left else None
        to_go = 0 if last.left == 0 else math.ceil(last.left / pace) if pace else None
        step = (last.at - first.at) / between if between else 0
        done_at = round(last.at + step * to_go) if to_go and step > 0 else None
        return cls(state, newest, pace, to_go, done_at)

    @property
    def line(self) -> str:
        """The last night in words, and when the rest would be done."""
        last = self.nights[-1]
        share = percent(1 - last.left / last.keys) if last.keys else percent(1.0)
        found = (
            f"{self.state}: {share} of {last.keys:,} {noun(last.keys, 'key')} migrated: {last.by_job:,} by the job, "
            f"{last.by_ferry:,} by Stateferry; {last.left:,} left"
        )
        if last.left == 0:
            return found
        quiet = [
            f"{count:,} for {runs} {noun(runs, 'run')}"
            for runs, count in (
                (1, last.untouched),
                (7, last.untouched_for_7_runs),
                (30, last.untouched_for_30_runs),
            )
            if count
        ]
        found += f" (untouched: {', '.join(quiet)})" if quiet else ""
        if self.nights_to_go is None or self.pace is None:
            return f"{found}; no pace is known yet"
        when = f", about {moment(self.done_at)}" if self.done_at is not None else ""
        pace = f"{self.pace:,.0f} {noun(round(self.pace), 'key')} a night"
        return f"{found}; at {pace} it is done in {self.nights_to_go} {noun(self.nights_to_go, 'night')}{when}"


def convergence_of(home: str, job: str) -> tuple[Convergence, ...]:
    """How the states of a job converge, if the job or a lazy run moves keys of them in part."""
    return tuple(Convergence.of(state, nights) for state, nights in nights_of(home, job).items())


def nights_of(home: str, job: str, until: str | None = None) -> dict[str, tuple[Night, ...]]:
    """The newest nights of each state that the job or a lazy run moves in part, the oldest first.

    With `until`, the id of a run, without those after it.
    """
    summaries = runs_of(home, job)
    ids = [summary.plan.run_id if summary.plan is not None else None for summary in summaries]
    nights: dict[str, list[Night]] = {}
    is_lazy, brought, dag_runs = False, 0, set[tuple[str | None, str]]()
    newest = summaries[ids.index(until) if until in ids else 0 :]
    runs = (Run(one.plan, one.folder) for one in newest if one.plan and one.state is not RunState.ROLLED_BACK)
    for run, facts, dag_run in side_by_side(Location.of(home), _look, runs):
        if facts is None or dag_run in dag_runs:
            continue
        if dag_run is not None:
            dag_runs.add(dag_run)
        is_lazy, brought = is_lazy or run.plan.lazy, brought + 1
        for state, night in _nights(run.plan, facts):
            nights.setdefault(state, []).append(night)
        if brought == MOST_NIGHTS:
            break
    return {
        state: tuple(reversed(of_state))
        for state, of_state in sorted(nights.items())
        if is_lazy or any(night.by_job and night.left for night in of_state)
    }


def _look(run: Run) -> tuple[Run, TablesFacts | None, tuple[str | None, str] | None]:
    """The run, what it brought into the tables, and the DAG run that made it, if one did."""
    if (facts := run.facts_if_sound(TablesFacts)) is None:
        return run, None, None
    began = run.facts_if_sound(Began)
    if began is None or began.dag_run_id is None:
        return run, facts, None
    return run, facts, (began.dag_id, began.dag_run_id)


def _nights(plan: MigrationPlan, facts: TablesFacts) -> Iterator[tuple[str, Night]]:
    for state, counts in facts.counts.items():
        night = Night(
            plan.run_id,
            plan.now,
            counts.keys_migrated_by_job,
            counts.keys_migrated_by_ferry,
            counts.keys_left,
            counts.keys_left_untouched,
            counts.keys_left_untouched_for_7_runs,
            counts.keys_left_untouched_for_30_runs,
        )
        if night.keys:
            yield state, night
