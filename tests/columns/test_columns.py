"""Columns against their plain twin: single values read by `codecs.py` and turned into what Arrow should hold."""

from __future__ import annotations

import math
import mmap
import struct
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flinkstate.columns import arrays as column_arrays
from flinkstate.columns.arrow_types import (
    ROW_KINDS,
    known_subclasses,
    pojo_fields,
    subclass_field,
    union_fields,
)
from flinkstate.columns.column_decoder import arrow_type, decode, decode_list_state
from flinkstate.columns.reads import UnfitError
from flinkstate.columns.scalar_columns import blocks_array
from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.serializers.programs import least_size
from flinkstate.serializers.types import (
    FLINK_EITHER,
    JOINED_ELEMENT,
    SCALA_TRY,
    ArrayType,
    AvroArrayType,
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
)
from flinkstate.values import codecs, java_text
from flinkstate.values.java_values import (
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    OptionValue,
    PojoValue,
    SqlTimestamp,
)
from tests.support.naive import flink_types, values_of

Positions = npt.NDArray[np.int64]

STRING_TO_LONG = MapType(Scalar.STRING, Scalar.LONG)
KRYO = OpaqueType("com.acme.Thing", "written by Kryo")
SILENT = (
    *(Scalar.VOID, Scalar.NULL_VALUE, Scalar.VOID_NAMESPACE, Scalar.GLOBAL_WINDOW, Scalar.TUPLE0),
    *(Scalar.UNIT, Scalar.AVRO_NULL),
)


class NotRepresentableError(Exception):
    """Arrow can't hold it, or columns are stricter than the twin."""


# The twin: a single value as what `plain` makes of Arrow's.


