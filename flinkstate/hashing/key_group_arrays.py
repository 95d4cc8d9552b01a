"""The functions of `flinkstate.hashing.key_groups` for whole columns of hash codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flinkstate.basics.array_types import read_only
from flinkstate.hashing import kernels as hash_kernels
from flinkstate.hashing.key_groups import check_parallelism


def murmur(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns Flink's `MathUtils.murmurHash` of every code, which is never negative."""
    mixed = np.empty(len(codes), dtype=np.int32)
    hash_kernels.murmur(read_only(codes.astype(np.int32, copy=False)), mixed)
    return mixed


def assign_to_key_groups(codes: NDArray[np.int32], max_parallelism: int) -> NDArray[np.int32]:
    """Returns the key group of each key, from the keys' `hashCode`s."""
    check_parallelism(max_parallelism, "max parallelism")
    mixed = murmur(codes)
    return np.remainder(mixed, np.int32(max_parallelism), out=mixed)
