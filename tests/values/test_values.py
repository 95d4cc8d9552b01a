"""Single values: bytes that Flink wrote, round trips, damage, and how a dump shows them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError, StateferryError, UsageError
from flinkstate.serializers.types import (
    JOINED_ELEMENT,
    SCALA_TRY,
    ArrayType,
    AvroArrayType,
    AvroBranch,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TimerType,
    TraversableType,
    TtlType,
    TupleType,
    children,
)
from flinkstate.values.codecs import decode, decode_whole, decoder, encode
from flinkstate.values.java_values import (
    BigDecimal,
    EitherValue,
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    OptionValue,
    PojoValue,
    RowKind,
    RowValue,
    Singleton,
    SqlTimestamp,
    TimerValue,
    TimeWindow,
    TtlValue,
    UnionValue,
    Variant,
)
from flinkstate.values.value_json import value_json
from tests.support.naive import flink_types, list_elements, list_state_elements, map_entries, values_of

NULL_OR_INT = AvroUnionType((AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("int", Scalar.INTEGER)))
THREE = AvroUnionType(
    (AvroBranch("int", Scalar.INTEGER), AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("string", Scalar.AVRO_STRING))
)
ANIMAL_FIELDS = (PojoField("legs", Scalar.INTEGER), PojoField("name", Scalar.STRING))
DOG = PojoType("stateferry.flink.pojo.Dog", (PojoField("bites", Scalar.LONG), *ANIMAL_FIELDS))
CAT = PojoType("com.acme.Cat", ANIMAL_FIELDS)
ANIMAL = PojoType("com.acme.Animal", ANIMAL_FIELDS, (CAT,), (("stateferry.flink.pojo.Dog", DOG),))
COLOR = EnumType("com.acme.Color", ("RED", "GREEN", "BLUE"))
PAIR = TupleType((Scalar.LONG, Scalar.STRING), "org.apache.flink.api.java.tuple.Tuple2")
ROW = RowType((Scalar.LONG, Scalar.STRING), True)
KRYO = OpaqueType("com.acme.Thing", "serialized by Kryo")

DOG_BYTES = "040019" + b"stateferry.flink.pojo.Dog".hex() + "02009ca01ce07d28d91500763af69c000a6e20702f77393a9ae901d702"

# The bytes are Flink's own, but for those of Animal's tag 8, Variant and Either.
WRITTEN_BY_FLINK: list[tuple[FlinkType, str, Any, str]] = [
    (Scalar.BOOLEAN, "01", True, "true"),
    (Scalar.BYTE, "80", -128, "-128"),
    (Scalar.SHORT, "fed4", -300, "-300"),
    (Scalar.INTEGER, "80000000", -(2**31), "-2147483648"),
    (Scalar.LONG, "0020000000000001", 2**53 + 1, "9007199254740993"),
    (Scalar.FLOAT, "3dcccccd", struct.unpack(">f", bytes.fromhex("3dcccccd"))[0], "0.1"),
    (Scalar.FLOAT, "00000001", 2.0**-149, "1e-45"),
    (Scalar.FLOAT, "7f7fffff", (2 - 2**-23) * 2.0**127, "3.4028235e+38"),
    (Scalar.DOUBLE, "7ff0000000000000", math.inf, '"Infinity"'),
    (Scalar.DOUBLE, "fff0000000000000", -math.inf, '"-Infinity"'),
    (Scalar.DOUBLE, "8000000000000000", -0.0, "-0.0"),
    (Scalar.DOUBLE, "0000000000000001", 5e-324, "5e-324"),
    (Scalar.CHARACTER, "d83d", "\ud83d", r'"\ud83d"'),
    (Scalar.CHARACTER, "00e9", "é", '"é"'),
    (Scalar.STRING, "00", None, "null"),
    (Scalar.STRING, "01", "", '""'),
    (Scalar.STRING, "04610062", "a\0b", r'"a\u0000b"'),
    (Scalar.STRING, "037f8001", "\x7f\x80", r'"\u007f\u0080"'),
    (Scalar.STRING, "04ff0fff7f808001", "\u07ff\u3fff\u4000", '"\u07ff\u3fff\u4000"'),
    (Scalar.STRING, "02ffff03", "\uffff", '"\\uffff"'),
    (Scalar.STRING, "03bdb00380bc03", "😀", '"😀"'),
    (Scalar.STRING, "0280b003", "\ud800", r'"\ud800"'),
    (Scalar.STRING, "8701" + "78" * 134, "x" * 134, '"' + "x" * 134 + '"'),
    (Scalar.STRING_VALUE, "0561e901e5cb01bdb00380bc03", "aé日😀", '"aé日😀"'),
    (Scalar.BIG_INTEGER, "00000000", None, "null"),
    (Scalar.BIG_INTEGER, "00000001", 0, "0"),
    (Scalar.BIG_INTEGER, "00000003", 10, "10"),
    (Scalar.BIG_INTEGER, "00000005ff", -1, "-1"),
    (Scalar.BIG_INTEGER, "0000000d008000000000000000", 2**63, "9223372036854775808"),
    (Scalar.BIG_INTEGER, "0000000dff0000000000000000", -(2**64), "-18446744073709551616"),
    (Scalar.BIG_DECIMAL, "00000000", None, "null"),
    (Scalar.BIG_DECIMAL, "0000000100000002", BigDecimal(0, 2), '"0.00"'),
    (Scalar.BIG_DECIMAL, "00000002fffffe70", BigDecimal(1, -400), '"1E+400"'),
    (Scalar.BIG_DECIMAL, "00000005ff00000001", BigDecimal(-1, 1), '"-0.1"'),
    (
        Scalar.BIG_DECIMAL,
        "000000145ce0e9a56015fec5aadfa328ae39811500000009",
        BigDecimal(123456789012345678901234567890123456789, 9),
        '"123456789012345678901234567890.123456789"',
    ),
    (Scalar.DATE, "ffffffffffffffff", -1, '"1969-12-31T23:59:59.999Z"'),
    (Scalar.DATE, "8000000000000000", None, "null"),
    (Scalar.DATE, "7fffffffffffffff", 2**63 - 1, '"+292278994-08-17T07:12:55.807Z"'),
    (Scalar.SQL_DATE, "ffffff4a9932d061", -779113803679, '"1945-04-24T11:29:56.321Z"'),
    (
        Scalar.SQL_TIMESTAMP,
        "ffffffffffffffff3b9ac9ff",
        SqlTimestamp(-1, 999_999_999),
        '"1969-12-31T23:59:59.999999999Z"',
    ),
    (Scalar.SQL_TIMESTAMP, "000000000000000000000000", SqlTimestamp(0, 0), '"1970-01-01T00:00:00.000000000Z"'),
    (Scalar.SQL_TIMESTAMP, "800000000000000000000000", None, "null"),
    (
        Scalar.SQL_TIMESTAMP,
        "80000000000000010b80f240",
        SqlTimestamp(-(2**63) + 1, 193_000_000),
        '"-292275055-05-16T16:47:04.193000000Z"',
    ),
    (Scalar.INSTANT, "000000000000000000000000", Instant(0, 0), '"1970-01-01T00:00:00Z"'),
    (Scalar.INSTANT, "000000000000000523c34600", Instant(5, 600_000_000), '"1970-01-01T00:00:05.600Z"'),
    (Scalar.INSTANT, "ffffffffffffffff00000001", Instant(-1, 1), '"1969-12-31T23:59:59.000000001Z"'),
    (
        Scalar.INSTANT,
        "00701cd2fa9578ff3b9ac9ff",
        Instant(31_556_889_864_403_199, 999_999_999),
        '"+1000000000-12-31T23:59:59.999999999Z"',
    ),
    (Scalar.INSTANT, "800000000000000080000000", None, "null"),
    (Scalar.LOCAL_DATE, "000000010101", LocalDate(1, 1, 1), '"0001-01-01"'),
    (Scalar.LOCAL_DATE, "c46536010101", LocalDate(-999_999_999, 1, 1), '"-999999999-01-01"'),
    (Scalar.LOCAL_DATE, "3b9ac9ff0c1f", LocalDate(999_999_999, 12, 31), '"+999999999-12-31"'),
    (Scalar.LOCAL_DATE, "800000008000", None, "null"),
    (Scalar.LOCAL_TIME, "0c1e0000000000", LocalTime(12, 30, 0, 0), '"12:30"'),
    (Scalar.LOCAL_TIME, "01020300000000", LocalTime(1, 2, 3, 0), '"01:02:03"'),
    (Scalar.LOCAL_TIME, "010203003d0900", LocalTime(1, 2, 3, 4_000_000), '"01:02:03.004"'),
    (Scalar.LOCAL_TIME, "01020000001388", LocalTime(1, 2, 0, 5_000), '"01:02:00.000005"'),
    (Scalar.LOCAL_TIME, "173b3b3b9ac9ff", LocalTime(23, 59, 59, 999_999_999), '"23:59:59.999999999"'),
    (Scalar.LOCAL_TIME, "80800080000000", None, "null"),
    (
        Scalar.LOCAL_DATE_TIME,
        "000007b2010100000000000000",
        LocalDateTime(LocalDate(1970, 1, 1), LocalTime(0, 0, 0, 0)),
        '"1970-01-01T00:00"',
    ),
    (Scalar.LOCAL_DATE_TIME, "80000000800080800080000000", None, "null"),
    (Scalar.VOID, "00", None, "null"),
    (Scalar.TUPLE0, "2a", (), "[]"),
    (Scalar.NULL_VALUE, "", Singleton.NULL_VALUE, "null"),
    (Scalar.VOID_NAMESPACE, "00", Singleton.VOID_NAMESPACE, "null"),
    (Scalar.GLOBAL_WINDOW, "00", Singleton.GLOBAL_WINDOW, "{}"),
    (
        Scalar.TIME_WINDOW,
        "0000000000000000000000000000ea60",
        TimeWindow(0, 60_000),
        '{"start":0,"end":60000}',
    ),
    (
        Scalar.VARIANT,
        "0000000600000003" + "1568656c6c6f" + "010000",
        Variant(b"\x15hello", b"\x01\0\0"),
        '{"value":"FWhlbGxv","metadata":"AQAA"}',
    ),
    (Scalar.BITMAP, "0000000301ff02", b"\x01\xff\x02", '"Af8C"'),
    (PrimitiveArrayType(Scalar.BYTE), "0000000301ff02", b"\x01\xff\x02", '"Af8C"'),
    (PrimitiveArrayType(Scalar.SHORT), "00000002fed40001", [-300, 1], "[-300,1]"),
    (PrimitiveArrayType(Scalar.STRING), "0000000300010261", [None, "", "a"], '[null,"","a"]'),
    (ListType(Scalar.BOOLEAN), "000000020001", [False, True], "[false,true]"),
    (SetType(Scalar.INTEGER), "000000020100" + "00000007", [None, 7], "[null,7]"),
    (ArrayType(Scalar.INTEGER, "Integer"), "000000020001" + "00000007", [None, 7], "[null,7]"),
    (PAIR, "000000000000000100", (1, None), "[1,null]"),
    (ROW, "1000000000000000" + "01", RowValue((1, None)), "[1,null]"),
    (ROW, "d000000000000000" + "01", RowValue((1, None), RowKind.DELETE), '{"kind":"DELETE","fields":[1,null]}'),
    (
        ROW,
        "5000000000000000" + "01",
        RowValue((1, None), RowKind.UPDATE_AFTER),
        '{"kind":"UPDATE_AFTER","fields":[1,null]}',
    ),
    (
        ROW,
        "9000000000000000" + "01",
        RowValue((1, None), RowKind.UPDATE_BEFORE),
        '{"kind":"UPDATE_BEFORE","fields":[1,null]}',
    ),
    (RowType((Scalar.LONG, Scalar.STRING), False), "400000000000000001", RowValue((1, None)), "[1,null]"),
    (COLOR, "00000002", "BLUE", '"BLUE"'),
    (
        MapType(Scalar.STRING, Scalar.LONG),
        "00000002026100" + "0000000000000001" + "026201",
        [("a", 1), ("b", None)],
        '{"a":1,"b":null}',
    ),
    (MapType(Scalar.STRING, Scalar.BYTE), "00000001" + "000007", [(None, 7)], "[[null,7]]"),
    (
        MapType(Scalar.STRING, Scalar.BYTE),
        "00000002" + "02610007" + "026101",
        [("a", 7), ("a", None)],
        '[["a",7],["a",null]]',
    ),
    (MapType(Scalar.BYTE, Scalar.BYTE), "00000001" + "010007", [(1, 7)], "[[1,7]]"),
    (NullableType(Scalar.LONG, 8), "01" + "00" * 8, None, "null"),
    (NullableType(Scalar.BYTE, 0), "0007", 7, "7"),
    (EitherType(Scalar.BYTE, Scalar.STRING), "0107", EitherValue(7, True), '{"left":7}'),
    (EitherType(Scalar.BYTE, Scalar.STRING), "0000", EitherValue(None, False), '{"right":null}'),
    (EitherType(Scalar.BYTE, Scalar.STRING, JOINED_ELEMENT), "0107", EitherValue(7, True), '{"one":7}'),
    (EitherType(Scalar.BYTE, Scalar.STRING, JOINED_ELEMENT), "0200", EitherValue(None, False), '{"two":null}'),
    (TtlType(Scalar.STRING), "000000000000000500", TtlValue(5, None), '{"timestamp":5,"value":null}'),
    (
        TimerType(Scalar.STRING, Scalar.LONG),
        "7ffffffffffffffb" + "026b" + "0000000000000007",
        TimerValue(-5, "k", 7),
        '{"timestamp":-5,"key":"k","namespace":7}',
    ),
    (
        TimerType(Scalar.BYTE, Scalar.VOID_NAMESPACE),
        "8000000000000005" + "0100",
        TimerValue(5, 1, Singleton.VOID_NAMESPACE),
        '{"timestamp":5,"key":1}',
    ),
    (ANIMAL, "01", None, "null"),
    (
        ANIMAL,
        "0200fea6c183000275",
        PojoValue("com.acme.Animal", {"legs": -22625917, "name": "u"}),
        '{"legs":-22625917,"name":"u"}',
    ),
    (
        ANIMAL,
        DOG_BYTES,
        PojoValue(
            "stateferry.flink.pojo.Dog",
            {"bites": -7160691657021007595, "legs": 1983575708, "name": "n p/w9:\u749a\u0157"},
        ),
        (
            '{"@class":"stateferry.flink.pojo.Dog",'
            '"bites":-7160691657021007595,"legs":1983575708,"name":"n p/w9:\u749a\u0157"}'
        ),
    ),
    (
        ANIMAL,
        "0800" + "02" + "0000000004" + "01",
        PojoValue("com.acme.Cat", {"legs": 4, "name": None}),
        '{"@class":"com.acme.Cat","legs":4,"name":null}',
    ),
    (Scalar.UNIT, "00", Singleton.UNIT, "{}"),
    (OptionType(Scalar.LONG), "01" + "0000000000000007", OptionValue(7, True), '{"some":7}'),
    (OptionType(Scalar.LONG), "00", OptionValue(None, False), "{}"),
    (OptionType(Scalar.STRING), "0100", OptionValue(None, True), '{"some":null}'),
    (OptionType(Scalar.NOTHING), "00", OptionValue(None, False), "{}"),
    (EitherType(Scalar.BYTE, Scalar.STRING, SCALA_TRY), "0105", EitherValue(5, True), '{"success":5}'),
    (EnumType("com.acme.Suit$", ("HEARTS", "SPADES"), (3, -1)), "ffffffff", "SPADES", '"SPADES"'),
    (TraversableType(Scalar.BYTE, ""), "00000002" + "0105" + "00", [5, None], "[5,null]"),
    (Scalar.AVRO_NULL, "", None, "null"),
    (Scalar.AVRO_STRING, "00000004" + "c3a973" + "21", "és!", '"és!"'),
    (AvroArrayType(Scalar.BOOLEAN), "02010000", [True, False], "[true,false]"),
    (AvroArrayType(Scalar.BOOLEAN), "00", [], "[]"),
    (AvroMapType(Scalar.BOOLEAN), "01" + "0000000161" + "01" + "00", [("a", True)], '{"a":true}'),
    (AvroFixedType("com.acme.Pair", 2), "cafe", b"\xca\xfe", '"yv4="'),
    (NULL_OR_INT, "00000000", None, "null"),
    (NULL_OR_INT, "00000001" + "00000009", 9, "9"),
    (THREE, "00000002" + "0000000161", UnionValue(2, "a"), '{"string":"a"}'),
    (THREE, "00000001", None, "null"),
    (
        AvroRecordType("com.acme.Order", (AvroBranch("id", Scalar.INTEGER), AvroBranch("note", NULL_OR_INT))),
        "00000005" + "00000000",
        PojoValue("com.acme.Order", {"id": 5, "note": None}),
        '{"id":5,"note":null}',
    ),
]


def identity(case: tuple[FlinkType, str, Any, str]) -> str:
    return f"{case[0]!r:.30}-{case[1]:.20}"


@pytest.mark.parametrize(("type_", "raw", "value", "shown"), WRITTEN_BY_FLINK, ids=map(identity, WRITTEN_BY_FLINK))
def test_flinks_bytes_and_back(type_: FlinkType, raw: str, value: Any, shown: str) -> None:
    data = bytes.fromhex(raw)
    decoded = decode_whole(type_, data)
    assert repr(decoded) == repr(value)
    assert encode(type_, value) == data
    assert value_json(type_, decoded) == shown
    json.loads(shown)


def test_every_scalar_has_a_sample() -> None:
    sampled = {type_ for type_, _, _, _ in WRITTEN_BY_FLINK}
    aliases = {scalar for scalar in Scalar if scalar.name.endswith("_VALUE")} | {Scalar.SQL_TIME}
    assert set(Scalar) - aliases - {Scalar.NOTHING} <= sampled


def test_of_nothing_there_is_no_value() -> None:
    with pytest.raises(DamagedError, match="the type is Nothing, which has no values"):
        decode_whole(OptionType(Scalar.NOTHING), b"\x01\x00")
    with pytest.raises(UsageError):
        encode(Scalar.NOTHING, None)


def test_a_failure_is_for_kryo_to_read() -> None:
    failure = OpaqueType("java.lang.Throwable", "serialized by Kryo")
    with pytest.raises(RefusedError, match=r"java\.lang\.Throwable \(serialized by Kryo\)"):
        decode_whole(EitherType(Scalar.BYTE, failure, SCALA_TRY), b"\x00\x05")


def test_an_array_of_avro_may_have_several_blocks() -> None:
    array = AvroArrayType(Scalar.BYTE)
    assert decode_whole(array, bytes.fromhex("0205060107" + "00")) == [5, 6, 7]


@pytest.mark.parametrize(
    ("type_", "raw", "words"),
    [
        (Scalar.AVRO_STRING, "00000002c328", r"an Avro string in UTF-8.*c328"),
        (Scalar.AVRO_STRING, "7fffffff61", r"the length of an Avro string"),
        (AvroArrayType(Scalar.BYTE), "ffffffff0f", r"a count in a array<Byte> \(at most 0"),
        (AvroArrayType(Scalar.BYTE), "80808080808000", r"a count of at most 5 bytes"),
        (AvroArrayType(Scalar.AVRO_NULL), "ffffffff7f00", r"a count in a array<null> \(at most 2147483647"),
        (NULL_OR_INT, "00000002", r"the number of one of 2 branches"),
        (NULL_OR_INT, "ffffffff", r"the number of one of 2 branches"),
        (EnumType("com.acme.Suit$", ("HEARTS",), (3,)), "00000000", r"the number of one of 1 constants of Suit"),
    ],
)
def test_damage_to_what_scala_and_avro_wrote(type_: FlinkType, raw: str, words: str) -> None:
    with pytest.raises(DamagedError, match=words):
        decode_whole(type_, bytes.fromhex(raw))


def test_elements_without_bytes_fill_no_memory() -> None:
    with pytest.raises(RefusedError, match="that may have no bytes at all"):
        decode_whole(AvroArrayType(Scalar.AVRO_NULL), bytes.fromhex("ffffffff0700"))


@pytest.mark.slow
@given(st.data())
def test_a_round_trip_within_other_bytes(data: st.DataObject) -> None:
    type_ = data.draw(flink_types())
    value = data.draw(values_of(type_))
    raw = encode(type_, value)
    before, after = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))
    decoded, end = decode(type_, before + raw + after, len(before))
    assert end == len(before) + len(raw)
    # Equality would take -0.0 for 0.0 and one NaN for another than itself.
    assert repr(decoded) == repr(value)
    assert encode(type_, decoded) == raw
    assert decoder(type_)(before + raw + after, len(before), end) == (decoded, end) or "nan" in repr(decoded)


@pytest.mark.slow
@given(st.data())
def test_json_is_one_valid_line(data: st.DataObject) -> None:
    type_ = data.draw(flink_types())
    text = value_json(type_, data.draw(values_of(type_)))
    json.loads(text, parse_constant=pytest.fail)
    assert len(text.splitlines()) == 1
    text.encode("utf-8")


def assert_truncations_fail(type_: FlinkType, raw: bytes) -> None:
    for end in range(len(raw)):
        for data, limit in ((raw[:end], end), (raw, end)):
            with pytest.raises(DamagedError) as caught:
                decode(type_, data, 0, limit)
            assert caught.value.offset is not None
            assert 0 <= caught.value.offset <= end


def has_equal_forms(type_: FlinkType) -> bool:
    """Whether a value has more than one form: NaN has many, the BigIntegers 0, 1 and 10 have two."""
    forms = (
        Scalar.FLOAT,
        Scalar.FLOAT_VALUE,
        Scalar.DOUBLE,
        Scalar.DOUBLE_VALUE,
        Scalar.BIG_INTEGER,
        Scalar.BIG_DECIMAL,
    )
    return type_ in forms or any(map(has_equal_forms, children(type_)))


def assert_flips_are_told_apart(type_: FlinkType, raw: bytes, bits: Iterable[int] = range(8)) -> None:
    """Each flip is an error or another value, for a decoder whose values name their bytes can't be fooled."""
    for position in range(len(raw)):
        for bit in bits:
            flipped = bytearray(raw)
            flipped[position] ^= 1 << bit
            try:
                value, end = decode(type_, bytes(flipped))
            except StateferryError:
                continue
            again = encode(type_, value)
            if again != flipped[:end]:
                assert has_equal_forms(type_)
                assert repr(decode_whole(type_, again)) == repr(value)


