"""The types of arrays, so that a name means the same array everywhere, and the one form in which kernels get bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
# Places in bytes, counts, and numbers of rows.
Positions = npt.NDArray[np.int64]
# A mask; `ByteFlags` is one that a kernel has written, a byte for each.
Flags = npt.NDArray[np.bool_]
ByteFlags = npt.NDArray[np.uint8]
# Java's hash codes.
Codes = npt.NDArray[np.int32]
# Hashes of 64 bits.
Hashes = npt.NDArray[np.uint64]
# RocksDB's sequence and type of each entry.
Tags = npt.NDArray[np.uint64]


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns a read-only view, so that one compiled version of a kernel serves memory maps and other arrays."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
