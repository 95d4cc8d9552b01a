import math
import struct
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
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
from tests.support.naive_java_hash import NULLS, Value, hash_code, value_bytes

TUPLE = "org.apache.flink.api.java.tuple.Tuple"


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


CHARACTERS = st.characters(exclude_categories=()) | st.sampled_from("\0a\x7f\x80\u07ff\u3fff\u4000\ud800\udfff\uffff😀")
TEXTS = st.text(CHARACTERS, max_size=40)
NANOS = st.integers(0, 999_999_999)
SECONDS = st.integers(-31_557_014_167_219_200, 31_556_889_864_403_199)
MILLISECONDS = st.integers(-(2**63) + 1, 2**63 - 1)
BIG_INTEGERS = integers(64) | integers(512) | st.sampled_from([0, 1, 10, -1, -256, 255, 256, -(2**31), 2**32, -(2**96)])
LOCAL_DATES = st.dates().map(lambda date: (date.year, date.month, date.day)) | st.tuples(
    st.integers(-999_999_999, 999_999_999), st.integers(1, 12), st.integers(1, 28)
)
LOCAL_TIMES = st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), NANOS)
DOUBLES = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0])

SCALAR_VALUES: dict[Scalar, st.SearchStrategy[Value]] = {
    Scalar.BOOLEAN: st.booleans(),
    Scalar.BYTE: integers(8),
    Scalar.SHORT: integers(16),
    Scalar.INTEGER: integers(32),
    Scalar.LONG: integers(64),
    Scalar.FLOAT: st.floats(width=32),
    Scalar.DOUBLE: DOUBLES,
    Scalar.CHARACTER: st.integers(0, 0xFFFF),
    Scalar.STRING: TEXTS,
    Scalar.BIG_INTEGER: BIG_INTEGERS,
    Scalar.BIG_DECIMAL: st.tuples(BIG_INTEGERS, integers(32)),
    Scalar.DATE: MILLISECONDS,
    Scalar.SQL_DATE: MILLISECONDS,
    Scalar.SQL_TIME: MILLISECONDS,
    Scalar.SQL_TIMESTAMP: st.tuples(st.integers(-(2**62), 2**62), NANOS),
    Scalar.INSTANT: st.tuples(SECONDS, NANOS),
    Scalar.LOCAL_DATE: LOCAL_DATES,
    Scalar.LOCAL_TIME: LOCAL_TIMES,
    Scalar.LOCAL_DATE_TIME: st.tuples(LOCAL_DATES, LOCAL_TIMES),
    Scalar.TUPLE0: st.just(()),
    Scalar.BOOLEAN_VALUE: st.booleans(),
    Scalar.BYTE_VALUE: integers(8),
    Scalar.SHORT_VALUE: integers(16),
    Scalar.INT_VALUE: integers(32),
    Scalar.LONG_VALUE: integers(64),
    Scalar.FLOAT_VALUE: st.floats(width=32),
    Scalar.DOUBLE_VALUE: DOUBLES,
    Scalar.CHAR_VALUE: st.integers(0, 0xFFFF),
    Scalar.STRING_VALUE: TEXTS,
    Scalar.NULL_VALUE: st.just(()),
}


def tuple_of(*fields: FlinkType) -> TupleType:
    return TupleType(fields, f"{TUPLE}{len(fields)}")


TYPES = st.recursive(
    st.sampled_from([scalar for scalar in SCALAR_VALUES if scalar is not Scalar.NULL_VALUE]),
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=4).map(lambda fields: tuple_of(*fields)),
        st.builds(RowType, st.lists(parts, max_size=8).map(tuple), st.booleans()),
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


def values_of(type_: FlinkType, *, nullable: bool) -> st.SearchStrategy[Value]:
    values: st.SearchStrategy[Value]
    match type_:
        case Scalar():
            values = SCALAR_VALUES[type_]
        case NullableType(value):
            values = values_of(value, nullable=False)
        case TupleType(fields):
            values = st.tuples(*[values_of(field, nullable=True) for field in fields])
        case RowType(fields, has_kind):
            parts = [st.none() | values_of(field, nullable=False) for field in fields]
            values = st.tuples(st.integers(0, 3) if has_kind else st.just(0), st.tuples(*parts))
        case ListType(element):
            values = st.lists(values_of(element, nullable=True), max_size=4)
        case SetType(element):
            values = st.lists(st.none() | values_of(element, nullable=False), max_size=4)
        case MapType(key, value):
            pairs = st.tuples(values_of(key, nullable=False), st.none() | values_of(value, nullable=False))
            values = st.lists(pairs, max_size=4)
        case EitherType(left, right):
            values = st.tuples(st.just(True), values_of(left, nullable=False)) | st.tuples(
                st.just(False), values_of(right, nullable=False)
            )
        case _:
            raise AssertionError(type_)
    return values | st.none() if nullable and (type_ in NULLS or isinstance(type_, NullableType)) else values


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[FlinkType, list[Value]]:
    type_ = draw(TYPES)
    return type_, draw(st.lists(values_of(type_, nullable=False), min_size=1, max_size=6))


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


