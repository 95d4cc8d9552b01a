"""Kernels of the validation: hashes of entries, added up by key group.

The validation has its own kernels, so that the code which writes a savepoint isn't the code which checks it. All that
it shares with that is how a word is loaded. The callers have checked the positions.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import copied_in, kernel_of
from flinkstate.basics.words import load64

VALUE, NULL, NULL_BYTES = 0, 1, 2

_kernel = kernel_of(__file__)

_K1 = np.uint64(0xBF58476D1CE4E5B9)
_K2 = np.uint64(0x94D049BB133111EB)
_K3 = np.uint64(0x9FB21C651E98DF25)
_NULL = np.uint64(0xD1B54A32D192ED03)
_30 = np.uint64(30)
_27 = np.uint64(27)
_31 = np.uint64(31)


@copied_in
def _mix(word):  # type: ignore[no-untyped-def]
    word = (word ^ word >> _30) * _K1
    word = (word ^ word >> _27) * _K2
    return word ^ word >> _31


@copied_in
def _tail(data, start, end):  # type: ignore[no-untyped-def]
    """The 1 to 7 bytes from start to end."""
    word = np.uint64(0)
    if start + 8 <= len(data):
        word = load64(data, start) << np.uint64(64 - 8 * (end - start))
    else:
        for position in range(start, end):
            word = word >> np.uint64(8) | np.uint64(data[position]) << np.uint64(56)
    return word


@copied_in
def _hash(data, start, end, seed):  # type: ignore[no-untyped-def]
    """A hash of 64 bits of the bytes from start to end, based on a seed; every byte and the length count."""
    state = seed + np.uint64(end - start) * _K3
    while end - start >= 8:
        state = (state ^ load64(data, start)) * _K1
        state ^= state >> _31
        start += 8
    if start < end:
        state = (state ^ _tail(data, start, end)) * _K3
        state ^= state >> _27
    return _mix(state)


@_kernel
def hash_ranges(data, starts, ends, seeds, out):  # type: ignore[no-untyped-def]
    """Hashes each range of bytes, based on its seed."""
    for index in range(len(starts)):
        out[index] = _hash(data, starts[index], ends[index], seeds[index])


@_kernel
def hash_values(data, starts, ends, nulls, null, stamps, groups, pairs, out):  # type: ignore[no-untyped-def]
    """Hashes each entry: key group, timestamp, null flag and value, based on the hash of its key and user key.

    `stamps` is empty without time to live. Where `nulls` is `NULL_BYTES`, the bytes of `null` are used as the value.
    """
    stamped = len(stamps) > 0
    for index in range(len(starts)):
        seed = _mix(pairs[index] ^ np.uint64(groups[index]) * _K3)
        if stamped:
            seed = _mix(seed ^ np.uint64(stamps[index]) * _K1)
        if nulls[index] == 0:
            out[index] = _hash(data, starts[index], ends[index], seed)
        elif nulls[index] == 1:
            out[index] = _hash(data, starts[index], ends[index], seed ^ _NULL)
        else:
            out[index] = _hash(null, 0, len(null), seed)


@_kernel
def add_up(groups, hashes, chosen, sums, counts):  # type: ignore[no-untyped-def]
    """Adds the chosen hashes to the sums of their groups; their order makes no difference, their number does."""
    for index in range(len(hashes)):
        if chosen[index]:
            sums[groups[index]] += hashes[index]
            counts[groups[index]] += 1


@_kernel
def take_off(groups, hashes, chosen, sums, counts):  # type: ignore[no-untyped-def]
    """Undoes `add_up`."""
    for index in range(len(hashes)):
        if chosen[index]:
            sums[groups[index]] -= hashes[index]
            counts[groups[index]] -= 1


@_kernel
def read_timestamps(data, positions, out):  # type: ignore[no-untyped-def]
    """Reads a big-endian timestamp at each position."""
    for index in range(len(positions)):
        value = np.int64(0)
        for byte in range(8):
            value = value << 8 | np.int64(data[positions[index] + byte])
        out[index] = value
