"""Compiled loops over the entries of key groups: they find entries, check their keys' key groups, and copy entries.

The scans check their bounds; what is copied has been scanned before. All kernels write to arrays that the caller owns
and allocate nothing. numba's cache only notices changes in this file, so the functions that these kernels call stand
here, even if other kernels have the same ones. Only the codes of failures come from elsewhere; `walker.py` makes their
messages.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from flinkstate.serializers.kernels import BAD_LENGTH, SHORT_KEY, WRONG_KEY_GROUP

# Why scan_entries stopped.
NEED_MORE = 0
STATE_ENDED = 1
FULL = 2

# This takes the place of a state's id.
END_OF_GROUP = 0xFFFF

# Kinds of keys that the scan of their entries can hash at once, as that is fast. Others are checked after the scan.
NO_KEY = 0
STRING_KEY = 1
INTEGER_KEY = 2
LONG_KEY = 3

_FAILED = -1
# The most characters of which the length takes one byte.
_MOST_UNITS = 0x7E
_TWO_WORDS = 16
_HIGH_BITS = np.uint64(0x8080808080808080)
_BYTES = np.uint64(0x00FF00FF00FF00FF)
_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_EIGHT_ON = np.uint32(31**8 % 2**32)
# Masks of the last bytes of a word, by the number of bytes.
_LAST_BYTES = np.array([2**64 - 2 ** (64 - 8 * size) for size in range(9)], np.uint64)
# Masks of the two words that end with a string, by the number of its bytes.
_FIRST_WORD = np.array([_LAST_BYTES[max(size - 8, 0)] for size in range(_TWO_WORDS + 1)], np.uint64)
_SECOND_WORD = np.array([_LAST_BYTES[min(size, 8)] for size in range(_TWO_WORDS + 1)], np.uint64)

_njit: Any = numba.njit
# Without _nrt=False numba counts references to the arrays inside the loops, which takes four times as long as the work.
_kernel: Any = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_inlined: Any = _njit(inline="always", error_model="numpy", _nrt=False)


@_inlined
def _u16(data, position):
    return np.int64(data[position]) << 8 | np.int64(data[position + 1])


@_inlined
def _i32(data, position):
    return np.int64(
        np.int32(
            np.uint32(data[position]) << np.uint32(24)
            | np.uint32(data[position + 1]) << np.uint32(16)
            | np.uint32(data[position + 2]) << np.uint32(8)
            | np.uint32(data[position + 3])
        )
    )


@_inlined
def _fail(failure, code, position, detail):
    failure[0] = code
    failure[1] = position
    failure[2] = detail
    return np.int64(_FAILED)


@_inlined
def _word(data, position):
    """Returns eight bytes as a word, the first one lowest. The compiler makes one load of this loop."""
    word = np.uint64(0)
    for offset in range(8):
        word |= np.uint64(data[np.uint64(position + offset)]) << np.uint64(8 * offset)
    return word


@_inlined
def _murmur(code):
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


@_inlined
def _hash_word(word):
    """Returns Java's hash of eight characters, the first one lowest; zeros before the characters add nothing.

    It combines the characters by twos, then by fours, then all.
    """
    twos = (word & _BYTES) * np.uint64(31) + (word >> np.uint64(8) & _BYTES)
    fours = (twos & _PAIRS) * np.uint64(961) + (twos >> np.uint64(16) & _PAIRS)
    return np.uint32(np.uint32(fours) * np.uint32(923521) + np.uint32(fours >> np.uint64(32)))


@_inlined
def _hash_ascii(data, position, limit):
    """Returns a string's hash, and whether it is valid: if the string is short, ASCII and whole before the limit."""
    if position >= limit:
        return np.uint32(0), False
    units = np.int64(data[np.uint64(position)]) - 1
    end = position + 1 + units
    if units < 0 or units > _MOST_UNITS or end > limit:
        return np.uint32(0), False
    if units <= _TWO_WORDS and end >= _TWO_WORDS:
        # Two words are hashed without branches on the number of characters, which would cost more.
        first = _word(data, end - 16) & _FIRST_WORD[np.uint64(units)]
        second = _word(data, end - 8) & _SECOND_WORD[np.uint64(units)]
        return np.uint32(_hash_word(first) * _EIGHT_ON + _hash_word(second)), (first | second) & _HIGH_BITS == 0
    if position < 8 or end < _TWO_WORDS:
        # The buffer has no room before the string to load whole words.
        code, bits = np.uint32(0), np.uint64(0)
        for at in range(position + 1, end):
            code = np.uint32(code * np.uint32(31) + np.uint32(data[np.uint64(at)]))
            bits |= np.uint64(data[np.uint64(at)])
        return code, bits & _HIGH_BITS == 0
    begun = (units - 1) % 8 + 1
    position += 1 + begun
    word = _word(data, position - 8) & _LAST_BYTES[np.uint64(begun)]
    code, bits = _hash_word(word), word
    while position < end:
        word = _word(data, position)
        code = np.uint32(code * _EIGHT_ON + _hash_word(word))
        bits |= word
        position += 8
    return code, bits & _HIGH_BITS == 0