def expected(type_: FlinkType, value: Any) -> Any:
    if value is None or type_ in SILENT:
        return None
    match type_:
        case Scalar.FLOAT | Scalar.DOUBLE | Scalar.FLOAT_VALUE | Scalar.DOUBLE_VALUE:
            return comparable(value)
        case Scalar.STRING | Scalar.STRING_VALUE | Scalar.CHARACTER | Scalar.CHAR_VALUE:
            return "".join("\ufffd" if 0xD800 <= ord(unit) < 0xE000 else unit for unit in value)
        case Scalar.BIG_INTEGER:
            return format(Decimal(value), "f")
        case Scalar.BIG_DECIMAL:
            digits = tuple(map(int, format(Decimal(abs(value.unscaled)), "f")))
            return str(Decimal((value.unscaled < 0, digits, -value.scale)))
        case Scalar.DATE | Scalar.SQL_DATE | Scalar.SQL_TIME:
            return micros(value // 1000, value % 1000 * 1_000_000)
        case Scalar.SQL_TIMESTAMP:
            return micros(value.millis // 1000, value.nano)
        case Scalar.INSTANT:
            return micros(value.seconds, value.nano)
        case Scalar.LOCAL_DATE:
            days = epoch_day(value)
            return days if abs(days) < 2**31 else unrepresentable()
        case Scalar.LOCAL_TIME:
            return java_text.local_time_text(value)
        case Scalar.LOCAL_DATE_TIME:
            time = value.time
            second = time.hour * 3600 + time.minute * 60 + time.second
            return micros(epoch_day(value.date) * 86_400 + second, time.nano)
        case Scalar.VARIANT:
            return {"value": value.value, "metadata": value.metadata}
        case Scalar.TIME_WINDOW:
            return {"start": value.start, "end": value.end}
        case Scalar() | EnumType() | PrimitiveArrayType(Scalar.BYTE) | AvroFixedType():
            return value
        case TraversableType(element):
            return [expected(element, item) for item in value]
        case OptionType(inner):
            return expected(inner, value.value)
        case AvroArrayType(element):
            if least_size(element) == 0:
                unrepresentable()
            return [expected(element, item) for item in value]
        case AvroMapType(item):
            return [(each, expected(item, other)) for each, other in value]
        case AvroUnionType():
            return expected_union(type_, value)
        case AvroRecordType(_, described):
            return {part.name: expected(part.type, value.fields[part.name]) for part in described}
        case ListType(element) | SetType(element) | ArrayType(element) | PrimitiveArrayType(element):
            return [expected(element, item) for item in value]
        case MapType(key, item):
            keys = [expected(key, each) for each, _ in value]
            if None in keys:
                unrepresentable()
            return [(each, expected(item, other)) for each, (_, other) in zip(keys, value, strict=True)]
        case TupleType(fields):
            return {f"f{at}": expected(field, item) for at, (field, item) in enumerate(zip(fields, value, strict=True))}
        case RowType(fields, has_kind):
            pairs = enumerate(zip(fields, value.fields, strict=True))
            kind = {"kind": value.kind.name} if has_kind else {}
            return {f"f{at}": expected(field, item) for at, (field, item) in pairs} | kind
        case PojoType():
            return expected_pojo(type_, value)
        case NullableType(inner):
            return expected(inner, value)
        case EitherType(left, right, class_name):
            side = left if value.is_left else right
            if value.value is None and class_name == FLINK_EITHER and side not in SILENT:
                unrepresentable()
            sides = (expected(left, value.value), None) if value.is_left else (None, expected(right, value.value))
            return dict(zip(type_.sides, sides, strict=True))
        case TtlType(inner):
            return {"timestamp": value.timestamp, "value": expected(inner, value.value)}
        case TimerType(key, namespace):
            parts = {"key": expected(key, value.key), "namespace": expected(namespace, value.namespace)}
            return {"timestamp": value.timestamp} | parts
        case OpaqueType():
            raise AssertionError


def expected_union(type_: AvroUnionType, value: Any) -> Any:
    if type_.nullable is not None:
        return expected(type_.nullable, value)
    numbered = [(at, branch.type) for at, branch in enumerate(type_.branches) if branch.type is not Scalar.AVRO_NULL]
    return {
        name: expected(branch, value.value) if at == value.branch else None
        for name, (at, branch) in zip(union_fields(type_), numbered, strict=True)
    }


def expected_pojo(type_: PojoType, value: PojoValue) -> dict[str, Any]:
    subclasses = known_subclasses(type_)
    result: dict[str, Any] = dict.fromkeys(field.name for field in pojo_fields(type_))
    types = {field.name: field.type for field in pojo_fields(type_)}
    actual = next((each for each in subclasses if each.class_name == value.class_name), type_)
    for field in actual.fields:
        arrow = pa.field(field.name, arrow_type(field.type))
        taken = types[field.name] if actual is not type_ else None
        result[subclass_field(actual, arrow, taken)] = expected(field.type, value.fields[field.name])
    return result | ({"class": value.class_name} if subclasses else {})


def epoch_day(day: LocalDate) -> int:
    # 400 years are as long wherever they lie: Python's own calendar counts the rest.
    return date(day.year % 400 + 400, day.month, day.day).toordinal() - 719_163 + (day.year // 400 - 1) * 146_097


def micros(seconds: int, nano: int) -> int:
    return seconds * 1_000_000 + nano // 1000 if abs(seconds) <= 9_223_372_036_853 else unrepresentable()


def unrepresentable() -> Any:
    raise NotRepresentableError


def comparable(number: float) -> Any:
    return "NaN" if math.isnan(number) else struct.pack(">d", number)


def plain(array: pa.Array) -> list[Any]:
    """`to_pylist` with dates and timestamps as numbers: Python's own don't reach as far."""
    type_ = array.type
    if pa.types.is_timestamp(type_):
        return list(array.view(pa.int64()).to_pylist())
    if pa.types.is_date32(type_):
        return list(array.view(pa.int32()).to_pylist())
    if pa.types.is_floating(type_):
        return [None if number is None else comparable(number) for number in array.to_pylist()]
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(type_):
        children = [plain(array.field(index)) for index in range(type_.num_fields)]
        names = [field.name for field in type_]
        rows = [dict(zip(names, (child[row] for child in children), strict=True)) for row in range(len(array))]
        return [row if here else None for row, here in zip(rows, valid, strict=True)]
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        items = (
            plain(array.values)
            if pa.types.is_list(type_)
            else list(zip(plain(array.keys), plain(array.items), strict=True))
        )
        bounds = array.offsets.to_pylist()
        return [items[bounds[row] : bounds[row + 1]] if here else None for row, here in enumerate(valid)]
    return list(array.to_pylist())


# Helpers.


def laid_out(parts: list[bytes]) -> tuple[npt.NDArray[np.uint8], Positions, Positions]:
    bounds = np.cumsum([0, *map(len, parts)])
    return np.frombuffer(b"".join(parts), np.uint8), bounds[:-1], bounds[1:]


def column(type_: FlinkType, *parts: bytes) -> list[Any]:
    data, starts, ends = laid_out(list(parts))
    array, stops = decode(type_, data, starts, ends)
    assert stops.tolist() == ends.tolist()
    return checked(type_, array)


def checked(type_: FlinkType, array: pa.Array) -> list[Any]:
    array.validate(full=True)
    assert array.type == arrow_type(type_)
    return plain(array)


def column_of(type_: FlinkType, *items: Any) -> list[Any]:
    return column(type_, *(codecs.encode(type_, item) for item in items))


TYPES = flink_types()
TYPED_VALUES = TYPES.flatmap(lambda type_: st.tuples(st.just(type_), st.lists(values_of(type_), max_size=6)))


# Every type, every value.


@given(TYPED_VALUES, st.binary(max_size=3))
@example((MapType(OptionType(Scalar.LONG), Scalar.LONG), [[(OptionValue(None, False), 1)]]), b"")
def test_columns_hold_what_single_values_are(drawn: tuple[FlinkType, list[Any]], gap: bytes) -> None:
    type_, items = drawn
    parts = [codecs.encode(type_, item) for item in items]
    data, starts, ends = laid_out([part for pair in zip(parts, [gap] * len(parts), strict=True) for part in pair])
    try:
        wanted = [expected(type_, item) for item in items]
    except NotRepresentableError:
        with pytest.raises(StateferryError):
            decode(type_, data, starts[::2], ends[::2])
        return
    for limits in (ends[::2], np.full(len(parts), len(data))):
        array, stops = decode(type_, data, starts[::2], limits)
        assert stops.tolist() == ends[::2].tolist()
        assert checked(type_, array) == wanted


@given(TYPES)
def test_no_values_make_an_empty_column(type_: FlinkType) -> None:
    none = np.zeros(0, np.int64)
    array, stops = decode(type_, np.zeros(0, np.uint8), none, none)
    assert checked(type_, array) == []
    assert len(stops) == 0


@given(TYPED_VALUES, st.data())
def test_a_value_cut_short_is_damage(drawn: tuple[FlinkType, list[Any]], data: st.DataObject) -> None:
    type_, items = drawn
    parts = [part for part in (codecs.encode(type_, item) for item in items) if part]
    assume(parts)
    whole, starts, ends = laid_out(parts)
    row = data.draw(st.integers(0, len(parts) - 1))
    ends = ends.copy()
    ends[row] = data.draw(st.integers(int(starts[row]), int(ends[row]) - 1))
    try:
        _ = [expected(type_, item) for item in items]
    except NotRepresentableError:
        with pytest.raises(StateferryError):
            decode(type_, whole, starts, ends)
        return
    with pytest.raises(DamagedError) as raised:
        decode(type_, whole, starts, ends)
    assert raised.value.offset is not None
    assert starts[row] <= raised.value.offset <= ends[row]


@given(TYPED_VALUES, st.data())
def test_changed_bytes_are_damage_or_another_value(drawn: tuple[FlinkType, list[Any]], data: st.DataObject) -> None:
    type_, items = drawn
    raw = bytearray(b"".join(codecs.encode(type_, item) for item in items))
    assume(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    flipped = bytes(raw)
    try:
        value, end = codecs.decode(type_, flipped)
        wanted = expected(type_, value)
    except (StateferryError, NotRepresentableError):
        with pytest.raises(StateferryError):
            decode(type_, np.frombuffer(flipped, np.uint8), np.array([0]), np.array([len(flipped)]))
        return
    array, stops = decode(type_, np.frombuffer(flipped, np.uint8), np.array([0]), np.array([len(flipped)]))
    assert (checked(type_, array), stops.tolist()) == ([wanted], [end])


# Strings.


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=()), max_size=40), max_size=30))
@example(["a" * 126, "a" * 127, "a" * 128, "é" * 16_383, "日" * 70_000, "😀" * 50_000, None, ""])
@example(["\ud800", "\udc00", "a\ud800b", "\ud800\ud800\udc00", "\udc00\ud800", "x" * 9 + "\ud83d"])
def test_strings(texts: list[str | None]) -> None:
    # Surrogates that are drawn beside each other pair up in UTF-16.
    joined = [text and text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") for text in texts]
    assert column_of(Scalar.STRING, *joined) == [expected(Scalar.STRING, text) for text in joined]


@pytest.mark.slow
def test_every_utf16_unit() -> None:
    units = [chr(unit) for unit in range(0x10000)]
    wanted = ["\ufffd" if 0xD800 <= ord(unit) < 0xE000 else unit for unit in units]
    assert column_of(Scalar.STRING, *units) == wanted
    assert column_of(Scalar.CHARACTER, *units) == wanted


@pytest.mark.parametrize(
    "raw",
    [
        "81",
        "8100",
        "0281",
        "028100",
        "02818000",
        "02808004",
        "02ffff04",
        "05616263",
        "ffffffff7f",
        "ffffffffff01",
        "808080808001",
    ],
)
def test_strings_that_no_writer_writes(raw: str) -> None:
    with pytest.raises(DamagedError):
        column(Scalar.STRING, b"\x02a", bytes.fromhex(raw))


def test_lists_of_string_values() -> None:
    # Their length is written as it is, that of a String one higher.
    assert column_of(ListType(Scalar.STRING_VALUE), ["", "a"], ["bc" * 100, ""]) == [["", "a"], ["bc" * 100, ""]]


def test_text_that_outgrows_its_first_buffer() -> None:
    # 1.5 bytes of UTF-8 for each byte written.
    text = "\u3fff" * 1000
    assert column_of(Scalar.STRING, *[text] * 50) == [text] * 50


def test_more_text_than_offsets_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_arrays, "MOST_OFFSET", 100)
    with pytest.raises(RefusedError, match="raw=true"):
        column_of(PrimitiveArrayType(Scalar.BYTE), b"x" * 60, b"y" * 60)


