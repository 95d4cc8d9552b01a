"""Compiled: the reading of class tags, and of objects that have no parts of their own."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, put32, put64
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.kernel_codes import (
    BAD_COMPARATOR,
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    BAD_REFERENCE,
    BAD_TAG,
    BEGIN,
    BIG_DECIMAL,
    BIG_INTEGER,
    BOOLEAN,
    BYTE,
    CHARACTER,
    COMPARATOR,
    COMPARATOR_AT,
    COMPARATOR_OBJECT,
    COMPARES,
    DOUBLE,
    END,
    ENUM_COMPARATOR,
    FLOAT,
    FOREIGN,
    FOREIGN_CLASS,
    IN_FIELD,
    INSTANT,
    INTEGER,
    KEPT,
    KEPT_BITS,
    LOCAL_DATE,
    LOCAL_DATE_TIME,
    LOCAL_TIME,
    LONG,
    MILLIS,
    MOST_NAMES,
    NAMES,
    NESTED,
    NO_ROOM,
    NULL,
    OBJECTS,
    OF_CLASS,
    OF_NODE,
    OF_VALUE,
    POSITION,
    PRIMITIVE_ARRAY,
    SHORT,
    SOURCE,
    SPARE,
    STRING,
    TIMESTAMP,
    TOO_MANY_NAMES,
    TRUNCATED,
    TYPED,
    TYPED_AT,
    TYPED_COUNT,
    WRITTEN_UNTAGGED,
)
from flinkstate.kryo.primitives import copy_bytes, long_varint, put_string, read_flagged, unzigzag, varint

# Of Java's Instant.MIN and MAX.
_FIRST_SECOND = -31557014167219200
_LAST_SECOND = 31556889864403199


@kernel
def _row_of(data, at, size, code, slots, extents, names):  # type: ignore[no-untyped-def]
    """Returns the row of the class with this name and its hash, -1 if there is none."""
    slot = np.int64((code ^ code >> np.uint64(32)) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        found = np.int64(slots[slot])
        if extents[found, 1] == size:
            same = True
            for index in range(size):
                same = same and names[extents[found, 0] + index] == data[at + index] & 0x7F
            if same:
                return found
        slot = (slot + 1) & (len(slots) - 1)
    return np.int64(-1)


@kernel
def read_class(data, position, limit, five, table, names, known, foreign_too, state, failure):  # type: ignore[no-untyped-def]
    """Reads a class tag. Returns the row of the class (0 null), or a negative number on failure.

    `known` has for each name id of this value the row, where the name is and where it ends. `state` gets the position
    behind the tag.
    A class that can't be read is its row, or 0 without one, if it may occur here, else a failure.
    """
    start = position
    kinds, ids, slots, extents = table
    tag, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    if tag == 0:
        state[POSITION] = position
        return np.int64(NULL)
    if tag > 1:
        version = 1 if five else 0
        row = np.int64(ids[version, tag - 2]) if tag - 2 < ids.shape[1] else np.int64(-1)
        if row < 0:
            return fail(failure, BAD_TAG, start, tag - 2)
        if kinds[version, row] == FOREIGN and not foreign_too:
            return fail(failure, FOREIGN_CLASS, start, -1 - row)
        state[POSITION] = position
        return row
    name, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    if name > state[NAMES]:
        return fail(failure, BAD_TAG, start, name)
    if name == state[NAMES]:
        if name == MOST_NAMES:
            return fail(failure, TOO_MANY_NAMES, start, name)
        at = position
        row = np.int64(-1)
        if position < limit and data[position] >= 0x80:
            count, position = read_flagged(data, position, limit, failure)
            if position < 0:
                return position
            if count < 2 or count - 1 > limit - position:
                return fail(failure, TRUNCATED, at, count)
            code = np.uint64(14695981039346656037)
            all_bits = np.uint8(0)
            for index in range(count - 1):
                all_bits |= data[position + index]
                code = (code ^ np.uint64(data[position + index] & 0x7F)) * np.uint64(1099511628211)
            # Here bit 7 is a part of a letter; no class that is known has such.
            if all_bits < 0x80:
                row = _row_of(data, position, count - 1, code, slots, extents, names)
            position += count - 1
        else:
            code = np.uint64(14695981039346656037)
            byte = np.uint8(0)
            while byte < 0x80:
                if position >= limit:
                    return fail(failure, TRUNCATED, at, 1)
                byte = data[position]
                position += 1
                code = (code ^ np.uint64(byte & 0x7F)) * np.uint64(1099511628211)
            row = _row_of(data, at, position - at, code, slots, extents, names)
        known[name, 0] = row
        known[name, 1] = at
        known[name, 2] = position
        state[NAMES] += 1
    elif known[name, 1] == position:
        # An object is read again.
        position = known[name, 2]
    row = known[name, 0]
    state[POSITION] = position
    if (row < 0 or kinds[1 if five else 0, row] == FOREIGN) and not foreign_too:
        return fail(failure, FOREIGN_CLASS, start, known[name, 1])
    return max(row, np.int64(NULL))


@kernel
def first_part(spans, parts, contexts, version, row, context, kept, place, state):  # type: ignore[no-untyped-def]
    """Returns where the parts of an object begin in the table of parts, -1 if nobody knows which it has.

    They follow from the type arguments of the field in which it is, its `context`; `state[KEPT]` is 0 if it has none.
    Else Kryo goes by what it has last seen: while it is in an object for which it has `kept` the same type variables,
    Kryo 2 outside of fields also behind another object of the class. Where Kryo 2 has no class tag, what it has seen in
    another value counts.
    """
    state[KEPT] = 0
    number = spans[version, row, 2]
    if number == 0:
        return spans[version, row, 0]
    first = contexts[context, TYPED_AT]
    for index in range(first, first + contexts[context, TYPED_COUNT]):
        if parts[index, 0] == row and not kept & spans[version, row, 4]:
            state[KEPT] = parts[index, 2]
            if version == 0:
                state[TYPED] |= np.int64(1) << number
            return parts[index, 1]
    if context > 0 or kept & spans[version, row, 3]:
        return np.int64(-1)
    if (
        version == 0
        and place != IN_FIELD
        and (state[TYPED] >> number & 1 or (place == WRITTEN_UNTAGGED and number > 1))
    ):
        return np.int64(-1)
    return spans[version, row, 0]


@inlined
def kept_with(around, state):  # type: ignore[no-untyped-def]
    """What Kryo keeps of type variables in the object of `first_part`, with what it has `around`."""
    bits = (np.int64(1) << KEPT_BITS) - 1
    return (around | state[KEPT]) & bits | ((around >> KEPT_BITS) + (state[KEPT] >> KEPT_BITS)) << KEPT_BITS


@kernel
def put_number(kind, data, position, limit, five, out, at, state, failure):  # type: ignore[no-untyped-def]
    """Writes a boxed primitive, or an element of a primitive array. Returns where it ends in `out`."""
    if kind == INTEGER:
        number, end = varint(data, position, limit, failure)
        if end < 0:
            return end
        put32(out, at, unzigzag(np.uint64(number)))
        state[POSITION] = end
        return at + 4
    if kind == LONG:
        word, end = long_varint(data, position, limit, failure)
        if end < 0:
            return end
        put64(out, at, unzigzag(word))
        state[POSITION] = end
        return at + 8
    size = 1 if kind in (BYTE, BOOLEAN) else 2 if kind in (SHORT, CHARACTER) else 4 if kind == FLOAT else 8
    if size > limit - position:
        return fail(failure, TRUNCATED, position, size)
    if kind == BOOLEAN and data[position] > 1:
        return fail(failure, BAD_CONTENT, position, np.int64(data[position]))
    for index in range(size):
        out[at + index] = data[position + (size - 1 - index if five else index)]
    if kind >= FLOAT and out[at] & 0x7F == 0x7F and out[at + 1] >= (0x80 if kind == FLOAT else 0xF0):
        # Java writes only one NaN.
        rest = np.int64(0)
        for index in range(2, size):
            rest |= np.int64(out[at + index])
        infinite = out[at + 1] == (0x80 if kind == FLOAT else 0xF0)
        nan = out[at] == 0x7F and out[at + 1] == (0xC0 if kind == FLOAT else 0xF8)
        if rest != 0 or not (infinite or nan):
            return fail(failure, BAD_CONTENT, position, rest)
    state[POSITION] = position + size
    return at + size


@kernel
def _big_number(kind, data, position, limit, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a BigInteger or BigDecimal: i32 1, 2, 3 for 0, 1, 10, else 4 + size and the bytes; then an i32 scale."""
    start = position
    size, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    size -= 1
    if size <= 0:
        return fail(failure, BAD_CONTENT, start, size)
    if size > limit - position:
        return fail(failure, TRUNCATED, start, size)
    if size > 1:
        first = data[position]
        if (first == 0 and data[position + 1] < 0x80) or (first == 0xFF and data[position + 1] >= 0x80):
            return fail(failure, BAD_CONTENT, start, size)
    if at + size + SPARE > room:
        return fail(failure, NO_ROOM, start, size)
    only = np.int64(data[position]) if size == 1 else np.int64(-1)
    if only == 0 or only == 1 or only == 10:
        put32(out, at, 3 if only == 10 else only + 1)
        at += 4
    else:
        put32(out, at, size + 4)
        copy_bytes(data, position, out, at + 4, size)
        at += 4 + size
    position += size
    if kind == BIG_DECIMAL:
        scale, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        put32(out, at, unzigzag(np.uint64(scale)))
        at += 4
    state[POSITION] = position
    return at


