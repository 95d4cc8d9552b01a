"""Compiled: objects without parts of their own, and those of `java.time`, as Kryo 2 writes them.

They are made of the bytes of Kryo 5, or of the form that Flink's own serializers write. The tables of both Kryos are in
`kernels.py`.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, i32, i64, load64, put_varint
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.kernel_codes import (
    BIG_DECIMAL,
    BIG_INTEGER,
    BOOLEAN,
    BYTE,
    CHARACTER,
    FLOAT,
    INSTANT,
    INTEGER,
    LOCAL_DATE,
    LOCAL_DATE_TIME,
    LOCAL_TIME,
    LONG,
    MILLIS,
    NO_ROOM,
    NOT_WRITTEN,
    POSITION,
    SHORT,
    SPARE,
    STRING,
    TIMESTAMP,
    TRUNCATED,
)
from flinkstate.kryo.objects import put_scalar
from flinkstate.kryo.primitives import copy_bytes, read_flagged, varint

# Classes whose parts the two Kryos store in another order or form; 0 is all others.
UUID = 1
DURATION = 2
PERIOD = 3
YEAR = 4
YEAR_MONTH = 5
MONTH_DAY = 6
ZONE_OFFSET = 7
ZONE_REGION = 8
OFFSET_TIME = 9
OFFSET_DATE_TIME = 10
ZONED_DATE_TIME = 11
PATTERN = 12

# Columns of `rows`: the rows of the classes that objects of `java.time` have inside. Column 0 is that of dates.
ROW_TIME = 1
ROW_DATE_TIME = 2
ROW_OFFSET = 3
ROW_REGION = 4
ROW_STRING = 5
ROW_PATTERN = 6

# How many Strings of ASCII Kryo 2 writes without their length.
_SHORTEST, _LONGEST = 2, 63
_FIRST_BYTES = 4


@inlined
def put_long(out, at, number):  # type: ignore[no-untyped-def]
    """Writes 64 bits as a varint, of which the ninth byte has eight."""
    word = np.uint64(number)
    index = 0
    while word >= np.uint64(0x80) and index < 8:
        out[at] = np.uint8(word & np.uint64(0x7F) | np.uint64(0x80))
        word >>= np.uint64(7)
        at += 1
        index += 1
    out[at] = np.uint8(word)
    return at + 1


@kernel
def _put_zigzag(out, at, number):  # type: ignore[no-untyped-def]
    return put_long(out, at, np.uint64(number << 1) ^ np.uint64(number >> 63))


@kernel
def string_for_2(data, position, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Writes the String that Kryo 5 stored from `position` to `end`."""
    if at + end - position + SPARE > room:
        return fail(failure, NO_ROOM, position, end - position)
    begin = position
    is_short = False
    if data[position] >= 0x80:
        units, begin = read_flagged(data, position, end, failure)
        # All of its characters are ASCII if it has no more bytes.
        is_short = begin >= 0 and units - 1 == end - begin and _SHORTEST <= units - 1 <= _LONGEST
        if not is_short:
            begin = position
    copy_bytes(data, begin, out, at, end - begin)
    at += end - begin
    if is_short:
        out[at - 1] |= 0x80
    return at


@kernel
def _put_date(form, at_date, out, at):  # type: ignore[no-untyped-def]
    """Writes the date that stands in Flink's form at `at_date`."""
    out[at] = 0
    out[at + 1] = form[at_date + 5]
    out[at + 2] = 0
    out[at + 3] = form[at_date + 4]
    return _put_zigzag(out, at + 4, i32(form, at_date))


@kernel
def _put_time(form, at_time, out, at):  # type: ignore[no-untyped-def]
    out[at] = form[at_time]
    out[at + 1] = form[at_time + 1]
    at = _put_zigzag(out, at + 2, i32(form, at_time + 3))
    out[at] = form[at_time + 2]
    return at + 1


@kernel
def moment_for_2(kind, form, begin, out, at):  # type: ignore[no-untyped-def]
    """Writes a date, a time or a moment that stands in Flink's form at `begin`."""
    if kind == LOCAL_DATE:
        return _put_date(form, begin, out, at)
    if kind == LOCAL_TIME:
        return _put_time(form, begin, out, at)
    if kind == LOCAL_DATE_TIME:
        # Both are objects, which have numbers.
        out[at] = 1
        at = _put_date(form, begin, out, at + 1)
        out[at] = 1
        return _put_time(form, begin + 6, out, at + 1)
    if kind == INSTANT:
        at = _put_zigzag(out, at, i32(form, begin + 8))
        return _put_zigzag(out, at, i64(form, begin))
    at = put_long(out, at, i64(form, begin))
    return put_varint(out, at, i32(form, begin + 8)) if kind == TIMESTAMP else at


