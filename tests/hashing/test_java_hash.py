import math
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.serializers.types import (
    SCALA_EITHER,
    ArrayType,
    AvroArrayType,
    AvroFixedType,
    AvroRecordType,
    EitherType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TimerType,
    TraversableType,
    TtlType,
    TupleType,
)
from flinkstate.values.codecs import encode
from flinkstate.values.hash_codes import hash_code, key_group_of
from flinkstate.values.java_values import RowValue
from flinkstate.values.kryo_references import KryoObject
from tests.support.naive import OWN_NULL, present_values

TUPLE = "org.apache.flink.api.java.tuple.Tuple"


SCALARS = [scalar for scalar in Scalar if unstable_reason(scalar) is None and scalar is not Scalar.VOID]


def tuple_of(*fields: FlinkType) -> TupleType:
    return TupleType(fields, f"{TUPLE}{len(fields)}")


ARRAY_ELEMENTS = [
    *(Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG, Scalar.FLOAT, Scalar.DOUBLE, Scalar.BOOLEAN),
    *(Scalar.CHARACTER, Scalar.STRING),
]
ARRAYS = st.one_of(
    st.sampled_from(ARRAY_ELEMENTS).map(PrimitiveArrayType),
    st.sampled_from(
        [
            ArrayType(Scalar.LONG, "java.lang.Long"),
            ArrayType(ListType(Scalar.STRING), "java.util.List"),
            ArrayType(PrimitiveArrayType(Scalar.BYTE), "[B"),
        ]
    ),
)
TYPES = st.recursive(
    st.sampled_from([scalar for scalar in SCALARS if scalar is not Scalar.NULL_VALUE]),
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=4).map(lambda fields: tuple_of(*fields)),
        st.builds(RowType, st.lists(st.one_of(parts, ARRAYS), max_size=8).map(tuple), st.booleans()),
        # An element must have a byte at least; a row without fields and kind has none.
        st.builds(ListType, st.builds(NullableType, parts, st.integers(0, 3))),
        st.builds(ListType, st.sampled_from([Scalar.STRING, Scalar.LONG])),
        st.builds(SetType, parts),
        st.builds(MapType, parts, parts),
        st.builds(NullableType, parts, st.integers(0, 20)),
        st.builds(EitherType, parts, parts),
    ),
    max_leaves=6,
)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[FlinkType, list[Any]]:
    type_ = draw(TYPES)
    return type_, draw(st.lists(present_values(type_), min_size=1, max_size=6))