@pytest.mark.parametrize(("type_", "raw"), [case[:2] for case in WRITTEN_BY_FLINK], ids=map(identity, WRITTEN_BY_FLINK))
def test_damage_to_flinks_bytes(type_: FlinkType, raw: str) -> None:
    assert_truncations_fail(type_, bytes.fromhex(raw))
    assert_flips_are_told_apart(type_, bytes.fromhex(raw))


@pytest.mark.slow
@given(st.data())
def test_damage_to_any_value(data: st.DataObject) -> None:
    type_ = data.draw(flink_types(max_leaves=5))
    raw = encode(type_, data.draw(values_of(type_)))[:200]
    try:
        decode_whole(type_, raw)
    except DamagedError:
        return  # Cut at 200 bytes.
    assert_truncations_fail(type_, raw)
    assert_flips_are_told_apart(type_, raw, [data.draw(st.integers(0, 7))])


@given(flink_types(), st.binary(max_size=60))
def test_noise_is_read_or_refused(type_: FlinkType, noise: bytes) -> None:
    try:
        value, end = decode(type_, noise)
    except StateferryError:
        return
    assert 0 <= end <= len(noise)
    value_json(type_, value)
    assert repr(decode_whole(type_, encode(type_, value))) == repr(value)


COUNTED: list[FlinkType] = [
    ListType(Scalar.BYTE),
    ListType(Scalar.STRING),
    SetType(Scalar.NULL_VALUE),
    MapType(Scalar.STRING, Scalar.LONG),
    ArrayType(PAIR, "T"),
    PrimitiveArrayType(Scalar.LONG),
    PrimitiveArrayType(Scalar.BYTE),
    Scalar.BITMAP,
    Scalar.VARIANT,
    Scalar.BIG_INTEGER,
    Scalar.BIG_DECIMAL,
]