@kernel
def _put_date(year, month, day, start, out, at, failure):  # type: ignore[no-untyped-def]
    if not (1 <= month <= 12 and 1 <= day <= 31 and -999999999 <= year <= 999999999):
        return fail(failure, BAD_CONTENT, start, month)
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        last = 30 if month in (4, 6, 9, 11) else 31
    if day > last:
        return fail(failure, BAD_CONTENT, start, day)
    put32(out, at, year)
    out[at + 4] = np.uint8(month)
    out[at + 5] = np.uint8(day)
    return at + 6


@kernel
def _put_time(hour, minute, second, nano, start, out, at, failure):  # type: ignore[no-untyped-def]
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nano < 1000000000):
        return fail(failure, BAD_CONTENT, start, hour)
    out[at] = np.uint8(hour)
    out[at + 1] = np.uint8(minute)
    out[at + 2] = np.uint8(second)
    put32(out, at + 3, nano)
    return at + 7


@kernel
def _date(data, position, limit, five, out, at, state, failure):  # type: ignore[no-untyped-def]
    start = position
    if five:
        year, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        if limit - position < 2:
            return fail(failure, TRUNCATED, start, 2)
        state[POSITION] = position + 2
        year = np.int64(np.int32(np.uint32(year)))
        return _put_date(year, np.int64(data[position]), np.int64(data[position + 1]), start, out, at, failure)
    if limit - position < 5:
        return fail(failure, TRUNCATED, start, 5)
    if data[position] != 0 or data[position + 2] != 0:
        return fail(failure, BAD_CONTENT, start, 0)
    zigzag, end = varint(data, position + 4, limit, failure)
    if end < 0:
        return end
    state[POSITION] = end
    year = unzigzag(np.uint64(zigzag))
    return _put_date(year, np.int64(data[position + 3]), np.int64(data[position + 1]), start, out, at, failure)


