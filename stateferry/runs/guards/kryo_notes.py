"""What a run says of maps by Kryo, and of the states that the new job declares."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.serializers.types import NullableType, type_name
from stateferry.inventory.inventory import Inventory
from stateferry.look.declaration import declared
from stateferry.look.kryo_maps import OF_FLINK_2, upgrade_note
from stateferry.runs.checks.plan_check import ResolvedPlan
from stateferry.runs.record.facts import KryoMaps


def kryo_maps(resolved: ResolvedPlan, inventory: Inventory) -> tuple[KryoMaps, ...]:
    """What the maps by Kryo of each legacy state are."""
    return tuple(
        KryoMaps(one.operator.label, rules.legacy.name, type_name(rules.map_type), found)
        for one in resolved.operators
        for rules in one.rules
        if (found := inventory.maps.get((one.operator.hex_id, rules.legacy.name))) is not None
    )


def nullable_maps(resolved: ResolvedPlan) -> tuple[tuple[str, str], ...]:
    """The operators and legacy states whose maps are nullable."""
    return tuple(
        (one.operator.label, rules.legacy.name)
        for one in resolved.operators
        for rules in one.rules
        if isinstance(rules.legacy.value, NullableType) and not rules.reverse
    )


def kryo_notes(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[str]:
    """Notes on maps that an upgraded job reads otherwise."""
    of_flink_2 = resolved.source.metadata.version >= OF_FLINK_2
    for one in kryo_maps(resolved, inventory):
        note = upgrade_note(f"{one.state} of {one.operator}", one.classes, of_flink_2=of_flink_2)
        if note is not None:
            yield note


def new_declarations(resolved: ResolvedPlan) -> tuple[str, ...]:
    """The lines of Java by which the new job declares the new states; none in reverse."""
    return tuple(
        f"{one.operator.label}: {declared(rules.new_name, rules.map_type)}"
        for one in resolved.operators
        for rules in one.rules
        if not rules.reverse
    )