@pytest.mark.parametrize("type_", COUNTED, ids=repr)
@pytest.mark.parametrize("count", ["7fffffff", "ffffffff", "80000000", "00000020"])
def test_a_count_that_lies(type_: FlinkType, count: str) -> None:
    with pytest.raises(DamagedError) as caught:
        decode(type_, bytes.fromhex(count + "0001" * 8))
    assert caught.value.offset in (0, 4)


def test_elements_without_bytes_do_not_fill_the_memory() -> None:
    nothing = ListType(Scalar.NULL_VALUE)
    assert decode_whole(nothing, bytes.fromhex("00000003")) == [Singleton.NULL_VALUE] * 3
    with pytest.raises(RefusedError, match="2147483647 elements that may have no bytes"):
        decode(nothing, bytes.fromhex("7fffffff"))


DAMAGED: list[tuple[FlinkType, str, int, str]] = [
    (Scalar.BOOLEAN, "02", 0, "a Boolean: 0 or 1"),
    (Scalar.STRING, "8100", 0, "in as few bytes as it needs"),
    (Scalar.STRING, "02808004", 1, "up to 65535"),
    (Scalar.STRING, "02e900", 1, "in as few bytes as it needs"),
    (Scalar.STRING, "ffffffff0f", 0, "up to 2147483647"),
    (Scalar.STRING, "8080808080", 0, "at most 5 bytes"),
    (Scalar.STRING, "8180808001", 5, "at most 0 characters"),
    (Scalar.BIG_INTEGER, "00000004", 0, "the length of a BigInteger"),
    (Scalar.BIG_INTEGER, "000000060001", 4, "as few bytes"),
    (Scalar.BIG_INTEGER, "00000006ff80", 4, "as few bytes"),
    (Scalar.LOCAL_DATE, "000007e1021d", 0, "a LocalDate"),
    (Scalar.LOCAL_DATE, "800000000101", 0, "a LocalDate"),
    (Scalar.LOCAL_DATE, "0000076c021d", 0, "a LocalDate"),
    (Scalar.LOCAL_DATE, "3b9aca000101", 0, "a LocalDate"),
    (Scalar.LOCAL_TIME, "18000000000000", 0, "a LocalTime"),
    (Scalar.LOCAL_TIME, "0000003b9aca00", 0, "a LocalTime"),
    (Scalar.LOCAL_DATE_TIME, "80000000800000000000000000", 0, "a LocalDateTime"),
    (Scalar.INSTANT, "00701cd2fa95790000000000", 0, "an Instant"),
    (Scalar.INSTANT, "0000000000000000ffffffff", 0, "an Instant"),
    (Scalar.SQL_TIMESTAMP, "000000000000000000" + "0f4240", 0, "a java.sql.Timestamp"),
    (Scalar.VOID, "01", 0, "a Void: 00"),
    (Scalar.TUPLE0, "00", 0, "a Tuple0: 2a"),
    (Scalar.VARIANT, "000000000000000002", 8, "version 1 of a Variant"),
    (Scalar.VARIANT, "0000000000000000", 8, "version 1 of a Variant"),
    (COLOR, "00000003", 0, "one of 3 constants of Color"),
    (COLOR, "ffffffff", 0, "one of 3 constants of Color"),
    (ROW, "0800000000000000" + "0100", 0, "zeros in the last 4 bits"),
    (ROW, "0000000000000000" + "0100", 9, "the flag before it says that there is one"),
    (MapType(Scalar.BYTE, Scalar.STRING), "00000001" + "010000", 6, "the flag before it says that there is one"),
    (MapType(Scalar.BYTE, Scalar.STRING), "00000001" + "0102", 5, "a Map's value isNull: 0 or 1"),
    (NullableType(Scalar.BYTE, 1), "0101", 1, "zeros behind a null"),
    (ANIMAL, "03", 0, "the flag of a Animal: 1, 2, 4 or 8"),
    (ANIMAL, "0801", 1, "one of 1 registered subclasses"),
    (ANIMAL, "080001", 2, "the flag before it says that there is one"),
    (ANIMAL, "0202", 1, "the field 'legs' isNull"),
]


