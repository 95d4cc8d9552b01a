"""Java's `hashCode` and Flink's serializers in plain Python, on values: the twin of the column-wise hashes.

A value is a Python value of its kind; dates and such are tuples of their parts, a BigDecimal is (unscaled, scale), a
row is (kind, fields), an Either is (is left, value), a set or a map a list of elements or pairs, and None is null.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from flinkstate.serializers.types import (
    EitherType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    RowType,
    Scalar,
    SetType,
    TupleType,
)

Value = Any


def signed(value: int, bits: int = 32) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >> bits - 1 else value


def hash_long(value: int) -> int:
    word = value & 2**64 - 1
    return signed(word ^ word >> 32)


def hash_double(value: float) -> int:
    return hash_long(0x7FF8 << 48 if math.isnan(value) else struct.unpack(">q", struct.pack(">d", value))[0])


def hash_float(value: float) -> int:
    return 0x7FC00000 if math.isnan(value) else int(struct.unpack(">i", struct.pack(">f", value))[0])


def utf16_units(text: str) -> tuple[int, ...]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(encoded) // 2}H", encoded)


def hash_string(text: str) -> int:
    code = 0
    for unit in utf16_units(text):
        code = 31 * code + unit
    return signed(code)


def hash_big_integer(value: int) -> int:
    magnitude = abs(value)
    words = []
    while magnitude:
        words.append(magnitude & 0xFFFFFFFF)
        magnitude >>= 32
    code = 0
    for word in reversed(words):
        code = 31 * code + word
    return signed(-code if value < 0 else code)


def hash_local_date(date: tuple[int, int, int]) -> int:
    year, month, day = date
    return signed((year & 0xFFFFF800) ^ signed((year << 11) + (month << 6) + day))


def hash_local_time(time: tuple[int, int, int, int]) -> int:
    hour, minute, second, nano = time
    return hash_long(((hour * 60 + minute) * 60 + second) * 10**9 + nano)


SCALAR_HASHES: dict[Scalar, Callable[[Value], int]] = {
    Scalar.BOOLEAN: lambda value: 1231 if value else 1237,
    Scalar.BYTE: int,
    Scalar.SHORT: int,
    Scalar.INTEGER: int,
    Scalar.LONG: hash_long,
    Scalar.FLOAT: hash_float,
    Scalar.DOUBLE: hash_double,
    Scalar.CHARACTER: int,
    Scalar.STRING: hash_string,
    Scalar.BIG_INTEGER: hash_big_integer,
    Scalar.BIG_DECIMAL: lambda value: signed(31 * hash_big_integer(value[0]) + value[1]),
    Scalar.DATE: hash_long,
    Scalar.SQL_DATE: hash_long,
    Scalar.SQL_TIME: hash_long,
    Scalar.SQL_TIMESTAMP: lambda value: hash_long(value[0] // 1000 * 1000 + value[1] // 10**6),
    Scalar.INSTANT: lambda value: signed(hash_long(value[0]) + 51 * value[1]),
    Scalar.LOCAL_DATE: hash_local_date,
    Scalar.LOCAL_TIME: hash_local_time,
    Scalar.LOCAL_DATE_TIME: lambda value: hash_local_date(value[0]) ^ hash_local_time(value[1]),
    Scalar.TUPLE0: lambda value: 0,
    Scalar.BOOLEAN_VALUE: int,
    Scalar.BYTE_VALUE: int,
    Scalar.SHORT_VALUE: int,
    Scalar.INT_VALUE: int,
    Scalar.LONG_VALUE: lambda value: signed(43 + hash_long(value)),
    Scalar.FLOAT_VALUE: hash_float,
    Scalar.DOUBLE_VALUE: lambda value: signed(31 + hash_double(value)),
    Scalar.CHAR_VALUE: int,
    Scalar.STRING_VALUE: hash_string,
    Scalar.NULL_VALUE: lambda value: 53,
}


def hash_code(type_: FlinkType, value: Value) -> int:
    """`Objects.hashCode` of a value."""
    if value is None:
        return 0
    match type_:
        case Scalar():
            return SCALAR_HASHES[type_](value)
        case NullableType(inner):
            return hash_code(inner, value)
        case EitherType(left, right):
            return hash_code(left if value[0] else right, value[1])
        case TupleType(fields):
            code = 0
            for field, part in zip(fields, value, strict=True):
                code = 31 * code + hash_code(field, part)
            return signed(code)
        case ListType(element):
            code = 1
            for part in value:
                code = 31 * code + hash_code(element, part)
            return signed(code)
        case SetType(element):
            return signed(sum(hash_code(element, part) for part in value))
        case MapType(key_type, value_type):
            return signed(sum(hash_code(key_type, key) ^ hash_code(value_type, part) for key, part in value))
        case RowType(fields):
            kind, parts = value
            code = 1
            for field, part in zip(fields, parts, strict=True):
                code = 31 * code + deep_hash_code(field, part)
            return signed(31 * kind + code)
    raise AssertionError(type_)


def deep_hash_code(type_: FlinkType, value: Value) -> int:
    """What a row makes of a field."""
    if value is None:
        return 0
    match type_:
        case NullableType(inner):
            return deep_hash_code(inner, value)
        case ListType(element):
            code = 1
            for part in value:
                code = 31 * code + deep_hash_code(element, part)
            return signed(code)
        case MapType(key_type, value_type):
            return signed(
                1 + sum(deep_hash_code(key_type, key) ^ deep_hash_code(value_type, part) for key, part in value)
            )
    return signed(31 + hash_code(type_, value))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_bytes(text: str, length_offset: int) -> bytes:
    units = utf16_units(text)
    return varint(len(units) + length_offset) + b"".join(map(varint, units))


def big_integer_bytes(value: int) -> bytes:
    magnitude = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    return struct.pack(">i", len(magnitude) + 4) + magnitude


NULLS: dict[Scalar, bytes] = {
    Scalar.STRING: b"\x00",
    Scalar.BIG_INTEGER: bytes(4),
    Scalar.BIG_DECIMAL: bytes(4),
    Scalar.DATE: b"\x80" + bytes(7),
    Scalar.SQL_DATE: b"\x80" + bytes(7),
    Scalar.SQL_TIME: b"\x80" + bytes(7),
    Scalar.SQL_TIMESTAMP: b"\x80" + bytes(11),
    Scalar.INSTANT: b"\x80" + bytes(7) + b"\x80" + bytes(3),
    Scalar.LOCAL_DATE: b"\x80\x00\x00\x00\x80\x00",
    Scalar.LOCAL_TIME: b"\x80\x80\x00\x80\x00\x00\x00",
    Scalar.LOCAL_DATE_TIME: b"\x80\x00\x00\x00\x80\x00\x80\x80\x00\x80\x00\x00\x00",
    Scalar.VOID: b"\x00",
}
FORMATS: dict[Scalar, str] = {
    Scalar.BOOLEAN: ">?",
    Scalar.BYTE: ">b",
    Scalar.SHORT: ">h",
    Scalar.INTEGER: ">i",
    Scalar.LONG: ">q",
    Scalar.FLOAT: ">f",
    Scalar.DOUBLE: ">d",
    Scalar.CHARACTER: ">H",
    Scalar.DATE: ">q",
    Scalar.SQL_DATE: ">q",
    Scalar.SQL_TIME: ">q",
    Scalar.BOOLEAN_VALUE: ">?",
    Scalar.BYTE_VALUE: ">b",
    Scalar.SHORT_VALUE: ">h",
    Scalar.INT_VALUE: ">i",
    Scalar.LONG_VALUE: ">q",
    Scalar.FLOAT_VALUE: ">f",
    Scalar.DOUBLE_VALUE: ">d",
    Scalar.CHAR_VALUE: ">H",
}


def scalar_bytes(type_: Scalar, value: Value) -> bytes:
    if value is None:
        return NULLS[type_]
    match type_:
        case Scalar.STRING:
            return string_bytes(value, 1)
        case Scalar.STRING_VALUE:
            return string_bytes(value, 0)
        case Scalar.BIG_INTEGER:
            return big_integer_bytes(value)
        case Scalar.BIG_DECIMAL:
            return big_integer_bytes(value[0]) + struct.pack(">i", value[1])
        case Scalar.SQL_TIMESTAMP | Scalar.INSTANT:
            return struct.pack(">qi", *value)
        case Scalar.LOCAL_DATE:
            return struct.pack(">ibb", *value)
        case Scalar.LOCAL_TIME:
            return struct.pack(">bbbi", *value)
        case Scalar.LOCAL_DATE_TIME:
            return struct.pack(">ibb", *value[0]) + struct.pack(">bbbi", *value[1])
        case Scalar.TUPLE0:
            return b"\x2a"
        case Scalar.NULL_VALUE:
            return b""
    return struct.pack(FORMATS[type_], value)


def value_bytes(type_: FlinkType, value: Value) -> bytes:
    """The bytes that Flink's serializer writes for a value."""
    match type_:
        case Scalar():
            return scalar_bytes(type_, value)
        case NullableType(inner, padding):
            return b"\x01" + bytes(padding) if value is None else b"\x00" + value_bytes(inner, value)
        case EitherType(left, right):
            return (b"\x01" if value[0] else b"\x00") + value_bytes(left if value[0] else right, value[1])
        case TupleType(fields):
            return b"".join(value_bytes(field, part) for field, part in zip(fields, value, strict=True))
        case ListType(element):
            return struct.pack(">i", len(value)) + b"".join(value_bytes(element, part) for part in value)
        case SetType(element):
            return struct.pack(">i", len(value)) + b"".join(optional_bytes(element, part) for part in value)
        case MapType(key_type, value_type):
            entries = [value_bytes(key_type, key) + optional_bytes(value_type, part) for key, part in value]
            return struct.pack(">i", len(value)) + b"".join(entries)
        case RowType(fields, has_kind):
            kind, parts = value
            bits = [kind & 1, kind >> 1] if has_kind else []
            bits += [1 if part is None else 0 for part in parts]
            bits += [0] * (-len(bits) % 8)
            mask = bytes(int("".join(map(str, bits[start : start + 8])), 2) for start in range(0, len(bits), 8))
            fields_bytes = [
                value_bytes(field, part) for field, part in zip(fields, parts, strict=True) if part is not None
            ]
            return mask + b"".join(fields_bytes)
    raise AssertionError(type_)


def optional_bytes(type_: FlinkType, value: Value) -> bytes:
    return b"\x01" if value is None else b"\x00" + value_bytes(type_, value)