def column(parts: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The keys with other bytes before, between and after them."""
    data = b"\xff\xff"
    starts, ends = [], []
    for part in parts:
        starts.append(len(data))
        data += part
        ends.append(len(data))
        data += b"\xff"
    return np.frombuffer(data, dtype=np.uint8), np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def codes_of(type_: FlinkType, values: Iterable[Any]) -> list[int]:
    try:
        codes = hash_codes(type_, *column([encode(type_, value) for value in values]))
    except DamagedError as error:
        if "isn't null in an Either" in error.expected:
            reject()
        raise
    assert codes.dtype == np.int32
    return [int(code) for code in codes]


@pytest.mark.matrix(most=12)
@pytest.mark.part
@pytest.mark.parametrize("type_", SCALARS, ids=lambda scalar: scalar.name)
def test_scalars_hash_as_their_twin(type_: Scalar) -> None:
    @settings(max_examples=60)
    @given(st.lists(present_values(type_), min_size=1, max_size=8))
    def check(values: list[Any]) -> None:
        assert codes_of(type_, values) == [hash_code(type_, value) for value in values]

    check()


@given(typed_values())
def test_nested_types_hash_as_their_twin(typed: tuple[FlinkType, list[Any]]) -> None:
    type_, values = typed
    codes = codes_of(type_, values)
    assert codes == [hash_code(type_, value) for value in values]
    groups = assign_to_key_groups(np.array(codes, np.int32), 300).tolist()
    assert groups == [key_group_of(type_, value, 300) for value in values]


@pytest.mark.parametrize("type_", OWN_NULL, ids=lambda scalar: scalar.name)
def test_a_null_field_hashes_as_0(type_: Scalar) -> None:
    keys = tuple_of(type_, Scalar.INTEGER)
    assert codes_of(keys, [(None, 5), (None, -7)]) == [5, -7]


@pytest.mark.parametrize("type_", OWN_NULL, ids=lambda scalar: scalar.name)
def test_null_is_no_key(type_: Scalar) -> None:
    with pytest.raises(DamagedError, match="a null, which can't be a key"):
        codes_of(type_, [None])


@pytest.mark.parametrize(
    ("text", "key_group"),
    [("", 94), ("a", 81), ("hello", 35), ("Flink", 127), ("polygenelubricants", 108), ("日本", 95), ("😀", 54)],
)
def test_key_groups_of_checked_strings(text: str, key_group: int) -> None:
    codes = hash_codes(Scalar.STRING, *column([encode(Scalar.STRING, text)]))
    assert assign_to_key_groups(codes, 128).tolist() == [key_group]


def test_strings_of_any_length_hash_alike_wherever_they_stand() -> None:
    """Words are loaded that begin before a string, if there is room."""
    for before in range(20):
        for length in range(40):
            text = "".join(chr(ord("a") + place % 26) for place in range(length))
            parts = (b"x" * before, encode(Scalar.STRING, text), b"y" * 16)
            data = np.frombuffer(b"".join(parts), np.uint8).copy()
            found = hash_codes(Scalar.STRING, data, np.array([before]), np.array([before + len(parts[1])]))
            assert found.tolist() == [hash_code(Scalar.STRING, text)], (before, length)


def test_codes_that_java_prints() -> None:
    """Computed by a JVM: `hashCode()` of each value."""
    assert codes_of(Scalar.STRING, ["polygenelubricants"]) == [-(2**31)]
    assert codes_of(Scalar.BOOLEAN, [True, False]) == [1231, 1237]
    assert codes_of(Scalar.DOUBLE, [0.0, -0.0, 1.0, math.nan]) == [0, -(2**31), 1072693248, 2146959360]
    assert codes_of(Scalar.LONG, [-1, 1 << 32, 2**63 - 1]) == [0, 1, -(2**31)]


def test_arrays_in_rows_hash_by_content() -> None:
    """Computed by a JVM with Flink 1.20 and 2.3: `hashCode()` of each row; that of the byte -1 by hand."""
    rows = [
        (PrimitiveArrayType(Scalar.BYTE), b"\1\2", 1056),
        (PrimitiveArrayType(Scalar.BYTE), b"\xff", 92),
        (ArrayType(Scalar.LONG, "java.lang.Long"), [1, 2], 2017),
    ]
    for array_type, array, code in rows:
        type_, row = RowType((array_type,), True), RowValue((array,))
        assert codes_of(type_, [row]) == [hash_code(type_, row)] == [code]


@pytest.mark.parametrize("whole", [tuple_of, SetType, lambda array: EitherType(Scalar.LONG, array)])
def test_arrays_deeper_in_a_row_hash_by_identity(whole: Callable[[FlinkType], FlinkType]) -> None:
    """Java's own `hashCode` is called there."""
    row = RowType((whole(PrimitiveArrayType(Scalar.BYTE)),), True)
    assert "identity" in (unstable_reason(row) or "")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("java.util.ArrayList", (), 32),
        ("java.util.ArrayList", ("a", "b"), 5089),
        ("java.util.ArrayList", ("a",), 190),
        ("java.util.HashMap", (("a", 1),), 192),
    ],
)
def test_lists_and_maps_by_kryo_hash_deeply_in_a_row(name: str, value: Any, code: int) -> None:
    """Computed by a JVM with Flink 1.20 and 2.3."""

    def of_kryo(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(of_kryo, part))
        return KryoObject("java.lang.String" if isinstance(part, str) else "java.lang.Long", part)

    row = RowValue((KryoObject(name, of_kryo(value)),))
    assert hash_code(RowType((KryoType(name, "", five=True),), True), row) == code


