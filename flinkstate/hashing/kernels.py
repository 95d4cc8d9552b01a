"""Compiled loops that compute hashes: murmur of integers, and Java's `hashCode` of serialized values.

The loops over serialized values have a cursor for each row, move it behind the value, and never read outside of
`[cursor, end)`. They return the first row whose bytes contradict the format, or -1. `present` is 0 for a null, whose
hash is 0.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.array_types import ByteFlags, Bytes, Codes, Positions
from flinkstate.basics.compiling import compiled, inlined, kernel_of
from flinkstate.basics.words import load64

_MOST_UNITS = 2**31 - 2
_HIGH_BITS = np.uint64(0x8080808080808080)
_BYTES = np.uint64(0x00FF00FF00FF00FF)
_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_EIGHT_ON = np.uint32(31**8 % 2**32)
_LARGEST_UNIT = 0xFFFF
_BIG_INTEGER_LENGTH_OFFSET = 4
_LONG_BYTES = 8

_kernel = kernel_of(__file__)


@inlined
def murmur_of(code):
    mixed = np.uint32(np.uint32(code) * np.uint32(0xCC9E2D51))
    mixed = np.uint32(np.uint32(mixed << np.uint32(15) | mixed >> np.uint32(17)) * np.uint32(0x1B873593))
    mixed = np.uint32(mixed << np.uint32(13) | mixed >> np.uint32(19))
    mixed = np.uint32(mixed * np.uint32(5) + np.uint32(0xE6546B64))
    mixed ^= np.uint32(4)
    mixed = np.uint32((mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B))
    mixed = np.uint32((mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35))
    signed = np.int32(mixed ^ mixed >> np.uint32(16))
    if signed == np.int32(-(2**31)):
        signed = np.int32(0)
    return abs(signed)


@_kernel
def murmur(codes: Codes, out: Codes) -> None:
    """Computes Flink's murmur hash of each hash code; modulo max parallelism it is the key group."""
    for row in range(len(codes)):
        out[row] = murmur_of(codes[row])


@_kernel
def _read_longs(data: Bytes, cursors: Positions, ends: Positions, out: Positions) -> int:
    """Reads 64-bit integers; as the width is constant, the compiler reads a whole word at once."""
    for row in range(len(cursors)):
        cursor = cursors[row]
        if ends[row] - cursor < _LONG_BYTES:
            return row
        value = np.int64(0)
        for position in range(_LONG_BYTES):
            value = value << 8 | np.int64(data[cursor + position])
        out[row] = value
        cursors[row] = cursor + _LONG_BYTES
    return -1


@_kernel
def read_integers(data: Bytes, cursors: Positions, ends: Positions, width: int, out: Positions) -> int:
    """Reads signed big-endian integers of `width` bytes."""
    if width == _LONG_BYTES:
        return _read_longs(data, cursors, ends, out)
    unused = np.int64(64 - 8 * width)
    for row in range(len(cursors)):
        cursor = cursors[row]
        if ends[row] - cursor < width:
            return row
        value = np.int64(0)
        for position in range(cursor, cursor + width):
            value = value << 8 | np.int64(data[position])
        out[row] = value << unused >> unused
        cursors[row] = cursor + width
    return -1


@inlined
def _last_bytes(word, size):
    """Returns the word's last bytes with zeros before them, in two shifts, as a word can't be shifted by 64 bits."""
    half = np.uint64(4 * (8 - size))
    return word >> half >> half << half << half


@inlined
def _hash_word(word):
    """Returns Java's hash of eight characters, the first one lowest: combined by twos, then by fours, then all."""
    twos = (word & _BYTES) * np.uint64(31) + (word >> np.uint64(8) & _BYTES)
    fours = (twos & _PAIRS) * np.uint64(961) + (twos >> np.uint64(16) & _PAIRS)
    return np.uint32(np.uint32(fours) * np.uint32(923521) + np.uint32(fours >> np.uint64(32)))


@compiled
def _hash_units(data, cursor, end, units):
    """Returns the hash of so many characters, and where they end, which is negative if they are damaged."""
    code = np.uint32(0)
    # Four ASCII characters at once: each multiplication waits for the one before it, and this has a quarter of them.
    while units >= 4:
        first, second = np.uint32(data[cursor]), np.uint32(data[cursor + 1])
        third, fourth = np.uint32(data[cursor + 2]), np.uint32(data[cursor + 3])
        if first | second | third | fourth >= np.uint32(0x80):
            break
        four = first * np.uint32(29791) + second * np.uint32(961) + third * np.uint32(31) + fourth
        code = np.uint32(code * np.uint32(923521) + four)
        cursor += 4
        units -= 4
    for _ in range(units):
        if cursor >= end:
            return code, np.int64(-1)
        unit = np.uint32(data[cursor])
        cursor += 1
        if unit >= 0x80:
            if cursor >= end:
                return code, np.int64(-1)
            more = np.uint32(data[cursor])
            cursor += 1
            unit = unit & np.uint32(0x7F) | (more & np.uint32(0x7F)) << np.uint32(7)
            if more >= 0x80:
                if cursor >= end:
                    return code, np.int64(-1)
                unit |= np.uint32(data[cursor]) << np.uint32(14)
                cursor += 1
            if unit > _LARGEST_UNIT:
                return code, np.int64(-1)
        code = np.uint32(code * np.uint32(31) + unit)
    return code, np.int64(cursor)


