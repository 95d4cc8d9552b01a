"""Compiled: the fast reading of flat maps, whose keys and values are boxed primitives and Strings.

Most maps are flat. No object in them has parts, and none is said again by a reference. Their entries are as long by
both Kryos, so the number of entries up to the end says which Kryo wrote the count before them. A flat map becomes the
same as by `kernels.py`. For any other, and for damage, this gives up without a reason: `kernels.py` reads it then.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import byte_at, load64, put32, store64, swapped, zeros_below
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.kernel_codes import (
    BOOLEAN,
    BYTE,
    CHARACTER,
    COUNTING,
    DOUBLE,
    FLAT_BY_5,
    FLAT_NULL,
    FLAT_ROW,
    FLAT_TAGS,
    FLOAT,
    INTEGER,
    LONG,
    MAP,
    NAMES,
    NO_NULL_KEY,
    NO_NULL_VALUE,
    OUT_END,
    POSITION,
    SHORT,
    STRING,
)
from flinkstate.kryo.objects import read_class
from flinkstate.kryo.primitives import HIGH, are_equal, put_wide_string, unzigzag, varint

# Instead of a number of entries.
_NOT_FLAT = -1
_BY_THE_OTHER = -2

# More than a null flag, the longest short String and the eight bytes that are written at once.
_OBJECT_ROOM = 96
_MOST_SHORT = 63
_MOST_SHORT_OF_5 = 32
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_LOW_7, _HIGH_7 = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
_LOW_14, _HIGH_14 = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
_LOW_28, _HIGH_28 = np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)
_INFINITE, _NAN = np.uint64(0x7FF0000000000000), np.uint64(0x7FF8000000000000)
_INFINITE_FLOAT, _NAN_FLOAT = np.uint64(0x7F800000), np.uint64(0x7FC00000)


@inlined
def _word_at(data, position):  # type: ignore[no-untyped-def]
    """Returns eight bytes; those behind the end of all are 0."""
    if position + 8 <= len(data):
        word = load64(data, position)
    else:
        word = np.uint64(0)
        for index in range(len(data) - position):
            word |= np.uint64(byte_at(data, position + index)) << np.uint64(8 * index)
    return word


@kernel
def _read_number(kind, data, position, five):  # type: ignore[no-untyped-def]
    """Returns the bits of a number, the bytes that it takes (0: Kryo writes none like this), and those in Flink."""
    word = _word_at(data, position)
    if kind in (INTEGER, LONG):
        stops = ~word & HIGH
        # All bits up to the first byte without bit 7, and the 7 low bits of each byte joined.
        bits = word & _SEVENS & (stops ^ (stops - np.uint64(1)))
        bits = bits & _LOW_7 | (bits & _HIGH_7) >> np.uint64(1)
        bits = bits & _LOW_14 | (bits & _HIGH_14) >> np.uint64(2)
        bits = bits & _LOW_28 | (bits & _HIGH_28) >> np.uint64(4)
        if stops != np.uint64(0):
            used = np.int64(zeros_below(stops) >> np.uint64(3)) + 1
            last = word >> np.uint64(8 * used - 8) & np.uint64(0xFF)
        else:
            used = np.int64(9)
            last = _word_at(data, position + 8) & np.uint64(0xFF)
            bits |= last << np.uint64(56)
        if (last == np.uint64(0) and used > 1) or (kind == INTEGER and bits > np.uint64(0xFFFFFFFF)):
            used = np.int64(0)
        return np.uint64(unzigzag(bits)), used, np.int64(4 if kind == INTEGER else 8)
    size = np.int64(1 if kind in (BYTE, BOOLEAN) else 8 if kind == DOUBLE else 4 if kind == FLOAT else 2)
    bits = word << np.uint64(64 - 8 * size) if five else swapped(word)
    bits >>= np.uint64(64 - 8 * size)
    # Java writes only one NaN.
    bad = kind == BOOLEAN and bits > np.uint64(1)
    bad |= kind == DOUBLE and bits & _INFINITE == _INFINITE and bits << np.uint64(12) != np.uint64(0) and bits != _NAN
    infinite = kind == FLOAT and bits & _INFINITE_FLOAT == _INFINITE_FLOAT
    bad |= infinite and bits << np.uint64(41) != np.uint64(0) and bits != _NAN_FLOAT
    return bits, np.int64(0) if bad else size, size


@kernel
def _put_short_string(data, position, out, at):  # type: ignore[no-untyped-def]
    """Writes a String whose last byte has bit 7 set, as Flink does. Returns its size, more than 63 for any other."""
    size = np.int64(0)
    while size <= _MOST_SHORT:
        word = _word_at(data, position + size)
        store64(out, at + 1 + size, word & _SEVENS)
        high = word & HIGH
        if high != np.uint64(0):
            size += np.int64(zeros_below(high) >> np.uint64(3)) + 1
            break
        size += 8
    out[at] = np.uint8(size + 1)
    return size


@kernel
def _read_entries(  # type: ignore[no-untyped-def]
    data, position, limit, five, never, flat, counting, tally, out, begin, marks, marked, state, failure
):
    """Reads a map from its count on, by Kryo 5 if `five`. Returns how many entries it has, or a negative number.

    `flat` has for keys and for values what each tag stands for, 0 for what isn't read here. `never` says which nulls
    the class of the map can't have. `state` gets the Kryo and where the map ends in `out`. If `counting`, `tally` gets
    the number of each tag, and what is in `out` is of no use.
    """
    count, position = varint(data, position, limit, failure)
    room = len(out) - _OBJECT_ROOM
    if position < 0 or begin + 4 > room:
        return np.int64(_NOT_FLAT)
    most = _MOST_SHORT_OF_5 if five else _MOST_SHORT
    at = begin + 4
    entries = np.int64(0)
    part = 0
    # Whether anything is another or can't be by the other Kryo.
    one_only = False
    while position < limit:
        tag = byte_at(data, position)
        kind = flat[part, tag] if tag < FLAT_TAGS else np.int64(0)
        if kind == 0 or at > room:
            return np.int64(_NOT_FLAT)
        position += 1
        if part == 0 and not counting:
            if marked + 2 > len(marks):
                return np.int64(_NOT_FLAT)
            marks[marked] = at
        elif part == 1:
            if not counting:
                marks[marked + 1] = at
                marked += 2
            out[at] = np.uint8(kind == FLAT_NULL)
            at += 1
        if kind == STRING:
            # It is a new object.
            if position + 1 >= limit or byte_at(data, position) != 1:
                return np.int64(_NOT_FLAT)
            position += 1
            first = byte_at(data, position)
            if first < 0x80:
                size = _put_short_string(data, position, out, at)
                if size == 1 or size > _MOST_SHORT:
                    return np.int64(_NOT_FLAT)
                if size > most:
                    return np.int64(_BY_THE_OTHER)
                one_only |= size > _MOST_SHORT_OF_5
                position += size
                at += size + 1
            else:
                # Of that many characters, Kryo 2 can't have written one that is ASCII.
                one_only |= first > 0x80 + _MOST_SHORT_OF_5
                at = put_wide_string(data, position, limit, five, out, at, room, state, failure)
                if at < 0:
                    return np.int64(_BY_THE_OTHER)
                position = state[POSITION]
        elif kind == FLAT_NULL:
            if never & (NO_NULL_VALUE if part == 1 else NO_NULL_KEY):
                return np.int64(_NOT_FLAT)
            if part == 0:
                out[at] = 0
                at += 1
        else:
            bits, used, size = _read_number(kind, data, position, five)
            if used == 0:
                return np.int64(_BY_THE_OTHER)
            one_only |= kind >= CHARACTER  # type: ignore[assignment]
            one_only |= kind == SHORT
            store64(out, at, swapped(bits << np.uint64(64 - 8 * size)))
            position += used
            at += size
        if counting:
            tally[part, tag] += 1
            at = begin + 4
        entries += part
        part ^= 1
    if position > limit or part == 1:
        return np.int64(_NOT_FLAT)
    if entries != (count - 1 if five else count):
        if entries != (count if five else count - 1):
            return np.int64(_NOT_FLAT)
        if one_only:
            return np.int64(_BY_THE_OTHER)
        five = not five
    put32(out, begin, entries)
    state[FLAT_BY_5] = 1 if five else 0
    state[OUT_END] = at
    return entries


@kernel
def _read_head(data, position, limit, version, table, params, names, known, finding, cells, head, state, failure):  # type: ignore[no-untyped-def]
    """Reads class tag and mark of a map. `head` gets where they are, their size, the nulls not allowed and the class.

    The size is 0 if the class is not one that is read here. The same bytes as before are the same.
    """
    if head[1] > 0 and head[1] <= limit - position and are_equal(data, position, head[0], head[1]):
        head[0] = position
        return
    head[0] = position
    head[1] = 0
    state[NAMES] = 0
    row = read_class(data, position, limit, version == 1, table, names, known, np.bool_(True), state, failure)
    end = state[POSITION]
    if row <= 0 or end >= limit or data[end] != 1:
        return
    if table[0][0, row] == MAP and table[0][1, row] == MAP and (finding == COUNTING or cells[0, row] == 1):
        head[1] = end + 1 - position
        head[2] = params[row]
        head[3] = row


@kernel
def read_flat_map(  # type: ignore[no-untyped-def]
    data, position, limit, version, table, params, names, known, finding, cells, flat, out, begin, marks, marked,
    state, failure,
):  # fmt: skip
    """Reads a value. Returns how many entries it has, or a negative number if it isn't a flat map.

    `flat` has what each tag stands for (see `_read_entries`), room to count tags, and the head of the map before.
    `version` says which Kryo is tried first: 0 Kryo 2, 1 Kryo 5.
    """
    kinds, tally, head = flat
    _read_head(data, position, limit, version, table, params, names, known, finding, cells, head, state, failure)
    if head[1] == 0:
        return np.int64(_NOT_FLAT)
    state[FLAT_ROW] = head[3]
    start = position + head[1]
    for five in (version == 1, version != 1):
        tally[:] = 0
        entries = _read_entries(
            data, start, limit, five, head[2], kinds, finding == COUNTING, tally, out, begin, marks, marked, state,
            failure,
        )  # fmt: skip
        if entries != _BY_THE_OTHER:
            return entries
    return entries
