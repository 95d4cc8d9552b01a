"""Maps by Kryo 2 as nullable maps: both ways to them write the same bytes of the maps that both can write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoType,
    ListType,
    NullableType,
    OpaqueType,
    Scalar,
    TupleType,
)
from flinkstate.values.codecs import encode
from stateferry.changes.upgrade.for_other_kryo import expect_values, for_other_kryo
from stateferry.changes.upgrade.nullable_maps import nullable_maps
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
def test_both_ways_write_the_same(golden: str, stamp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for section, state in maps_of(golden):
        assert state.stored_value is not None
        for one in (section, with_null(section, stamp)):
            expected, heads = for_other_kryo(one, state), one.value_starts - one.starts
            kept = np.zeros(len(one), np.bool_)
            with monkeypatch.context() as patch:
                patch.setattr("stateferry.changes.upgrade.nullable_maps.has_objects", lambda _: True)
                found = nullable_maps(
                    state.stored_value, one.data, one.value_starts, one.ends, heads, kept, of_lists=False
                )
            assert np.array_equal(found.ends, expected.ends)
            for start, value, end in zip(expected.starts, expected.value_starts, expected.ends, strict=True):
                # The lengths of values are put where they are.
                assert np.array_equal(found.data[start : value - 4], expected.data[start : value - 4])
                assert np.array_equal(found.data[value:end], expected.data[value:end])
            seen += len(one)
    assert seen > 20


OBJECTS = KryoType("java.lang.Object", five=False)
LIST = KryoCollectionType.of(
    KryoType("java.util.List", five=False), NullableType(ListType(NullableType(OBJECTS, 0)), 0)
)
FIVE = encode(Scalar.LONG, 5)
# A singleton list is the same by either Kryo, but what it becomes is by Kryo 2: the list with a Long in it, and null.
ONE, NULL = b"\1\0java.util.Collections$SingletonLis" + bytes([ord("t") | 0x80]) + b"\1\x09\x0a", b"\0"
MADE, MADE_NULL = b"\0" + b"\0\0\0\1" + b"\0\x09\x0a", b"\1"


def made_of(type_: FlinkType, *values: bytes, kept: tuple[bool, ...] = (), of_lists: bool = False) -> list[bytes]:
    """What becomes of values, each behind a head of three bytes."""
    data = np.frombuffer(b"".join(b"abc" + value for value in values) + bytes(64), np.uint8).copy()
    ends = np.cumsum([3 + len(value) for value in values])
    starts = np.append(0, ends[:-1]) + 3
    flags = np.array(kept or [False] * len(values), np.bool_)
    made = nullable_maps(type_, data, starts, ends, np.full(len(values), 3), flags, of_lists=of_lists)
    found = [made.data[start:end].tobytes() for start, end in zip([0, *made.ends[:-1]], made.ends, strict=True)]
    assert all(one.startswith(b"abc") for one in found)
    return [one[3:] for one in found]


def test_each_part_is_put_in_its_place() -> None:
    assert made_of(LIST, ONE, NULL) == [MADE, MADE_NULL]
    # Beside other parts, by Kryo too, in any number; some values stay.
    pair = TupleType((LIST, Scalar.LONG, OBJECTS, LIST), "a pair")
    values = [ONE + FIVE + NULL + NULL, b"any bytes", NULL + FIVE + b"\x09\x0a" + ONE]
    assert made_of(pair, *values, kept=(False, True, False)) == [
        MADE + FIVE + NULL + MADE_NULL, b"any bytes", MADE_NULL + FIVE + b"\x09\x0a" + MADE,
    ]  # fmt: skip
    assert made_of(pair, b"x", b"", kept=(True, True)) == [b"x", b""]
    lists = made_of(ListType(LIST), bytes(4), b"\0\0\0\3" + ONE + NULL + ONE)
    assert lists == [bytes(4), b"\0\0\0\3" + MADE + MADE_NULL + MADE]
    assert made_of(LIST, ONE + b"," + NULL, NULL, of_lists=True) == [MADE + b"," + MADE_NULL, MADE_NULL]


@pytest.mark.parametrize(
    ("value", "place"),
    [(ONE + FIVE + NULL + ONE + b"\0", 92), (ONE[:-1], 42), (ONE + FIVE[:-1], 43), (b"\x7f" + FIVE + NULL + NULL, 3)],
)
def test_damage_has_its_place(value: bytes, place: int) -> None:
    pair = TupleType((LIST, Scalar.LONG, OBJECTS, LIST), "a pair")
    with pytest.raises(DamagedError) as caught:
        made_of(pair, value)
    assert caught.value.offset == place


def class_named(name: str, number: int) -> bytes:
    return bytes((1, number)) + name[:-1].encode() + bytes([ord(name[-1]) | 0x80])


def list_of(*elements: bytes) -> bytes:
    return class_named("java.util.ArrayList", 0) + bytes((1, len(elements))) + b"".join(elements)


# A short array with more behind it is refused only when the made list, with a flag for each element, becomes Kryo 5's.
NUMBER = b"\x02\x02"
GOOD, BAD = list_of(*[NUMBER] * 100), list_of(*[NUMBER] * 60, class_named("[S", 1) + b"\1\2\0\1", NUMBER)


def with_values(section: Section, values: list[bytes]) -> Section:
    keys = [section.data[a:b].tobytes() for a, b in zip(section.starts, section.key_ends, strict=True)]
    data = bytes(5) + b"".join(
        key + len(value).to_bytes(4, "big") + value for key, value in zip(keys, values, strict=True)
    )
    key_sizes, sizes = section.key_ends - section.starts, np.array([4 + len(value) for value in values])
    ends = 5 + np.cumsum(key_sizes + sizes)
    key_ends = ends - sizes
    raw = np.frombuffer(data + bytes(64), np.uint8).copy()
    return replace(section, data=raw, starts=key_ends - key_sizes, key_ends=key_ends, ends=ends)


def test_a_refusal_in_what_was_made_names_the_key_of_its_value() -> None:
    seen = 0
    for found, state in maps_of("hint-map-1.20-rocksdb"):
        for row in range(len(found)):
            section = with_values(found, [BAD if one == row else GOOD for one in range(len(found))])
            with pytest.raises(RefusedError, match="that ends with a short") as caught:
                for_other_kryo(section, replace(state, value=LIST))
            named = f"state mainState, key {section.key_text(row)}: an object that ends"
            place = section.file.locate(
                DamagedError("", "", offset=int(section.value_starts[row])), section.extent, section.base
            )
            assert str(caught.value).startswith(named)
            assert str(caught.value).endswith(f"offset {place.offset}{place.found})")
            seen += len(found) > 1
    assert seen > 4


def test_many_parts_in_one_value_are_found() -> None:
    count = 20_000
    (found,) = made_of(ListType(LIST), count.to_bytes(4, "big") + ONE * count)
    assert found == count.to_bytes(4, "big") + MADE * count


def test_what_cannot_become_a_nullable_list_is_refused() -> None:
    colors = replace(LIST, made=NullableType(ListType(NullableType(EnumType("com.acme.Color", ("A",)), 0)), 0))
    with pytest.raises(RefusedError, match="no class becomes Color"):
        expect_values(colors)
    back = replace(colors, kryo=replace(LIST.kryo, five=True, for_five=False))
    for type_ in (back, TupleType((Scalar.LONG, back), "a pair")):
        with pytest.raises(RefusedError, match=r"how Kryo 2 writes com\.acme\.Color is not known"):
            expect_values(type_)


def test_a_collection_beside_a_value_of_an_unknown_serializer_is_refused_by_the_plan() -> None:
    """Also where nothing is by Kryo once the collection is made, so that nothing else would be written anew."""
    unknown = OpaqueType("com.acme.OwnSerializer", "a serializer that is not one of Flink's own")
    refused = r"values of com\.acme\.OwnSerializer can't be rewritten"
    longs = NullableType(ListType(NullableType(ArrayType(Scalar.LONG, "java.lang.Long"), 0)), 0)
    for inside in (LIST, replace(LIST, made=longs)):
        for type_ in (TupleType((inside, unknown), "a pair"), ListType(TupleType((inside, unknown), "a pair"))):
            with pytest.raises(RefusedError, match=refused):
                expect_values(type_)
        with pytest.raises(RefusedError, match=refused):
            expect_values(TupleType((inside, unknown), "a pair"), of_lists=True)
    expect_values(replace(LIST, made=longs))
    expect_values(TupleType((replace(LIST, made=longs), Scalar.LONG), "a pair"))