@_inlined
def _belongs(data, position, limit, kind, key_group, max_parallelism):
    """Returns whether the key at the position certainly belongs to the key group."""
    code = np.uint32(0)
    if kind == STRING_KEY:
        code, known = _hash_ascii(data, position, limit)
        if not known:
            return False
    elif kind == INTEGER_KEY:
        if limit - position < 4:
            return False
        code = np.uint32(_i32(data, position))
    else:
        if limit - position < 8:
            return False
        code = np.uint32(_i32(data, position) ^ _i32(data, position + 4))
    mixed, groups = np.uint32(_murmur(code)), np.uint32(max_parallelism)
    # Max parallelism is usually a power of two, which needs no division.
    is_power_of_two = groups & (groups - np.uint32(1)) == 0
    own = mixed & (groups - np.uint32(1)) if is_power_of_two else mixed % groups
    return own == np.uint32(key_group)


@_kernel
def scan_entries(
    data, position, limit, key_group, prefix, key_kind, key_offset, max_parallelism, starts, key_ends, ends, result,
    failure,
):  # fmt: skip
    """Finds the entries of one state from `position` on: i32 key length, key, i32 value length, value.

    Bit 0x80 of the first key byte marks the state's last entry; it is cleared in place, and an i16 follows the entry.
    This fills where each entry begins, where its key ends and where it ends. `result` = (why it stopped, position after
    the entries, bytes needed from there | id of the next state, whether all keys certainly belong to the key group).
    Returns the number of entries, or a negative number on failure.
    """
    count = np.int64(0)
    certain = key_kind != NO_KEY
    while count < len(starts):
        room = limit - position
        if room < 8:
            result[0], result[1], result[2], result[3] = NEED_MORE, position, 8, certain
            return count
        key_length = _i32(data, position)
        if key_length <= prefix:
            return _fail(failure, SHORT_KEY, position, key_length)
        last = data[position + 4] & 0x80 != 0
        found = np.int64(data[position + 4] & 0x7F)
        if prefix == 2:
            found = found << 8 | np.int64(data[position + 5])
        if found != key_group:
            return _fail(failure, WRONG_KEY_GROUP, position + 4, found)
        if key_length > room - 8:
            result[0], result[1], result[2], result[3] = NEED_MORE, position, 8 + key_length, certain
            return count
        key_end = position + 4 + key_length
        value_length = _i32(data, key_end)
        if value_length < 0:
            return _fail(failure, BAD_LENGTH, key_end, value_length)
        size = 8 + key_length + value_length
        needed = size + 2 if last else size
        if needed > room:
            result[0], result[1], result[2], result[3] = NEED_MORE, position, needed, certain
            return count
        starts[count] = position
        key_ends[count] = key_end
        ends[count] = position + size
        # The check runs here, while the processor waits for the length that says where the next entry begins.
        if certain:
            certain = _belongs(data, position + key_offset, key_end, key_kind, key_group, max_parallelism)
        count += 1
        position += size
        if last:
            data[position - size + 4] &= 0x7F
            result[0], result[1], result[2], result[3] = STATE_ENDED, position + 2, _u16(data, position), certain
            return count
    result[0], result[1], result[2], result[3] = FULL, position, 0, certain
    return count


@_kernel
def scan_groups(
    data, begins, limits, key_groups, prefix, keys, max_parallelism, starts, key_ends, ends, sections, seen, done,
    result, failure,
):  # fmt: skip
    """Finds the entries of whole key groups, each from its first state's id to its end mark.

    This fills where entries begin and end, and for each state of a key group a row of `sections`: key group, state, its
    first entry, the entry behind its last, and whether its keys certainly belong to the key group. `keys` has for each
    state the kind of its keys and their offset. `seen` has a 0 for each state.

    `done` = (key groups, sections) that are sound. The scan stops at a key group that isn't sound or doesn't fit; the
    caller reads that key group alone, which finds the reason.
    """
    entries = np.int64(0)
    filled = np.int64(0)
    for group in range(len(begins)):
        position = begins[group]
        limit = limits[group]
        if limit - position < 2:
            return
        state = _u16(data, position)
        position += 2
        while state != END_OF_GROUP:
            if state >= len(seen) or seen[state] == group + 1 or filled == len(sections):
                return
            seen[state] = group + 1
            found = scan_entries(
                data, position, limit, key_groups[group], prefix, keys[state, 0], keys[state, 1], max_parallelism,
                starts[entries:], key_ends[entries:], ends[entries:], result, failure,
            )  # fmt: skip
            if found < 1 or result[0] != STATE_ENDED:
                return
            sections[filled, 0] = key_groups[group]
            sections[filled, 1] = state
            sections[filled, 2] = entries
            sections[filled, 3] = entries + found
            sections[filled, 4] = result[3]
            entries += found
            filled += 1
            position = result[1]
            state = result[2]
        if position != limit:
            return
        done[0] = group + 1
        done[1] = filled


@_kernel
def copy_entries(data, starts, key_ends, targets, order, sizes, old_prefix, new_prefix, out):
    """Copies entries in the given order, each with its new key group before its key; `sizes` are the new sizes."""
    position = np.int64(0)
    for turn in range(len(order)):
        index = order[turn]
        end = position + sizes[turn]
        key_length = key_ends[index] - starts[index] - 4 - old_prefix + new_prefix
        for byte in range(4):
            out[position + byte] = np.uint8(key_length >> (24 - 8 * byte) & 0xFF)
        position += 4
        target = targets[index]
        if new_prefix == 2:
            out[position] = np.uint8(target >> 8)
            position += 1
        out[position] = np.uint8(target & 0xFF)
        position += 1
        source = starts[index] + 4 + old_prefix
        for byte in range(end - position):
            out[position + byte] = data[source + byte]
        position = end
