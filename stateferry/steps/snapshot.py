"""Snapshot: reads the whole source once, counts its content, and refuses content that a later step couldn't handle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stateferry.errors import StateferryError
from stateferry.migration.counts import InventoryCounts
from stateferry.migration.inventory import (
    CopiedFilesTask,
    Inventory,
    InventoryTask,
    copied_files_tasks,
    inventory_tasks,
    take,
    total,
)
from stateferry.migration.rules import Contradiction, ContradictionsError, NullsCannotBeKeptError, Rules
from stateferry.migration.unnamed_flags import unnamed_flag
from stateferry.quantities import noun
from stateferry.runs.facts import SnapshotFacts, StateSize, Step
from stateferry.runs.plan_check import ResolvedPlan
from stateferry.runs.state_ages import FoundAges, Holds, StateAges
from stateferry.steps.workers import Measure, Workers

_BYTES: Measure[Inventory] = Measure("B", lambda inventory: inventory.sizes.total())


def run(workers: Workers, resolved: ResolvedPlan) -> Inventory:
    """Counts the source's content on the workers; raises an error if the plan must first say what to do about it."""
    inventory = total(workers.do(Step.SNAPSHOT, inventory_work(resolved, workers.at_once), take, _BYTES))
    for stopping in _stopping(resolved, inventory):
        raise stopping
    return inventory


def ages(resolved: ResolvedPlan, inventory: Inventory) -> FoundAges:
    """The ages of the entries that the snapshot found, by state."""
    labels = {one.operator.hex_id: one.operator.label for one in resolved.operators}
    rules = {(one.operator.hex_id, rule.legacy.name): rule for one in resolved.operators for rule in one.rules}
    states = tuple(
        StateAges(
            labels[operator],
            legacy,
            state,
            _holds(state, rules[operator, legacy]),
            rules[operator, legacy].ttl or 0,
            found.entries,
            found.expired,
            found.future,
            found.youngest,
            (found.quantile(0.25), found.quantile(0.5), found.quantile(0.75)),
            found.oldest,
            found.sharp_end(),
            found.suggested_ttl(),
        )
        for (operator, legacy, state), found in sorted(inventory.ages.items())
        if found.entries
    )
    return FoundAges(resolved.plan.now, resolved.plan.keep_expired, states)


def facts(resolved: ResolvedPlan, inventory: Inventory, found: FoundAges, notes: Sequence[str]) -> SnapshotFacts:
    """The facts of the step: the inventory, its numbers by operator and state, and the ages that were found."""
    labels = {one.hex_id: one.label for one in resolved.source.metadata.operators}
    entries, sizes = (_by_state(labels, counter) for counter in (inventory.entries, inventory.sizes))
    return SnapshotFacts(
        states={name: StateSize(entries[name], sizes[name]) for name in {**entries, **sizes}},
        met={f"{labels[operator]}/{state}": counts for (operator, state), counts in inventory.met.items()},
        ages=found,
        notes=tuple(notes),
        read=inventory.read.to_facts(),
    )


def _by_state(labels: Mapping[str, str], counter: Mapping[tuple[str, str, int], int]) -> Counter[str]:
    total: Counter[str] = Counter()
    for (operator, state, _), count in counter.items():
        total[f"{labels[operator]}/{state}"] += count
    return total


def _holds(state: str, rules: Rules) -> Holds:
    if state == rules.legacy.name:
        return Holds.BLOBS
    return Holds.ROWS if state == rules.new_name else Holds.FLAGS


def inventory_work(resolved: ResolvedPlan, at_least: int) -> list[InventoryTask | CopiedFilesTask]:
    """The snapshot's tasks, for keyed state and for all other state.

    Keyed state of an operator is cut into at least `at_least` tasks, if it is large enough.
    """
    rules = {one.operator.id: one.rules for one in resolved.operators}
    keyed = [
        task
        for operator in resolved.source.keyed_operators()
        for task in inventory_tasks(
            resolved.source,
            operator,
            rules.get(operator.id, ()),
            target_bytes=resolved.plan.chunk_bytes,
            at_least=at_least,
        )
    ]
    return [*keyed, *copied_files_tasks(resolved.source)]


def _stopping(resolved: ResolvedPlan, inventory: Inventory) -> list[StateferryError]:
    """Errors that end the run because the plan doesn't say what to do."""
    errors: list[StateferryError] = []
    for one in resolved.operators:
        for rules in one.rules:
            id_, legacy = one.operator.hex_id, rules.legacy.name
            signs = {flag: counts for (*of, flag), counts in inventory.flag_signs.items() if of == [id_, legacy]}
            if unnamed := unnamed_flag(rules, one.operator.label, signs):
                errors.append(unnamed)
            errors += _errors(one.operator.label, rules, inventory.met.get((id_, legacy), InventoryCounts()))
    return errors


def _errors(operator: str, rules: Rules, met: InventoryCounts) -> list[StateferryError]:
    errors: list[StateferryError] = []
    where = f"state {rules.legacy.name} of operator {operator}"
    if (flagged := met.contradictions) and rules.on_contradiction is Contradiction.STOP:
        errors.append(
            ContradictionsError(
                f"{where}: {flagged:,} {noun(flagged, 'key is', 'keys are')} flagged as migrated and still "
                f"{noun(flagged, 'has', 'have')} a blob; say which of the two counts: "
                "--on-contradiction blob or --on-contradiction rows"
            )
        )
    if (nulls := met.unrepresentable_nulls) and not rules.drop_unrepresentable_nulls:
        errors.append(
            NullsCannotBeKeptError(
                f"{where}: {nulls:,} {noun(nulls, 'entry has', 'entries have')} a null value, which a MapState with "
                "TTL can't hold; make the value nullable in both jobs, or leave these entries out with "
                "--drop-unrepresentable-nulls"
            )
        )
    return errors
