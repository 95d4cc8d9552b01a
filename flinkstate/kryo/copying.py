"""Compiled: what stays a value of Kryo is copied, and made whole."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, put_varint
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import (
    BAD_CONTENT,
    COMPARATOR_AT,
    COMPARATOR_OBJECT,
    ENUM_COMPARATOR,
    LONGS,
    NEW_NAMES,
    NEW_NUMBER,
    NO_ROOM,
    OBJECTS,
    OF_NODE,
    OF_VALUE,
    POSITION,
    POSITIVE_INT,
    POSITIVE_LONG,
    SERIAL,
    SPARE,
    TRUNCATED,
    ZONE_OFFSET,
)
from flinkstate.kryo.objects import put_scalar, read_class
from flinkstate.kryo.primitives import copy_bytes, long_varint, varint


@kernel
def flush(data, start, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Copies what was passed since the last time. Returns where it ends in `out`."""
    if at + end - start + SPARE > room:
        return fail(failure, NO_ROOM, start, end - start)
    copy_bytes(data, start, out, at, end - start)
    return at + end - start


@kernel
def put_class(row, ids, said, pool, extents, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a class tag of a copied value. `said` has for each class in which value it was named last, and its id."""
    if ids[row] >= 0:
        return put_varint(out, at, ids[row] + 2)
    out[at] = 1
    at += 1
    if said[row, 0] == state[SERIAL]:
        return put_varint(out, at, said[row, 1])
    said[row, 0] = state[SERIAL]
    said[row, 1] = state[NEW_NAMES]
    state[NEW_NAMES] += 1
    first, size = extents[row, 0], extents[row, 1]
    if at + size + SPARE > room:
        return fail(failure, NO_ROOM, at, size)
    at = put_varint(out, at, said[row, 1])
    short = size > 1 and (five or size <= 63)
    if not short:
        length = size + 1
        out[at] = np.uint8(length & 0x3F | (0xC0 if length > 0x3F else 0x80))
        at += 1
        if length > 0x3F:
            at = put_varint(out, at, length >> 6)
    for index in range(size):
        out[at + index] = pool[first + index]
    at += size
    if short:
        out[at - 1] |= 0x80
    return at


@kernel
def pass_part(kind, rows, data, position, limit, five, out, at, room, objects, state, failure):  # type: ignore[no-untyped-def]
    """Passes a part that has no tag and no mark. Returns the position behind it."""
    start = position
    if kind == POSITIVE_INT:
        _, position = varint(data, position, limit, failure)
        return position
    if kind == POSITIVE_LONG:
        _, position = long_varint(data, position, limit, failure)
        return position
    if kind < POSITIVE_INT:
        end = put_scalar(
            kind, np.int64(0), rows, data, position, limit, five, np.int64(-1), out, at, room, objects, state, failure
        )
        return end if end < 0 else state[POSITION]
    size = np.int64(8)
    if kind == LONGS:
        size, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        size *= 8
    elif kind == ZONE_OFFSET:
        size = 5 if position < limit and data[position] == 127 else 1  # type: ignore[assignment]
    if size > limit - position:
        return fail(failure, TRUNCATED, start, size)
    return position + size


@kernel
def pass_constants(most, data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Passes the constants of an EnumSet, in their order. Returns the position behind them."""
    start = position
    count, position = varint(data, position, limit, failure)
    before = np.int64(0)
    for _ in range(count if position >= 0 else 0):
        number, position = varint(data, position, limit, failure)
        if position < 0:
            return position
        if number <= before or number > most > 0:
            return fail(failure, BAD_CONTENT, start, number)
        before = number
    return position


@kernel
def copy_comparator(  # type: ignore[no-untyped-def]
    data, start, flushed, five, table, names, known, ids, said, objects, new_objects, out, at, room, state, failure,
):  # fmt: skip
    """Copies the comparator at `start`, which was passed. Returns the ends in `out` and `data`, and a count."""
    mark, number = state[COMPARATOR_AT], state[COMPARATOR_OBJECT]
    at = flush(data, flushed, start, out, at, room, failure)
    if at < 0:
        return at, flushed, new_objects
    row = read_class(data, start, len(data), five, table, names, known, np.bool_(False), state, failure)
    flushed = state[POSITION]
    at = put_class(row, ids, said, names, table[3], five, out, at, room, state, failure)
    if at < 0 or mark < 0:
        return at, flushed, new_objects
    if number >= 0:
        _, flushed = varint(data, mark, len(data), failure)
        if objects[number, OF_VALUE] == state[SERIAL]:
            at = put_varint(out, at, objects[number, NEW_NUMBER] + 2)
            return at, flushed, new_objects
        at = put_varint(out, at, 1)
        if table[0][1 if five else 0, row] == ENUM_COMPARATOR:
            out[at] = 1
            at += 1
    else:
        number = state[OBJECTS] - 1
    objects[number, OF_NODE] = -1
    objects[number, OF_VALUE] = state[SERIAL]
    objects[number, NEW_NUMBER] = new_objects
    return at, flushed, new_objects + 1
