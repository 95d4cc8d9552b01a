"""Holds the names of states in a plan against the states that an operator has, as far as their descriptions tell.

What only the keys tell is found in the snapshot step (`name_guard`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from flinkstate.did_you_mean import is_alike, there_are
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from stateferry.changes.rules import Rules
from stateferry.inventory.wrong_name_signs import rivals_of
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import runs_of

States = Mapping[str, KeyedState]


def no_such_legacy(state: StatePlan, states: States, operator: Operator) -> str:
    """The problem of a legacy state that isn't there, and neither is a new state that it could have become."""
    return (
        f"operator {operator.label} has no keyed state {state.legacy!r}, and no MapState {state.new!r} that it could "
        f"have become. {there_are(state.legacy, states)}"
    )


def not_migrated_before(
    plan: MigrationPlan, wanted: OperatorPlan, rules: Rules, states: States, operator: Operator
) -> Iterator[str]:
    """Yields why a legacy state that isn't there may be misnamed, although its new state is there.

    It was migrated before if no other state can have been meant, or if an earlier run of the job has published it.
    """
    legacy, new = rules.legacy.name, rules.new_name
    alike = {name for name in _values_of_maps(states) if is_alike(name, legacy)}
    others = sorted((rivals_of(rules, states).legacies | alike) - {one.legacy for one in wanted.states})
    if not others or _was_published(plan, operator, legacy, new):
        return
    yield (
        f"operator {operator.label} has no keyed state {legacy!r}, and nothing shows that it was migrated before: "
        f"{', '.join(others)} may have been meant. {there_are(legacy, states)}. If "
        f"{legacy} was migrated, leave it out of the plan"
    )


def slips(plan: MigrationPlan, wanted: OperatorPlan, rules: Rules, states: States, operator: Operator) -> Iterator[str]:
    """Yields names in the plan that the savepoint lacks, and that are nearly those of states of the same types."""
    if plan.accept_empty == 1:
        return
    planned = {name for one in wanted.states for name in (one.legacy, one.new, one.flag)}
    rivals = rivals_of(rules, states)
    no_flag = "--accept-empty 100%" if plan.lazy else "--no-flag-state"
    for option, name, others, meant in (
        ("--legacy-state", rules.legacy.name, rivals.legacies, "--accept-empty 100%"),
        ("--new-state", rules.new_name, rivals.maps, "--accept-empty 100%"),
        ("--flag-state", rules.flag_name, rivals.flags, no_flag),
    ):
        for other in _alike(name, others - planned) if name is not None and name not in states else ():
            yield (
                f"operator {operator.label} has no state {name!r}, but {other!r}, which is of the types that it would "
                f"have: did you mean {option} {other}? If the names are right all the same, say so: {meant}"
            )


def _alike(name: str, others: Collection[str]) -> list[str]:
    return sorted(other for other in others if is_alike(name, other))


def _values_of_maps(states: States) -> list[str]:
    return [state.name for state in states.values() if state.map_type is not None]


def _was_published(plan: MigrationPlan, operator: Operator, legacy: str, new: str) -> bool:
    """Whether a publication of the job that wasn't undone has made this new state of this legacy state."""
    names = {operator.hex_id, operator.uid, operator.name}
    return any(
        (state.legacy, state.new) == (legacy, new) and one.operator in names
        for run in runs_of(plan.home, plan.job)
        if run.state is RunState.PUBLISHED and run.plan is not None and not (run.plan.reverse or run.plan.lazy)
        for one in run.plan.operators
        for state in one.states
    )
