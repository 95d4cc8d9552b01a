"""Reads a single value from text, in the form that `stateferry dump` prints and `value_json` writes.

The text of a string, a character, a date, a time or an exact decimal number stands for itself, without quotes. All else
is JSON: a number, or an array or object whose parts are in the form of a dump.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from decimal import Decimal, DecimalException
from typing import Any

from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.serializers.types import (
    AvroType,
    CollectionType,
    EitherType,
    EnumType,
    FlinkType,
    MappingType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    TimerType,
    TtlType,
    TupleType,
    type_name,
)
from flinkstate.values.codecs import decode_whole, encode
from flinkstate.values.java_text import DAYS_OF_ERA, EPOCH_DAY_1970, SECONDS_PER_DAY, YEARS_OF_ERA
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
)
from flinkstate.values.value_json import CLASS

# What JSON's parser gave: null, a Boolean, a number, a string, a list or an object.
Json = Any

_DATE = r"([+-]?\d{4,10})-(\d\d)-(\d\d)"
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
_DATE_ALONE, _TIME_ALONE = re.compile(_DATE, re.ASCII), re.compile(_TIME, re.ASCII)
_DATE_TIME, _INSTANT = re.compile(f"{_DATE}T{_TIME}", re.ASCII), re.compile(f"{_DATE}T{_TIME}Z", re.ASCII)


class _WrongFormError(Exception):
    """The text isn't a value of the type; the message says what was expected."""


def bytes_of_text(type_: FlinkType, text: str) -> bytes:
    """Returns the bytes in which Flink writes the value of the type that the text stands for."""
    try:
        data = encode(type_, _value(type_, _json_of(type_, text)))
        decode_whole(type_, data)
    except _WrongFormError as error:
        raise UsageError(f"expected a value of the type {type_name(type_)}, {error}, found {text[:100]!r}") from None
    except DamagedError as error:
        raise UsageError(f"expected {error.expected}, found {text[:100]!r}") from None
    return data


def _json_of(type_: FlinkType, text: str) -> Json:
    if isinstance(type_, NullableType):
        return _json_of(type_.value, text)
    if type_ in _OF_TEXT or isinstance(type_, EnumType) or type_ == PrimitiveArrayType(Scalar.BYTE):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(type_, Scalar):
            return text
        raise _WrongFormError(f"as JSON ({error})") from None


def _value(type_: FlinkType, given: Json) -> Any:
    if given is None:
        return Singleton.NULL_VALUE if type_ is Scalar.NULL_VALUE else None
    match type_:
        case Scalar():
            if type_ not in _SCALARS:
                raise _refused(type_)
            return _SCALARS[type_](given)
        case AvroType() | TtlType() | TimerType() | OpaqueType():
            raise _refused(type_)
        case PrimitiveArrayType(Scalar.BYTE):
            return _base64(given)
        case CollectionType(element):
            return [_value(element, part) for part in _list(given)]
        case MappingType():
            return [(_value(type_.key, key), _value(type_.value, value)) for key, value in _pairs(given)]
        case TupleType(fields):
            return tuple(_fields(fields, given))
        case RowType(fields):
            return _row(fields, given)
        case PojoType():
            return _pojo(type_, given)
        case NullableType(value):
            return _value(value, given)
        case OptionType(value):
            return _option(value, given)
        case EitherType():
            return _either(type_, given)
        case EnumType():
            return _constant(type_, given)


def _refused(type_: FlinkType) -> RefusedError:
    return RefusedError(f"a value of the type {type_name(type_)} can't be given as text")


def _integer(given: Json) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise _WrongFormError("such as 42")
    return given


def _number(given: Json) -> float:
    if isinstance(given, str) and given in ("NaN", "Infinity", "-Infinity"):
        return float(given)
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise _WrongFormError("such as 1.5")
    try:
        return float(given)
    except OverflowError:
        raise _WrongFormError("within the type's range") from None


