"""Walks over values of any type, beside the plain decoding of one value after another."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.serializers import walker
from flinkstate.serializers.programs import least_size
from flinkstate.serializers.types import (
    JOINED_ELEMENT,
    ArrayType,
    AvroArrayType,
    AvroBranch,
    AvroMapType,
    AvroUnionType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    OpaqueType,
    OptionType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    SetType,
    TraversableType,
    TupleType,
)
from flinkstate.values.codecs import decode, encode
from tests.support import naive

GAP = b"\xee" * 3


@pytest.mark.parametrize("type_", [ArrayType(Scalar.LONG, "java.lang.Long"), SetType(Scalar.LONG)])
@pytest.mark.parametrize("elements", [[None], [None, None], [1, None, None], [None, 2]])
def test_null_elements_have_no_bytes_but_their_flag(type_: ArrayType | SetType, elements: list[Any]) -> None:
    data, starts, limits = column(encode(type_, elements))
    assert walker.skip_each(type_, data, starts, limits).tolist() == limits.tolist()
    found = walker.walk_elements(type_, data, starts, limits)
    assert found.counts.tolist() == [len(elements)]
    assert found.present is not None
    assert found.present.tolist() == [element is not None for element in elements]
    assert found.stops.tolist() == limits.tolist()


def test_null_elements_of_nested_arrays_are_walked_over() -> None:
    nested = ListType(ArrayType(Scalar.STRING, "java.lang.String"))
    data, starts, limits = column(encode(nested, [[None, "a"], [], [None]]))
    assert walker.skip_each(nested, data, starts, limits).tolist() == limits.tolist()


def column(*parts: bytes) -> tuple[walker.Bytes, walker.Positions, walker.Positions]:
    """Values with other bytes between them."""
    data, starts, limits = bytearray(GAP), [], []
    for part in parts:
        starts.append(len(data))
        data += part
        limits.append(len(data))
        data += GAP
    return np.frombuffer(data, np.uint8).copy(), np.array(starts, np.int64), np.array(limits, np.int64)


@st.composite
def encoded(draw: st.DrawFn, types: st.SearchStrategy[FlinkType]) -> tuple[FlinkType, list[bytes]]:
    type_ = draw(types)
    return type_, [encode(type_, draw(naive.values_of(type_))) for _ in range(draw(st.integers(0, 4)))]


def slices(data: walker.Bytes, starts: walker.Positions, ends: walker.Positions) -> list[bytes]:
    return [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]


@given(encoded(naive.flink_types()), st.booleans())
def test_each_value_ends_where_decoding_it_does(drawn: tuple[FlinkType, list[bytes]], open_end: bool) -> None:
    type_, parts = drawn
    data, starts, limits = column(*parts)
    if open_end:
        limits[:] = len(data)
    plain = [
        decode(type_, data.tobytes(), int(start), int(limit))[1] for start, limit in zip(starts, limits, strict=True)
    ]
    assert walker.skip_each(type_, data, starts, limits).tolist() == plain
    assert plain == [int(start) + len(part) for start, part in zip(starts, parts, strict=True)]


@given(encoded(naive.flink_types()), st.data())
def test_changed_bytes_end_where_decoding_says_or_are_damage(
    drawn: tuple[FlinkType, list[bytes]], choice: st.DataObject
) -> None:
    type_, parts = drawn
    for part in parts:
        changed = bytearray(part)
        for _ in range(choice.draw(st.integers(0, 2))):
            if changed:
                changed[choice.draw(st.integers(0, len(changed) - 1))] = choice.draw(st.integers(0, 255))
        cut = bytes(changed[: choice.draw(st.integers(0, len(changed)))])
        data, starts, limits = column(cut)
        walked, plain = None, None
        with contextlib.suppress(StateferryError):
            (walked,) = walker.skip_each(type_, data, starts, limits)
        with contextlib.suppress(StateferryError):
            _, plain = decode(type_, data.tobytes(), int(starts[0]), int(limits[0]))
        # A walk looks at no more than it needs to find the end: what decodes ends there.
        assert plain is None or walked == plain
        assert walked is None or starts[0] <= walked <= limits[0]


@given(encoded(st.builds(MapType, naive.flink_types(max_leaves=3), naive.flink_types(max_leaves=3))))
def test_entries_of_maps(drawn: tuple[FlinkType, list[bytes]]) -> None:
    type_, blobs = drawn
    assert isinstance(type_, MapType)
    data, starts, limits = column(*blobs)
    found = walker.walk_entries(type_, data, starts, limits)
    plain = [naive.map_entries(type_, blob) for blob in blobs]
    assert found.counts.tolist() == list(map(len, plain))
    assert found.stops.tolist() == limits.tolist()
    wanted = [entry for entries in plain for entry in entries]
    assert slices(data, found.starts, found.key_ends) == [key for key, _ in wanted]
    values = slices(data, found.key_ends, found.ends)
    assert values == [b"\1" if value is None else b"\0" + value for _, value in wanted]


@given(encoded(st.builds(ListType, naive.flink_types(max_leaves=3))))
def test_elements_of_lists(drawn: tuple[FlinkType, list[bytes]]) -> None:
    type_, blobs = drawn
    assert isinstance(type_, ListType)
    data, starts, limits = column(*blobs)
    found = walker.walk_elements(type_, data, starts, limits)
    plain = [naive.list_elements(type_.element, blob) for blob in blobs]
    assert found.counts.tolist() == list(map(len, plain))
    assert found.stops.tolist() == limits.tolist()
    assert found.present is None
    wanted = [element for elements in plain for element in elements]
    for start, element in zip(found.starts.tolist(), wanted, strict=True):
        assert data[start : start + len(element)].tobytes() == element


@given(naive.flink_types(max_leaves=3), st.data())
def test_elements_of_list_states(element: FlinkType, choice: st.DataObject) -> None:
    lists = [
        [encode(element, choice.draw(naive.values_of(element))) for _ in range(choice.draw(st.integers(1, 4)))]
        for _ in range(choice.draw(st.integers(0, 3)))
    ]
    data, starts, limits = column(*(b",".join(parts) for parts in lists))
    if any(not part for parts in lists for part in parts):
        return
    found = walker.walk_list_state(element, data, starts, limits)
    assert found.counts.tolist() == list(map(len, lists))
    assert found.stops.tolist() == limits.tolist()
    for start, part in zip(found.starts.tolist(), [part for parts in lists for part in parts], strict=True):
        assert data[start : start + len(part)].tobytes() == part


def suffix(part: bytes) -> bytes:
    length = len(part)
    return part + length.to_bytes(max((length.bit_length() + 7) // 8, 1), "little")


KEYS = st.sampled_from(
    (Scalar.STRING, Scalar.LONG, ListType(Scalar.STRING), TupleType((Scalar.STRING, Scalar.INTEGER), "T"))
)


@given(KEYS, KEYS, st.booleans(), st.binary(max_size=4), st.data())
def test_keys_and_namespaces_with_suffixes(
    key: FlinkType, namespace: FlinkType, suffixes: bool, rest: bytes, choice: st.DataObject
) -> None:
    pairs = [
        tuple(encode(type_, choice.draw(naive.present_values(type_))) for type_ in (key, namespace))
        for _ in range(choice.draw(st.integers(0, 3)))
    ]
    ended = suffix if suffixes else bytes
    data, starts, limits = column(*(ended(first) + ended(second) + rest for first, second in pairs))
    found = walker.split_keys(key, namespace, suffixes, data, starts, limits)
    assert slices(data, starts, found.key_ends) == [first for first, _ in pairs]
    assert slices(data, found.namespace_starts, found.namespace_ends) == [second for _, second in pairs]
    assert slices(data, found.rests, limits) == [rest] * len(pairs)


@pytest.mark.parametrize("length", [0, 1, 126, 254, 255, 256, 65_534, 65_535, 70_000])
def test_long_keys_have_long_suffixes(length: int) -> None:
    key = encode(Scalar.STRING, "k" * length)
    data, starts, limits = column(suffix(key) + suffix(encode(Scalar.STRING, "n")))
    found = walker.split_keys(Scalar.STRING, Scalar.STRING, True, data, starts, limits)
    assert slices(data, starts, found.key_ends) == [key]
    data[found.key_ends[0]] ^= 1
    with pytest.raises(DamagedError, match=f"the length {len(key)} behind a key or namespace") as caught:
        walker.split_keys(Scalar.STRING, Scalar.STRING, True, data, starts, limits)
    assert caught.value.offset == found.key_ends[0]


@given(st.lists(st.tuples(st.sampled_from(("", "a", "ab", "é", "a longer key")), st.binary(max_size=12)), max_size=30))
def test_runs_of_equal_keys_are_walked_once(rows: list[tuple[str, bytes]]) -> None:
    keys = [encode(Scalar.STRING, key) for key, _ in rows]
    data, starts, limits = column(*(key + rest for key, (_, rest) in zip(keys, rows, strict=True)))
    found_starts, found_ends = walker.skip_runs(Scalar.STRING, data, starts, limits)
    wanted = [index for index, key in enumerate(keys) if index == 0 or keys[index - 1] != key]
    assert found_starts.tolist() == starts[wanted].tolist()
    assert slices(data, found_starts, found_ends) == [keys[index] for index in wanted]


def test_damage_in_a_run_is_named() -> None:
    key = encode(Scalar.STRING, "key")
    data, starts, limits = column(key, key, key[:-1])
    with pytest.raises(DamagedError) as caught:
        walker.skip_runs(Scalar.STRING, data, starts, limits)
    assert starts[2] <= (caught.value.offset or 0) <= limits[2]


SUIT = EnumType("com.acme.Suit$", ("HEARTS", "SPADES", "CLUBS"), (3, -2, 11))
NULL_OR_LONG = AvroUnionType((AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("long", Scalar.LONG)))


@pytest.mark.parametrize("number", [-2, 3, 11])
def test_numbers_of_an_enumeration_have_gaps(number: int) -> None:
    data, starts, limits = column(number.to_bytes(4, "big", signed=True))
    assert walker.skip_each(SUIT, data, starts, limits).tolist() == limits.tolist()


def avro_blocks(*blocks: list[bytes]) -> bytes:
    return b"".join(bytes([len(block)]) + b"".join(block) for block in (*blocks, []))


def test_elements_of_avros_arrays_and_maps_in_blocks() -> None:
    array, ones = AvroArrayType(Scalar.AVRO_STRING), [encode(Scalar.AVRO_STRING, text) for text in ("a", "", "é")]
    data, starts, limits = column(avro_blocks(ones[:2], ones[2:]), avro_blocks(), avro_blocks(ones))
    found = walker.walk_blocks(array, data, starts, limits)
    assert (found.counts.tolist(), found.stops.tolist()) == ([3, 0, 3], limits.tolist())
    ends = walker.skip_each(Scalar.AVRO_STRING, data, found.starts, np.repeat(limits, found.counts))
    assert slices(data, found.starts, ends) == ones * 2
    entries = [key + encode(NULL_OR_LONG, value) for key, value in zip(ones, (5, None, 7), strict=True)]
    data, starts, limits = column(avro_blocks(entries), avro_blocks(entries[:1], entries[1:]))
    found = walker.walk_blocks(AvroMapType(NULL_OR_LONG), data, starts, limits)
    assert found.counts.tolist() == [3, 3]
    assert slices(data, found.starts, found.values) == ones * 2


AVRO_COLLECTIONS = st.one_of(
    st.builds(AvroMapType, naive.avro_types()),
    st.builds(AvroArrayType, naive.avro_types().filter(lambda type_: least_size(type_) > 0)),
)


@given(encoded(AVRO_COLLECTIONS), st.booleans())
def test_items_of_avros_arrays_and_maps(drawn: tuple[FlinkType, list[bytes]], open_end: bool) -> None:
    type_, parts = drawn
    assert isinstance(type_, AvroArrayType | AvroMapType)
    data, starts, limits = column(*parts)
    stops = limits.copy()
    if open_end:
        limits[:] = len(data)
    found = walker.walk_blocks(type_, data, starts, limits)
    plain = [naive.avro_items(type_, part) for part in parts]
    assert found.counts.tolist() == list(map(len, plain))
    assert found.stops.tolist() == stops.tolist()
    wanted = [item for items in plain for item in items]
    assert slices(data, found.starts, found.values) == [key for key, _ in wanted]
    for start, (_, value) in zip(found.values.tolist(), wanted, strict=True):
        assert data[start : start + len(value)].tobytes() == value


POJO = PojoType("P", (PojoField("f", Scalar.LONG),), (), ())


@pytest.mark.parametrize(
    ("type_", "raw", "expected"),
    [
        (Scalar.LONG, "00000000000000", "8 bytes of Long"),
        (Scalar.BOOLEAN, "02", "a flag 0 or 1"),
        (Scalar.STRING, "0561", "bytes of String"),
        (Scalar.STRING, "02ffff7f", "a character of at most 16 bits"),
        (Scalar.STRING, "ffffffff7f", "bytes of String|a length that fits|a character"),
        (ListType(Scalar.LONG), "7fffffff", "a number of elements that fits"),
        (ListType(Scalar.LONG), "ffffffff", "a number of elements that fits"),
        (MapType(Scalar.STRING, Scalar.LONG), "000000010161", "a flag 0 or 1|bytes of"),
        (PrimitiveArrayType(Scalar.INTEGER), "0000000200000000", "a number of elements that fits"),
        (POJO, "03", "a POJO flag 1, 2, 4 or 8"),
        (POJO, "0800", "the tag of a registered subclass"),
        (OptionType(Scalar.LONG), "02", "a flag 0 or 1"),
        (OptionType(Scalar.NOTHING), "0100", "no value, because Option<Nothing> has the type Nothing"),
        (EitherType(Scalar.LONG, Scalar.LONG, JOINED_ELEMENT), "00", "the number of a union's branch in TaggedUnion"),
        (TraversableType(Scalar.LONG, ""), "7fffffff", "a number of elements that fits"),
        (SUIT, "00000004", "the number of an enumeration's constant in Suit, found 4"),
        (SUIT, "000000", "4 bytes of Suit"),
        (EnumType("com.acme.None$", (), ()), "00000000", "the number of an enumeration's constant"),
        (AvroArrayType(Scalar.LONG), "01", "a number of elements that fits"),
        (AvroArrayType(Scalar.LONG), "8080", "3 bytes of"),
        (AvroArrayType(Scalar.LONG), "ffffffffff00", "a number of elements that fits"),
        (AvroArrayType(Scalar.AVRO_NULL), "ffffffff7f00", "a number of elements that fits"),
        (AvroArrayType(Scalar.BYTE), "0105", "bytes of array<Byte>"),
        (AvroMapType(Scalar.LONG), "01000000016100", "a number of elements that fits"),
        (Scalar.AVRO_STRING, "00000005", "a number of elements that fits"),
        (AvroUnionType(()), "00000000", "the number of a union's branch in union<>, found 0"),
        (NULL_OR_LONG, "ffffffff", "the number of a union's branch in union<null,Long>, found -1"),
        (NULL_OR_LONG, "0000000100", "8 bytes of"),
    ],
)
def test_damage_is_said_in_words(type_: FlinkType, raw: str, expected: str) -> None:
    data, starts, limits = column(bytes.fromhex(raw))
    with pytest.raises(DamagedError, match=expected):
        walker.skip_each(type_, data, starts, limits)


def test_what_has_no_end_or_no_description_is_refused_by_name() -> None:
    opaque = OpaqueType("com.acme.Reading", "serialized by Kryo")
    with pytest.raises(RefusedError, match=r"com\.acme\.Reading is serialized by Kryo"):
        walker.skip_each(opaque, *column(b"anything"))
    with pytest.raises(RefusedError, match="of the subclass other, which the savepoint doesn't describe"):
        walker.skip_each(POJO, *column(b"\x04\x00\x05other"))