@kernel
def _time(data, position, limit, five, out, at, state, failure):  # type: ignore[no-untyped-def]
    start = position
    hour = minute = second = nano = np.int64(0)
    if five:
        # Each part that is inverted is the last one; only the first may be 0 then.
        for index in range(3):
            if position >= limit:
                return fail(failure, TRUNCATED, start, 1)
            part = np.int64(np.int8(data[position]))
            position += 1
            last = part < 0
            part = ~part if last else part
            if last and part == 0 and index > 0:
                return fail(failure, BAD_CONTENT, start, 0)
            if index == 0:
                hour = part
            elif index == 1:
                minute = part
            else:
                second = part
            if last:
                state[POSITION] = position
                return _put_time(hour, minute, second, nano, start, out, at, failure)
        nano, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        if nano == 0:
            return fail(failure, BAD_CONTENT, start, 0)
        state[POSITION] = position
        return _put_time(hour, minute, second, nano, start, out, at, failure)
    if limit - position < 4:
        return fail(failure, TRUNCATED, start, 4)
    hour = np.int64(data[position])
    minute = np.int64(data[position + 1])
    zigzag, position = varint(data, position + 2, limit, failure)
    if position < 0:
        return position
    if position >= limit:
        return fail(failure, TRUNCATED, start, 1)
    state[POSITION] = position + 1
    nano = unzigzag(np.uint64(zigzag))
    return _put_time(hour, minute, np.int64(data[position]), nano, start, out, at, failure)


