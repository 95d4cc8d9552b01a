"""Every type by every mechanism: whoever adds a type and forgets one of them sees it here, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

from flinkstate.columns import column_decoder
from flinkstate.columns.arrow_types import arrow_type
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.serializers.programs import compile_type, least_size
from flinkstate.serializers.snapshot_classes import COMPOSITE_CLASSES, SIMPLE_TYPES
from flinkstate.serializers.types import (
    ArrayType,
    AvroArrayType,
    AvroBranch,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    CaseClassType,
    CountedType,
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
    type_name,
)
from flinkstate.serializers.walker import skip_each
from flinkstate.values.codecs import codec, decode_whole, encode
from flinkstate.values.hash_codes import hash_code
from flinkstate.values.java_values import (
    BigDecimal,
    EitherValue,
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    OptionValue,
    PojoValue,
    RowValue,
    Singleton,
    SqlTimestamp,
    TimerValue,
    TimeWindow,
    TtlValue,
    Variant,
)
from flinkstate.values.value_json import value_json
from flinkstate.values.value_of_text import bytes_of_text

CLASSES = [one for one in get_args(FlinkType) if one is not CountedType]
_TUPLE2 = "org.apache.flink.api.java.tuple.Tuple2"
_INT_OR_NULL = (AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("int", Scalar.INTEGER))
_DAY, _NOON = LocalDate(2024, 5, 31), LocalTime(12, 0, 1, 5)

# A type of each class, with a value.
OF_CLASSES: tuple[tuple[FlinkType, Any], ...] = (
    (Scalar.LONG, 7),
    (ListType(Scalar.STRING), ["a", "b"]),
    (SetType(Scalar.LONG), [3]),
    (MapType(Scalar.STRING, Scalar.LONG), [("a", 1)]),
    (PrimitiveArrayType(Scalar.DOUBLE), [0.5, 1.5]),
    (ArrayType(Scalar.STRING, "java.lang.String"), ["a", "b"]),
    (TraversableType(Scalar.INTEGER, "code"), [1, 2]),
    (TupleType((Scalar.LONG, Scalar.STRING), _TUPLE2), (5, "x")),
    (CaseClassType((Scalar.LONG, Scalar.STRING), "scala.Tuple2"), (5, "x")),
    (RowType((Scalar.LONG, Scalar.STRING), True), RowValue((5, None))),
    (PojoType("com.acme.Cat", (PojoField("legs", Scalar.INTEGER),)), PojoValue("com.acme.Cat", {"legs": 4})),
    (NullableType(Scalar.LONG, 8), 6),
    (OptionType(Scalar.LONG), OptionValue(7, True)),
    (EitherType(Scalar.LONG, Scalar.STRING), EitherValue("right", False)),
    (EnumType("com.acme.Color", ("RED", "GREEN")), "GREEN"),
    (AvroFixedType("com.acme.Pair", 2), b"\x01\x02"),
    (AvroArrayType(Scalar.LONG), [1, 2]),
    (AvroMapType(Scalar.LONG), [("a", 1)]),
    (AvroUnionType(_INT_OR_NULL), 9),
    (AvroRecordType("com.acme.Order", (AvroBranch("id", Scalar.INTEGER),)), PojoValue("com.acme.Order", {"id": 5})),
    (TtlType(Scalar.LONG), TtlValue(1000, 8)),
    (TimerType(Scalar.STRING, Scalar.VOID_NAMESPACE), TimerValue(1000, "k", Singleton.VOID_NAMESPACE)),
    (OpaqueType("com.acme.Thing", "serialized by Kryo"), None),
)
SCALARS: dict[Scalar, Any] = {
    **dict.fromkeys((Scalar.BOOLEAN, Scalar.BOOLEAN_VALUE), True),
    **dict.fromkeys((Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG, Scalar.BIG_INTEGER), 42),
    **dict.fromkeys((Scalar.BYTE_VALUE, Scalar.SHORT_VALUE, Scalar.INT_VALUE, Scalar.LONG_VALUE), 42),
    **dict.fromkeys((Scalar.FLOAT, Scalar.FLOAT_VALUE, Scalar.DOUBLE, Scalar.DOUBLE_VALUE), 0.5),
    **dict.fromkeys((Scalar.CHARACTER, Scalar.CHAR_VALUE, Scalar.STRING, Scalar.STRING_VALUE, Scalar.AVRO_STRING), "x"),
    Scalar.BIG_DECIMAL: BigDecimal(1250, 2),
    **dict.fromkeys((Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME), 1_700_000_000_000),
    Scalar.SQL_TIMESTAMP: SqlTimestamp(1_700_000_000_001, 1_000_000),
    Scalar.INSTANT: Instant(1_700_000_000, 5),
    Scalar.LOCAL_DATE: _DAY,
    Scalar.LOCAL_TIME: _NOON,
    Scalar.LOCAL_DATE_TIME: LocalDateTime(_DAY, _NOON),
    Scalar.TUPLE0: (),
    Scalar.VARIANT: Variant(b"\x0c\x01", b"\x01\x00\x00"),
    Scalar.BITMAP: b"\x01\x02",
    Scalar.TIME_WINDOW: TimeWindow(0, 1000),
    Scalar.NULL_VALUE: Singleton.NULL_VALUE,
    Scalar.VOID_NAMESPACE: Singleton.VOID_NAMESPACE,
    Scalar.GLOBAL_WINDOW: Singleton.GLOBAL_WINDOW,
    Scalar.UNIT: Singleton.UNIT,
    **dict.fromkeys((Scalar.VOID, Scalar.NOTHING, Scalar.AVRO_NULL), None),
}
SAMPLES = (*SCALARS.items(), *OF_CLASSES)
# No value of these can be read or written: foreign code has the first, and the second has none.
WITHOUT_VALUES = (OF_CLASSES[-1][0], Scalar.NOTHING)
# Why text stands for no value of these.
NOT_OF_TEXT: dict[object, str] = {
    **dict.fromkeys((AvroFixedType, AvroArrayType, AvroMapType, AvroUnionType, AvroRecordType), "a key isn't Avro's"),
    **dict.fromkeys((TtlType, TimerType), "made by Flink, not by a job"),
    **dict.fromkeys((Scalar.VARIANT, Scalar.BITMAP, Scalar.TIME_WINDOW), "no job has keys of it"),
    **dict.fromkeys((Scalar.VOID_NAMESPACE, Scalar.GLOBAL_WINDOW, Scalar.UNIT), "there is only one value"),
    **dict.fromkeys((Scalar.NOTHING, Scalar.AVRO_NULL, Scalar.AVRO_STRING), "a part of other types"),
}


def identity(sample: tuple[FlinkType, Any]) -> str:
    return str(sample[0]) if isinstance(sample[0], Scalar) else type(sample[0]).__name__


every_type = pytest.mark.parametrize(("type_", "value"), SAMPLES, ids=map(identity, SAMPLES))
with_values = [sample for sample in SAMPLES if sample[0] not in WITHOUT_VALUES]
every_value = pytest.mark.parametrize(("type_", "value"), with_values, ids=map(identity, with_values))


def bytes_of(type_: FlinkType, value: Any) -> tuple[Any, Any, Any]:
    data = np.frombuffer(encode(type_, value), np.uint8)
    return data, np.zeros(1, np.int64), np.array([len(data)])


def test_each_class_and_each_scalar_has_a_sample() -> None:
    assert sorted(type(type_).__name__ for type_, _ in OF_CLASSES) == sorted(one.__name__ for one in CLASSES)
    assert SCALARS.keys() == set(Scalar)


@every_type
def test_name_parts_and_program(type_: FlinkType, value: Any) -> None:
    assert type_name(type_)
    assert all(isinstance(child, FlinkType) for child in children(type_))
    assert len(compile_type(type_).code)
    assert least_size(type_) <= codec(type_).least or isinstance(type_, OpaqueType)


@every_value
def test_walk_codec_and_column_agree_about_the_bytes(type_: FlinkType, value: Any) -> None:
    data, starts, ends = bytes_of(type_, value)
    assert least_size(type_) <= len(data)
    assert skip_each(type_, data, starts, ends).tolist() == ends.tolist()
    assert decode_whole(type_, data.tobytes()) == value
    column, stops = column_decoder.decode(type_, data, starts, ends)
    assert stops.tolist() == ends.tolist()
    assert (len(column), column.type) == (1, arrow_type(type_))


@every_value
def test_json_and_text(type_: FlinkType, value: Any) -> None:
    shown = value_json(type_, value)
    parsed = json.loads(shown)
    if NOT_OF_TEXT.keys() & {type_, type(type_)}:
        with pytest.raises(RefusedError, match="can't be given as text"):
            bytes_of_text(type_, "0")
    else:
        text = parsed if isinstance(parsed, str) else shown
        assert bytes_of_text(type_, text) == encode(type_, value)


@every_value
def test_the_hash_of_a_column_is_that_of_the_value_or_has_a_reason(type_: FlinkType, value: Any) -> None:
    if unstable_reason(type_) is None and type_ is not Scalar.VOID:
        assert hash_codes(type_, *bytes_of(type_, value)).tolist() == [hash_code(type_, value)]
    else:
        assert type_ is Scalar.VOID or hash_code(type_, value) is None


@pytest.mark.parametrize("type_", WITHOUT_VALUES, ids=str)
def test_what_has_no_values_is_refused(type_: FlinkType) -> None:
    one = np.zeros(1, np.uint8), np.zeros(1, np.int64), np.ones(1, np.int64)
    uses: tuple[Callable[[], object], ...] = (
        lambda: decode_whole(type_, b"\0"),
        lambda: skip_each(type_, *one),
        lambda: column_decoder.decode(type_, *one),
    )
    for use in uses:
        with pytest.raises((DamagedError, RefusedError)):
            use()
    assert unstable_reason(type_)


def test_each_class_comes_from_a_snapshot_class() -> None:
    """Those with snapshots of their own form (POJO, Avro, enums, unknown ones) are tested in `test_snapshots.py`."""
    parts = (Scalar.LONG, Scalar.STRING)
    made = [*SIMPLE_TYPES.values()]
    for described in COMPOSITE_CLASSES.values():
        made.append(described.make(None, parts[: described.arity] if described.arity else parts))
    own_form = {PojoType, EnumType, OpaqueType}
    own_form |= {AvroFixedType, AvroArrayType, AvroMapType, AvroUnionType, AvroRecordType}
    assert {*map(type, made)} == {*CLASSES} - own_form
