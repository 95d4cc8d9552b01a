"""The compiled writing of maps as Kryo does, from rows of a MapState: see `flinkstate/kryo/kernels.py` for the layout.

Every object is written as a new one: Kryo reads that as well as references to equal objects.
"""

from __future__ import annotations

import numpy as np

from flinkstate.kryo.codes import BOOLEAN, BYTE, CHARACTER, FLOAT, INTEGER, LONG, SHORT, STRING
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.primitives import copy_bytes, put32, put64, put_varint

# The most bytes that an object takes more than twice its bytes in Flink.
MORE = 16
# Of a map: key group, lengths, timestamp, count.
MORE_OF_MAP = 32


@kernel
def _put_text(data, start, end, five, out, at):  # type: ignore[no-untyped-def]
    """Writes a String of Flink: varint length + 1 (0: null), each UTF-16 unit as varint. Returns -1 if it is none."""
    length = np.int64(0)
    shift = 0
    position = start
    while True:
        if position >= end or shift > 28:
            return np.int64(-1)
        byte = np.int64(data[position])
        position += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length == 0:
        out[at] = 0
        return at + 1 if position == end else np.int64(-1)
    out[at] = 3
    out[at + 1] = 1
    at += 2
    plain = end - position == length - 1 and 2 <= length - 1 <= (32 if five else 63)
    if plain:
        for place in range(position, end):
            plain = plain and data[place] < 0x80
    if plain:
        copy_bytes(data, position, out, at, end - position)
        out[at + end - position - 1] |= 0x80
        return at + end - position
    out[at] = np.uint8(length & 0x3F | (0xC0 if length > 0x3F else 0x80))
    at += 1
    if length > 0x3F:
        at = put_varint(out, at, length >> 6)
    for _ in range(length - 1):
        unit = np.int64(0)
        shift = 0
        while True:
            if position >= end or shift > 14:
                return np.int64(-1)
            byte = np.int64(data[position])
            position += 1
            unit |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if unit < 0x80:
            out[at] = np.uint8(unit)
            at += 1
        elif unit < 0x800:
            out[at] = np.uint8(0xC0 | unit >> 6)
            out[at + 1] = np.uint8(0x80 | unit & 0x3F)
            at += 2
        elif unit < 0x10000:
            out[at] = np.uint8(0xE0 | unit >> 12)
            out[at + 1] = np.uint8(0x80 | unit >> 6 & 0x3F)
            out[at + 2] = np.uint8(0x80 | unit & 0x3F)
            at += 3
        else:
            return np.int64(-1)
    return at if position == end else np.int64(-1)


@kernel
def put_object(kind, data, start, end, five, out, at):  # type: ignore[no-untyped-def]
    """Writes an object with its class tag. Returns the place behind it, or -1 if the bytes aren't of its kind."""
    if kind == STRING:
        return _put_text(data, start, end, five, out, at)
    size = end - start
    if kind in (INTEGER, LONG):
        if size != (4 if kind == INTEGER else 8):
            return np.int64(-1)
        number = np.int64(0)
        for position in range(start, end):
            number = number << 8 | np.int64(data[position])
        if kind == INTEGER:
            out[at] = 2
            number -= (number >> 31) << 32
        else:
            out[at] = 9
        at += 1
        left = np.uint64(number << 1) ^ np.uint64(number >> 63)
        count = 0
        # The ninth byte of a long has 8 bits.
        while left > np.uint64(0x7F) and count < 8:
            out[at] = np.uint8(left & np.uint64(0x7F) | np.uint64(0x80))
            left >>= np.uint64(7)
            at += 1
            count += 1
        out[at] = np.uint8(left)
        return at + 1
    wanted = 1 if kind in (BOOLEAN, BYTE) else 2 if kind in (SHORT, CHARACTER) else 8
    tag = 5 if kind == BOOLEAN else 6 if kind == BYTE else 8 if kind == SHORT else 7 if kind == CHARACTER else 10
    if kind == FLOAT:
        wanted = 4
        tag = 4
    if size != wanted or (kind == BOOLEAN and data[start] > 1):
        return np.int64(-1)
    out[at] = tag
    for index in range(size):
        out[at + 1 + index] = data[start + (size - 1 - index if five else index)]
    return at + 1 + size


@kernel
def write_maps(  # type: ignore[no-untyped-def]
    data, key_starts, key_ends, user_ends, ends, nulls, order, counts, targets, stamps, prefix, stamped, head, five,
    key_kind, value_kind, out, ends_of_maps,
):  # fmt: skip
    """Writes rows of a map state as maps by Kryo; a map's rows follow each other in `order`, `counts` says how many.

    A map is i32, key group, key, i32, [timestamp], `head` (class tag and mark), count, and for each row key and value.
    This fills where each map ends. Returns -1, or a row whose user key or value isn't of its kind.
    """
    position = np.int64(0)
    turn = np.int64(0)
    for one in range(len(counts)):
        first = order[turn]
        size = key_ends[first] - key_starts[first]
        put32(out, position, prefix + size)
        position += 4
        if prefix == 2:
            out[position] = np.uint8(targets[one] >> 8 & 0xFF)
            position += 1
        out[position] = np.uint8(targets[one] & 0xFF)
        copy_bytes(data, key_starts[first], out, position + 1, size)
        begin = position + 1 + size
        position = begin + 4
        if stamped:
            put64(out, position, stamps[one])
            position += 8
        copy_bytes(head, 0, out, position, len(head))
        position = put_varint(out, position + len(head), counts[one] + (1 if five else 0))
        for _ in range(counts[one]):
            row = order[turn]
            turn += 1
            at = put_object(key_kind, data, key_ends[row], user_ends[row], five, out, position)
            if at < 0:
                return row
            if nulls[row]:
                out[at] = 0
                position = at + 1
                continue
            # Between them are an i32, the null flag and the timestamp.
            start = user_ends[row] + (13 if stamped else 5)
            position = put_object(value_kind, data, start, ends[row], five, out, at)
            if position < 0:
                return row
        put32(out, begin, position - begin - 4)
        ends_of_maps[one] = position
    return np.int64(-1)
