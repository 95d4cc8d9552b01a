"""Values that stay values of Kryo: the new job must read them by the Kryo that wrote them.

Kryo 2 writes them in jobs of Flink 1, Kryo 5 in jobs of Flink 2. The bytes of many objects differ, and no header says
by which Kryo a value is. So Flink reads those of the other one as something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import type_name
from stateferry.basics.state_ref import StateRef
from stateferry.changes.rules import Rules
from stateferry.inventory.inventory import Inventory
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.resolved_plan import ResolvedPlan


def check_kept_values(resolved: ResolvedPlan, inventory: Inventory) -> None:
    """Raises an error if the job that reads the new savepoint would read such values by another Kryo."""
    of_flink_2 = resolved.source.metadata.version >= OF_FLINK_2
    for where, kept, by_2, by_5 in _kept(resolved, inventory):
        if by_2 and by_5:
            raise RefusedError(
                f"{where}: {by_2:,} of its maps are by Kryo 2 (Flink 1) and {by_5:,} by Kryo 5 (Flink 2), and values "
                f"of {kept} stay values of Kryo: no job could read both in one new state. Migrate a savepoint from "
                "before the upgrade to Flink 2"
            )
        if by_2 and of_flink_2:
            raise RefusedError(
                f"{where}: its maps are by Kryo 2 (Flink 1), but the savepoint is of Flink 2, and values of {kept} "
                "stay values of Kryo: a job of Flink 2 would read others. Migrate a savepoint from before the upgrade"
            )


def kept_notes(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[str]:
    """Notes on the Flink by which the new job must run."""
    for where, kept, by_2, _ in _kept(resolved, inventory):
        if by_2:
            yield (
                f"{where}: values of {kept} stay values of Kryo 2, so the new job must run on Flink 1. Flink 2 "
                "restores them without an error and may read other values"
            )


def states_with_kept_values(resolved: ResolvedPlan) -> Iterator[tuple[Operator, Rules, str]]:
    """Yields each legacy state that has such values, and what they are; none that are all written as Kryo 5 does."""
    for one, rules in resolved.migrations:
        kept = ", ".join(dict.fromkeys(map(type_name, kept_by_kryo(rules.map_type))))
        if kept and not _is_rewritten(one.by_kryo.get(rules.legacy.name)):
            yield one.operator, rules, kept


def _is_rewritten(state: KeyedState | None) -> bool:
    if state is None or state.value is None:
        return False
    return all(one.five is False and one.for_five for one in kept_by_kryo(state.value))


def _kept(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[tuple[str, str, int, int]]:
    """Yields each such state, what its values are, and how many of its maps are by Kryo 2 and by Kryo 5."""
    for operator, rules, kept in states_with_kept_values(resolved):
        found = inventory.maps.get(StateRef(operator.hex_id, rules.legacy.name))
        if found is not None and rules.takes_blobs:
            where = f"state {rules.legacy.name} of operator {operator.label}"
            yield where, kept, found.kryo.get("2", 0), found.kryo.get("5", 0)
