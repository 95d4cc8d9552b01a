"""Compiled loops that find what begins with one of some prefixes. Keys, index keys and prefixes are in ascending order.

A kernel checks nothing: its callers made the arrays, or have checked them.
"""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from flinkstate.rocksdb.kernels import place

_njit: Any = numba.njit
_kernel: Any = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)


@_kernel
def rows_with(data, starts, key_ends, prefixes, limits, matches):
    """Chooses the rows whose keys begin with one of the prefixes; a key is behind four bytes of its length."""
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
