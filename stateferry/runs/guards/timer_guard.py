"""Stops a run on a native savepoint that lacks timers which the job had in the source of an earlier run.

It stops the run in the snapshot step, before anything is written. Flink leaves timers that a job keeps on the heap out
of native savepoints. That an earlier source of the job had them shows it, whatever the plan says.
"""

from __future__ import annotations

from collections.abc import Mapping

from flinkstate.errors import RejectedError
from flinkstate.keyed.state import StateKind
from flinkstate.metadata.savepoint_properties import is_savepoint
from flinkstate.reading.reader import Savepoint, has_native_state
from stateferry.basics.quantities import noun
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.run_list import green_before
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize

# What the names of states of timers begin with.
_TIMERS = "_timer_state/"


class LostTimersError(RejectedError):
    """The source lacks timers that the job had before."""


def check_timers(plan: MigrationPlan, source: Savepoint) -> None:
    """Raises an error if an operator without timers in a native savepoint had some in the newest green run's source.

    A backfilled day is older than other runs, so it isn't compared.
    """
    if not is_savepoint(source.metadata) or plan.now_from == "backfill":
        return
    without = [
        operator.label
        for operator in filter(has_native_state, source.metadata.operators)
        if all(state.kind is not StateKind.TIMERS for state in source.keyed_states(operator))
    ]
    if not without:
        return
    run_id, before = _timers_before(plan)
    for operator in without:
        if found := sum(size.entries for state, size in before.items() if state.startswith(f"{operator}/{_TIMERS}")):
            raise LostTimersError(
                f"operator {operator} has no state of timers in this native savepoint, but run {run_id} of the same "
                f"job found {found:,} {noun(found, 'timer')} of it. Flink leaves timers that a job keeps on the heap "
                "out of native savepoints, without an error: they would be lost, whatever --no-timers says. Take a "
                "canonical savepoint: flink savepoint --type canonical JOB DIR. If the operator has no timers any "
                "more, rehearse with a checkpoint or a canonical savepoint once, which shows that"
            )


def _timers_before(plan: MigrationPlan) -> tuple[str, Mapping[str, StateSize]]:
    """What the source of the job's newest green run held, by operator and state, and the run's id."""
    for run in green_before(plan):
        if (facts := run.facts_if_sound(SnapshotFacts)) is not None:
            return run.plan.run_id, facts.states
    return "", {}