@kernel
def _shared_part(kind, row, data, position, limit, node, out, at, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes the date or the time of a LocalDateTime of Kryo 2, an object with a mark. Returns as `put_string`."""
    start = position
    mark, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    if mark == 0:
        return fail(failure, BAD_MARK, start, 0)
    number = state[OBJECTS]
    if mark > 1:
        if mark - 2 >= number or objects[mark - 2, OF_CLASS] != row:
            return fail(failure, BAD_REFERENCE, start, mark - 2)
        begin = objects[mark - 2, SOURCE]
        if kind == LOCAL_DATE:
            end = _date(data, begin, limit, np.bool_(False), out, at, state, failure)
        else:
            end = _time(data, begin, limit, np.bool_(False), out, at, state, failure)
        state[POSITION] = position
        return end
    state[OBJECTS] += 1
    objects[number, SOURCE] = position
    objects[number, OF_VALUE] = 0
    if kind == LOCAL_DATE:
        end = _date(data, position, limit, np.bool_(False), out, at, state, failure)
    else:
        end = _time(data, position, limit, np.bool_(False), out, at, state, failure)
    objects[number, OF_CLASS] = row
    objects[number, OF_NODE] = node
    objects[number, BEGIN] = at
    objects[number, END] = end
    return end


@kernel
def _moment(kind, rows, data, position, limit, five, node, out, at, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes a date, a time or a moment. `rows` are those of LocalDate and LocalTime. Returns as `put_string`."""
    start = position
    if kind == LOCAL_DATE:
        return _date(data, position, limit, five, out, at, state, failure)
    if kind == LOCAL_TIME:
        return _time(data, position, limit, five, out, at, state, failure)
    if kind == LOCAL_DATE_TIME and five:
        at = _date(data, position, limit, five, out, at, state, failure)
        return at if at < 0 else _time(data, state[POSITION], limit, five, out, at, state, failure)
    if kind == LOCAL_DATE_TIME:
        at = _shared_part(np.int64(LOCAL_DATE), rows[0], data, position, limit, node, out, at, objects, state, failure)
        if at < 0:
            return at
        return _shared_part(
            np.int64(LOCAL_TIME), rows[1], data, state[POSITION], limit, node, out, at, objects, state, failure
        )
    if kind == INSTANT and not five:
        zigzag, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        nano = unzigzag(np.uint64(zigzag))
        word, position = long_varint(data, position, limit, failure)
        if position < 0:
            return position
        first = unzigzag(word)
    else:
        word, position = long_varint(data, position, limit, failure)
        if position < 0:
            return position
        first = np.int64(word)
        nano = np.int64(0)
        if kind != MILLIS:
            nano, position = varint(data, position, limit, failure)
            if position < 0:
                return position
    if nano < 0 or nano > 999999999:
        return fail(failure, BAD_CONTENT, start, nano)
    if kind == INSTANT and not _FIRST_SECOND <= first <= _LAST_SECOND:
        return fail(failure, BAD_CONTENT, start, first)
    if kind == TIMESTAMP:
        if first % 1000 != (0 if five else nano // 1000000):
            return fail(failure, BAD_CONTENT, start, nano)
        if five:
            first += nano // 1000000
    put64(out, at, first)
    at += 8
    if kind != MILLIS:
        put32(out, at, nano)
        at += 4
    state[POSITION] = position
    return at


@kernel
def _primitive_array(kind, data, position, limit, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes an array of primitives: i32 size, the elements. Returns as `put_string`."""
    start = position
    size, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    size -= 1
    if size < 0 or size > limit - position:
        return fail(failure, BAD_COUNT, start, size)
    if at + 8 * size + SPARE > room:
        return fail(failure, NO_ROOM, start, 8 * size)
    put32(out, at, size)
    at += 4
    for _ in range(size):
        at = put_number(kind, data, position, limit, five, out, at, state, failure)
        if at < 0:
            return at
        position = state[POSITION]
    state[POSITION] = position
    return at


@kernel
def put_scalar(kind, param, rows, data, position, limit, five, node, out, at, room, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes an object that has no parts of its own. Returns where it ends in `out`."""
    if kind == STRING:
        return put_string(data, position, limit, five, out, at, room, state, failure)
    if kind <= DOUBLE:
        return put_number(kind, data, position, limit, five, out, at, state, failure)
    if kind in (BIG_INTEGER, BIG_DECIMAL):
        return _big_number(kind, data, position, limit, out, at, room, state, failure)
    if kind == PRIMITIVE_ARRAY:
        return _primitive_array(param, data, position, limit, five, out, at, room, state, failure)
    if kind != MILLIS and kind != TIMESTAMP:
        state[NESTED] = 1
    return _moment(kind, rows, data, position, limit, five, node, out, at, objects, state, failure)


@kernel
def widen(out, end, kind, wide):  # type: ignore[no-untyped-def]
    """Makes a wider number of the one before `end`, a float of which becomes the double with the same value."""
    size = 1 if kind == BYTE else 2 if kind == SHORT else 4
    begin = end - size
    number = np.int64(0)
    for index in range(begin, end):
        number = number << 8 | np.int64(out[index])
    if kind != FLOAT:
        number -= (number >> (8 * size - 1)) << (8 * size)
    else:
        sign, exponent, fraction = number >> 31, number >> 23 & 0xFF, number & 0x7FFFFF
        if exponent == 255 and fraction != 0:
            # Java has one bit pattern for all that is not a number.
            sign, exponent, fraction = np.int64(0), np.int64(255), np.int64(0x400000)
        if exponent == 0 and fraction != 0:
            exponent = np.int64(1)
            while not fraction & 0x800000:
                fraction <<= 1
                exponent -= 1
            fraction &= 0x7FFFFF
            exponent += 896
        elif exponent != 0:
            exponent = np.int64(2047) if exponent == 255 else exponent + 896
        number = sign << 63 | exponent << 52 | fraction << 29
    if wide == INTEGER:
        put32(out, begin, number)
        return begin + 4
    put64(out, begin, number)
    return begin + 8


@kernel
def takes_null_key(table, objects, state):  # type: ignore[no-untyped-def]
    """Whether the comparator of a sorted map that was just read is one of the job's: it may take a null key."""
    if state[COMPARATOR_AT] < 0:
        return 0
    number = state[COMPARATOR_OBJECT] if state[COMPARATOR_OBJECT] >= 0 else state[OBJECTS] - 1
    return 1 if table[0][COMPARES, objects[number, OF_CLASS]] == COMPARATOR else 0


@kernel
def read_comparator(data, position, limit, five, table, names, known, node, objects, state, failure):  # type: ignore[no-untyped-def]
    """Reads the comparator of what is sorted. Returns the position behind it; `state` says what a copy must know."""
    start = position
    state[COMPARATOR_AT] = -1
    state[COMPARATOR_OBJECT] = -1
    row = read_class(data, position, limit, five, table, names, known, np.bool_(False), state, failure)
    if row < 0:
        return row
    position = state[POSITION]
    if row == NULL:
        return position
    kind = table[0][COMPARES, row]
    if kind != COMPARATOR:
        kind = table[0][1 if five else 0, row]
    if kind != COMPARATOR and kind != ENUM_COMPARATOR:
        return fail(failure, BAD_COMPARATOR, position, row)
    if kind == COMPARATOR or not five:
        state[COMPARATOR_AT] = position
        mark, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        number = state[OBJECTS]
        if mark == 0 or mark - 2 >= number or (mark > 1 and objects[mark - 2, OF_CLASS] != row):
            return fail(failure, BAD_REFERENCE, start, mark - 2)
        if mark > 1:
            state[COMPARATOR_OBJECT] = mark - 2
            return position
        objects[number, SOURCE] = position
        objects[number, OF_VALUE] = 0
        objects[number, OF_CLASS] = row
        objects[number, OF_NODE] = node
        objects[number, BEGIN] = 0
        objects[number, END] = 0
        state[OBJECTS] += 1
    if kind == ENUM_COMPARATOR:
        if position >= limit or data[position] != 1:
            return fail(failure, BAD_COMPARATOR, start, row)
        position += 1
    return position
