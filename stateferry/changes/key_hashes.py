"""Hashes that stand for keys: two of 64 bits for each, or both together as 16 bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.basics.array_types import Hashes as Hashes
from flinkstate.keyed.compression import Buffer
from flinkstate.serializers.walker import Flags, Positions
from stateferry.changes import kernels

Lanes = tuple[Hashes, Hashes]


_SEEDS = (0x5851F42D4C957F2D, 0x14057B7EF767814F)
# This doesn't use `pa.array`, which would import pandas; that takes longer than all other imports here.
NO_HASHES = pa.Array.from_buffers(pa.binary(16), 0, [None, pa.py_buffer(b"")])


def key_lanes(data: Buffer, starts: Positions, ends: Positions) -> Lanes:
    """Returns two 64-bit hashes for each key. Two keys for which both are equal count as the same."""
    return hash_lanes(data, starts, ends, _SEEDS)


def hash_lanes(data: Buffer, starts: Positions, ends: Positions, seeds: tuple[int, int]) -> Lanes:
    """Returns two 64-bit hashes, by two seeds, of the bytes from each start to its end."""
    first, second = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64)
    kernels.hash_twice(data, starts, ends, np.uint64(seeds[0]), np.uint64(seeds[1]), first, second)
    return first, second


def hash_each(data: Buffer, starts: Positions, ends: Positions, seeds: Hashes) -> Hashes:
    """Returns a 64-bit hash of the bytes from each start to its end, with a seed for each."""
    out = np.empty(len(starts), np.uint64)
    kernels.hash_each(data, starts, ends, seeds, out)
    return out


def as_keys(lanes: Lanes) -> pa.Array:
    """Returns the two hashes of each key together, as 16 bytes."""
    together = np.stack(lanes, axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(together), [None, pa.py_buffer(together)])


def hashed_keys(data: Buffer, starts: Positions, ends: Positions) -> pa.Array:
    """Returns 16 bytes for each key, which are equal for equal keys."""
    return as_keys(key_lanes(data, starts, ends))


def members(keys: pa.Array, of: pa.Array) -> Flags:
    """Whether each of the keys is in `of`."""
    if len(of) == 0:
        return np.zeros(len(keys), np.bool_)
    found: Flags = pc.is_in(keys, value_set=of).to_numpy(zero_copy_only=False)
    return found
