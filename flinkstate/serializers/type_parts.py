"""What is said of a whole type: its length, its parts, the map that its values are, what Kryo or flink-scala writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.serializers.types import (
    SCALA_EITHER,
    SCALA_TRY,
    AvroBranch,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    KryoMapType,
    KryoType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoField,
    PojoMapType,
    RowType,
    Scalar,
    ScalaType,
    TimerType,
    TraversableType,
    TtlType,
    TupleType,
    children,
)


def fixed_length(type_: FlinkType) -> int | None:
    """Returns what Flink's `TypeSerializer.getLength()` says, or None if the length varies.

    This decides whether keys and namespaces have length suffixes.
    """
    match type_:
        case Scalar():
            return type_.length
        case TupleType(fields):
            # Flink treats a field of length 0 like one of varying length.
            lengths = [fixed_length(field) or 0 for field in fields]
            return sum(lengths) if all(lengths) else None
        case EnumType():
            return 4
        case NullableType(_, padding):
            return 1 + padding if padding else None
        case TtlType(value):
            length = fixed_length(value)
            return None if length is None else 8 + length
        case TimerType(key, namespace):
            key_length, namespace_length = fixed_length(key), fixed_length(namespace)
            return None if key_length is None or namespace_length is None else 8 + key_length + namespace_length
        case ScalaType(source=source):
            # What may be a key's part has the same length by either serializer.
            return fixed_length(source)
        case _:
            return None


def may_be_of_fixed_length(type_: FlinkType) -> bool:
    """Whether only an unknown serializer's own code knows if the length of a type varies."""
    match type_:
        case TupleType(fields):
            return fixed_length(type_) is None and all(fixed_length(f) or may_be_of_fixed_length(f) for f in fields)
        case TtlType(value) | ScalaType(source=value):
            return may_be_of_fixed_length(value)
    return type(type_) is OpaqueType


def with_children(type_: FlinkType, change: Callable[[FlinkType], FlinkType]) -> FlinkType:
    """Returns the type with another one for each that a value of it may contain directly."""
    if isinstance(type_, Scalar):
        return type_
    changed = {part.name: _changed(getattr(type_, part.name), change) for part in fields(type_) if part.init}
    return replace(type_, **changed)


def _changed(part: Any, change: Callable[[FlinkType], FlinkType]) -> Any:
    if isinstance(part, FlinkType):
        return change(part)
    if isinstance(part, PojoField | AvroBranch):
        return replace(part, type=change(part.type))
    return tuple(_changed(one, change) for one in part) if isinstance(part, tuple) else part


def with_parts(type_: FlinkType) -> Iterator[FlinkType]:
    """Yields the type, and all types that a value of it may contain."""
    yield type_
    for child in children(type_):
        yield from with_parts(child)


def has_row(type_: FlinkType) -> bool:
    """Whether values of the type have a Row of Flink's own serializer."""
    return any(isinstance(part, RowType) for part in with_parts(type_))


def has_large_numbers(type_: FlinkType) -> bool:
    """Whether values of the type have a BigInteger or BigDecimal, of which Flink writes 0, 1 and 10 in two ways."""
    return any(part in (Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL) for part in with_parts(type_))


def map_of(type_: FlinkType | None) -> MapType | None:
    """Returns the map that each value of this type is, whatever serializer is around it; None if it isn't one.

    Flink 2 makes the keys of a nullable map nullable too. Keys of a MapState are not.
    """
    match type_:
        case MapType():
            return type_
        case NullableType(MapType(NullableType(key), value)) | NullableType(MapType(key, value)):
            return MapType(key, value)
        case KryoMapType():
            return type_.map
        case PojoMapType():
            return map_of(type_.map)
    return None


def object_of(type_: FlinkType | None) -> KryoType | None:
    """Returns the serializer of the objects that Kryo wrote as a whole, if each value has its map in a field of one."""
    return type_.pojo if isinstance(type_, PojoMapType) and isinstance(type_.pojo, KryoType) else None


def field_of(type_: FlinkType | None) -> str | None:
    """Returns the field in which each value has its map; None if the map is the value."""
    return type_.field if isinstance(type_, PojoMapType) else None


def object_field(type_: FlinkType | None) -> str | None:
    """Returns the field in which such objects have their maps; None if the values aren't such objects."""
    return None if object_of(type_) is None else field_of(type_)


def kryo_map_of(type_: FlinkType | None) -> KryoMapType | None:
    """Returns how the map by Kryo is stored that each value of this type is or has in a field; None without one."""
    inner = type_.map if isinstance(type_, PojoMapType) else type_
    return inner if isinstance(inner, KryoMapType) else None


def is_of_scala(type_: FlinkType | None) -> bool:
    """Whether a serializer of flink-scala itself writes values of the type, whatever is in them."""
    match type_:
        case CaseClassType() | OptionType() | TraversableType() | Scalar.UNIT | Scalar.NOTHING:
            return True
        case EitherType(class_name=name):
            return name in (SCALA_EITHER, SCALA_TRY)
        case EnumType(ids=ids):
            return ids is not None
    return False


def has_scala(type_: FlinkType | None) -> bool:
    """Whether serializers of flink-scala write values of the type, or parts of them."""
    return type_ is not None and any(map(is_of_scala, with_parts(type_)))


def kept_by_kryo(type_: FlinkType) -> tuple[KryoType, ...]:
    """Returns the parts of a type whose values stay Kryo's."""
    return tuple(part for part in with_parts(type_) if isinstance(part, KryoType))


def with_opaque(type_: FlinkType, change: Callable[[OpaqueType], FlinkType]) -> FlinkType:
    """Returns the type with another one for each part of it whose values can't be walked."""
    if isinstance(type_, OpaqueType):
        return change(type_)
    return with_children(type_, lambda child: with_opaque(child, change)) if opaque_parts(type_) else type_


def with_kryo(type_: FlinkType, change: Callable[[KryoType], KryoType]) -> FlinkType:
    """Returns the type with other serializers by Kryo, but for those of collections that are made of others."""

    def changed(one: OpaqueType) -> OpaqueType:
        if isinstance(one, KryoMapType):
            key, value = (with_kryo(part, change) for part in children(one.map))
            return replace(one, kryo=change(one.kryo), map=MapType(key, value))
        return change(one) if isinstance(one, KryoType) else one

    return with_opaque(type_, changed)


def with_classes(type_: FlinkType, job: JobClasses | None) -> FlinkType:
    """Returns the type, of which what is by Kryo may be of the job's classes."""
    if job is None:
        return type_
    return with_kryo(type_, lambda one: replace(one, classes=job))


def opaque_parts(type_: FlinkType) -> tuple[OpaqueType, ...]:
    """Returns every part of the type whose values can't be walked."""
    if isinstance(type_, OpaqueType):
        return (type_,)
    return tuple(part for child in children(type_) for part in opaque_parts(child))
