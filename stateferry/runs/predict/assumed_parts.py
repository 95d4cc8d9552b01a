"""What is assumed of the parts that only a cut-over has, as long as none of the job's cut-overs was timed.

Each part waits before its work as long as the quickest step that was timed. For the work there are figures that were
measured elsewhere (docs/outage.md), so the ranges are wide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stateferry.runs.predict.differences import SourceLayout
from stateferry.runs.predict.estimates import Estimate, Spent
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import CutOverFacts, MigrateFacts, RescaleFacts, SnapshotFacts, TablesFacts

# Seconds of work.
_CUT_OVER, _TABLES = 0.3, 1.0
# Of Flink's work without state: to stop a job with a savepoint, and to start one, up to its first checkpoint.
_STOP, _START = 1.0, 1.5
# Microseconds of a subtask for an entry: for a canonical savepoint, and for the restore of one with plain key groups,
# or with framed ones. A native savepoint is opened without reading its entries.
_TAKE, _RESTORE_PLAIN, _RESTORE_FRAMED = 0.5, 10.0, 1.6
# The work of Flink may be so many times shorter or longer.
_FASTER, _SLOWER = 4.0, 4.0


@dataclass(frozen=True, slots=True)
class FlinkWork:
    """Seconds that Flink is assumed to need for the state of a run: for its savepoint, and to restore the result.

    `interval` is the job's checkpoint interval: its first checkpoint comes within that time.
    """

    take: float = 0.0
    restore: float = 0.0
    interval: float = 0.0

    def times(self, growth: float) -> FlinkWork:
        """The seconds for a state so many times as large."""
        return FlinkWork(self.take * growth, self.restore * growth, self.interval)


NO_WORK = FlinkWork()


def flink_work(run: Run) -> FlinkWork:
    """By the entries of the run's source and result, and the subtasks of its job."""
    source = run.facts_if_sound(SnapshotFacts) or SnapshotFacts()
    taken, plan = run.facts_if_sound(SavepointTaken), run.plan
    restored = 0 if plan.output_format == "native" else _restored(run, source)
    pace = _RESTORE_PLAIN if plan.compression in ("none", "source") else _RESTORE_FRAMED
    before, after = _subtasks(run)
    interval = taken.checkpoint_interval if taken is not None else None
    return FlinkWork(source.rows * _TAKE / before / 1e6, restored * pace / after / 1e6, (interval or 0) / 1000)


def _restored(run: Run, source: SnapshotFacts) -> int:
    """The entries of the run's result: what was written of the migrated states, and all of the others."""
    written = [facts for of in (MigrateFacts, RescaleFacts) if (facts := run.facts_if_sound(of)) is not None]
    counts = {state: of_state for facts in written for state, of_state in facts.counts.items()}
    planned = [(of.operator, one) for of in run.plan.operators for one in of.states if one.legacy in counts]
    # The snapshot may call an operator otherwise than the plan.
    labels = [(met.removesuffix(f"/{one.legacy}"), one) for met in source.met for _, one in planned]
    changed = {f"{label}/{name}" for label, one in [*planned, *labels] for name in (one.legacy, one.new, one.flag)}
    made = [counts[state] for state in {one.legacy for _, one in planned}]
    stay = sum(size.entries for state, size in source.states.items() if state not in changed)
    return stay + sum(one.rows_written + one.rows_kept + one.blobs_written + one.blobs_left for one in made)


def _subtasks(run: Run) -> tuple[int, int]:
    """Of the migrated operators before and after, as far as that is known; of several, the most."""
    layout, wanted = run.facts_if_sound(SourceLayout), run.plan.parallelism
    before = {} if layout is None else {name: parallelism for name, (parallelism, _) in layout.operators.items()}
    after = before | wanted if isinstance(wanted, dict) else dict.fromkeys(before, wanted) if wanted else before
    names = [one.operator for one in run.plan.operators if one.operator in before] or list(before)
    return max((before[name] for name in names), default=1) or 1, max((after[name] for name in names), default=1) or 1


def assumed(seen: Iterable[Spent], work: FlinkWork) -> dict[str, Estimate]:
    """Estimates of what only a cut-over has, for this work of Flink, after such times of steps."""
    wait = min((max(one.wall - one.work, 0.0) for one in seen), default=0.0)
    # The first checkpoint of a job begins at any moment of its interval.
    first = work.interval / 2
    return {
        SavepointTaken.name: _of_flink(wait, _STOP + work.take),
        CutOverFacts.name: _estimate(wait + _CUT_OVER, wait, wait + 3 * _CUT_OVER),
        JobStarted.name: _of_flink(wait, _START + work.restore, first),
        TablesFacts.name: _estimate(wait + _TABLES, wait, wait + 3 * _TABLES),
    }


def _of_flink(wait: float, work: float, around: float = 0.0) -> Estimate:
    """A step may wait for Spark's start, and Flink does not."""
    return _estimate(wait + work + around, work / _FASTER, wait + work * _SLOWER + 2 * around)


def _estimate(*seconds: float) -> Estimate:
    likely, low, high = (round(one, 3) for one in seconds)
    return Estimate(likely, low, high)