# Numbers, dates, times.


@pytest.mark.parametrize(
    ("unscaled", "scale", "text"),
    [
        (0, 0, "0"),
        (0, 7, "0E-7"),
        (-1, 6, "-0.000001"),
        (1, 7, "1E-7"),
        (12345, 5, "0.12345"),
        (12345, 11, "1.2345E-7"),
        (12345, -5, "1.2345E+9"),
        (10, 2**31 - 1, "1.0E-2147483646"),
        (10**30, 2, "1" + "0" * 28 + ".00"),
    ],
)
def test_big_decimals_as_java_prints_them(unscaled: int, scale: int, text: str) -> None:
    raw = codecs.encode(Scalar.BIG_INTEGER, unscaled) + struct.pack(">i", scale)
    assert column(Scalar.BIG_DECIMAL, raw) == [text]


@given(st.lists(st.none() | st.integers(-(2**70), 2**70) | st.integers(-(2**9000), 2**9000), max_size=9))
@example([2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 0, 1, 10, None, 255, -256])
def test_big_integers(numbers: list[int | None]) -> None:
    wanted = [None if number is None else f"{number:d}" if abs(number) < 2**9 else hex(number) for number in numbers]
    got = column_of(Scalar.BIG_INTEGER, *numbers)
    assert [None if text is None else text if abs(int(text)) < 2**9 else hex(int(text)) for text in got] == wanted


