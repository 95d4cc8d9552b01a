"""Compiled loops over RocksDB's blocks: they check blocks, walk their entries, and merge runs of entries.

`walk` makes rows of entries, as they are in a canonical savepoint: i32 key length, key, i32 value length, value, all
big endian. `merge` takes the rows of several runs, which are sorted by key and then from the newest to the oldest, and
writes those that a reader of the database would find.

The kernels check their bounds, write to arrays that the caller owns, and allocate nothing. They copy whole words, so
every array that they write to, and the blocks that they read, need `SLACK` more bytes than are used.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import copied_in, inlined, kernel_of
from flinkstate.basics.words import big64, fail, load32, load64, put32, store64
from flinkstate.hashing import crc32c
from flinkstate.hashing.crc32c import masked_crc32c

SLACK = 16

# The types of entries.
DELETE = 0
VALUE = 1
MERGE = 2
SINGLE_DELETE = 7

# Why a kernel stopped.
NEED_INPUT = 0
FULL = 1
ENDED = 2
NEED_KEY = 3
NEED_OPERANDS = 4
OLDER_ABOVE = 5

# What is damaged.
BAD_ENTRY = 1
BAD_ORDER = 2
BAD_TYPE = 3
SHORT_KEY = 4
BAD_SEPARATOR = 5
LONG_ENTRY = 6
BAD_SEQUENCE = 7
BAD_RESTART = 8

# Places in the state of a walk.
BLOCK, POSITION, OUT, PREVIOUS, PREVIOUS_SIZE, PREVIOUS_TAG, WHY, NEEDED, READ, OPEN, AGAIN = range(11)
LEAST, LARGEST, RESTART = range(11, 14)
# Places in the state of a merge.
RUNS, WRITTEN, ROWS, MODE, KEY_SIZE, OPERANDS, FRAGMENT, REASON, DETAIL, SIFT, LAST_RUN, LAST_SEQUENCE = range(12)
_NONE = 0
_COLLECT = 1
_SKIP = 2

# The longest key, value or row that Java can have.
_LARGEST = 2**31 - 64

_kernel = kernel_of(__file__, crc32c.__file__)


@inlined
def copy(source, start, target, position, size):
    """Copies whole words: up to 7 bytes more than `size`. The ranges may overlap only if they begin together."""
    done = np.int64(0)
    while done < size:
        store64(target, position + done, load64(source, start + done))
        done += 8


@_kernel
def crc_mismatch(data, begins, sizes):
    """Returns the index of the first block whose masked crc32c isn't the one behind it, or -1.

    Behind a block are a byte for its compression, which the checksum covers, and four bytes of checksum.
    """
    for block in range(len(begins)):
        end = begins[block] + sizes[block] + 1
        if masked_crc32c(data, begins[block], end) != load32(data, end):
            return block
    return -1


@inlined
def _varint(data, position, limit):
    """Returns an unsigned 32-bit number and the position behind it, or a negative position."""
    value = np.int64(0)
    shift = np.int64(0)
    while position < limit and shift < 35:
        byte = np.int64(data[np.uint64(position)])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, np.int64(-1)


@_kernel
def content_sizes(data, begins, sizes, contents):
    """Fills `contents` with the number of bytes that each block says it has uncompressed, or -1."""
    for block in range(len(begins)):
        end = begins[block] + sizes[block]
        contents[block] = sizes[block]
        if data[end] != 0:
            content, position = _varint(data, begins[block], end)
            contents[block] = content if position >= 0 else -1


@_kernel
def entries_ends(raw, bounds, sizes):
    """Fills `bounds[:, 1]` with where the entries of each block end; its content begins at `bounds[:, 0]`.

    `bounds[:, 2]` becomes the number of its restart points, which follow. Returns the first block that has no sound
    restart points, or -1.
    """
    for block in range(len(sizes)):
        begin, size = bounds[block, 0], sizes[block]
        if size < 4:
            return block
        restarts = np.int64(load32(raw, begin + size - 4))
        end = size - 4 - 4 * restarts
        if restarts < 1 or end < 0:
            return block
        bounds[block, 1] = begin + end
        bounds[block, 2] = restarts
    return -1


@inlined
def _restart(raw, end, restarts, restart):
    """Returns a restart point of the block whose entries end there, or -1 behind the last one."""
    return np.int64(load32(raw, end + 4 * restart)) if restart < restarts else np.int64(-1)


@inlined
def _group(data, position, prefix):
    group = np.int64(data[np.uint64(position)])
    if prefix == 2:
        group = group << 8 | np.int64(data[np.uint64(position + 1)])
    return group


@copied_in
def compared(one, start, size, other, begin, length, common):
    """Returns a number below, equal to or above 0, as the first key is to the second; `common` bytes are equal."""
    least = min(size, length)
    at = common
    while least - at >= 8:
        first, second = big64(one, start + at), big64(other, begin + at)
        if first != second:
            return np.int64(-1) if first < second else np.int64(1)
        at += 8
    while at < least:
        difference = np.int64(one[np.uint64(start + at)]) - np.int64(other[np.uint64(begin + at)])
        if difference != 0:
            return difference
        at += 1
    return size - length


@_kernel
def walk(
    raw, blocks, separators, bounds, trailer, key, prefix, low, high, plain, out, limit, starts, key_ends, ends, tags,
    state, failure,
):  # fmt: skip
    """Makes rows of the entries of blocks that follow each other; returns their number, or a negative one on failure.

    `blocks` has where the entries of each block begin and end in `raw`, and how many restart points follow, by which
    RocksDB searches: each must be the place of an entry that shares nothing with the one before. The last key of block
    i is at most `separators[bounds[i] : bounds[i + 1] - trailer]`. Rows of key groups below `low` are left out; the
    walk ends before one of `high` or above. With `plain`, all entries must be values, and of those of one key only the
    newest becomes a row. `tags` are sequence numbers with types; the numbers must be from `LEAST` to `LARGEST`.

    `state` has where the walk is. The key before is in `out`, or in `key` if `PREVIOUS` is negative.
    """
    block, position, at = state[BLOCK], state[POSITION], state[OUT]
    previous, previous_size, previous_tag = state[PREVIOUS], state[PREVIOUS_SIZE], np.uint64(state[PREVIOUS_TAG])
    # In a block's first entry nothing is left out of the key, but it is compared with the one before.
    is_open = state[OPEN] != 0
    # The walk ended at this entry before, so the key before is its own.
    again = state[AGAIN] != 0
    lowest, highest, restart = state[LEAST], state[LARGEST], state[RESTART]
    count = np.int64(0)
    read = np.int64(0)
    why = NEED_INPUT
    needed = np.int64(0)
    while block < len(blocks):
        end = blocks[block, 1]
        if position >= end:
            if previous_size >= 0:
                bound, size = bounds[block], bounds[block + 1] - bounds[block] - trailer
                if previous >= 0:
                    order = compared(out, previous, previous_size, separators, bound, size, 0)
                else:
                    order = compared(key, 0, previous_size, separators, bound, size, 0)
                if order > 0:
                    return fail(failure, BAD_SEPARATOR, blocks[block, 0], block)
            if restart != blocks[block, 2] and end > blocks[block, 0]:
                return fail(failure, BAD_RESTART, blocks[block, 0], restart)
            block += 1
            restart = np.int64(0)
            is_open = False
            if block < len(blocks):
                position = blocks[block, 0]
            continue
        if count == len(starts):
            why = FULL
            break
        begin = position
        if end - position >= 3 and (raw[position] | raw[position + 1] | raw[position + 2]) < 0x80:
            shared, unshared, value = np.int64(raw[position]), np.int64(raw[position + 1]), np.int64(raw[position + 2])
            position += 3
        else:
            shared, position = _varint(raw, position, end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, block)
            unshared, position = _varint(raw, position, end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, block)
            value, position = _varint(raw, position, end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, block)
        if unshared + value > end - position or shared > (previous_size + 8 if is_open else 0):
            return fail(failure, BAD_ENTRY, begin, block)
        is_restart = begin - blocks[block, 0] == _restart(raw, end, blocks[block, 2], restart)
        if is_restart and shared > 0:
            return fail(failure, BAD_RESTART, begin, restart)
        size = shared + unshared - 8
        if size < prefix:
            return fail(failure, SHORT_KEY, begin, block)
        if size > _LARGEST - value:
            return fail(failure, LONG_ENTRY, begin, block)
        if 8 + size + value > limit - at:
            why, needed, position = FULL, 8 + size + value, begin
            break
        # What the key has in common with the one before is in place if both begin at the same position.
        key_at = at + 4
        same = False
        if previous >= 0:
            if previous_size >= 0:
                order = np.int64(1)
                least = min(size, previous_size)
                common = min(shared, least)
                if common < least and common == shared:
                    order = np.int64(raw[position]) - np.int64(out[previous + common])
                if order == 0 or not (common < least and common == shared):
                    order = _ordered_after(out, previous, previous_size, raw, position, shared, size)
                same = order == 0
                if order < 0:
                    return fail(failure, BAD_ORDER, begin, block)
            if previous != key_at and shared > 0:
                copy(out, previous, out, key_at, min(shared, previous_size))
        elif previous_size >= 0:
            order = _ordered_after(key, 0, previous_size, raw, position, shared, size)
            same = order == 0
            if order < 0:
                return fail(failure, BAD_ORDER, begin, block)
            copy(key, 0, out, key_at, min(shared, previous_size))
        for byte in range(max(previous_size, 0), shared):
            # Keys that are alike up to the tag of the one before: RocksDB leaves out the tag's bytes too.
            out[key_at + byte] = np.uint8(previous_tag >> np.uint64(8 * (byte - previous_size)) & np.uint64(0xFF))
        copy(raw, position, out, key_at + shared, unshared)
        tag = load64(raw, position + unshared - 8) if unshared >= 8 else load64(out, key_at + size)
        position += unshared
        kind = tag & np.uint64(0xFF)
        if again:
            again = same = False
        elif same and tag >= previous_tag:
            return fail(failure, BAD_ORDER, begin, block)
        if kind != VALUE and (plain or (kind != DELETE and kind != MERGE and kind != SINGLE_DELETE)):
            return fail(failure, BAD_TYPE, begin, np.int64(kind))
        sequence = np.int64(tag >> np.uint64(8))
        if sequence < lowest or sequence > highest:
            return fail(failure, BAD_SEQUENCE, begin, sequence)
        group = _group(out, key_at, prefix)
        if group >= high:
            # The key before may have been where this one is. This one begins with the bytes that both share.
            why, position, again = ENDED, begin, True
            previous, previous_size, previous_tag = key_at, size, tag
            break
        read += 1
        restart += np.int64(is_restart)
        previous, previous_size, previous_tag, is_open = key_at, size, tag, True
        if group >= low and not (plain and same):
            starts[count] = at
            key_ends[count] = key_at + size
            ends[count] = key_at + size + 4 + value
            tags[count] = tag
            put32(out, at, size)
            put32(out, key_at + size, value)
            copy(raw, position, out, key_at + size + 4, value)
            at = key_at + size + 4 + value
            count += 1
        position += value
    state[BLOCK], state[POSITION], state[OUT] = block, position, at
    state[PREVIOUS], state[PREVIOUS_SIZE], state[PREVIOUS_TAG] = previous, previous_size, np.int64(previous_tag)
    state[WHY], state[NEEDED], state[OPEN], state[AGAIN] = why, needed, np.int64(is_open), np.int64(again)
    state[RESTART] = restart
    state[READ] += read
    return count


@inlined
def _ordered_after(keys, start, size, raw, position, shared, new_size):
    """Compares a new key with the one before: above 0 if it is larger, 0 if they are equal.

    The new key is `shared` bytes of the one before, or of it and its tag, and what is at `position`.
    """
    least = min(size, new_size)
    at = min(shared, least)
    result = np.int64(0)
    while at < least and result == 0:
        result = np.int64(raw[np.uint64(position + at - shared)]) - np.int64(keys[np.uint64(start + at)])
        at += 1
    return result if result != 0 else new_size - size


@inlined
def long_varint(data, position, limit):
    """Returns an unsigned 63-bit number and the position behind it, or a negative position."""
    value = np.int64(0)
    shift = np.int64(0)
    while position < limit and shift < 63:
        byte = np.int64(data[np.uint64(position)])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, np.int64(-1)


@inlined
def place(prefixes, begin, end, data, start, stop):
    """Returns 0 if the key begins with the prefix, else -1 if all keys that do are smaller, or 1 if they are larger."""
    found = np.int64(0)
    size = end - begin
    common = min(size, stop - start)
    for at in range(common):
        if prefixes[begin + at] != data[start + at]:
            found = np.int64(-1) if prefixes[begin + at] < data[start + at] else np.int64(1)
            break
    if found == 0 and common < size:
        found = np.int64(1)
    return found


@_kernel
def _last_below(block, end, restarts, restart, delta_coded, trailer, prefixes, first, last):
    """Returns the last restart point of an index whose key, and all before it, are below all keys with the prefix.

    The search begins at `restart`, which is returned if there is none behind it; -1 if a restart point is damaged.
    """
    low, step, high = restart, np.int64(1), restarts
    is_found = False
    while high - low > 1:
        # First in growing steps: the next prefix is often near.
        middle = (low + high) // 2 if is_found else min(low + step, high - 1)
        begin = _restart(block, end, restarts, middle)
        if begin < 0 or begin >= end:
            return np.int64(-1)
        shared, position = _varint(block, begin, end)
        if position < 0 or shared > 0:
            return np.int64(-1)
        unshared, position = _varint(block, position, end)
        if position >= 0 and not delta_coded:
            _, position = _varint(block, position, end)
        if position < 0 or unshared > end - position or unshared < trailer:
            return np.int64(-1)
        if place(prefixes, first, last, block, position, position + unshared - trailer) > 0:
            low = middle
            step *= 2
        else:
            high = middle
            is_found = True
    return low


@_kernel
def index_entries(
    block, end, restarts, delta_coded, trailer, every, prefixes, limits, keys, bounds, offsets, sizes, result, failure
):
    """Reads an index block: for each block its handle and the key that its keys are at most.

    Unless it reads `every` one, it reads those that may have keys that begin with one of the prefixes, which it looks
    for by the restart points behind `end`, as RocksDB does. So these must be right, and the keys in their order.
    `trailer` is 8 if the keys have tags, else 0. Fills `bounds` (where each key begins in `keys`), `offsets` and
    `sizes`; `result` becomes the number of bytes of keys, and whether the first and the last entry were read. Returns
    the number of entries, or a negative one on failure: `NEED_KEY` as the failure's code means that an array is too
    small.
    """
    position = np.int64(0)
    count = np.int64(0)
    at = np.int64(0)
    previous = np.int64(0)
    previous_size = np.int64(0)
    offset = np.int64(0)
    size = np.int64(0)
    restart = np.int64(0)
    prefix = np.int64(0)
    result[1] = result[2] = 0
    while position < end and (every or prefix < len(limits) - 1):
        if not every and position == _restart(block, end, restarts, restart):
            first, last = limits[prefix], limits[prefix + 1]
            below = _last_below(block, end, restarts, restart, delta_coded, trailer, prefixes, first, last)
            if below < 0:
                return fail(failure, BAD_RESTART, position, 0)
            if below > restart:
                restart, previous_size = below, np.int64(0)
                position = _restart(block, end, restarts, restart)
        begin = position
        shared, position = _varint(block, position, end)
        if position < 0:
            return fail(failure, BAD_ENTRY, begin, 0)
        unshared, position = _varint(block, position, end)
        if position < 0:
            return fail(failure, BAD_ENTRY, begin, 0)
        length = np.int64(0)
        if not delta_coded:
            length, position = _varint(block, position, end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, 0)
        if shared > previous_size or unshared > end - position or shared + unshared < trailer:
            return fail(failure, BAD_ENTRY, begin, 0)
        if begin == _restart(block, end, restarts, restart):
            restart += 1
            if shared > 0:
                return fail(failure, BAD_RESTART, begin, 0)
        # The keys with their tags stand where their successors find them.
        if count + 1 >= len(bounds) or at + previous_size + shared + unshared + SLACK > len(keys):
            return fail(failure, NEED_KEY, begin, 0)
        key_size = shared + unshared - trailer
        if (
            previous_size > 0
            and _ordered_after(keys, previous, previous_size - trailer, block, position, shared, key_size) < 0
        ):
            return fail(failure, BAD_ORDER, begin, 0)
        if previous != at:
            for byte in range(shared):
                keys[at + byte] = keys[previous + byte]
        for byte in range(unshared):
            keys[at + shared + byte] = block[position + byte]
        position += unshared
        handle_end = end if delta_coded else position + length
        if handle_end > end:
            return fail(failure, BAD_ENTRY, begin, 0)
        if delta_coded and shared > 0:
            change, position = long_varint(block, position, handle_end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, 0)
            offset += size + 5
            size += np.int64(np.uint64(change) >> np.uint64(1)) ^ -(change & 1)
        else:
            offset, position = long_varint(block, position, handle_end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, 0)
            size, position = long_varint(block, position, handle_end)
            if position < 0:
                return fail(failure, BAD_ENTRY, begin, 0)
        if not delta_coded and position != handle_end:
            return fail(failure, BAD_ENTRY, begin, 0)
        previous, previous_size = at, shared + unshared
        if every or place(prefixes, limits[prefix], limits[prefix + 1], keys, at, at + key_size) <= 0:
            bounds[count] = at
            offsets[count] = offset
            sizes[count] = size
            at += previous_size
            count += 1
            if begin == 0:
                result[1] = 1
            if position == end:
                result[2] = 1
        # What is at most this key is in no later block.
        while prefix < len(limits) - 1 and (
            place(prefixes, limits[prefix], limits[prefix + 1], keys, previous, previous + key_size) < 0
        ):
            prefix += 1
    if every and restart != restarts and end > 0:
        return fail(failure, BAD_RESTART, 0, 0)
    bounds[count] = at
    result[0] = at
    return count


@copied_in
def before(arena, starts, key_ends, tags, at, one, other):
    """Whether the next row of one run comes before that of another one; the newer run has the smaller number."""
    first, second = at[one], at[other]
    start, begin = starts[one, first] + 4, starts[other, second] + 4
    order = compared(
        arena, start, key_ends[one, first] - start, arena, begin, key_ends[other, second] - begin, 0
    )  # fmt: skip
    if order != 0:
        return order < 0
    if tags[one, first] != tags[other, second]:
        return tags[one, first] > tags[other, second]
    return one < other


@_kernel
def sift(arena, starts, key_ends, tags, at, order, runs):
    """Brings the first run of `order` to its place; the others are ordered by their next rows already."""
    _sift(arena, starts, key_ends, tags, at, order, runs)


@copied_in
def _sift(arena, starts, key_ends, tags, at, order, runs):
    moved = order[0]
    if runs > 1 and not before(arena, starts, key_ends, tags, at, moved, order[1]):
        low, high = np.int64(2), runs
        while low < high:
            middle = (low + high) >> 1
            if before(arena, starts, key_ends, tags, at, moved, order[middle]):
                high = middle
            else:
                low = middle + 1
        for place in range(1, low):
            order[place - 1] = order[place]
        order[low - 1] = moved


@inlined
def _emit(out, state, key, operands, o_starts, o_key_ends, o_ends):
    """Writes the row of merge operands."""
    at, size = state[WRITTEN], state[KEY_SIZE]
    begin = state[OPERANDS]
    length = len(operands) - SLACK - begin
    put32(out, at, size)
    copy(key, 0, out, at + 4, size)
    put32(out, at + 4 + size, length)
    copy(operands, begin, out, at + 8 + size, length)
    row = state[ROWS]
    o_starts[row] = at
    o_key_ends[row] = at + 4 + size
    o_ends[row] = at + 8 + size + length
    state[WRITTEN] = at + 8 + size + length
    state[ROWS] = row + 1


@inlined
def _prepend(operands, state, arena, position, size, joined):
    """Puts a value before the operands that are newer, with a comma between."""
    begin = state[OPERANDS]
    if joined:
        begin -= 1
        operands[begin] = np.uint8(0x2C)
    begin -= size
    for byte in range(size):
        operands[begin + byte] = arena[position + byte]
    state[OPERANDS] = begin


@_kernel
def merge(
    arena, starts, key_ends, ends, tags, at, counts, order, deleted, bounds, sequences, deleted_in, prefix, high, key,
    operands, out, limit, o_starts, o_key_ends, o_ends, state,
):  # fmt: skip
    """Writes the rows that a reader of the database finds, up to the key group `high`.

    Run r has rows `at[r]` to `counts[r]` in row r of the arrays; run 0 is the newest. `order` has the runs that have
    rows, by their next ones. Fragment f of the deleted ranges is from `deleted[bounds[2 * f]:bounds[2 * f + 1]]` up to
    the key between the next two bounds; entries older than `sequences[f]` are deleted, as the run `deleted_in[f]` says.

    It stops for the reason `REASON`: `NEED_INPUT` of the run `DETAIL`, which is the first of `order`; `FULL` (a row of
    `DETAIL` bytes doesn't fit); `NEED_KEY` or `NEED_OPERANDS` of `DETAIL` bytes; `OLDER_ABOVE`, if the first run of
    `order` has an older version of a key than a run below it; or `ENDED`.
    """
    if state[SIFT]:
        state[SIFT] = 0
        _sift(arena, starts, key_ends, tags, at, order, state[RUNS])
    while True:
        run = order[0]
        index = at[run] if state[RUNS] > 0 else 0
        same = False
        start, size = np.int64(0), np.int64(0)
        if state[RUNS] > 0:
            start = starts[run, index] + 4
            size = key_ends[run, index] - start
            if state[MODE] != _NONE and size == state[KEY_SIZE]:
                same = compared(arena, start, size, key, 0, size, 0) == 0
        if not same:
            if state[MODE] == _COLLECT:
                needed = 8 + state[KEY_SIZE] + len(operands) - SLACK - state[OPERANDS]
                if state[ROWS] == len(o_starts) or needed > limit - state[WRITTEN]:
                    state[REASON], state[DETAIL] = FULL, needed
                    return
                _emit(out, state, key, operands, o_starts, o_key_ends, o_ends)
            state[MODE] = _NONE
            if state[RUNS] == 0 or _group(arena, start, prefix) >= high:
                state[REASON], state[DETAIL] = ENDED, 0
                return
        tag = tags[run, index]
        kind = tag & np.uint64(0xFF)
        sequence = np.int64(tag >> np.uint64(8))
        # A search for the key ends at the newest run that has it, and gives another version than a merge of all runs.
        below = same and run != state[LAST_RUN]
        if below and (run < state[LAST_RUN] or sequence == state[LAST_SEQUENCE]):
            state[REASON], state[DETAIL] = OLDER_ABOVE, run
            return
        value_start = key_ends[run, index] + 4
        value = ends[run, index] - value_start
        if not (same and state[MODE] == _SKIP):
            if not same and size + SLACK > len(key):
                state[REASON], state[DETAIL] = NEED_KEY, size + SLACK
                return
            # What has been deleted in ranges; keys only grow, and so do the fragments.
            fragment = state[FRAGMENT]
            while fragment < len(sequences) and (
                compared(
                    arena, start, size, deleted, bounds[2 * fragment + 1],
                    bounds[2 * fragment + 2] - bounds[2 * fragment + 1], 0,
                )
                >= 0
            ):  # fmt: skip
                fragment += 1
            state[FRAGMENT] = fragment
            gone = kind in (DELETE, SINGLE_DELETE)
            if fragment < len(sequences) and (
                compared(
                    arena, start, size, deleted, bounds[2 * fragment],
                    bounds[2 * fragment + 1] - bounds[2 * fragment], 0,
                )
                >= 0
            ):  # fmt: skip
                is_older = tag >> np.uint64(8) < sequences[fragment]
                if is_older and deleted_in[fragment] > run:
                    state[REASON], state[DETAIL] = OLDER_ABOVE, run
                    return
                gone = gone or is_older
            if same or (kind == MERGE and not gone):
                # Operands are collected, or this is the oldest part of the value.
                if not gone:
                    needed = value + (1 if same else 0)
                    used = len(operands) - SLACK - state[OPERANDS] if same else 0
                    if needed + used > _LARGEST:
                        state[REASON], state[DETAIL] = NEED_OPERANDS, -1
                        return
                    if needed + used + SLACK > len(operands):
                        state[REASON], state[DETAIL] = NEED_OPERANDS, needed + used + SLACK
                        return
                if gone or kind == VALUE:
                    row = 8 + size + len(operands) - SLACK - state[OPERANDS] + (0 if gone else value + 1)
                    if state[ROWS] == len(o_starts) or row > limit - state[WRITTEN]:
                        state[REASON], state[DETAIL] = FULL, row
                        return
                if not same:
                    state[OPERANDS] = len(operands) - SLACK
                    state[KEY_SIZE] = size
                    copy(arena, start, key, 0, size)
                    state[MODE] = _COLLECT
                if not gone:
                    _prepend(operands, state, arena, value_start, value, same)
                if gone or kind == VALUE:
                    _emit(out, state, key, operands, o_starts, o_key_ends, o_ends)
                    state[MODE] = _SKIP
            else:
                if not gone:
                    row = 8 + size + value
                    if state[ROWS] == len(o_starts) or row > limit - state[WRITTEN]:
                        state[REASON], state[DETAIL] = FULL, row
                        return
                    written, made = state[WRITTEN], state[ROWS]
                    copy(arena, start - 4, out, written, row)
                    o_starts[made] = written
                    o_key_ends[made] = written + 4 + size
                    o_ends[made] = written + row
                    state[WRITTEN] = written + row
                    state[ROWS] = made + 1
                state[KEY_SIZE] = size
                copy(arena, start, key, 0, size)
                state[MODE] = _SKIP
        state[LAST_RUN], state[LAST_SEQUENCE] = run, sequence
        at[run] = index + 1
        if index + 1 == counts[run]:
            state[REASON], state[DETAIL] = NEED_INPUT, run
            return
        _sift(arena, starts, key_ends, tags, at, order, state[RUNS])


@_kernel
def rows_with(data, starts, key_ends, prefixes, limits, matches):
    """Chooses the rows whose keys begin with one of the prefixes; a key is behind four bytes of its length.

    Both are in ascending order. This checks nothing.
    """
    low, high = np.int64(0), np.int64(len(limits) - 1)
    while low < high and len(starts) > 0:
        middle = (low + high) // 2
        if place(prefixes, limits[middle], limits[middle + 1], data, starts[0] + 4, key_ends[0]) < 0:
            low = middle + 1
        else:
            high = middle
    prefix = low
    for row in range(len(starts)):
        start, stop = starts[row] + 4, key_ends[row]
        while prefix < len(limits) - 1 and place(prefixes, limits[prefix], limits[prefix + 1], data, start, stop) < 0:
            prefix += 1
        matches[row] = (
            prefix < len(limits) - 1 and place(prefixes, limits[prefix], limits[prefix + 1], data, start, stop) == 0
        )


@_kernel
def newer(
    new, starts, key_ends, ends, order, rows, old, old_starts, old_key_ends, old_ends, old_order, old_rows, out, is_old
):  # fmt: skip
    """Finds what brings the old rows to the new ones; both are given in the order of their keys.

    Fills `out` with new rows that aren't there or have another value, and with old rows whose key is gone, in the order
    of their keys; `is_old` says which. Returns how many there are.
    """
    turn, old_turn, count = np.int64(0), np.int64(0), np.int64(0)
    while turn < rows or old_turn < old_rows:
        row = order[turn] if turn < rows else np.int64(0)
        other = old_order[old_turn] if old_turn < old_rows else np.int64(0)
        if turn == rows:
            side = np.int64(1)
        elif old_turn == old_rows:
            side = np.int64(-1)
        else:
            start, begin = starts[row] + 4, old_starts[other] + 4
            side = compared(new, start, key_ends[row] - start, old, begin, old_key_ends[other] - begin, 0)
        if side > 0:
            out[count] = other
            is_old[count] = True
            count += 1
            old_turn += 1
            continue
        if side == 0:
            old_turn += 1
            start, begin = key_ends[row] + 4, old_key_ends[other] + 4
            same = compared(new, start, ends[row] - start, old, begin, old_ends[other] - begin, 0) == 0
        else:
            same = False
        if not same:
            out[count] = row
            is_old[count] = False
            count += 1
        turn += 1
    return count
