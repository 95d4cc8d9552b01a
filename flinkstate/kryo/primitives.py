"""Compiled: numbers and Strings as Kryo stores them, and bytes as Flink has them."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, load64, put_varint, store64, zeros_below
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.kernel_codes import (
    AS_LIST,
    BAD_STRING,
    BAD_VARINT,
    EMPTY_LIST,
    EMPTY_MAP,
    NO_ROOM,
    POSITION,
    SINGLETON_LIST,
    SINGLETON_MAP,
    TRUNCATED,
)

HIGH = np.uint64(0x8080808080808080)


@inlined
def copy_bytes(data, start, out, at, size):  # type: ignore[no-untyped-def]
    while size >= 8:
        store64(out, at, load64(data, start))
        start += 8
        at += 8
        size -= 8
    for offset in range(size):
        out[at + offset] = data[start + offset]


@kernel
def are_equal(data, one, other, size):  # type: ignore[no-untyped-def]
    different = 0
    for index in range(size):
        different |= data[one + index] ^ data[other + index]
    return different == 0


@kernel
def _read_varint(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads 32 bits without a sign. Returns the number and the position behind it, which is negative on failure."""
    start = position
    number = np.int64(0)
    for shift in range(0, 35, 7):
        if position >= limit:
            return number, fail(failure, TRUNCATED, start, 1)
        byte = np.int64(data[position])
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if (byte == 0 and shift > 0) or number > 0xFFFFFFFF:
                return number, fail(failure, BAD_VARINT, start, 0)
            return number, position
    return number, fail(failure, BAD_VARINT, start, 0)


@kernel
def _read_long(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads 64 bits. Returns them and the position behind them, which is negative on failure."""
    start = position
    number = np.uint64(0)
    for index in range(9):
        if position >= limit:
            return number, fail(failure, TRUNCATED, start, 1)
        byte = np.uint64(data[position])
        position += 1
        last = index == 8 or byte < 0x80
        number |= (byte if index == 8 else byte & np.uint64(0x7F)) << np.uint64(7 * index)
        if last:
            if byte == 0 and index > 0:
                return number, fail(failure, BAD_VARINT, start, 0)
            return number, position
    return number, position


@inlined
def knows_no_arguments(kind):  # type: ignore[no-untyped-def]
    """Whether Kryo 2 has a serializer for these collections that the type arguments of a field don't get to."""
    return EMPTY_LIST <= kind <= SINGLETON_LIST or EMPTY_MAP <= kind <= SINGLETON_MAP or kind == AS_LIST


@inlined
def varint(data, position, limit, failure):  # type: ignore[no-untyped-def]
    if position < limit and data[position] < 0x80:
        number = np.int64(data[position])
        position += 1
    else:
        number, position = _read_varint(data, position, limit, failure)
    return number, position


@inlined
def long_varint(data, position, limit, failure):  # type: ignore[no-untyped-def]
    if position + 1 < limit and data[position] >= 0x80 and 0 < data[position + 1] < 0x80:
        number = np.uint64(data[position] & 0x7F) | np.uint64(data[position + 1]) << np.uint64(7)
        position += 2
    elif position < limit and data[position] < 0x80:
        number = np.uint64(data[position])
        position += 1
    else:
        number, position = _read_long(data, position, limit, failure)
    return number, position


@inlined
def unzigzag(number):  # type: ignore[no-untyped-def]
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))


@kernel
def read_flagged(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads a varint whose first byte has a flag in bit 7 and 6 bits; the caller looks at the flag."""
    start = position
    if position >= limit:
        return np.int64(0), fail(failure, TRUNCATED, start, 1)
    byte = np.int64(data[position])
    number = byte & 0x3F
    position += 1
    if not byte & 0x40:
        return number, position
    for shift in range(6, 34, 7):
        if position >= limit:
            return number, fail(failure, TRUNCATED, start, 1)
        byte = np.int64(data[position])
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 or number > 0x7FFFFFFF:
                return number, fail(failure, BAD_VARINT, start, 0)
            return number, position
    return number, fail(failure, BAD_VARINT, start, 0)


@kernel
def put_wide_string(data, position, limit, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a String that is stored with its length. Returns where it ends in `out`."""
    start = position
    units, position = read_flagged(data, position, limit, failure)
    if position < 0:
        return position
    if units == 0:
        return fail(failure, BAD_STRING, start, 0)
    count = units - 1
    if count > limit - position:
        return fail(failure, TRUNCATED, start, count)
    if at + 3 * count + 16 > room:
        return fail(failure, NO_ROOM, start, 3 * count)
    at = put_varint(out, at, units)
    left = count
    while left >= 8 and position + 8 <= limit and load64(data, position) & HIGH == 0:
        store64(out, at, load64(data, position))
        position += 8
        at += 8
        left -= 8
    ascii_only = True
    for _ in range(left):
        if position >= limit:
            return fail(failure, TRUNCATED, start, count)
        byte = np.int64(data[position])
        if byte < 0x80:
            out[at] = np.uint8(byte)
            position += 1
            at += 1
            continue
        ascii_only = False
        if byte >> 5 == 0b110:
            more = 1
            unit = byte & 0x1F
        elif byte >> 4 == 0b1110:
            more = 2
            unit = byte & 0x0F
        else:
            return fail(failure, BAD_STRING, position, byte)
        if limit - position <= more:
            return fail(failure, TRUNCATED, start, count)
        for _more in range(more):
            position += 1
            byte = np.int64(data[position])
            if byte >> 6 != 0b10:
                return fail(failure, BAD_STRING, position, byte)
            unit = unit << 6 | byte & 0x3F
        position += 1
        if unit < (0x80 if more == 1 else 0x800):
            return fail(failure, BAD_STRING, position, unit)
        at = put_varint(out, at, unit)
    if ascii_only and 1 < count <= (32 if five else 63):
        return fail(failure, BAD_STRING, start, count)
    state[POSITION] = position
    return at


@kernel
def put_string(data, position, limit, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a String as Flink does: varint length + 1, each unit as varint. Returns where it ends in `out`."""
    if position >= limit:
        return fail(failure, TRUNCATED, position, 1)
    if data[position] >= 0x80:
        return put_wide_string(data, position, limit, five, out, at, room, state, failure)
    if at + 80 > room:
        return fail(failure, NO_ROOM, position, 80)
    most = 32 if five else 63
    start = position
    begin = at
    at += 1
    size = np.int64(0)
    while size <= most:
        if position + 8 <= len(data):
            word = load64(data, position)
            high = word & HIGH
            store64(out, at + size, word & ~HIGH)
            if high == 0:
                size += 8
                position += 8
                continue
            step = np.int64(zeros_below(high) >> np.uint64(3)) + 1
            size += step
            position += step
        else:
            ended = False
            while not ended:
                if position >= limit or size > most:
                    return fail(failure, TRUNCATED, start, 1)
                byte = data[position]
                out[at + size] = byte & 0x7F
                ended = byte >= 0x80
                size += 1
                position += 1
        if position > limit:
            return fail(failure, TRUNCATED, start, 1)
        if size < 2 or size > most:
            return fail(failure, BAD_STRING, start, size)
        out[begin] = np.uint8(size + 1)
        state[POSITION] = position
        return at + size
    return fail(failure, TRUNCATED if position > limit else BAD_STRING, start, size)
