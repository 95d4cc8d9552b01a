"""Compiled loops that find what begins with one of some prefixes. Keys, index keys and prefixes are in ascending order.

A kernel checks nothing: its callers made the arrays, or have checked them.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_njit: Any = numba.njit
_kernel: Any = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_inlined: Any = _njit(error_model="numpy", _nrt=False, inline="always")


@_inlined
def _place(prefixes, begin, end, data, start, stop):
    """Returns 0 if the key begins with the prefix, else -1 if all keys that do are smaller, or 1 if they are larger."""
    place = np.int64(0)
    size = end - begin
    common = min(size, stop - start)
    for at in range(common):
        if prefixes[begin + at] != data[start + at]:
            place = np.int64(-1) if prefixes[begin + at] < data[start + at] else np.int64(1)
            break
    if place == 0 and common < size:
        place = np.int64(1)
    return place


@_kernel
def blocks_with(keys, bounds, trailer, prefixes, limits, may_match):
    """Chooses the blocks of an index that may have keys that begin with one of the prefixes."""
    prefix = np.int64(0)
    for block in range(len(may_match)):
        if block > 0:
            # What is at most the key before this block's is not in it.
            start, stop = bounds[block - 1], bounds[block] - trailer
            while (
                prefix < len(limits) - 1 and _place(prefixes, limits[prefix], limits[prefix + 1], keys, start, stop) < 0
            ):
                prefix += 1
        if prefix == len(limits) - 1:
            may_match[block] = False
        else:
            start, stop = bounds[block], bounds[block + 1] - trailer
            may_match[block] = _place(prefixes, limits[prefix], limits[prefix + 1], keys, start, stop) <= 0


@_kernel
def rows_with(data, starts, key_ends, prefixes, limits, matches):
    """Chooses the rows whose keys begin with one of the prefixes; a key is behind four bytes of its length."""
    low, high = np.int64(0), np.int64(len(limits) - 1)
    while low < high and len(starts) > 0:
        middle = (low + high) // 2
        if _place(prefixes, limits[middle], limits[middle + 1], data, starts[0] + 4, key_ends[0]) < 0:
            low = middle + 1
        else:
            high = middle
    prefix = low
    for row in range(len(starts)):
        start, stop = starts[row] + 4, key_ends[row]
        while prefix < len(limits) - 1 and _place(prefixes, limits[prefix], limits[prefix + 1], data, start, stop) < 0:
            prefix += 1
        matches[row] = (
            prefix < len(limits) - 1 and _place(prefixes, limits[prefix], limits[prefix + 1], data, start, stop) == 0
        )
