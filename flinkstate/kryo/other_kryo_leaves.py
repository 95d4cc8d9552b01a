"""Compiled: objects without parts of their own, and those of `java.time`, from one Kryo's bytes to the other's.

What both Kryos store alike is copied. The tables of both are in `kernels.py`. `five` says that Kryo 5 wrote them.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, i32, i64, load64, put_varint, store64
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.kernel_codes import (
    BAD_MARK,
    BAD_REFERENCE,
    BOOLEAN,
    BYTE,
    CHARACTER,
    DOUBLE,
    FLOAT,
    FOREIGN_CLASS,
    INSTANT,
    INTEGER,
    LOCAL_DATE,
    LOCAL_DATE_TIME,
    LOCAL_TIME,
    LONG,
    LONGS,
    MOMENT_PARTS,
    MOMENTS,
    NEW_NUMBER,
    NO_MOMENTS,
    NO_ROOM,
    OBJECTS,
    OF_CLASS,
    POSITION,
    PRIMITIVE_ARRAY,
    SHORT,
    SMALL_ARRAY,
    SOURCE,
    SPARE,
    STATES,
    STRING,
    TIMESTAMP,
    TRUNCATED,
    ZONE_AT,
)
from flinkstate.kryo.kryo_2_leaves import (
    DURATION,
    MONTH_DAY,
    OFFSET_TIME,
    PATTERN,
    ROW_DATE_TIME,
    ROW_OFFSET,
    ROW_REGION,
    ROW_STRING,
    ROW_TIME,
    UUID,
    YEAR,
    YEAR_MONTH,
    ZONE_OFFSET,
    ZONE_REGION,
    ZONED_DATE_TIME,
    moment_for_2,
    put_long,
    special_for_2,
    string_for_2,
)
from flinkstate.kryo.objects import put_scalar, read_class
from flinkstate.kryo.primitives import copy_bytes, long_varint, unzigzag, varint

# Objects at the end of `objects` for what is read again.
SPARE_OBJECTS = 8
# Kryo 5 writes longer ASCII Strings with their length.
_SHORT_STRING = 32
_QUARTER = 900
# Flink 2 reads so many bytes of a short[], char[] or float[] at once, also if it has fewer.
READ_AT_ONCE = 7
_NO_QUARTER = 127
_BITS_32 = 0xFFFFFFFF


@inlined
def _u32(number):  # type: ignore[no-untyped-def]
    return np.int64(number) & _BITS_32


@kernel
def _put_string(data, position, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Writes the String that is stored from `position` to `end`."""
    size = end - position
    if at + size + SPARE > room:
        return fail(failure, NO_ROOM, position, size)
    if data[position] >= 0x80 or size <= _SHORT_STRING:
        copy_bytes(data, position, out, at, size)
        return at + size
    length = size + 1
    if length > 0x3F:
        out[at] = np.uint8(length & 0x3F | 0xC0)
        at = put_varint(out, at + 1, length >> 6)
    else:
        out[at] = np.uint8(length | 0x80)
        at += 1
    copy_bytes(data, position, out, at, size)
    out[at + size - 1] &= 0x7F
    return at + size


@kernel
def _put_reversed(data, position, size, out, at):  # type: ignore[no-untyped-def]
    for index in range(size):
        out[at + index] = data[position + size - 1 - index]
    return at + size


@kernel
def _put_date(data, at_date, out, at):  # type: ignore[no-untyped-def]
    """Writes the date that stands in Flink's form at `at_date`."""
    at = put_varint(out, at, _u32(i32(data, at_date)))
    out[at] = data[at_date + 4]
    out[at + 1] = data[at_date + 5]
    return at + 2


@kernel
def _put_time(data, at_time, out, at):  # type: ignore[no-untyped-def]
    """Writes the time that stands in Flink's form at `at_time`: without the zeros at its end."""
    nano = i32(data, at_time + 3)
    parts = 3
    if nano == 0:
        parts = 3 if data[at_time + 2] != 0 else 2 if data[at_time + 1] != 0 else 1
    for index in range(parts):
        out[at + index] = data[at_time + index]
    at += parts
    if nano == 0:
        out[at - 1] = ~out[at - 1]
        return at
    return put_varint(out, at, nano)