def test_every_nan_is_the_same() -> None:
    doubles = [struct.pack(">Q", bits) for bits in (0x7FF8 << 48, 0x7FF0_0000_0000_0001, 0xFFF8 << 48, 2**64 - 1)]
    assert len(set(hash_codes(Scalar.DOUBLE, *column(doubles)).tolist())) == 1
    floats = [struct.pack(">I", bits) for bits in (0x7FC00000, 0x7F800001, 0xFFC00000, 2**32 - 1)]
    assert len(set(hash_codes(Scalar.FLOAT, *column(floats)).tolist())) == 1


def test_constants_of_big_integers() -> None:
    """Flink writes 0, 1 and 10 as a length alone."""
    parts = [struct.pack(">i", length) for length in (1, 2, 3)]
    assert hash_codes(Scalar.BIG_INTEGER, *column(parts)).tolist() == [0, 1, 10]
    scaled = [part + struct.pack(">i", 7) for part in parts]
    assert hash_codes(Scalar.BIG_DECIMAL, *column(scaled)).tolist() == [7, 38, 317]


@pytest.mark.slow
def test_more_keys_than_a_block() -> None:
    values = list(range(100_000))
    assert codes_of(tuple_of(Scalar.LONG, Scalar.STRING), [(value, str(value)) for value in values[::7]]) == [
        hash_code(tuple_of(Scalar.LONG, Scalar.STRING), (value, str(value))) for value in values[::7]
    ]


def test_no_keys() -> None:
    assert codes_of(Scalar.LONG, []) == []


@pytest.mark.parametrize(
    ("type_", "word"),
    [
        (EnumType("com.acme.Color", ("RED",)), "com.acme.Color"),
        (PrimitiveArrayType(Scalar.BYTE), "identity"),
        (ArrayType(Scalar.LONG, "java.lang.Long"), "identity"),
        (PojoType("com.acme.Point", ()), "com.acme.Point"),
        (OpaqueType("com.acme.Blob", "Kryo"), "com.acme.Blob"),
        (TupleType((Scalar.LONG,), "com.acme.MyTuple"), "com.acme.MyTuple"),
        (Scalar.VARIANT, "Variant"),
        (TupleType((Scalar.LONG, Scalar.LONG), "scala.Tuple2"), "scala.Tuple2"),
        (OptionType(Scalar.LONG), "Option<Long>"),
        (EitherType(Scalar.LONG, Scalar.LONG, SCALA_EITHER), "scala.util.Either"),
        (TraversableType(Scalar.LONG, ""), "Traversable<Long>"),
        (EnumType("com.acme.Suit$", ("HEARTS",), (3,)), "Suit"),
        (Scalar.UNIT, "Unit"),
        (Scalar.NOTHING, "Nothing"),
        (Scalar.AVRO_STRING, "string"),
        (AvroRecordType("com.acme.Order", ()), "Order"),
        (AvroFixedType("com.acme.Md5", 2), "Md5"),
        (AvroArrayType(Scalar.LONG), "array<Long>"),
        (TtlType(Scalar.LONG), "can't be a key"),
        (TimerType(Scalar.LONG, Scalar.VOID_NAMESPACE), "can't be a key"),
    ],
    ids=repr,
)
def test_unstable_hashes_are_refused_by_name(type_: FlinkType, word: str) -> None:
    nested = tuple_of(Scalar.LONG, ListType(NullableType(type_, 0)))
    for refused in (type_, nested):
        assert word in (unstable_reason(refused) or "")
        with pytest.raises(RefusedError, match=word):
            hash_codes(refused, np.zeros(1, np.uint8), np.zeros(1, np.int64), np.ones(1, np.int64))


@given(TYPES)
def test_types_that_hash_by_content_are_stable(type_: FlinkType) -> None:
    assert unstable_reason(type_) is None


@given(typed_values(), st.data())
def test_truncated_or_extended_keys_are_damaged(typed: tuple[FlinkType, list[Any]], data: st.DataObject) -> None:
    type_, values = typed
    parts = [encode(type_, value) for value in values]
    damaged = data.draw(st.integers(0, len(parts) - 1))
    with pytest.raises(DamagedError):
        hash_codes(type_, *column([*parts[:damaged], parts[damaged] + b"\x00", *parts[damaged + 1 :]]))
    if parts[damaged]:
        cut = data.draw(st.integers(0, len(parts[damaged]) - 1))
        with pytest.raises(DamagedError):
            hash_codes(type_, *column([*parts[:damaged], parts[damaged][:cut], *parts[damaged + 1 :]]))