def codes_of(type_: FlinkType, values: Iterable[Value]) -> list[int]:
    codes = hash_codes(type_, *column([value_bytes(type_, value) for value in values]))
    assert codes.dtype == np.int32
    return [int(code) for code in codes]


@pytest.mark.part
@pytest.mark.parametrize("type_", SCALAR_VALUES, ids=lambda scalar: scalar.name)
def test_scalars_hash_as_their_twin(type_: Scalar) -> None:
    @settings(max_examples=60)
    @given(st.lists(values_of(type_, nullable=False), min_size=1, max_size=8))
    def check(values: list[Value]) -> None:
        assert codes_of(type_, values) == [hash_code(type_, value) for value in values]

    check()


@given(typed_values())
def test_nested_types_hash_as_their_twin(typed: tuple[FlinkType, list[Value]]) -> None:
    type_, values = typed
    assert codes_of(type_, values) == [hash_code(type_, value) for value in values]


@pytest.mark.parametrize("type_", NULLS, ids=lambda scalar: scalar.name)
def test_a_null_field_hashes_as_0(type_: Scalar) -> None:
    keys = tuple_of(type_, Scalar.INTEGER)
    assert codes_of(keys, [(None, 5), (None, -7)]) == [5, -7]


@pytest.mark.parametrize("type_", NULLS, ids=lambda scalar: scalar.name)
def test_null_is_no_key(type_: Scalar) -> None:
    with pytest.raises(DamagedError, match="a null, which can't be a key"):
        codes_of(type_, [None])


@pytest.mark.parametrize(
    ("text", "key_group"),
    [("", 94), ("a", 81), ("hello", 35), ("Flink", 127), ("polygenelubricants", 108), ("日本", 95), ("😀", 54)],
)
def test_key_groups_of_checked_strings(text: str, key_group: int) -> None:
    codes = hash_codes(Scalar.STRING, *column([value_bytes(Scalar.STRING, text)]))
    assert assign_to_key_groups(codes, 128).tolist() == [key_group]


def test_codes_that_java_prints() -> None:
    """Computed by a JVM: `hashCode()` of each value."""
    assert codes_of(Scalar.STRING, ["polygenelubricants"]) == [-(2**31)]
    assert codes_of(Scalar.BOOLEAN, [True, False]) == [1231, 1237]
    assert codes_of(Scalar.DOUBLE, [0.0, -0.0, 1.0, math.nan]) == [0, -(2**31), 1072693248, 2146959360]
    assert codes_of(Scalar.LONG, [-1, 1 << 32, 2**63 - 1]) == [0, 1, -(2**31)]


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
def test_truncated_or_extended_keys_are_damaged(typed: tuple[FlinkType, list[Value]], data: st.DataObject) -> None:
    type_, values = typed
    parts = [value_bytes(type_, value) for value in values]
    damaged = data.draw(st.integers(0, len(parts) - 1))
    with pytest.raises(DamagedError):
        hash_codes(type_, *column([*parts[:damaged], parts[damaged] + b"\x00", *parts[damaged + 1 :]]))
    if parts[damaged]:
        cut = data.draw(st.integers(0, len(parts[damaged]) - 1))
        with pytest.raises(DamagedError):
            hash_codes(type_, *column([*parts[:damaged], parts[damaged][:cut], *parts[damaged + 1 :]]))


@given(typed_values(), st.data())
def test_flipped_bits_never_lead_outside_the_key(typed: tuple[FlinkType, list[Value]], data: st.DataObject) -> None:
    """Whatever the bytes are: a hash for each key, or damage that lies inside the column."""
    type_, values = typed
    bytes_, starts, ends = column([value_bytes(type_, value) for value in values])
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
        (Scalar.LOCAL_DATE_TIME, NULLS[Scalar.LOCAL_DATE] + bytes(7), "both null or neither"),
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