@kernel
def content_for_2(kind, param, form, begin, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Writes what is behind tag and mark of the object that stands in Flink's form from `begin` to `end`."""
    if at + 2 * (end - begin) + SPARE > room:
        return fail(failure, NO_ROOM, begin, 2 * (end - begin))
    if MILLIS <= kind <= INSTANT:
        return moment_for_2(kind, form, begin, out, at)
    if kind in (BIG_INTEGER, BIG_DECIMAL):
        size = i32(form, begin) - 4
        position = begin + 4
        if size < 0:
            # The numbers 0, 1 and 10.
            out[at] = 2
            out[at + 1] = np.uint8(10 if size == -1 else size + 3)
            at += 2
        else:
            at = put_varint(out, at, size + 1)
            copy_bytes(form, position, out, at, size)
            at += size
            position += size
        return _put_zigzag(out, at, i32(form, position)) if kind == BIG_DECIMAL else at
    # An array of primitives.
    size = i32(form, begin)
    at = put_varint(out, at, size + 1)
    position = begin + 4
    if param in (INTEGER, LONG):
        for _ in range(size):
            at = _put_zigzag(out, at, i32(form, position) if param == INTEGER else i64(form, position))
            position += 4 if param == INTEGER else 8
        return at
    copy_bytes(form, position, out, at, end - position)
    return at + end - position


@kernel
def end_of_form(kind, param, form, begin, limit):  # type: ignore[no-untyped-def]
    """Where an object in Flink's form ends; -1 if it doesn't end before `limit`."""
    size = np.int64(8)
    if kind == STRING:
        units = np.int64(0)
        shift = 0
        position = begin
        # Each number ends with a byte below 0x80: the length and 1, then the units.
        while position < limit and shift <= 28:
            byte = np.int64(form[position])
            units |= (byte & 0x7F) << shift
            position += 1
            shift += 7
            if byte < 0x80:
                break
        left = units - 1
        while left > 0 and position < limit:
            left -= form[position] < 0x80
            position += 1
        return position if left <= 0 and shift > 0 else np.int64(-1)
    if kind in (BYTE, BOOLEAN):
        size = np.int64(1)
    elif kind in (SHORT, CHARACTER):
        size = np.int64(2)
    elif kind in (INTEGER, FLOAT):
        size = np.int64(4)
    elif kind in (INSTANT, TIMESTAMP):
        size = np.int64(12)
    elif kind in (LOCAL_DATE, LOCAL_TIME, LOCAL_DATE_TIME):
        size = np.int64(6 if kind == LOCAL_DATE else 7 if kind == LOCAL_TIME else 13)
    elif kind > STRING and kind != MILLIS:
        if limit - begin < _FIRST_BYTES:
            return np.int64(-1)
        size = i32(form, begin)
        if kind in (BIG_INTEGER, BIG_DECIMAL):
            # 0 is null, for which there is a flag before it.
            if size <= 0:
                return np.int64(-1)
            size = max(size - 4, np.int64(0)) + (8 if kind == BIG_DECIMAL else 4)
        else:
            each = 1 if param in (BYTE, BOOLEAN) else 2 if param in (SHORT, CHARACTER) else 8
            size = 4 + size * (4 if param in (INTEGER, FLOAT) else each)
    return begin + size if 0 <= size <= limit - begin else np.int64(-1)


@kernel
def _u32_at(data, position, limit, state, failure):  # type: ignore[no-untyped-def]
    """Reads a varint of 32 bits as a number with a sign; `state` gets the position behind it, negative on failure."""
    number, position = varint(data, position, limit, failure)
    state[POSITION] = position
    return np.int64(np.int32(np.uint32(number)))


@kernel
def special_for_2(  # type: ignore[no-untyped-def]
    special, rows, data, position, limit, out, at, room, scratch, objects, state, failure
):
    """Writes an object of Kryo 5 whose parts Kryo 2 stores in another order or form. Returns as `recode_leaf`."""
    start = position
    if special in (UUID, DURATION):
        size = 16 if special == UUID else 8
        if limit - position < size:
            return fail(failure, TRUNCATED, position, size)
        number = np.int64(load64(data, position))
        if special == UUID:
            state[POSITION] = position + 16
            at = _put_zigzag(out, at, number)
            return _put_zigzag(out, at, np.int64(load64(data, position + 8)))
        nano = _u32_at(data, position + 8, limit, state, failure)
        if state[POSITION] < 0:
            return state[POSITION]
        at = _put_zigzag(out, at, nano)
        return _put_zigzag(out, at, number)
    if special in (PATTERN, ZONE_REGION):
        end = put_scalar(
            np.int64(STRING), np.int64(0), rows, data, position, limit, np.bool_(True), np.int64(0), scratch,
            np.int64(0), len(scratch), objects, state, failure,
        )  # fmt: skip
        if end < 0:
            return end
        behind = state[POSITION]
        if special == PATTERN:
            if _u32_at(data, behind, limit, state, failure) != 0 and state[POSITION] >= 0:
                # Kryo 2 leaves out its flags.
                return fail(failure, NOT_WRITTEN, start, rows[ROW_PATTERN])
            if state[POSITION] < 0:
                return state[POSITION]
        else:
            # The text is an object, which has a number.
            out[at] = 1
            at += 1
        return string_for_2(data, position, behind, out, at, room, failure)
    if special == MONTH_DAY:
        if limit - position < 2:
            return fail(failure, TRUNCATED, position, 2)
        state[POSITION] = position + 2
        at = _put_zigzag(out, at, np.int64(np.int8(data[position + 1])))
        return _put_zigzag(out, at, np.int64(np.int8(data[position])))
    first = _u32_at(data, position, limit, state, failure)
    if state[POSITION] < 0:
        return state[POSITION]
    if special == YEAR:
        return _put_zigzag(out, at, first)
    position = state[POSITION]
    if special == YEAR_MONTH:
        if position >= limit:
            return fail(failure, TRUNCATED, position, 1)
        state[POSITION] = position + 1
        at = _put_zigzag(out, at, np.int64(np.int8(data[position])))
        return _put_zigzag(out, at, first)
    second = _u32_at(data, position, limit, state, failure)
    if state[POSITION] < 0:
        return state[POSITION]
    third = _u32_at(data, state[POSITION], limit, state, failure)
    if state[POSITION] < 0:
        return state[POSITION]
    at = _put_zigzag(out, at, third)
    at = _put_zigzag(out, at, second)
    return _put_zigzag(out, at, first)