@given(typed_values(), st.data())
def test_flipped_bits_never_lead_outside_the_key(typed: tuple[FlinkType, list[Any]], data: st.DataObject) -> None:
    """Whatever the bytes are: a hash for each key, or damage that lies inside the column."""
    type_, values = typed
    bytes_, starts, ends = column([encode(type_, value) for value in values])
    flipped = bytes_.copy()
    for position in data.draw(st.lists(st.integers(0, len(bytes_) - 1), max_size=4)):
        flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    offset: int | None = 0
    try:
        assert len(hash_codes(type_, flipped, starts, ends)) == len(values)
    except DamagedError as damage:
        offset = damage.offset
    assert offset is not None
    assert 0 <= offset <= len(bytes_)


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        (Scalar.BOOLEAN, b"\x02", "0 or 1"),
        (Scalar.STRING, b"\x02\xff\xff\x04", "a String"),
        (Scalar.STRING, b"\xff\xff\xff\xff\xff\x01", "a String"),
        (Scalar.STRING, b"\xff\xff\xff\xff\x07", "a String"),
        (Scalar.BIG_INTEGER, b"\x7f\xff\xff\xff", "a BigInteger"),
        (Scalar.BIG_INTEGER, b"\x00\x00\x00\x04", "a BigInteger"),
        (Scalar.BIG_INTEGER, b"\xff\xff\xff\xff", "a BigInteger"),
        (Scalar.LOCAL_DATE, struct.pack(">ibb", 2023, 2, 29), "a year, month and day"),
        (Scalar.LOCAL_DATE, struct.pack(">ibb", 2023, 13, 1), "a year, month and day"),
        (Scalar.LOCAL_TIME, struct.pack(">bbbi", 24, 0, 0, 0), "an hour, minute and second"),
        (Scalar.LOCAL_TIME, struct.pack(">bbbi", 23, 0, 0, 10**9), "nanoseconds"),
        (Scalar.LOCAL_DATE_TIME, encode(Scalar.LOCAL_DATE, None) + bytes(7), "both null or neither"),
        (Scalar.INSTANT, struct.pack(">qi", 2**62, 0), "the years"),
        (Scalar.SQL_TIMESTAMP, struct.pack(">qi", 0, -1), "nanoseconds"),
        (ListType(Scalar.LONG), b"\x7f\xff\xff\xff", "the size of a list"),
        (ListType(Scalar.LONG), b"\xff\xff\xff\xff", "the size of a list"),
        (SetType(Scalar.LONG), b"\x00\x00\x00\x01\x02", "the null flag"),
        (RowType((Scalar.BYTE,), True), b"\x10\x00", "the mask of a row"),
        (EitherType(Scalar.STRING, Scalar.LONG), b"\x01\x00", "isn't null in an Either"),
        (NullableType(Scalar.LONG, 8), b"\x01\x00", "the padding"),
    ],
)
def test_bytes_that_contradict_the_type_are_named(type_: FlinkType, data: bytes, expected: str) -> None:
    with pytest.raises(DamagedError, match=expected):
        hash_codes(type_, *column([data]))


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (2, 1), (0, 9)])
def test_keys_outside_the_data_are_damaged(start: int, end: int) -> None:
    with pytest.raises(DamagedError, match=f"from {start} to {end}"):
        hash_codes(Scalar.BYTE, np.zeros(8, np.uint8), np.array([start]), np.array([end]))


def test_damage_is_placed() -> None:
    with pytest.raises(DamagedError) as damage:
        hash_codes(tuple_of(Scalar.INTEGER, Scalar.STRING), *column([bytes(4) + b"\x01", bytes(4) + b"\x05ab"]))
    assert damage.value.offset == 2 + 5 + 1 + 4
    assert "05 61 62" in str(damage.value)
