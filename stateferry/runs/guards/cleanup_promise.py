"""Holds a savepoint to what a job's cleanup in full snapshots promises.

Under `cleanupFullSnapshot` Flink leaves out of a canonical savepoint what has expired while it writes it. It writes all
of it after the youngest timestamp. So an entry that had expired at the youngest timestamp shows that the time to live
that was given is too short, or that the job has no such cleanup. Native savepoints and checkpoints hold expired entries
in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flinkstate.errors import RejectedError
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.savepoint_properties import is_savepoint
from flinkstate.reading.reader import has_native_state
from flinkstate.ttl import StateTtlConfig
from stateferry.basics.durations import format_duration, rough_duration
from stateferry.basics.state_ref import StateRef
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.state_ages import FoundAges, Holds


class BrokenPromiseError(RejectedError):
    """A savepoint holds what a cleanup in full snapshots would have left out."""


def check_promises(resolved: ResolvedPlan, found: FoundAges, oldest: Mapping[StateRef, int]) -> None:
    """Raises an error if an entry is there that such a cleanup would have left out.

    `oldest` are the greatest ages of the entries that it covers, by operator id and state; without those of migrated
    states, of which it covers all.
    """
    youngest = min((one.youngest for one in (*found.states, *found.untold)), default=0)
    all_oldest = {(one.operator, one.state): one.oldest for one in found.states if one.holds is not Holds.OTHERS}
    for operator, name, config in _promises(resolved):
        of_others = oldest.get(StateRef(operator.hex_id, name))
        age = of_others if of_others is not None else all_oldest.get((operator.label, name))
        beyond = config.time_to_live + resolved.plan.clock_tolerance_ms
        if age is not None and is_kept(resolved, operator) and age - youngest >= beyond:
            raise BrokenPromiseError(
                f"state {name} of operator {operator.label} is said to be cleaned up in full snapshots "
                f"(cleanupFullSnapshot), but it has an entry that is {rough_duration(age - youngest)} older than the "
                f"youngest timestamp of this canonical savepoint, so under a time to live of "
                f"{format_duration(config.time_to_live)} it had expired before the savepoint was written. Nothing "
                "has been written. Either the time to live is longer, or the job has no such cleanup: correct the "
                "--state-ttl"
            )


def unkept_promises(resolved: ResolvedPlan) -> Iterator[str]:
    """Yields a note for each state whose cleanup says nothing about this savepoint."""
    for operator, name, _ in _promises(resolved):
        if not is_kept(resolved, operator):
            yield (
                f"cleanupFullSnapshot of {name} of {operator.label} had no effect: native savepoints and "
                "checkpoints hold expired entries in any case"
            )


def is_kept(resolved: ResolvedPlan, operator: Operator) -> bool:
    """Whether the operator's state was written as a full snapshot."""
    return is_savepoint(resolved.source.metadata) and not has_native_state(operator)


def _promises(resolved: ResolvedPlan) -> Iterator[tuple[Operator, str, StateTtlConfig]]:
    """Yields the states of which the plan says so."""
    for one in resolved.changes:
        for planned in one.ttls:
            if planned.config.cleanup_full_snapshot:
                yield one.operator, planned.state.name, planned.config
    for one, rules in resolved.migrations:
        if rules.planned_ttl is not None and rules.planned_ttl.cleanup_full_snapshot:
            names = (rules.legacy.name, rules.new_name)
            yield from ((one.operator, name, rules.planned_ttl) for name in names if name in one.states)
