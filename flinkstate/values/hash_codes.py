"""Java's `hashCode` of single decoded values, in plain Python.

The validation compares the compiled hashes of whole columns (`flinkstate.hashing`) with these. The rules are those in
`flinkstate.hashing.java_hash`, but no code is shared. Objects by Kryo are hashed here alone: what is held against their
hashes are the key groups in which the keys are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import mmh3

from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    EitherType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
)
from flinkstate.values.java_values import LocalDate, LocalTime
from flinkstate.values.kryo_class_names import EITHER_SIDES, LISTS, MAPS, SETS
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import IDENTITY_MAP, SCALARS

_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"


def key_group_of(type_: FlinkType, key: Any, max_parallelism: int) -> int | None:
    """Returns a key's key group, or None if the hash of its class doesn't follow from its content."""
    code = hash_code(type_, key)
    if code is None:
        return None
    hashed = mmh3.hash(struct.pack("<i", code), 0)
    return (0 if hashed == -(2**31) else abs(hashed)) % max_parallelism


def hash_code(type_: FlinkType, value: Any) -> int | None:
    """Returns `Objects.hashCode` of a value, or None if it isn't known."""
    try:
        return _signed(_hash(type_, value))
    except _UnknownHashError:
        return None


def class_without_hash(type_: FlinkType, value: Any) -> str:
    """Returns the class because of which `hash_code` is None; "" if no object by Kryo is in the way."""
    try:
        _hash(type_, value)
    except _UnknownHashError as unknown:
        return f"{unknown}"
    return ""


class _UnknownHashError(Exception):
    """A part of the value has an identity hash, or one that foreign code computes."""


def _hash(type_: FlinkType, value: Any) -> int:
    if isinstance(type_, NullableType):
        return _hash(type_.value, value)
    if isinstance(type_, Scalar):
        if type_ not in _SCALARS:
            raise _UnknownHashError
        return 0 if value is None else _SCALARS[type_](value)
    match type_:
        case TupleType(fields, class_name) if class_name == f"{_TUPLE_CLASS}{len(fields)}":
            return 0 if value is None else _fold(map(_hash, fields, value), 0)
        case EitherType(left, right, class_name) if class_name == FLINK_EITHER:
            return 0 if value is None else _hash(left if value.is_left else right, value.value)
        case ListType(element):
            return 0 if value is None else _fold((_hash(element, part) for part in value), 1)
        case SetType(element):
            return 0 if value is None else sum(_hash(element, part) for part in value)
        case MapType(keys, values):
            pairs = value or ()
            return sum(_hash(keys, key) ^ _hash(values, part) for key, part in pairs)
        case RowType(fields):
            if value is None:
                return 0
            return 31 * int(value.kind.value) + _fold(map(_deep_hash, fields, value.fields), 1)
        case KryoType():
            return _hash_object(value)
    raise _UnknownHashError


def _hash_object(found: KryoObject | None) -> int:
    if found is None:
        return 0
    name, value = found.class_name, found.value
    if name in SCALARS:
        return _SCALARS[SCALARS[name]](value)
    if name == "java.util.UUID":
        bits = UUID(value).int
        return _long(bits >> 64 ^ bits)
    if name in LISTS:
        return _fold(map(_hash_object, value), 1)
    if name in SETS:
        return sum(map(_hash_object, value))
    if name in MAPS and name != IDENTITY_MAP:
        return sum(_hash_object(key) ^ _hash_object(part) for key, part in value)
    if name in EITHER_SIDES:
        return _hash_object(value[EITHER_SIDES[name]])
    if isinstance(value, tuple) and name == f"{_TUPLE_CLASS}{len(value)}":
        return _fold(map(_hash_object, value), 0)
    raise _UnknownHashError(name)


def _deep_hash(type_: FlinkType, value: Any) -> int:
    """Returns the hash that a row uses for one of its fields."""
    if isinstance(type_, NullableType):
        return _deep_hash(type_.value, value)
    if value is None:
        return 0
    match type_:
        case ListType(element) | ArrayType(element) | PrimitiveArrayType(Scalar.STRING as element):
            return _fold((_deep_hash(element, part) for part in value), 1)
        case PrimitiveArrayType(Scalar.BYTE):
            return 31 + _fold(((byte ^ 128) - 128 for byte in value), 1)
        case PrimitiveArrayType(element):
            return 31 + _fold((_hash(element, part) for part in value), 1)
        case MapType(keys, values):
            return 1 + sum(_deep_hash(keys, key) ^ _deep_hash(values, part) for key, part in value)
        case KryoType():
            return _deep_hash_object(value)
    return 31 + _hash(type_, value)