@pytest.mark.parametrize(("type_", "raw", "offset", "expected"), DAMAGED)
def test_damage_names_its_place_and_what_was_expected(type_: FlinkType, raw: str, offset: int, expected: str) -> None:
    with pytest.raises(DamagedError) as caught:
        decode(type_, b"\xff" * 5 + bytes.fromhex(raw), 5)
    assert caught.value.offset == offset + 5
    assert expected in caught.value.expected


def test_both_forms_of_small_big_integers_are_read() -> None:
    for value, short, long in (
        (0, "00000001", "0000000500"),
        (1, "00000002", "0000000501"),
        (10, "00000003", "000000050a"),
    ):
        assert decode_whole(Scalar.BIG_INTEGER, bytes.fromhex(long)) == value
        assert encode(Scalar.BIG_INTEGER, value).hex() == short
    assert decode_whole(Scalar.BIG_DECIMAL, bytes.fromhex("00000005010000000f")) == BigDecimal(1, 15)


def test_long_integers_keep_every_digit() -> None:
    value = 7**20_000
    text = value_json(Scalar.BIG_INTEGER, decode_whole(Scalar.BIG_INTEGER, encode(Scalar.BIG_INTEGER, value)))
    digits, rest = len(text), 0
    for start in range(0, digits, 1000):
        rest = (rest * 10 ** len(text[start : start + 1000]) + int(text[start : start + 1000])) % (2**61 - 1)
    assert (digits, rest) == (16_902, value % (2**61 - 1))


