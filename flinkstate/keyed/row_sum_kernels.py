"""A compiled loop that adds up hashes of rows."""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import copied_in, kernel_of
from flinkstate.basics.words import load64

_kernel = kernel_of(__file__)

_K1, _K2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_K3, _K4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_31, _29 = np.uint64(31), np.uint64(29)


@copied_in
def _step(state, word, factor):
    state = (state ^ word) * factor
    return state ^ state >> _31


@copied_in
def _end(state, factor):
    state = (state ^ state >> _29) * factor
    return state ^ state >> _31


@_kernel
def add_rows(data, starts, ends, seed, sums):
    """Adds two hashes of 64 bits of each row, which depend on the seed and on each of its bytes, to two sums."""
    for row in range(len(starts)):
        position, end = starts[row], ends[row]
        size = np.uint64(end - position)
        first, second = seed ^ size * _K3, seed ^ size * _K4
        # Four chains of steps, none of which waits for another.
        third, fourth = first ^ _K2, second ^ _K1
        while end - position >= 16:
            word, beside = load64(data, position), load64(data, position + 8)
            first, second = _step(first, word, _K1), _step(second, word, _K2)
            third, fourth = _step(third, beside, _K1), _step(fourth, beside, _K2)
            position += 16
        if end - position >= 8:
            word = load64(data, position)
            first, second = _step(first, word, _K1), _step(second, word, _K2)
            position += 8
        tail = np.uint64(0)
        for at in range(position, end):
            tail = tail << np.uint64(8) | np.uint64(data[at])
        first, second = _step(first, tail, _K3), _step(second, tail, _K4)
        sums[0] += _end(_step(first, third, _K2), _K3)
        sums[1] += _end(_step(second, fourth, _K1), _K4)