def _deep_hash_object(found: KryoObject | None) -> int:
    if found is None:
        return 0
    if found.class_name in LISTS:
        return _fold(map(_deep_hash_object, found.value), 1)
    if found.class_name in MAPS and found.class_name != IDENTITY_MAP:
        return 1 + sum(_deep_hash_object(key) ^ _deep_hash_object(part) for key, part in found.value)
    return 31 + _hash_object(found)


def _fold(codes: Iterable[int], start: int) -> int:
    code = start
    for part in codes:
        code = (31 * code + part) & 0xFFFFFFFF
    return code


def _signed(code: int) -> int:
    code &= 0xFFFFFFFF
    return code - 2**32 if code >> 31 else code


def _long(value: int) -> int:
    word = value & 2**64 - 1
    return (word ^ word >> 32) & 0xFFFFFFFF


def _double(value: float) -> int:
    return _long(0x7FF8 << 48 if math.isnan(value) else struct.unpack(">q", struct.pack(">d", value))[0])


def _float(value: float) -> int:
    return 0x7FC00000 if math.isnan(value) else int(struct.unpack(">i", struct.pack(">f", value))[0])


def _string(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    return _fold(struct.unpack(f">{len(units) // 2}H", units), 0)


def _big_integer(value: int) -> int:
    magnitude = abs(value).to_bytes((value.bit_length() + 31) // 32 * 4, "big")
    code = _fold(struct.unpack(f">{len(magnitude) // 4}I", magnitude), 0)
    return -code if value < 0 else code


def _local_date(date: LocalDate) -> int:
    return (date.year & 0xFFFFF800) ^ ((date.year << 11) + (date.month << 6) + date.day) & 0xFFFFFFFF


def _local_time(time: LocalTime) -> int:
    return _long(((time.hour * 60 + time.minute) * 60 + time.second) * 10**9 + time.nano)


_SCALARS: dict[Scalar, Callable[[Any], int]] = {
    Scalar.BOOLEAN: lambda value: 1231 if value else 1237,
    Scalar.BYTE: int,
    Scalar.SHORT: int,
    Scalar.INTEGER: int,
    Scalar.LONG: _long,
    Scalar.FLOAT: _float,
    Scalar.DOUBLE: _double,
    Scalar.CHARACTER: _string,
    Scalar.STRING: _string,
    Scalar.BIG_INTEGER: _big_integer,
    Scalar.BIG_DECIMAL: lambda value: 31 * _big_integer(value.unscaled) + value.scale,
    Scalar.DATE: _long,
    Scalar.SQL_DATE: _long,
    Scalar.SQL_TIME: _long,
    Scalar.SQL_TIMESTAMP: lambda value: _long(value.millis // 1000 * 1000 + value.nano // 10**6),
    Scalar.INSTANT: lambda value: _long(value.seconds) + 51 * value.nano,
    Scalar.LOCAL_DATE: _local_date,
    Scalar.LOCAL_TIME: _local_time,
    Scalar.LOCAL_DATE_TIME: lambda value: _local_date(value.date) ^ _local_time(value.time),
    Scalar.VOID: lambda value: 0,
    Scalar.TUPLE0: lambda value: 0,
    Scalar.BOOLEAN_VALUE: int,
    Scalar.BYTE_VALUE: int,
    Scalar.SHORT_VALUE: int,
    Scalar.INT_VALUE: int,
    Scalar.LONG_VALUE: lambda value: 43 + _long(value),
    Scalar.FLOAT_VALUE: _float,
    Scalar.DOUBLE_VALUE: lambda value: 31 + _double(value),
    Scalar.CHAR_VALUE: _string,
    Scalar.STRING_VALUE: _string,
    Scalar.NULL_VALUE: lambda value: 53,
}