def test_nan_has_one_written_form_and_many_read_ones() -> None:
    for type_, raw in ((Scalar.FLOAT, "ffc12345"), (Scalar.DOUBLE, "fff8000000000001")):
        value = decode_whole(type_, bytes.fromhex(raw))
        assert value_json(type_, value) == '"NaN"'
        assert encode(type_, value).hex() in ("7fc00000", "7ff8000000000000")


def test_big_decimals_are_shown_as_java_shows_them() -> None:
    shown = {
        (0, 0): "0",
        (0, 6): "0.000000",
        (0, 7): "0E-7",
        (0, -3): "0E+3",
        (123, 0): "123",
        (-123, -1): "-1.23E+3",
        (-123, 5): "-0.00123",
        (123, 8): "0.00000123",
        (123, 9): "1.23E-7",
        (-123, 10): "-1.23E-8",
        (1, -1): "1E+1",
        (5, 2147483647): "5E-2147483647",
        (12, -2147483648): "1.2E+2147483649",
    }
    assert {key: json.loads(value_json(Scalar.BIG_DECIMAL, BigDecimal(*key))) for key in shown} == shown


def test_instants_before_and_beyond_four_digit_years() -> None:
    shown = {
        -62_167_219_200: "0000-01-01T00:00:00Z",
        -62_167_219_201: "-0001-12-31T23:59:59Z",
        253_402_300_799: "9999-12-31T23:59:59Z",
        253_402_300_800: "+10000-01-01T00:00:00Z",
        -31_557_014_167_219_200: "-1000000000-01-01T00:00:00Z",
        951_782_400: "2000-02-29T00:00:00Z",
        -2_203_891_200: "1900-03-01T00:00:00Z",
    }
    assert {key: json.loads(value_json(Scalar.INSTANT, Instant(key, 0))) for key in shown} == shown


