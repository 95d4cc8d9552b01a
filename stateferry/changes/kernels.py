"""Compiled parts of a migration: they write rows of blobs, compute hashes of entries, and count ages.

They don't check positions; the walks that found these have done so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from flinkstate.basics.compiling import copied_in, inlined, intrinsic, kernel_of
from flinkstate.basics.words import copy16, load64, put32, store64

_kernel = kernel_of(__file__)

_LONG = 128  # a range of at least so many bytes is hashed at the same time as the next one
SLACK = 16  # the number of bytes that a copy may write behind its end

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_K3 = np.uint64(0xA0761D6478BD642F)
_32 = np.uint64(32)
_29 = np.uint64(29)


@inlined
def _put_i32(out, position, value):  # type: ignore[no-untyped-def]
    put32(out, position, value)
    return position + 4


@inlined
def _copy(out, position, data, start, end):  # type: ignore[no-untyped-def]
    """Copies sixteen bytes at a time, with up to SLACK behind the end; returns the position behind the copy."""
    after = position + end - start
    if end + 16 <= len(data):
        while start < end:
            copy16(data, start, out, position)
            position += 16
            start += 16
    else:
        for byte in range(end - start):
            out[position + byte] = data[start + byte]
    return after


@_kernel
def write_rows(  # type: ignore[no-untyped-def]
    data, blob_data, key_starts, key_ends, stamps, firsts, counts, order, targets, prefix, entries, flags, ends, keep,
    stamped, null, out, ends_of_rows, last_rows,
):  # fmt: skip
    """Writes the kept entries of blobs as rows of a map state, in the given order of the blobs.

    A row is i32, key group, key, user key, i32, null flag, [timestamp], value. A blob's key follows its old key group
    in `data`; in the row it follows the blob's target. `stamps` is where a blob's timestamp is, in `data` too; entries
    are in `blob_data`. `null` is what the
    value serializer writes for null behind a timestamp. This fills, for each blob in the order, where its rows end and
    where the last of them begins (-1: it has none). Returns how many rows were written.
    """
    position = np.int64(0)
    rows = np.int64(0)
    for turn in range(len(order)):
        blob = order[turn]
        key_start = key_starts[blob]
        key_end = key_ends[blob]
        target = targets[blob]
        last_rows[turn] = -1
        for entry in range(firsts[blob], firsts[blob] + counts[blob]):
            if keep[entry]:
                last_rows[turn] = position
                rows += 1
                flag = flags[entry]
                position = _put_i32(out, position, prefix + key_end - key_start + flag - entries[entry])
                if prefix == 2:
                    out[position] = np.uint8(target >> 8)
                    position += 1
                out[position] = np.uint8(target & 0xFF)
                position += 1
                position = _copy(out, position, data, key_start, key_end)
                position = _copy(out, position, blob_data, entries[entry], flag)
                if not stamped:
                    position = _put_i32(out, position, ends[entry] - flag)
                    position = _copy(out, position, blob_data, flag, ends[entry])
                elif blob_data[flag] == 0:
                    position = _put_i32(out, position, ends[entry] - flag + 8)
                    out[position] = 0
                    store64(out, position + 1, load64(data, stamps[blob]))
                    position = _copy(out, position + 9, blob_data, flag + 1, ends[entry])
                else:
                    position = _put_i32(out, position, 9 + len(null))
                    out[position] = 0
                    store64(out, position + 1, load64(data, stamps[blob]))
                    position = _copy(out, position + 9, null, 0, len(null))
        ends_of_rows[turn] = position
    return rows


@_kernel
def find_equal(data, starts, ends, wanted, out):  # type: ignore[no-untyped-def]
    """Finds out which ranges have exactly the wanted bytes."""
    for index in range(len(starts)):
        same = ends[index] - starts[index] == len(wanted)
        place = 0
        while same and place < len(wanted):
            same = data[starts[index] + place] == wanted[place]
            place += 1
        out[index] = same


@_kernel
def write_blobs(  # type: ignore[no-untyped-def]
    data, key_starts, key_ends, user_ends, ends, nulls, order, counts, targets, sizes, stamps, prefix, stamped,
    nullable, out, ends_of_blobs,
):  # fmt: skip
    """Writes rows of a map state as blobs; the rows of a blob follow each other in `order`, and `counts` says how many.

    A blob is i32, key group, key, i32, [timestamp], i32 count, and for each row: user key, null flag, value without its
    timestamp (nothing for null). `sizes` are those of the values. If maps and user keys are `nullable`, a zero is
    before each of them. This fills where each blob ends.
    """
    position = np.int64(0)
    turn = np.int64(0)
    for blob in range(len(counts)):
        first = order[turn]
        position = _put_i32(out, position, prefix + key_ends[first] - key_starts[first])
        if prefix == 2:
            out[position] = np.uint8(targets[blob] >> 8)
            position += 1
        out[position] = np.uint8(targets[blob] & 0xFF)
        position += 1
        position = _copy(out, position, data, key_starts[first], key_ends[first])
        position = _put_i32(out, position, sizes[blob])
        if stamped:
            position = _put_i32(out, position, stamps[blob] >> 32)
            position = _put_i32(out, position, stamps[blob])
        if nullable:
            out[position] = 0
            position += 1
        position = _put_i32(out, position, counts[blob])
        for _ in range(counts[blob]):
            row = order[turn]
            turn += 1
            if nullable:
                out[position] = 0
                position += 1
            position = _copy(out, position, data, key_ends[row], user_ends[row])
            out[position] = nulls[row]
            position += 1
            if not nulls[row]:
                position = _copy(out, position, data, user_ends[row] + (13 if stamped else 5), ends[row])
        ends_of_blobs[blob] = position


@copied_in
def _mix(word):  # type: ignore[no-untyped-def]
    word ^= word >> _32
    word *= _K2
    word ^= word >> _29
    word *= _K3
    return word ^ word >> _32


@copied_in
def _rest(data, start, end):  # type: ignore[no-untyped-def]
    """Returns the bytes from start to end, fewer than eight, as a word, the first one lowest."""
    rest = np.uint64(0)
    if end >= 8:
        # Two shifts, because a word can't be shifted by all its 64 bits.
        half = np.uint64(4 * (8 - (end - start)))
        rest = load64(data, end - 8) >> half >> half
    else:
        for position in range(end - 1, start - 1, -1):
            rest = rest << np.uint64(8) | np.uint64(data[position])
    return rest


@copied_in
def _hash(data, start, end, seed):  # type: ignore[no-untyped-def]
    """Returns a 64-bit hash of the bytes from start to end, and of their number."""
    state = seed ^ np.uint64(end - start) * _K1
    while end - start >= 8:
        state = _step(state, load64(data, start))
        start += 8
    return _mix((state ^ _rest(data, start, end)) * _K1)


@copied_in
def _step(state, word):  # type: ignore[no-untyped-def]
    state = (state ^ word) * _K2
    return state ^ state >> _29


@copied_in
def _ends_of_hashes(data, start, end, one, other):  # type: ignore[no-untyped-def]
    while end - start >= 8:
        word = load64(data, start)
        one, other = _step(one, word), _step(other, word)
        start += 8
    rest = _rest(data, start, end)
    return _mix((one ^ rest) * _K1), _mix((other ^ rest) * _K1)


@_kernel
def hash_each(data, starts, ends, seeds, out):  # type: ignore[no-untyped-def]
    """Computes a hash of each range of bytes, starting from its seed."""
    for index in range(len(starts)):
        out[index] = _hash(data, starts[index], ends[index], seeds[index])


@_kernel
def hash_twice(data, starts, ends, first_seed, second_seed, first, second):  # type: ignore[no-untyped-def]
    """Computes for each range the hashes of `hash_each` with two seeds, and reads the bytes only once for both."""
    index = np.int64(0)
    while index < len(starts):
        start, end = starts[index], ends[index]
        size = np.uint64(end - start) * _K1
        one, other = first_seed ^ size, second_seed ^ size
        if end - start >= _LONG and index + 1 < len(starts):
            # Each step of a range waits for the one before. Meanwhile the processor takes a step of the next range.
            after, limit = starts[index + 1], ends[index + 1]
            size = np.uint64(limit - after) * _K1
            third, fourth = first_seed ^ size, second_seed ^ size
            for _ in range(min(end - start, limit - after) // 8):
                word, beside = load64(data, start), load64(data, after)
                one, other, third, fourth = (
                    _step(one, word),
                    _step(other, word),
                    _step(third, beside),
                    _step(fourth, beside),
                )
                start += 8
                after += 8
            first[index + 1], second[index + 1] = _ends_of_hashes(data, after, limit, third, fourth)
            first[index], second[index] = _ends_of_hashes(data, start, end, one, other)
            index += 2
        else:
            first[index], second[index] = _ends_of_hashes(data, start, end, one, other)
            index += 1


@_kernel
def find_first_of_each(data, starts, ends, firsts):  # type: ignore[no-untyped-def]
    """Finds the index of each range of bytes that differs from the one before it; returns how many there are."""
    count = np.int64(0)
    for index in range(len(starts)):
        start, size = starts[index], ends[index] - starts[index]
        is_new = index == 0 or ends[index - 1] - starts[index - 1] != size
        if not is_new:
            before = starts[index - 1]
            done = np.int64(0)
            while done + 8 <= size and load64(data, start + done) == load64(data, before + done):
                done += 8
            while done < size and data[start + done] == data[before + done]:
                done += 1
            is_new = done < size
        if is_new:
            firsts[count] = index
            count += 1
    return count


@_kernel
def spread_hash(data, starts, ends, counts, seeds, out):  # type: ignore[no-untyped-def]
    """Hashes as `hash_each`; the first `counts[0]` ranges start from `seeds[0]`, and so on."""
    index = np.int64(0)
    for group in range(len(counts)):
        for _ in range(counts[group]):
            out[index] = _hash(data, starts[index], ends[index], seeds[group])
            index += 1


@_kernel
def read_i64(data, positions, out):  # type: ignore[no-untyped-def]
    for index in range(len(positions)):
        value = np.int64(0)
        for byte in range(8):
            value = value << 8 | np.int64(data[positions[index] + byte])
        out[index] = value


@_kernel
def copy_ranges(data, starts, ends, offsets, out):  # type: ignore[no-untyped-def]
    """Copies the bytes from each start to its end, one range behind the other; `offsets` becomes where each begins."""
    target = np.int64(0)
    for index in range(len(starts)):
        offsets[index] = target
        size = ends[index] - starts[index]
        for offset in range(size):
            out[np.uint64(target + offset)] = data[np.uint64(starts[index] + offset)]
        target += size


@intrinsic
def _bits(_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(number), generate


@_kernel
def tally_ages(timestamps, weights, ttl, now, bins, totals):  # type: ignore[no-untyped-def]
    """Adds timestamps to the histograms of `ages.py`, each with its weight, the number of entries (none if 0).

    `totals` are entries, expired entries, timestamps in the future, the least age and the greatest age.
    """
    most = np.int64(2**63 - 1)
    entries, expired, future, youngest, oldest = totals[0], totals[1], totals[2], totals[3], totals[4]
    for index in range(len(timestamps)):
        stamp, weight = timestamps[index], np.int64(weights[index])
        if weight == 0:
            continue
        age = now - stamp if stamp >= now - most else most
        # As in `ttl.expired`, including Java's overflow.
        expires = stamp + (min(most - stamp, ttl) if stamp > 0 else ttl)
        entries += weight
        expired += weight if expires <= now else 0
        future += 1 if age < 0 else 0
        youngest, oldest = min(youngest, age), max(oldest, age)
        # The exponent, and the first six of the 52 bits of the mantissa.
        place = max(min((_bits(np.float64(age)) >> 46) - (1023 << 6), bins.shape[1] - 1), 0) if age > 0 else 0
        bins[0, place] += weight
        bins[1, place] += 1
    totals[0], totals[1], totals[2], totals[3], totals[4] = entries, expired, future, youngest, oldest


@_kernel
def cut_values(data, starts, key_ends, ends, flags, cuts, cut_ends, out, places):  # type: ignore[no-untyped-def]
    """Copies entries to `places` without `data[cuts[i]:cut_ends[i]]`, and sets the flag before what was cut to 1."""
    for index in range(len(starts)):
        at = places[index]
        cut = cut_ends[index] - cuts[index]
        first = ends[index] if cut == 0 else cuts[index]
        for position in range(starts[index], first):
            out[at + position - starts[index]] = data[position]
        if cut == 0:
            continue
        out[at + flags[index] - starts[index]] = 1
        for position in range(cut_ends[index], ends[index]):
            out[at + position - cut - starts[index]] = data[position]
        size = np.int64(ends[index] - key_ends[index] - 4 - cut)
        length = at + key_ends[index] - starts[index]
        for byte in range(4):
            out[length + byte] = np.uint8(size >> (24 - 8 * byte) & 0xFF)
