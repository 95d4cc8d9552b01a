"""What a run says of maps by Kryo, and of the states that the new job declares."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_pojos import pojo_type
from flinkstate.kryo.places_in_maps import ROOT
from flinkstate.serializers.type_parts import has_large_numbers, kept_by_kryo, with_parts
from flinkstate.serializers.type_text import type_text
from flinkstate.serializers.types import (
    AvroRecordType,
    EnumType,
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoMapType,
    PojoType,
    type_name,
)
from stateferry.changes.rules import Rules
from stateferry.inventory.inventory import Inventory
from stateferry.look.declaration import declared
from stateferry.look.kryo_maps import OF_FLINK_2, upgrade_note
from stateferry.runs.checks.kryo_keys import has_one_form
from stateferry.runs.checks.other_kryo import makes_for_flink_2
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.step_facts import KryoMaps

# Parts of the names of the JDK's sorted maps, and of its views of them.
_SORTED = ("TreeMap", "SkipListMap", "SortedMap", "NavigableMap")


def kryo_maps(resolved: ResolvedPlan, inventory: Inventory) -> tuple[KryoMaps, ...]:
    """What the maps by Kryo of each legacy state are."""
    return tuple(
        KryoMaps(one.operator.label, rules.legacy.name, type_name(rules.map_type), found)
        for one, rules in resolved.migrations
        if (found := inventory.maps.get(one.ref(rules.legacy.name))) is not None
    )


def nullable_maps(resolved: ResolvedPlan) -> tuple[tuple[str, str], ...]:
    """The operators and legacy states whose maps are nullable."""
    return tuple(
        (one.operator.label, rules.legacy.name)
        for one, rules in resolved.migrations
        if isinstance(rules.in_source.value, NullableType) and rules.takes_blobs
    )


def kryo_notes(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[str]:
    """Notes on maps that an upgraded job reads otherwise, and on user keys that the new job may not find."""
    of_flink_2 = resolved.source.metadata.version >= OF_FLINK_2
    for one in kryo_maps(resolved, inventory):
        note = upgrade_note(f"{one.state} of {one.operator}", one.classes, of_flink_2=of_flink_2)
        if note is not None:
            yield note
        yield from _sorted_decimals(one)
    for of, rules in resolved.migrations:
        yield from _keys_note(f"{rules.legacy.name} of {of.operator.label}", rules)
        yield from _user_keys_note(f"{rules.legacy.name} of {of.operator.label}", rules, resolved.plan.job_classes)
    two = makes_for_flink_2(resolved.plan, resolved.source)
    notes = (_own_form_note(rules, of_flink_2=two) for one, rules in resolved.migrations)
    yield from (note for note in notes if note is not None)


def _sorted_decimals(maps: KryoMaps) -> Iterator[str]:
    """A note on sorted maps that find 1.00 by 1.0: a map of another class doesn't, and neither does a MapState."""
    classes = maps.classes.classes
    is_sorted = any(name in one for one in classes.get(ROOT, ()) for name in _SORTED)
    if is_sorted and "java.math.BigDecimal" in classes.get("key", ()):
        yield (
            f"maps of {maps.state} of {maps.operator} are sorted, with BigDecimal keys: the old job finds 1.00 by 1.0, "
            "and the new one finds an entry by the bytes of its user key, which have the scale. Have the old job put "
            "its entries under keys of one scale first (stripTrailingZeros), and use such keys in the new job"
        )


def _keys_note(state: str, rules: Rules) -> Iterator[str]:
    """A note on keys by Kryo of which it isn't known that equal ones have the same bytes."""
    unsure = dict.fromkeys(one.class_name for one in kept_by_kryo(rules.legacy.key) if not has_one_form(one))
    if unsure and rules.takes_blobs:
        yield (
            f"keys of {state} are by Kryo ({', '.join(unsure)}). On RocksDB a job finds its state by the bytes of the "
            "key, so equal keys must have equal bytes: those that hold a collection, or one object twice, may have "
            "others. That is so before and after the run, unless the old job runs on the heap and the new one doesn't"
        )


def _user_keys_note(state: str, rules: Rules, job: JobClasses | None) -> Iterator[str]:
    """Notes on user keys of which it isn't known that equal ones have the same bytes."""
    parts = tuple(with_parts(rules.map_type.key)) if rules.takes_blobs else ()
    keys = kept_by_kryo(rules.map_type.key) if rules.takes_blobs else ()
    unsure = dict.fromkeys(one.class_name for one in keys if not has_one_form(replace(one, classes=job)))
    if rules.takes_blobs and has_large_numbers(rules.map_type.key):
        yield (
            f"user keys of {state} have a BigInteger or BigDecimal, and Flink writes 0, 1 and 10 in two ways: another "
            "if the job has them from BigInteger.valueOf than from new BigInteger or a computation. The new job finds "
            "an entry by the bytes of its user key: have it use BigInteger.valueOf for these three"
        )
    if unsure:
        yield (
            f"user keys of {state} are by Kryo ({', '.join(unsure)}). The new job finds an entry by the bytes of its "
            "user key, so equal keys must have equal bytes: those that hold a collection, or one object twice, may "
            "have others"
        )
    if own := dict.fromkeys(part.class_name for part in parts if isinstance(part, PojoType | AvroRecordType)):
        yield (
            f"user keys of {state} have objects of {', '.join(own)}. The new job finds an entry by the bytes of its "
            "user key, which have all fields: if equals of such a class, or the order of its Avro schema, leaves a "
            "field out, equal keys may have other bytes"
        )


def _own_form_note(rules: Rules, *, of_flink_2: bool) -> str | None:
    """Says by which type objects of the job's classes would get a form of Flink's own, if there is one."""
    stored = rules.in_source.value
    stored = stored.map if isinstance(stored, PojoMapType) else stored
    if not rules.takes_blobs or not isinstance(stored, KryoMapType) or stored.kryo.classes is None:
        return None
    possible = _in_own_form(stored.map, stored.kryo, of_flink_2)
    if possible == stored.map:
        return None
    return (
        f"the new state of {rules.legacy.name} has values of Kryo: {type_text(stored.map)}. Flink has serializers of "
        "its own for some of their classes, and a job that declares these classes uses them. To store the values by "
        f"them, give --as {shlex.quote(type_text(possible))}"
    )


def _in_own_form(type_: FlinkType, kryo: KryoType, of_flink_2: bool) -> FlinkType:
    classes = {} if kryo.classes is None else kryo.classes.classes
    match type_:
        case KryoType(class_name) if (known := classes.get(class_name)) is not None:
            if known.constants:
                return EnumType(class_name, known.constants)
            try:
                return pojo_type(class_name, kryo, of_flink_2=of_flink_2)
            except RefusedError:
                return type_
        case MapType(key, value):
            return MapType(_in_own_form(key, kryo, of_flink_2), _in_own_form(value, kryo, of_flink_2))
        case ListType(element):
            return ListType(_in_own_form(element, kryo, of_flink_2))
    return type_


def new_declarations(resolved: ResolvedPlan) -> tuple[str, ...]:
    """The lines of Java by which the new job declares the new states; none in reverse."""
    return tuple(
        f"{one.operator.label}: {declared(rules.new_name, rules.map_type, rules.in_source.value)}"
        for one, rules in resolved.migrations
        if rules.takes_blobs
    )
