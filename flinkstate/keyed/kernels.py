"""Compiled loops over the entries of key groups: they find entries, check their keys' key groups, and copy entries.

The scans check their bounds; what is copied has been scanned before. All kernels write to arrays that the caller owns
and allocate nothing. `walker.py` makes the messages of failures.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import inlined, kernel_of
from flinkstate.basics.words import fail, i32, put32, same_bytes, u16
from flinkstate.hashing import kernels as hash_kernels
from flinkstate.hashing.kernels import hash_ascii, hash_string, murmur_of, string_length
from flinkstate.serializers import kernels as serializer_kernels
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

_kernel = kernel_of(__file__, hash_kernels.__file__, serializer_kernels.__file__)


@inlined
def _hash_number(data, position, limit, kind):
    """Returns the hash of the key at the position, and where it ends, which is negative if it isn't there."""
    code, end = np.uint32(0), np.int64(-1)
    if kind == INTEGER_KEY:
        if limit - position >= 4:
            code, end = np.uint32(i32(data, position)), position + 4
    elif limit - position >= 8:
        code, end = np.uint32(i32(data, position) ^ i32(data, position + 4)), position + 8
    return code, end


@inlined
def _leads_to(code, key_group, max_parallelism):
    mixed, groups = np.uint32(murmur_of(code)), np.uint32(max_parallelism)
    # Max parallelism is usually a power of two, which needs no division.
    is_power_of_two = groups & (groups - np.uint32(1)) == 0
    own = mixed & (groups - np.uint32(1)) if is_power_of_two else mixed % groups
    return own == np.uint32(key_group)


@inlined
def _certainly_belongs(data, position, limit, kind, key_group, max_parallelism):
    """Whether the key at the position belongs to the key group; of a String that isn't ASCII nothing is known."""
    if kind == STRING_KEY:
        length, position = string_length(data, position, limit)
        if position < 0 or length < 1 or length - 1 > limit - position:
            return False
        code, is_ascii = hash_ascii(data, position, position + length - 1)
        if not is_ascii:
            return False
    else:
        code, end = _hash_number(data, position, limit, kind)
        if end < 0:
            return False
    return _leads_to(code, key_group, max_parallelism)


@_kernel
def all_belong(data, starts, limits, sections, keys, max_parallelism):
    """Whether the keys of each section (key group, state, first row, behind the last) lead to its key group.

    `keys` has for each state the kind of its keys and their offset in a row; the rows of a state with none are left
    out. A key must end before the row's limit, and what follows it is ignored. Neighbouring keys with the same bytes
    are hashed once.
    """
    for section in range(len(sections)):
        key_group, kind, offset = sections[section, 0], keys[sections[section, 1], 0], keys[sections[section, 1], 1]
        before, size = np.int64(0), np.int64(0)
        for row in range(sections[section, 2], sections[section, 3] if kind != NO_KEY else 0):
            start, limit = starts[row] + offset, limits[row]
            if size > 0 and size <= limit - start and same_bytes(data, start, before, size):
                continue
            if kind == STRING_KEY:
                code, end, is_null = hash_string(data, start, limit, np.int64(1))
            else:
                code, end = _hash_number(data, start, limit, kind)
                is_null = False
            if end < 0 or is_null or not _leads_to(code, key_group, max_parallelism):
                return False
            before, size = start, end - start
    return True


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
        key_length = i32(data, position)
        if key_length <= prefix:
            return fail(failure, SHORT_KEY, position, key_length)
        last = data[position + 4] & 0x80 != 0
        found = np.int64(data[position + 4] & 0x7F)
        if prefix == 2:
            found = found << 8 | np.int64(data[position + 5])
        if found != key_group:
            return fail(failure, WRONG_KEY_GROUP, position + 4, found)
        if key_length > room - 8:
            result[0], result[1], result[2], result[3] = NEED_MORE, position, 8 + key_length, certain
            return count
        key_end = position + 4 + key_length
        value_length = i32(data, key_end)
        if value_length < 0:
            return fail(failure, BAD_LENGTH, key_end, value_length)
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
            key_at = position + key_offset
            certain = _certainly_belongs(data, key_at, key_end, key_kind, key_group, max_parallelism)
        count += 1
        position += size
        if last:
            data[position - size + 4] &= 0x7F
            result[0], result[1], result[2], result[3] = STATE_ENDED, position + 2, u16(data, position), certain
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
        state = u16(data, position)
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
        put32(out, position, key_length)
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
