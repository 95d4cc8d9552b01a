"""The serializer snapshots of Flink itself, by class: the type that each describes, and how its outer body is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkstate.serializers.avro import read_avro
from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.types import (
    JOINED_ELEMENT,
    SCALA_EITHER,
    SCALA_TRY,
    ArrayType,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TimerType,
    TraversableType,
    TtlType,
    TupleType,
)

_BASE = "org.apache.flink.api.common.typeutils.base."
_RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
_STATE = "org.apache.flink.runtime.state."
_OPERATORS = "org.apache.flink.streaming.api.operators."
_WINDOWS = "org.apache.flink.streaming.api.windowing.windows."
_SCALA = "org.apache.flink.api.scala.typeutils."
_CEP_BUFFER = "org.apache.flink.cep.nfa.sharedbuffer."
_BUFFER_ENTRY = _OPERATORS + "co.IntervalJoinOperator$BufferEntry"

MAP_SNAPSHOT = _BASE + "MapSerializerSnapshot"
LIST_SNAPSHOT = _BASE + "ListSerializerSnapshot"
SET_SNAPSHOT = _BASE + "SetSerializerSnapshot"
NULLABLE_SNAPSHOT = _RUNTIME + "NullableSerializer$NullableSerializerSnapshot"
TTL_SNAPSHOT = _STATE + "ttl.TtlStateFactory$TtlSerializerSnapshot"
ARRAY_SNAPSHOT = _BASE + "GenericArraySerializerSnapshot"
TUPLE_SNAPSHOT = _RUNTIME + "TupleSerializerSnapshot"
ROW_SNAPSHOT = _RUNTIME + "RowSerializer$RowSerializerSnapshot"
EITHER_SNAPSHOT = _RUNTIME + "JavaEitherSerializerSnapshot"
TIMER_SNAPSHOT = _OPERATORS + "TimerSerializerSnapshot"


def _own_class(base: str, name: str) -> str:
    return f"{base}{name}${name}Snapshot"


# What the names of their serializers begin with.
SCALAR_NAMES: dict[Scalar, str] = {
    Scalar.BOOLEAN: "Boolean",
    Scalar.BYTE: "Byte",
    Scalar.SHORT: "Short",
    Scalar.INTEGER: "Int",
    Scalar.LONG: "Long",
    Scalar.FLOAT: "Float",
    Scalar.DOUBLE: "Double",
    Scalar.CHARACTER: "Char",
    Scalar.STRING: "String",
    Scalar.BIG_INTEGER: "BigInt",
    Scalar.BIG_DECIMAL: "BigDec",
    Scalar.DATE: "Date",
    Scalar.SQL_DATE: "SqlDate",
    Scalar.SQL_TIME: "SqlTime",
    Scalar.SQL_TIMESTAMP: "SqlTimestamp",
    Scalar.INSTANT: "Instant",
    Scalar.LOCAL_DATE: "LocalDate",
    Scalar.LOCAL_TIME: "LocalTime",
    Scalar.LOCAL_DATE_TIME: "LocalDateTime",
    Scalar.VOID: "Void",
    Scalar.VARIANT: "Variant",
    Scalar.BITMAP: "Bitmap",
    # BooleanValue, ByteValue and so on.
    **{scalar: scalar.label for scalar in Scalar if scalar.label.endswith("Value")},
}
_PRIMITIVES = (
    *(Scalar.BOOLEAN, Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER),
    *(Scalar.LONG, Scalar.FLOAT, Scalar.DOUBLE, Scalar.CHARACTER),
)
SIMPLE_TYPES: dict[str, FlinkType] = {
    **{_own_class(_BASE, f"{name}Serializer"): scalar for scalar, name in SCALAR_NAMES.items()},
    **{
        _own_class(_BASE + "array.", f"{SCALAR_NAMES[element]}PrimitiveArraySerializer"): PrimitiveArrayType(element)
        for element in _PRIMITIVES
    },
    _own_class(_BASE + "array.", "StringArraySerializer"): PrimitiveArrayType(Scalar.STRING),
    _RUNTIME + "Tuple0SerializerSnapshot": Scalar.TUPLE0,
    _own_class(_STATE, "VoidNamespaceSerializer"): Scalar.VOID_NAMESPACE,
    _WINDOWS + "TimeWindow$Serializer$TimeWindowSerializerSnapshot": Scalar.TIME_WINDOW,
    _WINDOWS + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": Scalar.GLOBAL_WINDOW,
    _own_class(_SCALA, "UnitSerializer"): Scalar.UNIT,
    _SCALA + "NothingSerializerSnapshot": Scalar.NOTHING,
    _CEP_BUFFER + "EventId$EventIdSerializer$EventIdSerializerSnapshot": TupleType(
        (Scalar.INTEGER, Scalar.LONG), _CEP_BUFFER + "EventId"
    ),
}


@dataclass(frozen=True, slots=True)
class CompositeClass:
    """How a composite snapshot class reads its outer body, and makes its type from that and the nested types."""

    outer_version: int
    arity: int | None
    read_outer: Callable[[ByteReader, int], Any]
    make: Callable[[Any, tuple[FlinkType, ...]], FlinkType]


def _nothing(reader: ByteReader, version: int) -> None:
    return None


def _utf_class(reader: ByteReader, version: int) -> str:
    return reader.utf("a class name")


def _utf_code(reader: ByteReader, version: int) -> str:
    return reader.utf("the Scala code that builds a collection")


def _padding(reader: ByteReader, version: int) -> int:
    padding = reader.i32("the null padding")
    if padding < 0:
        raise reader.damaged("a null padding", f"{padding}", position=reader.position - 4)
    return padding


def _row_kind(reader: ByteReader, version: int) -> bool:
    return version == 3 or (version > 3 and reader.boolean("supports row kind"))


def _ttl_of(_: None, parts: tuple[FlinkType, ...]) -> FlinkType:
    if parts[0] is not Scalar.LONG:
        return OpaqueType(TTL_SNAPSHOT, "its timestamp is not a Long")
    return TtlType(parts[1])


_CASE_CLASS = CompositeClass(2, None, _utf_class, lambda outer, parts: CaseClassType(parts, outer))

COMPOSITE_CLASSES: dict[str, CompositeClass] = {
    MAP_SNAPSHOT: CompositeClass(1, 2, _nothing, lambda _, parts: MapType(*parts)),
    LIST_SNAPSHOT: CompositeClass(1, 1, _nothing, lambda _, parts: ListType(*parts)),
    _STATE + "ArrayListSerializerSnapshot": CompositeClass(1, 1, _nothing, lambda _, parts: ListType(*parts)),
    SET_SNAPSHOT: CompositeClass(1, 1, _nothing, lambda _, parts: SetType(*parts)),
    ARRAY_SNAPSHOT: CompositeClass(1, 1, _utf_class, lambda outer, parts: ArrayType(parts[0], outer)),
    TTL_SNAPSHOT: CompositeClass(2, 2, _nothing, _ttl_of),
    TIMER_SNAPSHOT: CompositeClass(2, 2, _nothing, lambda _, parts: TimerType(*parts)),
    TUPLE_SNAPSHOT: CompositeClass(2, None, _utf_class, lambda outer, parts: TupleType(parts, outer)),
    ROW_SNAPSHOT: CompositeClass(4, None, _row_kind, lambda outer, parts: RowType(parts, outer)),
    NULLABLE_SNAPSHOT: CompositeClass(2, 1, _padding, lambda outer, parts: NullableType(parts[0], outer)),
    EITHER_SNAPSHOT: CompositeClass(1, 2, _nothing, lambda _, parts: EitherType(parts[0], parts[1])),
    _BUFFER_ENTRY + "SerializerSnapshot": CompositeClass(
        2, 1, _nothing, lambda _, parts: TupleType((Scalar.BOOLEAN, *parts), _BUFFER_ENTRY)
    ),
    "org.apache.flink.streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot": CompositeClass(
        2, 2, _nothing, lambda _, parts: EitherType(parts[0], parts[1], JOINED_ELEMENT)
    ),
    # What a pattern of CEP keeps: how often it is referred to, and an event of the job's, or what is CEP's own.
    _CEP_BUFFER + "LockableTypeSerializerSnapshot": CompositeClass(
        1, 1, _nothing, lambda _, parts: TupleType((Scalar.INTEGER, *parts), _CEP_BUFFER + "Lockable")
    ),
    _SCALA + "ScalaCaseClassSerializerSnapshot": _CASE_CLASS,
    _SCALA + "Tuple2CaseClassSerializerSnapshot": _CASE_CLASS,
    _SCALA + "ScalaOptionSerializerSnapshot": CompositeClass(2, 1, _nothing, lambda _, parts: OptionType(*parts)),
    _SCALA + "ScalaEitherSerializerSnapshot": CompositeClass(
        1, 2, _nothing, lambda _, parts: EitherType(parts[0], parts[1], SCALA_EITHER)
    ),
    _SCALA + "ScalaTrySerializerSnapshot": CompositeClass(
        2, 2, _nothing, lambda _, parts: EitherType(parts[0], parts[1], SCALA_TRY)
    ),
    _SCALA + "TraversableSerializerSnapshot": CompositeClass(
        2, 1, _utf_code, lambda outer, parts: TraversableType(parts[0], outer)
    ),
}

ENUM_SNAPSHOT = _own_class(_BASE, "EnumSerializer")
POJO_SNAPSHOT = _RUNTIME + "PojoSerializerSnapshot"
KRYO_SNAPSHOT = _RUNTIME + "kryo.KryoSerializerSnapshot"


_MOST_CONSTANTS = 0xFFFF


def _scala_enum(reader: ByteReader, class_name: str, version: int) -> FlinkType:
    """Reads a Scala enumeration: each constant has a number, and the numbers may have gaps."""
    if version != 3:
        raise reader.damaged(f"version 3 of {class_name}", f"{version}", position=reader.position - 4)
    enum_class = reader.utf("an enumeration")
    constants: dict[int, str] = {}
    count_position = reader.position
    count = reader.count("the number of an enumeration's constants", 2 + 4)
    if count > _MOST_CONSTANTS:
        raise reader.damaged(f"at most {_MOST_CONSTANTS} constants", f"{count}", position=count_position)
    for _ in range(count):
        name = reader.utf("a constant of an enumeration")
        constants[reader.i32("the number of a constant")] = name
    return EnumType(enum_class, tuple(constants.values()), tuple(constants))


# Classes whose bodies tell their own length and have no nested snapshots; each with its reader.
PLAIN_CLASSES: dict[str, Callable[[ByteReader, str, int], FlinkType]] = {
    _SCALA + "ScalaEnumSerializerSnapshot": _scala_enum,
    "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot": read_avro,
}