def test_opaque_values_are_refused_by_name_unless_they_are_absent() -> None:
    with pytest.raises(RefusedError, match=r"com\.acme\.Thing \(serialized by Kryo\)"):
        decode(MapType(Scalar.BYTE, KRYO), bytes.fromhex("00000001" + "0100" + "ff"))
    assert decode_whole(MapType(Scalar.BYTE, KRYO), bytes.fromhex("00000001" + "0101")) == [(1, None)]
    assert decode_whole(ListType(KRYO), bytes(4)) == []
    with pytest.raises(RefusedError, match="Kryo"):
        encode(KRYO, 1)


def test_an_unknown_subclass_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match=r"com\.acme\.Bird: a subclass of com\.acme\.Animal"):
        decode(ANIMAL, bytes.fromhex("04000d") + b"com.acme.Bird" + b"\x02\x01\x01")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Scalar.INTEGER, 2**31),
        (Scalar.LONG, None),
        (Scalar.STRING, 5),
        (Scalar.FLOAT, 1e300),
        (Scalar.BIG_DECIMAL, BigDecimal(1, 2**31)),
        (Scalar.VOID, 5),
        (PAIR, (1,)),
        (COLOR, "PINK"),
        (ANIMAL, PojoValue("com.acme.Bird", {})),
        (PojoType("Point", (PojoField("x", Scalar.LONG),)), PojoValue("Point", {"x": 1, "y": 2})),
        (AvroRecordType("Empty", ()), PojoValue("Empty", {"x": 1})),
        (OptionType(Scalar.LONG), OptionValue(5, False)),
        (RowType((), False), RowValue((), RowKind.DELETE)),
        (RowType((Scalar.STRING,), False), RowValue("a")),  # type: ignore[arg-type]
        (Scalar.BOOLEAN, "false"),
        (Scalar.BOOLEAN, 1),
        (Scalar.BYTE, True),
        (Scalar.INTEGER, False),
        (Scalar.LONG_VALUE, True),
        (Scalar.DOUBLE, True),
        (Scalar.DOUBLE, np.bool_(True)),
        (Scalar.DOUBLE, Decimal("0.5")),
        (Scalar.DOUBLE, 2**53 + 1),
        (Scalar.DOUBLE_VALUE, np.int64(2**53 + 1)),
        (Scalar.DOUBLE, 10**400),
        (Scalar.FLOAT, 2**24 + 1),
        (Scalar.FLOAT, 1e-60),
        (Scalar.FLOAT_VALUE, Decimal("NaN")),
        (Scalar.BIG_INTEGER, True),
        (Scalar.BIG_INTEGER, 1.0),
        (Scalar.DATE, True),
        (Scalar.DATE, -(2**63)),
        (Scalar.LOCAL_DATE, LocalDate(2023, 2, 31)),
        (Scalar.LOCAL_DATE, datetime(2023, 2, 28, 17)),
        (Scalar.LOCAL_TIME, LocalTime(24, 0, 0, 0)),
        (Scalar.LOCAL_DATE_TIME, LocalDateTime(LocalDate(2023, 13, 1), LocalTime(0, 0, 0, 0))),
        (Scalar.INSTANT, Instant(0, -1)),
        (Scalar.SQL_TIMESTAMP, SqlTimestamp(-(2**63), 0)),
        (ListType(Scalar.STRING), "abc"),
        (ListType(Scalar.LONG), b"abc"),
        (ListType(Scalar.STRING), {"a": 1}),
        (ListType(Scalar.STRING), MappingProxyType({"a": 1})),
        (ListType(Scalar.STRING), 5),
        (AvroArrayType(Scalar.AVRO_STRING), "abc"),
        (AvroArrayType(Scalar.AVRO_STRING), None),
        (AvroRecordType("com.acme.Empty", ()), None),
        (TupleType((Scalar.STRING, Scalar.STRING), PAIR.class_name), "ab"),
        (MapType(Scalar.STRING, Scalar.STRING), ["ab"]),
        (PrimitiveArrayType(Scalar.BYTE), np.array([1, 2])),
    ],
)
def test_what_is_no_value_of_the_type_is_not_written(type_: FlinkType, value: Any) -> None:
    with pytest.raises(UsageError, match="is no value of the type"):
        encode(type_, value)


