"""Notes on states that the plan doesn't name, and on keys for which its names or rules may not be what was meant.

The keys don't show that a name is wrong, but the person who gave it may have meant another state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from stateferry.basics.quantities import noun
from stateferry.changes.counts import InventoryCounts, StateSigns
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Rules
from stateferry.inventory.inventory import Inventory
from stateferry.inventory.wrong_name_signs import rivals_of
from stateferry.runs.checks.resolved_plan import ResolvedPlan


def name_notes(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[str]:
    """The notes, one sentence each."""
    for one, wanted in zip(resolved.operators, resolved.plan.operators, strict=True):
        planned = {name for state in wanted.states for name in (state.legacy, state.new, state.flag)}
        for rules in one.rules:
            signs = {
                state: found
                for (*place, state), found in inventory.signs.items()
                if place == [one.operator.hex_id, rules.legacy.name]
            }
            filled = {state for state, found in signs.items() if found.keys} - planned
            rivals = rivals_of(rules, one.states)
            met = inventory.met.get(one.ref(rules.legacy.name), InventoryCounts())
            yield from _of_both(one, rules, met)
            yield from _of_blobs_left_out(one, rules, signs.get(rules.legacy.name, StateSigns()))
            if others := (rivals.legacies if rules.takes_blobs else rivals.maps) & filled:
                yield _of_others(one, rules, others)
            if rules.new_name not in one.states and (rows := rivals.maps & filled):
                yield _of_other_rows(one, rules, rows)


def _of_both(one: OperatorChanges, rules: Rules, met: InventoryCounts) -> Iterator[str]:
    """Notes on keys that have a blob and rows, with a flag or without one."""
    if merged := met.merged_keys:
        yield (
            f"{merged:,} {noun(merged, 'key', 'keys')} of {rules.legacy.name} of {one.operator.label} "
            f"{noun(merged, 'has', 'have')} a blob, and rows in {rules.new_name}, and no flag that is set: what only "
            "the blob has is added to the rows. If the job has moved such keys and left their blobs, entries that it "
            "has removed since come back: name its flag, or have it clear the blobs first"
        )
    if older := met.older_rows_that_win:
        yield (
            f"{older:,} {noun(older, 'row', 'rows')} of {rules.new_name} of {one.operator.label} "
            f"{noun(older, 'is', 'are')} older than the blob of {rules.legacy.name} whose entry gives way to "
            f"{noun(older, 'it', 'them')}: the old job has written that key later than the new one. The old job still "
            "reads the blob's value, and the row expires before it would have"
        )
    if rules.on_contradiction is Contradiction.BLOB and (empty := met.empty_contradictions):
        yield (
            f"{empty:,} of the {met.contradictions:,} blobs of {rules.legacy.name} of {one.operator.label} whose keys "
            f"are flagged {noun(empty, 'is an empty map', 'are empty maps')}: by --on-contradiction blob "
            f"{noun(empty, 'its key has', 'their keys have')} no rows any more. If the job clears its maps so, say "
            "--on-contradiction rows"
        )


def _of_blobs_left_out(one: OperatorChanges, rules: Rules, blobs: StateSigns) -> Iterator[str]:
    lost = blobs.keys - blobs.not_moved
    if rules.leaves_out_blobs and lost:
        yield (
            f"{lost:,} {noun(lost, 'key', 'keys')} of {rules.legacy.name} of {one.operator.label} "
            f"{noun(lost, 'has', 'have')} a blob, and no rows in {rules.new_name}: the run leaves out all that the old "
            "job has of them. If the job hasn't moved them yet, first make rows of them: run without --reverse"
        )


def _of_others(one: OperatorChanges, rules: Rules, others: Collection[str]) -> str:
    kind = f"{rules.taken.kind.value.capitalize()}State"
    return (
        f"{_listed(others)} of {one.operator.label} {noun(len(others), f'is a {kind}', f'are {kind}s')} of such maps, "
        f"too, and {noun(len(others), 'stays as it is', 'stay as they are')}: this run makes {rules.made_name} of "
        f"{rules.taken.name} alone"
    )


def _of_other_rows(one: OperatorChanges, rules: Rules, others: Collection[str]) -> str:
    return (
        f"{rules.new_name} isn't in the savepoint, and {_listed(others)} of {one.operator.label} "
        f"{noun(len(others), 'has', 'have')} the types that it will have: if the new job calls its state so, it starts "
        f"without the maps of {rules.legacy.name}"
    )


def _listed(names: Collection[str]) -> str:
    return " and ".join(sorted(names))
