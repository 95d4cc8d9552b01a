"""Compiled: numbers and texts in the form of Flink's own serializers become objects that Kryo writes."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import put_varint
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import BOOLEAN, BYTE, CHARACTER, FLOAT, INTEGER, LONG, SHORT, STRING
from flinkstate.kryo.primitives import copy_bytes


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
