"""Compiled loops that write RocksDB's blocks: they put rows in the order of their keys and make blocks of them.

Rows are as in a canonical savepoint: i32 key length, key, i32 value length, value, all big endian. The kernels write to
arrays that the caller owns, and allocate nothing. They read and copy whole words, so every array of bytes that they
read or write needs `SLACK` more bytes than are used.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import compiled, inlined, kernel_of
from flinkstate.basics.words import big64, copy16, i32, load64, put_varint, store32, store64, zeros_below
from flinkstate.hashing import crc32c
from flinkstate.hashing.crc32c import masked_crc32c

_kernel = kernel_of(__file__, crc32c.__file__)

SLACK = 32

# What a table's writer keeps between calls, by place.
AT, BLOCK, ENTRIES, KEY_SIZE, KEYS_AT, BLOCKS, RAW_KEYS, RAW_VALUES, RESTARTS = range(9)
STATE = 9

# Up to so many rows are sorted by insertion; longer segments in runs of half as many, which are merged.
_INSERTED = 32
_RUN = 16


@inlined
def _copy(out, position, data, start, size):
    """Copies sixteen bytes at a time, with up to SLACK behind the end."""
    done = np.int64(0)
    while done < size:
        copy16(data, start + done, out, position + done)
        done += 16


@inlined
def _common(one, start, size, other, begin, length, common):
    """Returns how many first bytes two keys share; `common` bytes are known to be equal."""
    least = min(size, length)
    while common < least:
        different = load64(one, start + common) ^ load64(other, begin + common)
        if different != 0:
            return min(common + (np.int64(zeros_below(different)) >> 3), least)
        common += 8
    return least


@inlined
def _is_before(one, start, size, other, begin, length, common):
    """Whether the first key is smaller; `common` is how many first bytes they share."""
    if common < size and common < length:
        return one[start + common] < other[begin + common]
    return size < length


@_kernel
def row_positions(data, at, end, starts, key_ends, ends, rows):
    """Finds the rows in `data[at:end]`, and fills in their positions from `rows` on.

    Returns the number of all rows; a negative one if there is no room for more of them, or if a row doesn't fit: then
    `ends[0]` isn't written, and -1 - the position of that row is returned.
    """
    while at < end:
        if rows == len(starts) or end - at < 8:
            return -1 - at
        size = i32(data, at)
        if size < 0 or size > end - at - 8:
            return -1 - at
        value = i32(data, at + 4 + size)
        if value < 0 or value > end - at - 8 - size:
            return -1 - at
        starts[rows] = at
        key_ends[rows] = at + 4 + size
        at += 8 + size + value
        ends[rows] = at
        rows += 1
    return rows


@inlined
def _word_of(data, start, size, common):
    """Returns the bytes of a key behind those that are common, as a word whose order is that of the keys."""
    if size <= common:
        return np.uint64(0)
    word = big64(data, start + common)
    missing = common + 8 - size
    if missing > 0:
        word = word >> np.uint64(8 * missing) << np.uint64(8 * missing)
    return word


@inlined
def _row_before(data, starts, key_ends, one, other, common):
    """Whether the key of row `one` is smaller than that of row `other`."""
    start, begin = starts[one] + 4, starts[other] + 4
    size, length = key_ends[one] - start, key_ends[other] - begin
    shared = _common(data, start, size, data, begin, length, common)
    return _is_before(data, start, size, data, begin, length, shared)


@inlined
def _insert(data, starts, key_ends, common, words, order, low, high):
    for place in range(low + 1, high):
        word, row = words[place], order[place]
        free = place
        while free > low:
            other = words[free - 1]
            if other < word or (
                other == word and not _row_before(data, starts, key_ends, row, order[free - 1], common)
            ):
                break
            words[free], order[free] = other, order[free - 1]
            free -= 1
        words[free], order[free] = word, row


@compiled
def _merge_sort(data, starts, key_ends, common, words, order, spare_words, spare, low, high):
    for begin in range(low, high, _RUN):
        _insert(data, starts, key_ends, common, words, order, begin, min(begin + _RUN, high))
    width = np.int64(_RUN)
    while width < high - low:
        for begin in range(low, high - width, 2 * width):
            middle, end = begin + width, min(begin + 2 * width, high)
            # What is in its place already isn't moved.
            if words[middle - 1] < words[middle]:
                continue
            for place in range(begin, middle):
                spare_words[place], spare[place] = words[place], order[place]
            left, right, out = begin, middle, begin
            while left < middle and right < end:
                one, other = spare_words[left], words[right]
                if other < one or (
                    other == one and _row_before(data, starts, key_ends, order[right], spare[left], common)
                ):
                    words[out], order[out] = other, order[right]
                    right += 1
                else:
                    words[out], order[out] = one, spare[left]
                    left += 1
                out += 1
            while left < middle:
                words[out], order[out] = spare_words[left], spare[left]
                left += 1
                out += 1
        width *= 2


@_kernel
def are_in_order(data, starts, key_ends, rows):
    """Whether each row has a larger key than the one before."""
    for row in range(1, rows):  # noqa: SIM110 numba has no all()
        if not _row_before(data, starts, key_ends, row - 1, row, 0):
            return False
    return True


@_kernel
def order_rows(data, starts, key_ends, rows, order, words, spare_words, spare, segments):
    """Fills `order` with the rows in the order of their keys, byte by byte.

    Rows that are smaller than the one before are sorted together with the rows before them that may be larger. Rows of
    one map stand together and share the bytes of their key, so what is sorted are small segments with a common prefix.
    A segment begins at a row that shares fewer bytes with the one before, and is larger, than any two rows before share
    that belong together; `segments`, with room for one per row, keeps for each its first row, the bytes shared there,
    and those shared inside.
    """
    depth = np.int64(0)
    most = np.int64(1) << 40
    for row in range(rows):
        order[row] = row
        if row == 0:
            segments[0, 0], segments[0, 1], segments[0, 2] = 0, -1, most
            continue
        before, start = starts[row - 1] + 4, starts[row] + 4
        length, size = key_ends[row - 1] - before, key_ends[row] - start
        shared = _common(data, before, length, data, start, size, 0)
        inside = segments[depth, 2]
        if _is_before(data, before, length, data, start, size, shared):
            if shared < inside:
                depth += 1
                segments[depth, 0], segments[depth, 1], segments[depth, 2] = row, shared, most
        else:
            while segments[depth, 1] >= shared:
                inside = min(inside, segments[depth, 1])
                depth -= 1
                inside = min(inside, segments[depth, 2])
            segments[depth, 2] = min(inside, shared)
    for segment in range(depth + 1):
        low = segments[segment, 0]
        high = segments[segment + 1, 0] if segment < depth else rows
        common = segments[segment, 2]
        if high - low < 2:
            continue
        for row in range(low, high):
            start = starts[row] + 4
            words[row] = _word_of(data, start, key_ends[row] - start, common)
        if high - low <= _INSERTED:
            _insert(data, starts, key_ends, common, words, order, low, high)
        else:
            _merge_sort(data, starts, key_ends, common, words, order, spare_words, spare, low, high)


@_kernel
def make_blocks(
    data, starts, key_ends, ends, order, tags, first, rows, block_size, interval, key, out, limit, restarts, keys,
    bounds, block_ends, state,
):  # fmt: skip
    """Appends rows to blocks; returns the row before which it stopped, `rows` at the end.

    `tags` are the sequence numbers and types of the rows, or of all rows if there is only one.
    `out` has blocks one behind the other, of which the last may be open; `block_ends` is where those end that are
    complete. `key` is the last key. `keys[bounds[i]:bounds[i + 1]]` is the last key of block i of the file. It stops
    where an array may be too small for one more row. A row whose key isn't larger than the one before is an error:
    -1 - the row is returned.
    """
    at, block, entries, key_size = state[AT], state[BLOCK], state[ENTRIES], state[KEY_SIZE]
    keys_at, blocks, count = state[KEYS_AT], state[BLOCKS], state[RESTARTS]
    raw_keys, raw_values = state[RAW_KEYS], state[RAW_VALUES]
    made = np.int64(0)
    turn = first
    while turn < rows:
        row = order[turn]
        start = starts[row] + 4
        size = key_ends[row] - start
        value_start = key_ends[row] + 4
        value = ends[row] - value_start
        most = size + value + 32 + 4 * (count + 3)
        if at + most > limit or made == len(block_ends) or size + 8 > len(key) - SLACK:
            break
        if keys_at + size > len(keys) - SLACK or blocks + 2 > len(bounds) or count + 1 >= len(restarts):
            break
        shared = _common(key, 0, key_size, data, start, size, 0) if key_size >= 0 else np.int64(0)
        if key_size >= 0 and not _is_before(key, 0, key_size, data, start, size, shared):
            return -1 - turn
        _copy(key, shared, data, start + shared, size - shared)
        key_size = size
        if entries % interval == 0:
            restarts[count] = at - block
            count += 1
            shared = np.int64(0)
        own = size - shared
        if shared < 0x80 and own < 0x78 and value < 0x80:
            out[at] = np.uint8(shared)
            out[at + 1] = np.uint8(own + 8)
            out[at + 2] = np.uint8(value)
            at += 3
        else:
            at = put_varint(out, at, shared)
            at = put_varint(out, at, own + 8)
            at = put_varint(out, at, value)
        _copy(out, at, data, start + shared, own)
        at += own
        store64(out, at, tags[row] if len(tags) > 1 else tags[0])
        at += 8
        _copy(out, at, data, value_start, value)
        at += value
        entries += 1
        turn += 1
        raw_keys += size + 8
        raw_values += value
        if at - block >= block_size:
            for restart in range(count):
                store32(out, at, np.uint64(restarts[restart]))
                at += 4
            store32(out, at, np.uint64(count))
            at += 4
            block_ends[made] = at
            made += 1
            _copy(keys, keys_at, key, 0, key_size)
            keys_at += key_size
            blocks += 1
            bounds[blocks] = keys_at
            block, entries, count = at, np.int64(0), np.int64(0)
    state[AT], state[BLOCK], state[ENTRIES], state[KEY_SIZE] = at, block, entries, key_size
    state[KEYS_AT], state[BLOCKS], state[RESTARTS] = keys_at, blocks, count
    state[RAW_KEYS], state[RAW_VALUES] = raw_keys, raw_values
    return turn


@_kernel
def seal(data, begins, sizes, kinds):
    """Writes behind each block the byte for its compression and the masked crc32c of both."""
    for block in range(len(begins)):
        end = begins[block] + sizes[block]
        data[end] = kinds[block]
        store32(data, end + 1, masked_crc32c(data, begins[block], end + 1))


@_kernel
def record_checksum(data, start, end):
    """Returns the masked crc32c of some bytes."""
    return masked_crc32c(data, start, end)


@_kernel
def index_entries(keys, bounds, blocks, begins, sizes, out, restarts):
    """Writes an index block's entries: each the last key of a block and where it is. Returns their number of bytes."""
    at = np.int64(0)
    for block in range(blocks):
        restarts[block] = at
        start, size = bounds[block], bounds[block + 1] - bounds[block]
        out[at] = 0
        at = put_varint(out, at + 1, size)
        _copy(out, at, keys, start, size)
        at = put_varint(out, at + size, begins[block])
        at = put_varint(out, at, sizes[block])
    return at
