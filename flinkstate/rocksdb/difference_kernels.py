"""Compiled loops that find the rows by which two sets of runs differ.

A row's entries on one side are what a search for it would find there: merge operands from the newest on, down to a
value or a deletion. What is older than that says nothing.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import compiled, inlined, kernel_of
from flinkstate.basics.words import load64, put32, same_bytes
from flinkstate.hashing import crc32c
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.kernels import (
    DETAIL,
    FRAGMENT,
    KEY_SIZE,
    MERGE,
    MODE,
    REASON,
    ROWS,
    RUNS,
    SLACK,
    VALUE,
    WRITTEN,
)

# No key is open; the entries of the open key are collected; all other entries of the key say nothing.
_NONE, _COLLECT, _SKIP = 0, 1, 2
# What one side has of a key: two hashes, the tag of its value or deletion, and whether there is one.
FIRST, SECOND, TAG, DONE = range(4)
_K1, _K2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_31, _KIND, _KIND_BITS = np.uint64(31), np.uint64(0xFF), np.uint64(8)

_kernel = kernel_of(__file__, kernels.__file__, crc32c.__file__)


@inlined
def _mixed(state, word, factor):
    state = (state ^ word) * factor
    return state ^ state >> _31


@compiled
def _is_below(tag, other, data, start, size, state, floors, bounds, least):
    """Whether two values of a key, of which one has lost its sequence number, are below all that both sides have.

    A compaction into the lowest level makes the number 0. Floor f says that an entry with a key from
    `floors[bounds[2 * f]:bounds[2 * f + 1]]` up to, but without, the key between the next two bounds may be on both
    sides, with a number of at least `least[f]`. Keys only grow, and so do the floors.
    """
    one, two = tag >> _KIND_BITS, other >> _KIND_BITS
    if tag & _KIND != VALUE or other & _KIND != VALUE or min(one, two) != 0:
        return False
    floor = state[FRAGMENT]
    while floor < len(least) and (
        kernels.compared(
            data, start, size, floors, bounds[2 * floor + 1], bounds[2 * floor + 2] - bounds[2 * floor + 1], 0
        )
        >= 0
    ):
        floor += 1
    state[FRAGMENT] = floor
    if floor == len(least):
        return True
    begin, length = bounds[2 * floor], bounds[2 * floor + 1] - bounds[2 * floor]
    return kernels.compared(data, start, size, floors, begin, length, 0) < 0 or least[floor] > max(one, two)


@compiled
def _first_from(arena, starts, key_ends, run, low, high, other, row):
    """Returns the first of a run's rows from `low` on whose key isn't below that of another run's row."""
    begin = starts[other, row] + 4
    length = key_ends[other, row] - begin
    while low < high:
        middle = (low + high) >> 1
        start = starts[run, middle] + 4
        if kernels.compared(arena, start, key_ends[run, middle] - start, arena, begin, length, 0) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _settle(arena, starts, key_ends, tags, at, order, place, runs):
    """Brings the run at a place of `order` to where it belongs behind it."""
    moved = order[place]
    while place + 1 < runs and not kernels.before(arena, starts, key_ends, tags, at, moved, order[place + 1]):
        order[place] = order[place + 1]
        place += 1
    order[place] = moved


@compiled
def _pairs(arena, starts, key_ends, ends, tags, at, counts, order, floors, bounds, least, state):
    """Returns how many of the next rows of the first two runs are the same, up to the next row of any other run.

    Each row is the newest of its side: of the first two that follows from their order, of others from there being no
    other run with the key.
    """
    one, two = order[0], order[1]
    first, second = at[one], at[two]
    stop = counts[one]
    if state[RUNS] > 2:
        stop = max(_first_from(arena, starts, key_ends, one, first, stop, order[2], at[order[2]]), first + 1)
    stop = min(stop - first, counts[two] - second)
    count = np.int64(0)
    same = True
    while same and count < stop:
        start, other = starts[one, first + count], starts[two, second + count]
        size, key_size = ends[one, first + count] - start, key_ends[one, first + count] - start
        tag, tag_of_other = tags[one, first + count], tags[two, second + count]
        same = (
            size == ends[two, second + count] - other
            and key_size == key_ends[two, second + count] - other
            and tag & _KIND != MERGE
            and (
                tag == tag_of_other
                or _is_below(tag, tag_of_other, arena, start + 4, key_size - 4, state, floors, bounds, least)
            )
            and same_bytes(arena, start, other, size)
        )
        count += np.int64(same)
    return count