def test_nanoseconds_are_cut_off_toward_the_past() -> None:
    assert column_of(Scalar.INSTANT, Instant(-1, 999_999_999), Instant(0, 1_999)) == [-1, 1]
    assert column_of(Scalar.SQL_TIMESTAMP, SqlTimestamp(-1, 999_999_999)) == [-1]
    before = LocalDateTime(LocalDate(1969, 12, 31), LocalTime(23, 59, 59, 999_999_999))
    assert column_of(Scalar.LOCAL_DATE_TIME, before) == [-1]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Scalar.DATE, 2**63 - 1),
        (Scalar.INSTANT, Instant(9_300_000_000_000, 0)),
        (Scalar.LOCAL_DATE, LocalDate(999_999_999, 1, 1)),
        (Scalar.LOCAL_DATE_TIME, LocalDateTime(LocalDate(-300_000, 1, 1), LocalTime(0, 0, 0, 0))),
    ],
)
def test_times_beyond_arrow_are_refused_with_a_way_out(type_: Scalar, value: Any) -> None:
    data, starts, ends = laid_out([codecs.encode(type_, None), codecs.encode(type_, value)])
    with pytest.raises(RefusedError, match=rf"offset {starts[1]}: a {type_.label} .*raw=true"):
        decode(type_, data, starts, ends)


