"""Decodes dates and times of many values at once. Flink writes their fields; Arrow counts days or microseconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.columns import kernels
from flinkstate.columns.arrays import (
    MOST_OFFSET,
    Column,
    allocate,
    fixed_array,
    validity,
)
from flinkstate.columns.arrow_types import INSTANT, LOCAL_DATE_TIME
from flinkstate.columns.reads import damaged_where, read_numbers, refuse_outside
from flinkstate.serializers.types import Scalar

_LEAST_LONG = -(2**63)
_LEAST_INT = -(2**31)
_NANOS_PER_SECOND = 1_000_000_000
_MOST_YEAR = 999_999_999
_FIRST_INSTANT, _LAST_INSTANT = -31_557_014_167_219_200, 31_556_889_864_403_199  # seconds of Java's Instant.MIN and MAX
_MOST_MICROS_SECONDS = 9_223_372_036_853  # the most whole seconds, either way, whose microseconds fit into 64 bits
_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_LONGEST_TIME = len("23:59:59.999999999")


def date_column(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> Column:
    """Decodes values of one of Java's types of dates and times."""
    match type_:
        case Scalar.DATE | Scalar.SQL_DATE | Scalar.SQL_TIME:
            return _millis(type_, data, starts, limits), starts + 8
        case Scalar.SQL_TIMESTAMP | Scalar.INSTANT:
            return _instants(type_, data, starts, limits), starts + 12
        case Scalar.LOCAL_DATE:
            days, present = _days(type_, data, starts, limits)
            refuse_outside(type_, np.abs(days) > MOST_OFFSET, starts, "date32")
            return fixed_array(pa.date32(), days.astype(np.int32), present), starts + 6
        case Scalar.LOCAL_TIME:
            seconds, nanos, present = _clock(type_, data, starts, limits)
            return _times(seconds, nanos, present), starts + 7
        case _:
            return _date_times(type_, data, starts, limits), starts + 13


def _millis(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> pa.Array:
    millis = read_numbers(type_, data, starts, limits, np.int64)
    present = millis != _LEAST_LONG
    millis[~present] = 0
    refuse_outside(type_, np.abs(millis) > _MOST_MICROS_SECONDS * 1000, starts, "a timestamp in microseconds")
    return fixed_array(INSTANT, millis * 1000, present)


def _instants(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> pa.Array:
    whole = read_numbers(type_, data, starts, limits, np.int64)
    nanos = read_numbers(type_, data, starts + 8, limits, np.int32).astype(np.int64)
    present = (whole != _LEAST_LONG) | (nanos != (0 if type_ is Scalar.SQL_TIMESTAMP else _LEAST_INT))
    whole[~present] = 0
    nanos[~present] = 0
    damaged = (nanos < 0) | (nanos >= _NANOS_PER_SECOND)
    if type_ is Scalar.SQL_TIMESTAMP:
        # The milliseconds are written twice; they may differ in the first second of the range, by Java's overflow.
        damaged |= (whole % 1000 != nanos // 1_000_000) & (whole >= _LEAST_LONG + 1000)
        whole //= 1000
    else:
        damaged |= (whole < _FIRST_INSTANT) | (whole > _LAST_INSTANT)
    damaged_where(damaged, starts, f"a {type_.label} with nanoseconds that fit", nanos)
    refuse_outside(type_, np.abs(whole) > _MOST_MICROS_SECONDS, starts, "a timestamp in microseconds")
    return fixed_array(INSTANT, whole * 1_000_000 + nanos // 1000, present)


def _days(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> tuple[Positions, Flags]:
    """Returns the days since 1970 of an i32 year, i8 month, i8 day; 0 for a null."""
    year = read_numbers(type_, data, starts, limits, np.int32).astype(np.int64)
    month = read_numbers(type_, data, starts + 4, limits, np.int8).astype(np.int64)
    day = read_numbers(type_, data, starts + 5, limits, np.int8).astype(np.int64)
    present = (year != _LEAST_INT) | (month != -128) | (day != 0)
    year[~present], month[~present], day[~present] = 1970, 1, 1
    damaged_where(np.abs(year) > _MOST_YEAR, starts, f"a year of a {type_.label}", year)
    damaged_where((month < 1) | (month > 12), starts, f"a month of a {type_.label}", month)
    leap = (month == 2) & (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    damaged_where((day < 1) | (day > _MONTH_DAYS[month - 1] + leap), starts, f"a day of a {type_.label}'s month", day)
    # Years that begin in March, in cycles of 400 years: so a leap day is the last day of its year.
    from_march = (month + 9) % 12
    march_year = year - (month <= 2)
    cycle, of_cycle = march_year // 400, march_year % 400
    day_of_cycle = of_cycle * 365 + of_cycle // 4 - of_cycle // 100 + (153 * from_march + 2) // 5 + day - 1
    return cycle * 146_097 + day_of_cycle - 719_468, present


def _clock(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> tuple[Positions, Positions, Flags]:
    """Returns second of the day and nanosecond of i8 hour, i8 minute, i8 second, i32 nanosecond; 0 for a null."""
    parts = [read_numbers(type_, data, starts + at, limits, np.int8).astype(np.int64) for at in range(3)]
    nano = read_numbers(type_, data, starts + 3, limits, np.int32).astype(np.int64)
    hour, minute, second = parts
    present = (hour != -128) | (minute != -128) | (second != 0) | (nano != _LEAST_INT)
    for part, most in ((hour, 23), (minute, 59), (second, 59), (nano, _NANOS_PER_SECOND - 1)):
        part[~present] = 0
        damaged_where((part < 0) | (part > most), starts, f"0 to {most} in the time of a {type_.label}", part)
    return hour * 3600 + minute * 60 + second, nano, present


def _times(seconds: Positions, nanos: Positions, present: Flags) -> pa.Array:
    offsets, out = np.empty(len(seconds) + 1, np.int32), allocate(_LONGEST_TIME * len(seconds))
    written = kernels.format_times(seconds, nanos, offsets, np.frombuffer(out, np.uint8))
    buffers = [validity(present), pa.py_buffer(offsets), out.slice(0, written)]
    return pa.Array.from_buffers(pa.string(), len(seconds), buffers)


def _date_times(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> pa.Array:
    days, has_date = _days(type_, data, starts, limits)
    seconds, nanos, has_time = _clock(type_, data, starts + 6, limits)
    damaged_where(has_date != has_time, starts, "date and time of a LocalDateTime, or neither", has_date)
    seconds += days * 86_400
    refuse_outside(type_, np.abs(seconds) > _MOST_MICROS_SECONDS, starts, "a timestamp in microseconds")
    return fixed_array(LOCAL_DATE_TIME, seconds * 1_000_000 + nanos // 1000, has_date)
