"""Checks by the flags that states were migrated before, whose legacy states a savepoint doesn't have any more."""

from __future__ import annotations

from dataclasses import replace

from flinkstate.errors import PlanError
from stateferry.basics.quantities import noun
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rows_to_blobs import legacy_state
from stateferry.changes.rules import Rules
from stateferry.inventory.inventory import Inventory, inventory_tasks, total
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.name_guard import errors_of
from stateferry.runs.plan.planned_states import StatePlan


def check_migrated_before(resolved: ResolvedPlan) -> None:
    """Refuses a plan whose missing legacy state isn't migrated, as the flags show.

    A migration drops the flags, so usually there are none. Where a flag state is left, all keys are read in this
    process.
    """
    problems = [
        problem
        for one, state in resolved.migrated_before
        if state.flag in one.states
        for problem in _problems(resolved, one, state)
    ]
    if problems:
        raise PlanError("\n".join(problems))


def _problems(resolved: ResolvedPlan, one: OperatorChanges, state: StatePlan) -> list[str]:
    plan = resolved.plan
    legacy = legacy_state(state.legacy, one.states[state.new])
    rules = Rules(legacy, state.new, state.flag, state.ttl_ms, plan.now)
    one = replace(one, rules=(rules,))
    inventory = _inventory(resolved, one)
    names = f"There are: {', '.join(one.states)}"
    found = [f"{error}. {names}" for error in errors_of(one, inventory, plan.accept_empty)]
    of = one.ref(state.legacy)
    met = inventory.met.get(of, InventoryCounts())
    if met.flags_not_set and rules.drops_expired:
        # A flag that is true was set, also if it has expired since.
        kept = replace(one, rules=(replace(rules, keep_expired=True),))
        met = _inventory(resolved, kept).met.get(of, InventoryCounts())
    if not met.flags_not_set:
        return found
    unset = (
        f"operator {one.operator.label} has no keyed state {state.legacy!r}, but it isn't migrated: {state.flag} is "
        f"not set for {met.flags_not_set:,} {noun(met.flags_not_set, 'key')}. Name the state that has their maps "
        f"(--legacy-state). {names}"
    )
    return [*found, unset]


def _inventory(resolved: ResolvedPlan, one: OperatorChanges) -> Inventory:
    tasks = inventory_tasks(resolved.source, one, target_bytes=resolved.plan.chunk_bytes)
    return total(task.take() for task in tasks)