@inlined
def string_length(data, cursor, end):
    """Returns the length before a string, and where its characters begin, which is negative if it is damaged."""
    length = np.int64(0)
    shift = 0
    while True:
        if cursor >= end or shift > 28:
            return length, np.int64(-1)
        byte = np.int64(data[np.uint64(cursor)])
        cursor += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length, np.int64(cursor)


@inlined
def hash_ascii(data, cursor, after):
    """Returns the hash of the characters up to `after`, and whether these are ASCII; the hash says nothing if not."""
    units = after - cursor
    code, bits = np.uint32(0), np.uint64(0)
    if units <= 16 and after >= 16:
        # Most strings are short: two words are hashed at once, because branches on the length cost more. Zeros before
        # the characters add nothing.
        first_word = _last_bytes(load64(data, after - 16), max(units - 8, 0))
        second_word = _last_bytes(load64(data, after - 8), min(units, 8))
        bits = first_word | second_word
        code = np.uint32(_hash_word(first_word) * _EIGHT_ON + _hash_word(second_word))
    elif units > 0 and cursor >= 8:
        cursor += (units - 1) % 8 + 1
        bits = _last_bytes(load64(data, cursor - 8), (units - 1) % 8 + 1)
        code = _hash_word(bits)
        while cursor < after:
            word = load64(data, cursor)
            code = np.uint32(code * _EIGHT_ON + _hash_word(word))
            bits |= word
            cursor += 8
    else:
        # Before the characters is no room to load whole words.
        for position in range(cursor, after):
            byte = data[np.uint64(position)]
            code = np.uint32(code * np.uint32(31) + np.uint32(byte))
            bits |= np.uint64(byte)
    return code, bits & _HIGH_BITS == 0


@inlined
def hash_string(data, cursor, end, null_lengths):
    """Returns the hash of a string, its end (a negative number if it is damaged), and whether it is null."""
    length, cursor = string_length(data, cursor, end)
    units = length - null_lengths
    if cursor < 0 or units > end - cursor or units > _MOST_UNITS:
        return np.uint32(0), np.int64(-1), False
    after = cursor + max(units, 0)
    code, is_ascii = hash_ascii(data, cursor, after)
    if not is_ascii:
        code, after = _hash_units(data, cursor, end, units)
    return code, after, length < null_lengths


@_kernel
def hash_strings(
    data: Bytes, cursors: Positions, ends: Positions, null_lengths: int, codes: Codes, present: ByteFlags
) -> int:
    """Hashes strings: a length and UTF-16 units, 7 bits a byte. With `null_lengths` = 1 it is one more, 0 for null."""
    for row in range(len(cursors)):
        code, cursor, is_null = hash_string(data, cursors[row], ends[row], null_lengths)
        if cursor < 0:
            return row
        codes[row] = np.int32(code)
        present[row] = 0 if is_null else 1
        cursors[row] = cursor
    return -1


@_kernel
def hash_big_integers(data: Bytes, cursors: Positions, ends: Positions, codes: Codes, present: ByteFlags) -> int:
    """Computes `BigInteger.hashCode`: over the 32-bit words of the magnitude, highest first, times the sign."""
    for row in range(len(cursors)):
        cursor, end = cursors[row], ends[row]
        if end - cursor < 4:
            return row
        length = np.int64(0)
        for position in range(cursor, cursor + 4):
            length = length << 8 | np.int64(data[position])
        cursor += 4
        present[row] = 1
        if length <= 3:
            # Lengths 1, 2, 3 stand for the constants 0, 1 and 10, and 0 for null.
            present[row] = 0 if length == 0 else 1
            codes[row] = 10 if length == 3 else (1 if length == 2 else 0)
            cursors[row] = cursor
            continue
        length -= _BIG_INTEGER_LENGTH_OFFSET
        if length < 1 or length > end - cursor:
            return row
        negative = data[cursor] >= 0x80
        code = np.uint32(0)
        word = np.uint32(0)
        # A negative number's magnitude is its complement plus one. The carry ends at the last byte that isn't 0.
        last_nonzero = cursor + length - 1
        while negative and last_nonzero > cursor and data[last_nonzero] == 0:
            last_nonzero -= 1
        for index in range(length):
            position = cursor + index
            byte = np.uint32(data[position])
            if negative and position < last_nonzero:
                byte ^= np.uint32(0xFF)
            elif negative and position == last_nonzero:
                byte = (np.uint32(0x100) - byte) & np.uint32(0xFF)
            word = word << np.uint32(8) | byte
            if (length - index) % 4 == 1:
                code = np.uint32(code * np.uint32(31) + np.uint32(word))
                word = np.uint32(0)
        codes[row] = -np.int32(code) if negative else np.int32(code)
        cursors[row] = cursor + length
    return -1