def test_what_python_has_for_the_same_value_is_written() -> None:
    assert encode(Scalar.BOOLEAN, np.bool_(True)) == b"\1"
    assert encode(Scalar.LONG, np.int64(7)) == encode(Scalar.LONG, 7)
    assert encode(Scalar.BIG_INTEGER, np.int64(300)) == encode(Scalar.BIG_INTEGER, 300)
    expected = encode(ListType(Scalar.LONG), [1, 2])
    for same in ((1, 2), np.array([1, 2]), range(1, 3)):
        assert encode(ListType(Scalar.LONG), same) == expected
    for of_strings in (MapType(Scalar.STRING, Scalar.LONG), AvroMapType(Scalar.LONG)):
        for mapping in ({"a": 1}, MappingProxyType({"a": 1})):
            assert encode(of_strings, mapping) == encode(of_strings, [("a", 1)])
    assert encode(Scalar.LOCAL_DATE, date(2023, 2, 28)) == encode(Scalar.LOCAL_DATE, LocalDate(2023, 2, 28))


def test_floating_numbers_may_be_whole_or_of_numpy() -> None:
    for number in (1.0, 1, np.int64(1), np.float16(1), np.float32(1), np.float64(1)):
        assert encode(Scalar.DOUBLE, number) == struct.pack(">d", 1.0)
        assert encode(Scalar.FLOAT, number) == struct.pack(">f", 1.0)
    assert encode(Scalar.DOUBLE, 2**60) == struct.pack(">d", 2.0**60)
    # The nearest Float is what 0.1 means.
    assert encode(Scalar.FLOAT, 0.1) == struct.pack(">f", 0.1)
    assert encode(Scalar.FLOAT, -0.0) == b"\x80\0\0\0"
    for number in (math.inf, -math.inf):
        assert decode_whole(Scalar.FLOAT, encode(Scalar.FLOAT, number)) == number


