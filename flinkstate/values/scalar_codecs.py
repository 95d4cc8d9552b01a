"""Codecs of values without parts.

| value | bytes |
|---|---|
| String | varint of its UTF-16 units + 1 (0: null), then each unit as a varint, low 7 bits first |
| StringValue | the same, but with the number of units itself, so without null |
| BigInteger | i32 0: null, 1, 2, 3: zero, one, ten; else i32 length + 4, two's complement of that length |
| BigDecimal | BigInteger, i32 scale unless null |
| Date, java.sql.Date, java.sql.Time | i64 milliseconds (-2^63: null) |
| java.sql.Timestamp | i64 milliseconds, i32 nanoseconds of the second (-2^63, 0: null) |
| Instant | i64 seconds, i32 nanoseconds (-2^63, -2^31: null) |
| LocalDate | i32 year, i8 month, i8 day (-2^31, i16 -2^15: null) |
| LocalTime | i8 hour, i8 minute, i8 second, i32 nanosecond (-2^7, i16 -2^15, i32 -2^31: null) |
| Variant | i32 length of the value, i32 length of the metadata, value, metadata |
| Bitmap | i32 length, that many bytes |
| Unit | one byte 0 |
| string of Avro's | i32 length, that many bytes of UTF-8 |

For zero, one and ten Flink writes the short or the long form, depending on the Java object. Both are read; the short
form is written. A null Timestamp has 12 bytes like any other, although Flink itself reads only 8 of them.
"""

from __future__ import annotations

import struct
from operator import index
from typing import Any

import numpy as np

from flinkstate.errors import DamagedError
from flinkstate.serializers.binary import varint
from flinkstate.serializers.types import Scalar
from flinkstate.values.avro_codecs import null, string
from flinkstate.values.codec_parts import (
    Codec,
    boolean,
    byte_array,
    constant,
    cut_short,
    fields,
    number,
    read_count,
    read_i32,
)
from flinkstate.values.java_values import (
    BigDecimal,
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    Singleton,
    SqlTimestamp,
    TimeWindow,
    Variant,
)

_I32 = struct.Struct(">i")
_LEAST_LONG = -(2**63)
_LEAST_INT = -(2**31)


def _floating(layout: str, what: str) -> Codec:
    any_number = number(layout, what)
    # Flink writes only one NaN.
    nan = any_number.encode(float("nan"))

    def encode(value: Any) -> bytes:
        # Python packs whatever makes itself a float, such as a Decimal, and rounds it.
        if not isinstance(value, (float, int, np.integer, np.float32, np.float16)):
            raise ValueError(f"{what} is a float or an int")
        if value != value:
            return nan
        whole = not isinstance(value, (float, np.float32, np.float16))
        # Numpy compares its integers with a float as floats.
        given = int(value) if isinstance(value, np.integer) else value
        raw = any_number.encode(given)
        written, _ = any_number.decode(raw, 0, len(raw))
        # The nearest Float of 0.1 is what its writer means. The nearest one of an int, or zero, needn't be.
        if written != given and (whole or not written):
            raise ValueError(f"{what} can't hold it, and would be {written}")
        return raw

    return any_number._replace(encode=encode)


def _character() -> Codec:
    unit = number("H", "a Character")

    def decode(data: bytes, position: int, limit: int) -> tuple[str, int]:
        value, end = unit.decode(data, position, limit)
        return chr(value), end

    return Codec(decode, lambda value: unit.encode(ord(value)), 2)


def _varint(data: bytes, position: int, limit: int, what: str, most: int) -> tuple[int, int]:
    value, shift, at = 0, 0, position
    while True:
        if at >= limit:
            raise cut_short(at, 1, limit, what)
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if value > most:
            raise DamagedError(f"{what} up to {most}", f"at least {value}", offset=position)
        if byte < 0x80:
            if byte == 0 and shift:
                raise DamagedError(f"{what} in as few bytes as it needs", f"{at - position} bytes", offset=position)
            return value, at
        shift += 7
        if shift > 28:
            raise DamagedError(f"{what} in at most 5 bytes", "more", offset=position)


def _decode_string(data: bytes, position: int, limit: int) -> tuple[str | None, int]:
    length, start = _varint(data, position, limit, "the length of a String", 2**31 - 1)
    if length == 0:
        return None, start
    return _decode_units(data, start, limit, length - 1)


def _decode_units(data: bytes, start: int, limit: int, units: int) -> tuple[str, int]:
    if units > limit - start:
        expected = f"a String of at most {limit - start} characters, which fit into the bytes that follow"
        raise DamagedError(expected, f"{units}", offset=start)
    run = data[start : start + units]
    if run.isascii():
        return run.decode("ascii"), start + units
    characters, at = [], start
    for _ in range(units):
        unit, at = _varint(data, at, limit, "a character of a String", 0xFFFF)
        characters.append(chr(unit))
    # Pairs of surrogates become one character; lone surrogates stay.
    joined = "".join(characters).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined, at