# Lengths that lie, and other damage that must not cost memory.


@pytest.mark.parametrize(
    "type_",
    [
        PrimitiveArrayType(Scalar.BYTE),
        PrimitiveArrayType(Scalar.LONG),
        PrimitiveArrayType(Scalar.STRING),
        ListType(Scalar.STRING),
        ListType(ListType(Scalar.LONG)),
        ListType(Scalar.NULL_VALUE),
        ListType(TupleType((Scalar.NULL_VALUE,), "Tuple1")),
        SetType(Scalar.NULL_VALUE),
        ArrayType(Scalar.LONG, "Long"),
        STRING_TO_LONG,
        Scalar.BITMAP,
        Scalar.BIG_INTEGER,
    ],
)
@pytest.mark.parametrize("count", ["7fffffff", "ffffffff", "80000000"])
def test_counts_are_not_believed(type_: FlinkType, count: str) -> None:
    with pytest.raises(StateferryError):
        column(type_, bytes.fromhex(count) + bytes(16))


def test_a_list_of_nothing_has_its_length() -> None:
    assert column(ListType(Scalar.NULL_VALUE), bytes.fromhex("00000003")) == [[None, None, None]]


def test_the_error_says_where_and_what() -> None:
    with pytest.raises(DamagedError, match=r"offset 8: expected 8 bytes of Long, found 3 until the end"):
        column(Scalar.LONG, bytes(8), bytes(3))
    with pytest.raises(DamagedError, match=r"offset 1: expected a flag 0 or 1 in Boolean, found 7"):
        column(Scalar.BOOLEAN, b"\1", b"\7")
    with pytest.raises(DamagedError, match=r"offset 0: expected a count in Long\[\].* 8 bytes.*found 2|long\[\]"):
        column(PrimitiveArrayType(Scalar.LONG), bytes.fromhex("00000002") + bytes(8))
    with pytest.raises(DamagedError, match=r"offset 4: expected the number of one of 2 constants of Color, found 2"):
        column(EnumType("com.acme.Color", ("RED", "BLUE")), bytes(4), bytes.fromhex("00000002"))
    with pytest.raises(DamagedError, match=r"offset 0: expected a byte 1 or 2 in TaggedUnion<Long,Long>, found 0"):
        column(EitherType(Scalar.LONG, Scalar.LONG, JOINED_ELEMENT), bytes(9))


def test_a_null_side_of_an_either_is_no_damage() -> None:
    """Flink marks the side alone: `Success(null)` of a Scala `Try` is legal, and so is a null that a job joins."""
    for kind in (SCALA_TRY, JOINED_ELEMENT):
        found = column(EitherType(Scalar.STRING, Scalar.LONG, kind), b"\1\0")
        assert [*found[0].values()] == [None, None]
    with pytest.raises(DamagedError, match="found null"):
        column(EitherType(Scalar.STRING, Scalar.LONG, FLINK_EITHER), b"\1\0")


# What has no columns.


def test_opaque_types_are_refused_by_name() -> None:
    for type_ in (KRYO, ListType(KRYO), TupleType((Scalar.LONG, KRYO), "Tuple2")):
        with pytest.raises(RefusedError, match=r"com\.acme\.Thing is written by Kryo.*raw=true"):
            arrow_type(type_)
    with pytest.raises(RefusedError, match=r"com\.acme\.Thing"):
        column(KRYO, b"x")


def test_null_keys_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"offset 8: a null key in Map<String,Long>"):
        column(STRING_TO_LONG, bytes(4), bytes.fromhex("00000001 00 01"))


# POJOs.

LEGS = PojoField("legs", Scalar.INTEGER)
CAT = PojoType("com.acme.Cat", (LEGS, PojoField("lives", Scalar.LONG)))
DOG = PojoType("com.acme.Dog", (LEGS, PojoField("lives", Scalar.STRING)))
ANIMAL = PojoType(
    "com.acme.Animal",
    (LEGS,),
    (CAT, KRYO),
    (
        ("com.acme.Dog", DOG),
        ("com.acme.Eel", KRYO),
    ),
)


