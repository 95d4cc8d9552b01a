"""Compiled: the fast way of a flat map from the bytes of one Kryo to those of the other.

A flat map has keys and values that are boxed primitives and short Strings, none of them by a reference. But for the
count both Kryos store it alike, so whole runs of bytes are copied; only fractions and characters are turned round.
Anything else, damage too, is left to the general way.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import load64, put_varint, zeros_below
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.kernel_codes import MAP, NAMES, POSITION, SPARE
from flinkstate.kryo.objects import read_class
from flinkstate.kryo.primitives import HIGH, copy_bytes, varint

# The tags of boxed primitives and Strings; 7 and 8 are those of Character and Short.
_NULL = 0
_INTEGER = 2
_STRING = 3
_FLOAT = 4
_BOOLEAN = 5
_BYTE = 6
_LONG = 9
_DOUBLE = 10
LAST_FLAT_TAG = _DOUBLE

_SHORTEST = 2
_LONGEST = 32
# A String of no or one character: its length and one, behind a flag.
_EMPTY = 0x81
_ONE_CHARACTER = 0x82


@inlined
def _behind_string(data, position, limit):  # type: ignore[no-untyped-def]
    """Returns the position behind a String that both Kryos store alike, -1 if it isn't one."""
    end = np.int64(-1)
    if position + 40 <= limit:
        size = np.int64(0)
        while size < _LONGEST:
            high = load64(data, position + size) & HIGH
            if high != 0:
                size += np.int64(zeros_below(high) >> np.uint64(3)) + 1
                break
            size += 8
        if _SHORTEST <= size <= _LONGEST and data[position + size - 1] >= 0x80:
            end = position + size
    if end < 0 and position < limit:
        if data[position] == _EMPTY:
            end = position + 1
        elif data[position] == _ONE_CHARACTER and position + 1 < limit and data[position + 1] < 0x80:
            end = position + 2
        else:
            size = np.int64(1)
            while size < _LONGEST and position + size <= limit and data[position + size - 1] < 0x80:
                size += 1
            if size >= _SHORTEST and position + size <= limit and data[position + size - 1] >= 0x80:
                end = position + size
    return end


@inlined
def _behind_varint(data, position, limit, most, last):  # type: ignore[no-untyped-def]
    """Returns the position behind a number of at most so many bytes, and no more than it needs, else -1.

    If it has as many, the last one is at most `last`.
    """
    end = np.int64(-1)
    size = np.int64(1)
    while size < most and position + size <= limit and data[position + size - 1] >= 0x80:
        size += 1
    if position + size <= limit:
        byte = np.int64(data[position + size - 1])
        if byte <= (last if size == most else 0x7F) and (size == 1 or byte != 0):
            end = position + size
    return end


@kernel
def recode_flat(  # type: ignore[no-untyped-def]
    data, position, limit, five, table, params, names, known, out, at, state, failure
):
    """Writes a flat map, which Kryo 5 has written if `five`.

    Returns where it ends in `out`, and `state` the position behind it; -1 if it isn't one.
    """
    begin = position
    state[NAMES] = 0
    row = read_class(data, position, limit, five, table, names, known, np.bool_(False), state, failure)
    if row <= 0 or table[0][0, row] != MAP or table[0][1, row] != MAP or params[row] != 0:
        return np.int64(-1)
    position = state[POSITION]
    if position >= limit or data[position] != 1:
        return np.int64(-1)
    position += 1
    # Turning numbers round makes nothing longer.
    if limit - begin + 2 * SPARE > len(out) - at:
        return np.int64(-1)
    copy_bytes(data, begin, out, at, position - begin)
    at += position - begin
    count, position = varint(data, position, limit, failure)
    if five:
        count -= 1
    if position < 0 or not 0 <= count <= limit - position:
        return np.int64(-1)
    at = put_varint(out, at, count + (0 if five else 1))
    copied = position
    for _ in range(2 * count):
        if position >= limit:
            return np.int64(-1)
        tag = data[position]
        position += 1
        if tag == _STRING:
            if position >= limit or data[position] != 1:
                return np.int64(-1)
            position = _behind_string(data, position + 1, limit)
        elif tag == _LONG:
            position = _behind_varint(data, position, limit, 9, 0xFF)
        elif tag == _INTEGER:
            position = _behind_varint(data, position, limit, 5, 0x0F)
        elif tag in (_BOOLEAN, _BYTE):
            if position >= limit or (tag == _BOOLEAN and data[position] > 1):
                return np.int64(-1)
            position += 1
        elif _FLOAT <= tag <= _DOUBLE:
            size = 8 if tag == _DOUBLE else 4 if tag == _FLOAT else 2
            if position + size > limit:
                return np.int64(-1)
            # Of what isn't a number there are several forms.
            first, second = (size - 1, size - 2) if five else (0, 1)
            least = 0xF0 if size == 8 else 0x80
            if size > 2 and data[position + first] & 0x7F == 0x7F and data[position + second] >= least:
                return np.int64(-1)
            copy_bytes(data, copied, out, at, position - copied)
            at += position - copied
            for index in range(size):
                out[at + index] = data[position + size - 1 - index]
            at += size
            position += size
            copied = position
        elif tag != _NULL:
            return np.int64(-1)
        if position < 0:
            return np.int64(-1)
    copy_bytes(data, copied, out, at, position - copied)
    state[POSITION] = position
    return at + position - copied