def _encode_string(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    units, encoded = _encode_units(value)
    return varint(units + 1) + encoded


def _encode_units(value: str) -> tuple[int, bytes]:
    if value.isascii():
        return len(value), value.encode("ascii")
    encoded = value.encode("utf-16-le", "surrogatepass")
    units = struct.unpack(f"<{len(encoded) // 2}H", encoded)
    return len(units), b"".join(map(varint, units))


def _decode_string_value(data: bytes, position: int, limit: int) -> tuple[str, int]:
    units, start = _varint(data, position, limit, "the length of a StringValue", 2**31 - 1)
    return _decode_units(data, start, limit, units)


def _encode_string_value(value: str) -> bytes:
    units, encoded = _encode_units(value)
    return varint(units) + encoded


_SHORT_FORMS = (None, 0, 1, 10)


def _decode_big_integer(data: bytes, position: int, limit: int) -> tuple[int | None, int]:
    code = read_i32(data, position, limit, "the length of a BigInteger")
    start = position + 4
    if 0 <= code < len(_SHORT_FORMS):
        return _SHORT_FORMS[code], start
    end = start + code - 4
    if not start < end <= limit:
        expected = f"the length of a BigInteger + 4 (at most {limit - start + 4} fits into the bytes that follow)"
        raise DamagedError(expected, f"{code}", offset=position)
    raw = data[start:end]
    if len(raw) > 1 and (raw[0], raw[1] >> 7) in ((0, 0), (0xFF, 1)):
        raise DamagedError("a BigInteger in as few bytes as it needs", f"{raw[:2].hex()} first", offset=start)
    return int.from_bytes(raw, "big", signed=True), end


def _encode_big_integer(value: int | None) -> bytes:
    if value is True or value is False:
        raise ValueError("a BigInteger is a number")
    value = None if value is None else index(value)
    if value in _SHORT_FORMS:
        return _I32.pack(_SHORT_FORMS.index(value))
    assert value is not None
    magnitude = value if value >= 0 else ~value
    length = magnitude.bit_length() // 8 + 1
    return _I32.pack(length + 4) + value.to_bytes(length, "big", signed=True)


def _decode_big_decimal(data: bytes, position: int, limit: int) -> tuple[BigDecimal | None, int]:
    unscaled, end = _decode_big_integer(data, position, limit)
    if unscaled is None:
        return None, end
    scale = read_i32(data, end, limit, "the scale of a BigDecimal")
    return BigDecimal(unscaled, scale), end + 4


def _encode_big_decimal(value: BigDecimal | None) -> bytes:
    if value is None:
        return _encode_big_integer(None)
    return _encode_big_integer(value.unscaled) + _I32.pack(value.scale)


def _millis(what: str) -> Codec:
    return fields("q", what, lambda millis: millis, lambda millis: (millis,), (_LEAST_LONG,))


_MOST_YEAR = 999_999_999
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NULL_DATE = (_LEAST_INT, -128, 0)
_NULL_TIME = (-128, -128, 0, _LEAST_INT)
_NANOS_PER_SECOND = 1_000_000_000
_INSTANT_SECONDS = range(-31_557_014_167_219_200, 31_556_889_864_403_200)  # of Java's Instant.MIN and MAX


def _date(year: int, month: int, day: int) -> LocalDate | None:
    if abs(year) > _MOST_YEAR or not 1 <= month <= 12:
        return None
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return LocalDate(year, month, day) if 1 <= day <= _DAYS[month - 1] + leap else None


def _time(hour: int, minute: int, second: int, nano: int) -> LocalTime | None:
    valid = 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nano < _NANOS_PER_SECOND
    return LocalTime(hour, minute, second, nano) if valid else None


def _date_time(year: int, month: int, day: int, *clock: int) -> LocalDateTime | None:
    date, time = _date(year, month, day), _time(*clock)
    return LocalDateTime(date, time) if date and time else None


def _date_parts(date: LocalDate) -> tuple[int, ...]:
    if hasattr(date, "hour"):
        raise ValueError("a LocalDate has no time of day")
    return date.year, date.month, date.day


def _time_parts(time: LocalTime) -> tuple[int, ...]:
    return time.hour, time.minute, time.second, time.nano


def _instant(seconds: int, nano: int) -> Instant | None:
    return Instant(seconds, nano) if seconds in _INSTANT_SECONDS and 0 <= nano < _NANOS_PER_SECOND else None


def _timestamp(millis: int, nano: int) -> SqlTimestamp | None:
    # In the first second of the range Java's arithmetic overflows, so millis and nanos may disagree there.
    agree = millis % 1000 == nano // 1_000_000 or millis < _LEAST_LONG + 1000
    return SqlTimestamp(millis, nano) if agree and 0 <= nano < _NANOS_PER_SECOND else None


_VARIANT_VERSION = 1
_MOST_VARIANT = 1 << 24


def _decode_variant(data: bytes, position: int, limit: int) -> tuple[Variant, int]:
    value_length = read_count(data, position, limit, "the length of a Variant's value", 1)
    metadata_length = read_count(data, position + 4, limit, "the length of a Variant's metadata", 1)
    start = position + 8
    middle = start + value_length
    end = middle + metadata_length
    if end > limit:
        raise cut_short(start, end - start, limit, "a Variant")
    value, metadata = data[start:middle], data[middle:end]
    if max(len(value), len(metadata)) > _MOST_VARIANT:
        raise DamagedError(f"a Variant of at most {_MOST_VARIANT} bytes", f"{end - start}", offset=position)
    if not metadata or metadata[0] & 0x0F != _VARIANT_VERSION:
        raise DamagedError(f"version {_VARIANT_VERSION} of a Variant", metadata[:1].hex() or "none", offset=middle)
    return Variant(value, metadata), end


def _encode_variant(variant: Variant) -> bytes:
    lengths = _I32.pack(len(variant.value)) + _I32.pack(len(variant.metadata))
    return lengths + variant.value + variant.metadata


def _decode_nothing(data: bytes, position: int, limit: int) -> tuple[object, int]:
    raise DamagedError("no value, because the type is Nothing, which has no values", "one", offset=position)


def _encode_nothing(value: object) -> bytes:
    raise ValueError("Nothing has no values")


_BYTE, _SHORT, _INTEGER = number("b", "a Byte"), number("h", "a Short"), number("i", "an Integer")
_LONG, _FLOAT, _DOUBLE = number("q", "a Long"), _floating("f", "a Float"), _floating("d", "a Double")

SCALAR_CODECS: dict[Scalar, Codec] = {
    Scalar.BOOLEAN: boolean("a Boolean"),
    Scalar.BYTE: _BYTE,
    Scalar.SHORT: _SHORT,
    Scalar.INTEGER: _INTEGER,
    Scalar.LONG: _LONG,
    Scalar.FLOAT: _FLOAT,
    Scalar.DOUBLE: _DOUBLE,
    Scalar.CHARACTER: _character(),
    Scalar.STRING: Codec(_decode_string, _encode_string, 1),
    Scalar.BIG_INTEGER: Codec(_decode_big_integer, _encode_big_integer, 4),
    Scalar.BIG_DECIMAL: Codec(_decode_big_decimal, _encode_big_decimal, 4),
    Scalar.DATE: _millis("a Date"),
    Scalar.SQL_DATE: _millis("a java.sql.Date"),
    Scalar.SQL_TIME: _millis("a java.sql.Time"),
    Scalar.SQL_TIMESTAMP: fields(
        "qi", "a java.sql.Timestamp", _timestamp, lambda value: (value.millis, value.nano), (_LEAST_LONG, 0)
    ),
    Scalar.INSTANT: fields(
        "qi", "an Instant", _instant, lambda value: (value.seconds, value.nano), (_LEAST_LONG, _LEAST_INT)
    ),
    Scalar.LOCAL_DATE: fields("ibb", "a LocalDate", _date, _date_parts, _NULL_DATE),
    Scalar.LOCAL_TIME: fields("bbbi", "a LocalTime", _time, _time_parts, _NULL_TIME),
    Scalar.LOCAL_DATE_TIME: fields(
        "ibbbbbi",
        "a LocalDateTime",
        _date_time,
        lambda value: _date_parts(value.date) + _time_parts(value.time),
        _NULL_DATE + _NULL_TIME,
    ),
    Scalar.VOID: constant(b"\x00", None, "a Void"),
    Scalar.TUPLE0: constant(b"\x2a", (), "a Tuple0"),
    Scalar.VARIANT: Codec(_decode_variant, _encode_variant, 9),
    Scalar.BITMAP: byte_array("a Bitmap"),
    Scalar.BOOLEAN_VALUE: boolean("a Boolean"),
    Scalar.BYTE_VALUE: _BYTE,
    Scalar.SHORT_VALUE: _SHORT,
    Scalar.INT_VALUE: _INTEGER,
    Scalar.LONG_VALUE: _LONG,
    Scalar.FLOAT_VALUE: _FLOAT,
    Scalar.DOUBLE_VALUE: _DOUBLE,
    Scalar.CHAR_VALUE: _character(),
    Scalar.STRING_VALUE: Codec(_decode_string_value, _encode_string_value, 1),
    Scalar.NULL_VALUE: constant(b"", Singleton.NULL_VALUE, "a NullValue"),
    Scalar.VOID_NAMESPACE: constant(b"\x00", Singleton.VOID_NAMESPACE, "a VoidNamespace"),
    Scalar.TIME_WINDOW: fields("qq", "a TimeWindow", TimeWindow, lambda value: (value.start, value.end)),
    Scalar.GLOBAL_WINDOW: constant(b"\x00", Singleton.GLOBAL_WINDOW, "a GlobalWindow"),
    Scalar.UNIT: constant(b"\x00", Singleton.UNIT, "a Unit"),
    Scalar.NOTHING: Codec(_decode_nothing, _encode_nothing, 1),
    Scalar.AVRO_NULL: null(),
    Scalar.AVRO_STRING: string(),
}