@kernel
def _put_offset(seconds, out, at):  # type: ignore[no-untyped-def]
    if seconds % _QUARTER == 0:
        out[at] = np.uint8(np.int8(seconds // _QUARTER))
        return at + 1
    out[at] = np.uint8(_NO_QUARTER)
    for index in range(4):
        out[at + 1 + index] = np.uint8(seconds >> 8 * index & 0xFF)
    return at + 5


@kernel
def _put_offset_text(seconds, out, at):  # type: ignore[no-untyped-def]
    """Writes what `ZoneOffset.getId` says, as a String."""
    if seconds == 0:
        out[at] = np.uint8(0x82)
        out[at + 1] = np.uint8(ord("Z"))
        return at + 2
    rest = abs(seconds)
    out[at] = np.uint8(ord("-") if seconds < 0 else ord("+"))
    at += 1
    for part in range(3):
        number = rest // 3600 if part == 0 else rest // 60 % 60 if part == 1 else rest % 60
        if part == 2 and number == 0:
            break
        if part > 0:
            out[at] = np.uint8(ord(":"))
            at += 1
        out[at] = np.uint8(ord("0") + number // 10)
        out[at + 1] = np.uint8(ord("0") + number % 10)
        at += 2
    out[at - 1] |= 0x80
    return at


@kernel
def _int_at(data, position, limit, state, failure):  # type: ignore[no-untyped-def]
    """Reads a zigzag varint; `state` gets the position behind it, negative on failure."""
    number, position = varint(data, position, limit, failure)
    state[POSITION] = position
    return unzigzag(np.uint64(number))


@kernel
def _long_at(data, position, limit, state, failure):  # type: ignore[no-untyped-def]
    word, position = long_varint(data, position, limit, failure)
    state[POSITION] = position
    return unzigzag(word)


@inlined
def read_again(objects, state):  # type: ignore[no-untyped-def]
    """Prepares to read an object once more: what is inside it has numbers already, and gets none of those to come."""
    state[OBJECTS] = len(objects) - SPARE_OBJECTS


@kernel
def enter(row, data, position, limit, objects, state, failure):  # type: ignore[no-untyped-def]
    """Reads the mark of an object inside another one.

    Returns where its content is, and the position behind a reference, 0 if it is a new object; negative on failure.
    """
    start = position
    mark, position = varint(data, position, limit, failure)
    if position < 0:
        return position, position
    number = state[OBJECTS]
    if mark == 0:
        return fail(failure, BAD_MARK, start, 0), np.int64(-1)
    if mark > 1:
        if mark - 2 >= number or objects[mark - 2, OF_CLASS] != row:
            return fail(failure, BAD_REFERENCE, start, mark - 2), np.int64(-1)
        return objects[mark - 2, SOURCE], position
    objects[number, OF_CLASS] = row
    objects[number, SOURCE] = position
    objects[number, NEW_NUMBER] = -1
    state[OBJECTS] = number + 1
    return position, np.int64(0)


@kernel
def _flink_form(row, kind, rows, data, position, limit, scratch, at, objects, state, failure):  # type: ignore[no-untyped-def]
    """Reads a date, a time or both inside an object: writes Flink's form to `scratch`. Returns the position behind."""
    content, behind = enter(row, data, position, limit, objects, state, failure)
    if content < 0:
        return content
    before = state[OBJECTS]
    if behind > 0:
        read_again(objects, state)
    end = put_scalar(
        kind, np.int64(0), rows, data, content, limit, np.bool_(False), np.int64(0), scratch, at, len(scratch),
        objects, state, failure,
    )  # fmt: skip
    if end < 0:
        return end
    if behind > 0:
        state[OBJECTS] = before
        return behind
    return state[POSITION]


@kernel
def _offset_inside(rows, data, position, limit, objects, state, failure):  # type: ignore[no-untyped-def]
    """Reads a ZoneOffset inside an object. Returns its seconds; `state` gets the position behind it."""
    content, behind = enter(rows[ROW_OFFSET], data, position, limit, objects, state, failure)
    if content < 0:
        state[POSITION] = content
        return np.int64(0)
    seconds = _int_at(data, content, limit, state, failure)
    if state[POSITION] >= 0 and behind > 0:
        state[POSITION] = behind
    return seconds


@kernel
def _region(rows, data, position, limit, out, at, room, scratch, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes the text of a ZoneRegion, which is a String with a mark."""
    content, behind = enter(rows[ROW_STRING], data, position, limit, objects, state, failure)
    if content < 0:
        return content
    end = put_scalar(
        np.int64(STRING), np.int64(0), rows, data, content, limit, np.bool_(False), np.int64(0), scratch, np.int64(0),
        len(scratch), objects, state, failure,
    )  # fmt: skip
    if end < 0:
        return end
    state[ZONE_AT] = content
    at = _put_string(data, content, state[POSITION], out, at, room, failure)
    if behind > 0:
        state[POSITION] = behind
    return at


@kernel
def _zone(  # type: ignore[no-untyped-def]
    rows, data, position, limit, table, names, known, out, at, room, scratch, objects, state, failure
):
    """Writes the text of a zone: of a ZoneRegion or of a ZoneOffset, whose class stands before it."""
    start = position
    row = read_class(data, position, limit, np.bool_(False), table, names, known, np.bool_(False), state, failure)
    if row < 0:
        return row
    position = state[POSITION]
    if row == rows[ROW_OFFSET]:
        seconds = _offset_inside(rows, data, position, limit, objects, state, failure)
        return state[POSITION] if state[POSITION] < 0 else _put_offset_text(seconds, out, at)
    if row != rows[ROW_REGION]:
        return fail(failure, FOREIGN_CLASS, start, -1 - row)
    content, behind = enter(row, data, position, limit, objects, state, failure)
    if content < 0:
        return content
    before = state[OBJECTS]
    if behind > 0:
        read_again(objects, state)
    at = _region(rows, data, content, limit, out, at, room, scratch, objects, state, failure)
    if at >= 0 and behind > 0:
        state[OBJECTS] = before
        state[POSITION] = behind
    return at


@kernel
def _keep_moment(year, rest, seconds, position, at, state, failure):  # type: ignore[no-untyped-def]
    """Keeps what `repeated_hours.py` asks for, behind `state`. Returns `at`."""
    line = STATES + MOMENT_PARTS * state[MOMENTS]
    if line + MOMENT_PARTS > len(state):
        return fail(failure, NO_MOMENTS, position, 0)
    state[line] = state[ZONE_AT]
    state[line + 1] = year
    state[line + 2] = rest
    state[line + 3] = seconds
    state[MOMENTS] += 1
    return at


@kernel
def recode_special(  # type: ignore[no-untyped-def]
    special, rows, data, position, limit, five, table, names, known, out, at, room, scratch, objects, state, failure
):
    """Writes an object whose parts the other Kryo stores in another order or form. Returns as `recode_leaf`."""
    if five:
        return special_for_2(special, rows, data, position, limit, out, at, room, scratch, objects, state, failure)
    if special == UUID:
        for part in range(2):
            number = _long_at(data, position, limit, state, failure)
            position = state[POSITION]
            if position < 0:
                return position
            store64(out, at + 8 * part, np.uint64(number))
        return at + 16
    if special == PATTERN:
        end = put_scalar(
            np.int64(STRING), np.int64(0), rows, data, position, limit, np.bool_(False), np.int64(0), scratch,
            np.int64(0), len(scratch), objects, state, failure,
        )  # fmt: skip
        if end < 0:
            return end
        at = _put_string(data, position, state[POSITION], out, at, room, failure)
        if at >= 0:
            out[at] = 0
            at += 1
        return at
    if special == ZONE_REGION:
        return _region(rows, data, position, limit, out, at, room, scratch, objects, state, failure)
    if special >= OFFSET_TIME:
        size = np.int64(0)
        seconds = np.int64(0)
        if special == OFFSET_TIME:
            seconds = _offset_inside(rows, data, position, limit, objects, state, failure)
            position = state[POSITION]
            if position >= 0:
                position = _flink_form(
                    rows[ROW_TIME], np.int64(LOCAL_TIME), rows, data, position, limit, scratch, np.int64(0), objects,
                    state, failure,
                )  # fmt: skip
            if position < 0:
                return position
        else:
            position = _flink_form(
                rows[ROW_DATE_TIME], np.int64(LOCAL_DATE_TIME), rows, data, position, limit, scratch, np.int64(0),
                objects, state, failure,
            )  # fmt: skip
            if position >= 0:
                seconds = _offset_inside(rows, data, position, limit, objects, state, failure)
                position = state[POSITION]
            if position < 0:
                return position
            at = _put_date(scratch, size, out, at)
            size += 6
        at = _put_time(scratch, size, out, at)
        if special == ZONED_DATE_TIME:
            year = i32(scratch, 0)
            rest = np.int64(0)
            for index in range(4, 9):
                rest = rest << 8 | np.int64(scratch[index])
            state[ZONE_AT] = -1
            at = _zone(
                rows, data, position, limit, table, names, known, out, at, room, scratch, objects, state, failure
            )
            if at >= 0 and state[ZONE_AT] >= 0:
                at = _keep_moment(year, rest, seconds, position, at, state, failure)
            return at
        state[POSITION] = position
        return _put_offset(seconds, out, at)
    first = _int_at(data, position, limit, state, failure)
    if state[POSITION] < 0:
        return state[POSITION]
    if special == YEAR:
        return put_varint(out, at, _u32(first))
    if special == ZONE_OFFSET:
        return _put_offset(first, out, at)
    if special == DURATION:
        seconds = _long_at(data, state[POSITION], limit, state, failure)
        if state[POSITION] < 0:
            return state[POSITION]
        store64(out, at, np.uint64(seconds))
        return put_varint(out, at + 8, _u32(first))
    second = _int_at(data, state[POSITION], limit, state, failure)
    if state[POSITION] < 0:
        return state[POSITION]
    if special == YEAR_MONTH:
        at = put_varint(out, at, _u32(second))
        out[at] = np.uint8(first)
        return at + 1
    if special == MONTH_DAY:
        out[at] = np.uint8(second)
        out[at + 1] = np.uint8(first)
        return at + 2
    third = _int_at(data, state[POSITION], limit, state, failure)
    if state[POSITION] < 0:
        return state[POSITION]
    at = put_varint(out, at, _u32(third))
    at = put_varint(out, at, _u32(second))
    return put_varint(out, at, _u32(first))


@kernel
def _recode_array(kind, data, position, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Writes an array of primitives that was read already."""
    if at + end - position + SPARE > room:
        return fail(failure, NO_ROOM, position, end - position)
    if kind in (INTEGER, LONG, BYTE, BOOLEAN):
        copy_bytes(data, position, out, at, end - position)
        return at + end - position
    size, position = varint(data, position, end, failure)
    at = put_varint(out, at, size)
    each = 2 if kind in (SHORT, CHARACTER) else 4 if kind == FLOAT else 8
    for _ in range(size - 1):
        at = _put_reversed(data, position, each, out, at)
        position += each
    return at


@kernel
def recode_leaf(  # type: ignore[no-untyped-def]
    kind, param, rows, data, position, limit, five, out, at, room, scratch, objects, state, failure
):
    """Writes an object that has no parts of its own. Returns where it ends in `out`; `state` gets the position."""
    end = put_scalar(
        kind, param, rows, data, position, limit, five, np.int64(0), scratch, np.int64(0), len(scratch), objects,
        state, failure,
    )  # fmt: skip
    if end < 0:
        return end
    end = state[POSITION]
    if kind == STRING and five:
        return string_for_2(data, position, end, out, at, room, failure)
    if kind == STRING:
        return _put_string(data, position, end, out, at, room, failure)
    if five and (LOCAL_DATE <= kind <= INSTANT or kind == TIMESTAMP):
        return moment_for_2(kind, scratch, np.int64(0), out, at)
    if kind in (SHORT, CHARACTER, FLOAT, DOUBLE):
        return _put_reversed(data, position, end - position, out, at)
    if kind in (LOCAL_DATE, LOCAL_DATE_TIME):
        at = _put_date(scratch, np.int64(0), out, at)
        return _put_time(scratch, np.int64(6), out, at) if kind == LOCAL_DATE_TIME else at
    if kind == LOCAL_TIME:
        return _put_time(scratch, np.int64(0), out, at)
    if kind in (INSTANT, TIMESTAMP):
        nano = i32(scratch, 8)
        first = i64(scratch, 0)
        at = put_long(out, at, first if kind == INSTANT else first - nano // 1000000)
        return put_varint(out, at, nano)
    if kind == PRIMITIVE_ARRAY:
        behind = _recode_array(param, data, position, end, out, at, room, failure)
        if not five and param in (SHORT, CHARACTER, FLOAT) and 1 < behind - at <= READ_AT_ONCE:
            # Behind a byte for their number.
            state[SMALL_ARRAY] = at + 1
        return behind
    # INTEGER, LONG, BYTE, BOOLEAN, BIG_INTEGER, BIG_DECIMAL, MILLIS
    if at + end - position + SPARE > room:
        return fail(failure, NO_ROOM, position, end - position)
    copy_bytes(data, position, out, at, end - position)
    return at + end - position


@kernel
def recode_part(kind, rows, data, position, limit, five, out, at, room, scratch, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes a part without tag and mark: a number, a String, or the words of a BitSet. Returns as `recode_leaf`."""
    if kind != LONGS:
        return recode_leaf(
            kind, np.int64(0), rows, data, position, limit, five, out, at, room, scratch, objects, state, failure
        )
    start = position
    count, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    if count > (limit - position) // 8:
        return fail(failure, TRUNCATED, start, 8 * count)
    if at + 8 * count + SPARE > room:
        return fail(failure, NO_ROOM, start, 8 * count)
    state[POSITION] = position + 8 * count
    # Kryo 5 leaves out the words at the end in which no bit is set.
    while count > 0 and load64(data, position + 8 * (count - 1)) == 0:
        count -= 1
    if five and count == 0:
        # Of a BitSet that was never set Kryo 2 writes one word.
        at = put_varint(out, at, 1)
        store64(out, at, np.uint64(0))
        return at + 8
    at = put_varint(out, at, count)
    for _ in range(count):
        at = _put_reversed(data, position, 8, out, at)
        position += 8
    return at