def _boolean(given: Json) -> bool:
    if not isinstance(given, bool):
        raise _WrongFormError("true or false")
    return given


def _string(given: Json) -> str:
    if not isinstance(given, str):
        raise _WrongFormError("as a string")
    return given


def _character(given: Json) -> str:
    text = _string(given)
    if len(text) != 1:
        raise _WrongFormError("one character")
    return text


def _decimal(given: Json) -> BigDecimal:
    try:
        sign, digits, exponent = Decimal(_string(given)).as_tuple()
    except DecimalException:
        raise _WrongFormError("such as 12.50") from None
    if not isinstance(exponent, int):
        raise _WrongFormError("such as 12.50")
    unscaled = int("".join(map(str, digits)))
    return BigDecimal(-unscaled if sign else unscaled, -exponent)


def _date(given: Json) -> LocalDate:
    return _date_of(_matched(_DATE_ALONE, given, "such as 2024-05-31"))


def _time(given: Json) -> LocalTime:
    return _time_of(_matched(_TIME_ALONE, given, "such as 23:59:00"))


def _date_time(given: Json) -> LocalDateTime:
    parts = _matched(_DATE_TIME, given, "such as 2024-05-31T23:59:00")
    return LocalDateTime(_date_of(parts[:3]), _time_of(parts[3:]))


def _instant(given: Json) -> Instant:
    parts = _matched(_INSTANT, given, "such as 2024-05-31T23:59:00Z")
    day, time = _date_of(parts[:3]), _time_of(parts[3:])
    try:
        era, year = divmod(day.year - 1, YEARS_OF_ERA)
        ordinal = date(year + 1, day.month, day.day).toordinal() + era * DAYS_OF_ERA
    except ValueError:
        raise _WrongFormError("a day of the calendar") from None
    seconds = (ordinal - EPOCH_DAY_1970) * SECONDS_PER_DAY + (time.hour * 60 + time.minute) * 60 + time.second
    return Instant(seconds, time.nano)


def _millis(given: Json) -> int:
    instant = _instant(given)
    return instant.seconds * 1000 + instant.nano // 1_000_000


def _sql_timestamp(given: Json) -> SqlTimestamp:
    instant = _instant(given)
    return SqlTimestamp(instant.seconds * 1000 + instant.nano // 1_000_000, instant.nano)


def _matched(pattern: re.Pattern[str], given: Json, form: str) -> tuple[str | None, ...]:
    match = pattern.fullmatch(_string(given))
    if match is None:
        raise _WrongFormError(form)
    return match.groups()


def _date_of(parts: tuple[str | None, ...]) -> LocalDate:
    year, month, day = (int(part or 0) for part in parts)
    return LocalDate(year, month, day)


def _time_of(parts: tuple[str | None, ...]) -> LocalTime:
    hour, minute, second, fraction = parts
    return LocalTime(int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(9, "0")))


def _base64(given: Json) -> bytes:
    try:
        return b64decode(_string(given), validate=True)
    except binascii.Error:
        raise _WrongFormError("as base64") from None


def _list(given: Json) -> list[Json]:
    if not isinstance(given, list):
        raise _WrongFormError("as a JSON array")
    return given


def _object(given: Json, names: set[str] | None = None) -> dict[str, Json]:
    if not isinstance(given, dict) or (names is not None and given.keys() != names):
        raise _WrongFormError(f"as a JSON object{f' with {chr(44).join(sorted(names))}' if names else ''}")
    return given


def _pairs(given: Json) -> list[tuple[Json, Json]]:
    pairs = list(given.items()) if isinstance(given, dict) else [tuple(_list(pair)) for pair in _list(given)]
    if any(len(pair) != 2 for pair in pairs):
        raise _WrongFormError("as a JSON object, or as an array of pairs")
    return pairs


