"""A compiled loop that compares rows of a database with those that it should have."""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_njit: Any = numba.njit
_kernel: Any = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_inlined: Any = _njit(inline="always", error_model="numpy", _nrt=False)


@_inlined
def _compared(one, start, end, other, begin, stop):
    """Compares two ranges of bytes: below 0 if the first is smaller, 0 if they are equal."""
    least = min(end - start, stop - begin)
    for at in range(least):
        difference = np.int64(one[start + at]) - np.int64(other[begin + at])
        if difference != 0:
            return difference
    return (end - start) - (stop - begin)


@_kernel
def differing(
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
            side = np.int64(
                _compared(new, starts[row] + 4, key_ends[row], old, old_starts[other] + 4, old_key_ends[other])
            )
        if side > 0:
            out[count] = other
            is_old[count] = True
            count += 1
            old_turn += 1
            continue
        if side == 0:
            old_turn += 1
            same = _compared(new, key_ends[row] + 4, ends[row], old, old_key_ends[other] + 4, old_ends[other]) == 0
        else:
            same = False
        if not same:
            out[count] = row
            is_old[count] = False
            count += 1
        turn += 1
    return count