def test_subclasses_keep_all_they_have() -> None:
    animals = [
        PojoValue("com.acme.Cat", {"legs": 4, "lives": 9}),
        None,
        PojoValue("com.acme.Dog", {"legs": None, "lives": "one"}),
        PojoValue("com.acme.Animal", {"legs": 6}),
    ]
    rows = column_of(ANIMAL, *animals)
    other = "lives_com.acme.Dog"
    assert rows == [
        {"legs": 4, "lives": 9, other: None, "class": "com.acme.Cat"},
        None,
        {"legs": None, "lives": None, other: "one", "class": "com.acme.Dog"},
        {"legs": 6, "lives": None, other: None, "class": "com.acme.Animal"},
    ]
    assert column_of(ANIMAL, None, None) == [None, None]


@pytest.mark.parametrize(
    ("raw", "name"),
    [(b"\x08\x01", "Thing"), (b"\x04\x00\x0ccom.acme.Eel", "Thing"), (b"\x04\x00\x0ccom.acme.Owl", r"com\.acme\.Owl")],
)
def test_subclasses_without_columns_are_refused_where_they_turn_up(raw: bytes, name: str) -> None:
    with pytest.raises(UnfitError, match=name) as met:
        column(ANIMAL, b"\x01", raw)
    assert met.value.places.tolist() == [1]


def test_rows_have_their_kind() -> None:
    type_ = RowType((Scalar.LONG,), has_kind=True)
    raw = [bytes([kind << 7 & 0x80 | kind << 5 & 0x40 | 0x20]) for kind in range(4)]
    assert column(type_, *raw) == [{"f0": None, "kind": kind} for kind in ROW_KINDS]


# Inputs as callers have them.


def test_arrays_that_can_not_be_written_to(tmp_path: Path) -> None:
    type_ = TupleType((STRING_TO_LONG, ListType(Scalar.STRING), Scalar.STRING), "Tuple3")
    raw = codecs.encode(type_, ([("a", 1), ("b", None)], ["c", None], "d"))
    (tmp_path / "data").write_bytes(raw)
    start, end = np.array([0]), np.array([len(raw)])
    writable = decode(type_, np.frombuffer(bytearray(raw), np.uint8), start, end)[0]
    assert decode(type_, np.frombuffer(raw, np.uint8), start, end)[0].equals(writable)
    start.flags.writeable = False
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        assert decode(type_, view, start, end)[0].equals(writable)
        del view


def test_strided_and_narrow_positions() -> None:
    data, starts, ends = laid_out([codecs.encode(Scalar.STRING, text) for text in ("one", "two", "three", "four")])
    assert plain(decode(Scalar.STRING, data, starts[::2], ends[::2])[0]) == ["one", "three"]
    assert plain(decode(Scalar.STRING, data, starts.astype(np.int32), ends.astype(np.int32))[0])[3] == "four"


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 4), (2, 1)])
def test_positions_outside_the_data_are_the_callers_mistake(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="within 3 bytes"):
        decode(Scalar.BYTE, np.zeros(3, np.uint8), np.array([start]), np.array([end]))


@given(st.lists(st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=5), max_size=5))
def test_list_state(rows: list[list[str | None]]) -> None:
    parts = [b",".join(codecs.encode(Scalar.STRING, item) for item in row) for row in rows]
    array = decode_list_state(Scalar.STRING, *laid_out(parts))
    array.validate(full=True)
    assert plain(array) == rows


def test_list_state_with_a_wrong_delimiter() -> None:
    with pytest.raises(DamagedError):
        decode_list_state(Scalar.BYTE, *laid_out([b"\1,\2", b"\1;\2"]))


def test_blocks_of_one_width_are_each_of_that_width() -> None:
    data, starts, ends = laid_out([b"abcd", b"abcde", b"abc"])
    data.flags.writeable = False
    with pytest.raises(DamagedError, match="expected 4 bytes, found 5") as caught:
        blocks_array(data, starts, ends, pa.binary(4))
    assert caught.value.offset == 4