def test_positions_outside_the_bytes_are_a_mistake_of_the_caller() -> None:
    for position, limit in ((-1, 2), (2, 1), (0, 5)):
        with pytest.raises(UsageError, match="do not lie within 4 bytes"):
            decode(Scalar.BYTE, bytes(4), position, limit)
    with pytest.raises(DamagedError, match="offset 1: expected the end of a Byte, found 3 more bytes"):
        decode_whole(Scalar.BYTE, bytes(4))


@pytest.mark.slow
@given(st.data())
def test_plain_walks_give_the_bytes_of_the_parts(data: st.DataObject) -> None:
    key, value = data.draw(flink_types(max_leaves=3)), data.draw(flink_types(max_leaves=3))
    pairs = data.draw(values_of(MapType(key, value)))
    expected = [(encode(key, one), None if other is None else encode(value, other)) for one, other in pairs]
    assert map_entries(MapType(key, value), encode(MapType(key, value), pairs)) == expected
    keys = [one for one, _ in expected]
    assert list_elements(key, encode(ListType(key), [one for one, _ in pairs])) == keys
    if keys:
        assert list_state_elements(key, b",".join(keys)) == keys or not all(keys)


def test_parts_of_a_date_may_be_numbers_of_numpy() -> None:
    """A search for one in a range would go through the whole range."""
    plain = encode(Scalar.INSTANT, Instant(1_700_000_000, 5))
    assert encode(Scalar.INSTANT, Instant(np.int64(1_700_000_000), np.int32(5))) == plain  # type: ignore[arg-type]