def _fields(fields: tuple[FlinkType, ...], given: Json) -> list[Any]:
    if len(_list(given)) != len(fields):
        raise _WrongFormError(f"as a JSON array of {len(fields)}")
    return [_value(field, part) for field, part in zip(fields, given, strict=True)]


def _row(fields: tuple[FlinkType, ...], given: Json) -> RowValue:
    if isinstance(given, list):
        return RowValue(tuple(_fields(fields, given)))
    parts = _object(given, {"kind", "fields"})
    if parts["kind"] not in RowKind.__members__:
        raise _WrongFormError(f"with a kind of {', '.join(RowKind.__members__)}")
    return RowValue(tuple(_fields(fields, parts["fields"])), RowKind[parts["kind"]])


def _pojo(type_: PojoType, given: Json) -> PojoValue:
    class_name = _object(given).get(CLASS, type_.class_name)
    known = {one.class_name: one for one in (type_, *type_.subclasses) if isinstance(one, PojoType)}
    if class_name not in known:
        raise _WrongFormError(f"whose class is one of {', '.join(known)}")
    fields = {field.name: field.type for field in known[class_name].fields}
    parts = _object({name: part for name, part in given.items() if name != CLASS}, set(fields))
    return PojoValue(class_name, {name: _value(fields[name], parts[name]) for name in fields})


def _option(value: FlinkType, given: Json) -> OptionValue:
    if given == {}:
        return OptionValue(None, False)
    return OptionValue(_value(value, _object(given, {"some"})["some"]), True)


def _either(type_: EitherType, given: Json) -> EitherValue:
    left, right = type_.sides
    if isinstance(given, dict) and len(given) == 1 and (left in given or right in given):
        return EitherValue(
            _value(type_.left if left in given else type_.right, next(iter(given.values()))), left in given
        )
    raise _WrongFormError(f"as a JSON object with {left} or {right}")


def _constant(type_: EnumType, given: Json) -> str:
    name = _string(given)
    if name not in type_.name_of.values():
        raise _WrongFormError(f"one of {', '.join(type_.name_of.values())}")
    return name


_SCALARS: dict[Scalar, Callable[[Json], Any]] = {
    **dict.fromkeys((Scalar.BOOLEAN, Scalar.BOOLEAN_VALUE), _boolean),
    **dict.fromkeys((Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG, Scalar.BIG_INTEGER), _integer),
    **dict.fromkeys((Scalar.BYTE_VALUE, Scalar.SHORT_VALUE, Scalar.INT_VALUE, Scalar.LONG_VALUE), _integer),
    **dict.fromkeys((Scalar.FLOAT, Scalar.FLOAT_VALUE, Scalar.DOUBLE, Scalar.DOUBLE_VALUE), _number),
    **dict.fromkeys((Scalar.CHARACTER, Scalar.CHAR_VALUE), _character),
    **dict.fromkeys((Scalar.STRING, Scalar.STRING_VALUE), _string),
    Scalar.BIG_DECIMAL: _decimal,
    **dict.fromkeys((Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME), _millis),
    Scalar.SQL_TIMESTAMP: _sql_timestamp,
    Scalar.INSTANT: _instant,
    Scalar.LOCAL_DATE: _date,
    Scalar.LOCAL_TIME: _time,
    Scalar.LOCAL_DATE_TIME: _date_time,
    Scalar.TUPLE0: lambda given: tuple(_list(given)),
}
# JSON writes these as strings, whose text stands for itself.
_OF_TEXT = frozenset(
    {
        *(Scalar.STRING, Scalar.STRING_VALUE, Scalar.CHARACTER, Scalar.CHAR_VALUE, Scalar.BIG_DECIMAL),
        *(Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME, Scalar.SQL_TIMESTAMP),
        *(Scalar.INSTANT, Scalar.LOCAL_DATE, Scalar.LOCAL_TIME, Scalar.LOCAL_DATE_TIME),
    }
)
