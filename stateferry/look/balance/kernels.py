"""Compiled loops over the hashes of many keys: the load of each key group, and of each subtask in many layouts."""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flinkstate.basics.array_types import Codes
from flinkstate.basics.compiling import inlined, kernel_of

Weights = NDArray[np.int64]

_kernel = kernel_of(__file__)


@inlined
def _spread(hashes, weights, max_parallelism, loads):
    for group in range(max_parallelism):
        loads[group] = 0
    most = np.uint64(max_parallelism)
    # A multiplication takes half the time of a division. As a hash has 31 bits, the quotient is at most 1 too small.
    inverse = np.uint64(np.uint64(1 << 32) // most)
    for key in range(len(hashes)):
        hashed = np.uint64(hashes[key])
        group = hashed - (hashed * inverse >> np.uint64(32)) * most
        loads[group - most if group >= most else group] += weights[key]


@_kernel
def spread(hashes: Codes, weights: Weights, max_parallelism: int, loads: Weights) -> None:
    """Adds the weight of each key to its key group; `hashes` are murmur hashes, which aren't negative."""
    _spread(hashes, weights, max_parallelism, loads)


@_kernel
def spread_over_layouts(
    hashes: Codes,
    weights: Weights,
    maxes: Weights,
    parallelisms: Weights,
    loads: Weights,
    worst: Weights,
    idle: Weights,
) -> None:
    """For each max parallelism and parallelism, finds the largest load of a subtask and how many have no load.

    `loads` is room for the key groups of the largest max parallelism. Layouts that can't be have -1.
    """
    for row in range(len(maxes)):
        most = maxes[row]
        _spread(hashes, weights, most, loads)
        for group in range(1, most):
            loads[group] += loads[group - 1]
        for column in range(len(parallelisms)):
            parallelism = parallelisms[column]
            worst[row, column] = -1
            idle[row, column] = -1
            if parallelism > most:
                continue
            largest, empty, before = np.int64(0), np.int64(0), np.int64(0)
            for subtask in range(parallelism):
                until = loads[((subtask + 1) * most - 1) // parallelism]
                largest = max(largest, until - before)
                empty += until == before
                before = until
            worst[row, column] = largest
            idle[row, column] = empty
