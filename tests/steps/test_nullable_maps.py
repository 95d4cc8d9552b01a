"""Maps by Kryo 2 as nullable maps: both ways to them write the same bytes of the maps that both can write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.to_flink_maps import FlinkMaps, KryoCounts
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    Scalar,
)
from flinkstate.serializers.walker import MapEntries
from stateferry.changes.upgrade.for_other_kryo import expect_rewritable, for_other_kryo
from stateferry.changes.upgrade.nullable_maps import expect_keys, nullable_maps
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from tests.steps.test_for_another_flink import ALONE, GOLDEN

TOLD = {"main/mainState": "Map<String, Long>"}


def maps_of(golden: str) -> Iterator[tuple[Section, KeyedState]]:
    values = {"home": "/home", "source": str(GOLDEN / golden), "target": "/new", "to": "flink-2", "declared": TOLD}
    plan = planned(values | ALONE)
    source = open_source(plan)
    ((operator, states),) = [(one.operator, one.by_kryo) for one in resolve(plan, source).changes if one.by_kryo]
    for file in source.open_files(operator):
        names = [state.name for state in file.header.states]
        for key_group in file.handle.range:
            for section in file.sections(key_group):
                if names[section.state] == "mainState":
                    yield replace(section, data=section.data.copy()).with_own_positions(), states["mainState"]


def with_null(section: Section, size: int) -> Section:
    """The section with null as its last value, of which the first `size` bytes are no part of the map."""
    start, value = int(section.starts[-1]), int(section.value_starts[-1])
    data = np.append(section.data[: value + size], np.zeros(1, np.uint8))
    data[value - 4 : value] = np.frombuffer((size + 1).to_bytes(4, "big"), np.uint8)
    assert start < value
    return replace(section, data=data, ends=np.append(section.ends[:-1], len(data)))


@pytest.mark.parametrize(("golden", "stamp"), [("hint-map-1.20-rocksdb", 0), ("hint-map-ttl-1.20-hashmap", 8)])
def test_both_ways_write_the_same(golden: str, stamp: int) -> None:
    seen = 0
    for section, state in maps_of(golden):
        assert isinstance(state.value, KryoCollectionType)
        for one in (section, with_null(section, stamp)):
            expected, found = for_other_kryo(one, state), nullable_maps(one, state, state.value)
            for name in ("data", "starts", "key_ends", "ends"):
                assert np.array_equal(getattr(found, name), getattr(expected, name)), name
            seen += len(one)
    assert seen > 20


@pytest.mark.parametrize(
    ("key", "null"),
    [
        (KryoType("java.util.UUID"), b"\0"),
        (Scalar.STRING, b"\0"),
        (Scalar.BIG_INTEGER, bytes(4)),
    ],
)
def test_a_null_key_is_refused_with_its_place(key: FlinkType, null: bytes) -> None:
    section, state = next(maps_of("hint-map-1.20-rocksdb"))
    assert isinstance(state.value, KryoCollectionType)
    map_ = replace(state.value, made=NullableType(MapType(NullableType(key, 0), KryoType("P")), 0))
    starts = np.array([4], np.int64)
    for written, refused in ((null, True), (b"\2" * len(null), False), (null + b"\0", False)):
        ends = starts + len(written)
        entries = MapEntries(np.ones(1, np.int64), starts, ends, ends + 1, ends + 1)
        data = np.frombuffer(bytes(4) + written + b"\1", np.uint8)
        maps = FlinkMaps(data, starts - 4, starts - 4, ends + 1, np.zeros(1, np.uint8), KryoCounts(), entries)
        with pytest.raises(RefusedValueError, match="a map with a null key") if refused else nullcontext():
            expect_keys(maps, section, map_)


def test_objects_are_made_in_whole_values_alone() -> None:
    _, state = next(maps_of("hint-map-1.20-rocksdb"))
    assert isinstance(state.value, KryoCollectionType)
    kryo = state.value.kryo
    objects = replace(kryo, class_name="java.util.UUID")
    of_list = KryoCollectionType.of(kryo, NullableType(ListType(NullableType(objects, 0)), 0))
    of_map = KryoCollectionType.of(kryo, NullableType(MapType(NullableType(Scalar.STRING, 0), objects), 0))
    expect_rewritable(replace(state, value=of_map))
    expect_rewritable(replace(state, value=of_list))
    for kind, value in ((StateKind.LIST, of_map), (StateKind.VALUE, ListType(of_map))):
        with pytest.raises(RefusedError, match="only where it is the whole value of a ValueState"):
            expect_rewritable(replace(state, kind=kind, value=value))