@_kernel
def differing(
    arena, starts, key_ends, ends, tags, at, counts, order, is_new, floors, bounds, least, key, sides, out, limit,
    o_starts, o_key_ends, state,
):  # fmt: skip
    """Writes the keys of rows whose entries aren't the same on both sides, behind four bytes of their lengths.

    `is_new[r]` says of which side run r is, and `sides` has what is known of the open key; the rest is as in
    `kernels.merge`. It stops for the reason `REASON`: `NEED_INPUT` of the run `DETAIL`, which is the first of `order`;
    `FULL` (a key of `DETAIL` bytes doesn't fit); `NEED_KEY` of `DETAIL` bytes; or `ENDED`.
    """
    runs = state[RUNS]
    if state[kernels.SIFT]:
        state[kernels.SIFT] = 0
        _settle(arena, starts, key_ends, tags, at, order, 0, runs)
    while True:
        run, start, size = np.int64(0), np.int64(0), np.int64(0)
        same = False
        if runs > 0:
            run = order[0]
            start = starts[run, at[run]] + 4
            size = key_ends[run, at[run]] - start
            if state[MODE] != _NONE and size == state[KEY_SIZE]:
                same = kernels.compared(arena, start, size, key, 0, size, 0) == 0
        if not same:
            if state[MODE] == _COLLECT:
                differs = (
                    sides[0, FIRST] != sides[1, FIRST]
                    or sides[0, SECOND] != sides[1, SECOND]
                    or sides[0, DONE] != sides[1, DONE]
                )
                if not differs and sides[0, TAG] != sides[1, TAG]:
                    differs = not _is_below(
                        sides[0, TAG], sides[1, TAG], key, 0, state[KEY_SIZE], state, floors, bounds, least
                    )
                if differs:
                    written, row, needed = state[WRITTEN], state[ROWS], 4 + state[KEY_SIZE]
                    if row == len(o_starts) or needed > limit - written:
                        state[REASON], state[DETAIL] = kernels.FULL, needed
                        return
                    put32(out, written, state[KEY_SIZE])
                    kernels.copy(key, 0, out, written + 4, state[KEY_SIZE])
                    o_starts[row], o_key_ends[row] = written, written + needed
                    state[WRITTEN], state[ROWS] = written + needed, row + 1
            state[MODE] = _NONE
            if runs == 0:
                state[REASON], state[DETAIL] = kernels.ENDED, 0
                return
            pairs = np.int64(0)
            if runs > 1 and is_new[run] != is_new[order[1]]:
                pairs = _pairs(arena, starts, key_ends, ends, tags, at, counts, order, floors, bounds, least, state)
            if pairs > 0:
                # The last one's key is kept, as older entries of it may follow.
                start = starts[run, at[run] + pairs - 1] + 4
                size = key_ends[run, at[run] + pairs - 1] - start
            if size + SLACK > len(key):
                state[REASON], state[DETAIL] = kernels.NEED_KEY, size + SLACK
                return
            kernels.copy(arena, start, key, 0, size)
            state[KEY_SIZE] = size
            if pairs > 0:
                state[MODE] = _SKIP
                other = order[1]
                at[run] += pairs
                at[other] += pairs
                if at[run] == counts[run] and at[other] == counts[other]:
                    # One run is fetched at a time. This row is skipped, because its key has been looked at.
                    at[other] -= 1
                if at[other] == counts[other]:
                    order[0], order[1] = other, run
                _settle(arena, starts, key_ends, tags, at, order, 1, runs)
                if at[order[0]] == counts[order[0]]:
                    state[REASON], state[DETAIL] = kernels.NEED_INPUT, order[0]
                    return
                _settle(arena, starts, key_ends, tags, at, order, 0, runs)
                continue
            state[MODE] = _COLLECT
            for place in range(8):
                sides[place // 4, place % 4] = 0
        side = np.int64(is_new[run])
        if state[MODE] == _COLLECT and sides[side, DONE] == 0:
            tag = tags[run, at[run]]
            kind = tag & _KIND
            position, end = key_ends[run, at[run]] + 4, ends[run, at[run]]
            # The number of a value or deletion is compared by itself.
            word = tag if kind == MERGE else kind
            first, second = _mixed(sides[side, FIRST], word, _K1), _mixed(sides[side, SECOND], word, _K2)
            word = np.uint64(end - position) ^ _K1
            first, second = _mixed(first, word, _K1), _mixed(second, word, _K2)
            while position < end:
                word = np.uint64(0)
                if end - position >= 8:
                    word = load64(arena, position)
                else:
                    for byte in range(position, end):
                        word = word << _KIND_BITS | np.uint64(arena[byte])
                first, second = _mixed(first, word, _K1), _mixed(second, word, _K2)
                position += 8
            sides[side, FIRST], sides[side, SECOND] = first, second
            if kind != MERGE:
                sides[side, TAG], sides[side, DONE] = tag, 1
        at[run] += 1
        if at[run] == counts[run]:
            state[REASON], state[DETAIL] = kernels.NEED_INPUT, run
            return
        _settle(arena, starts, key_ends, tags, at, order, 0, runs)
