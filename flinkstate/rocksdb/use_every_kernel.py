"""Uses every kernel once, with nothing to do, so that numba compiles it for the arrays that real reads pass."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.array_types import Bytes
from flinkstate.rocksdb import difference_kernels, kernels, manifest_kernels
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.newer_rows import newer_rows
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.usual_changes import UsualChanges
from flinkstate.rocksdb.write_manifest import manifest_bytes
from flinkstate.rocksdb.write_sst_file import Buffers, SstWriter


def use_kernels() -> None:
    """Calls the kernels with the types of arrays that `sst_file.py`, `manifest.py` and `sorted_run.py` pass."""
    data, numbers, failure = np.zeros(2 * SLACK, np.uint8), np.zeros(16, np.int64), np.zeros(3, np.int64)
    nothing = np.zeros(0, np.int64)
    kernels.crc_mismatch(data, nothing, nothing)
    manifest_kernels.joined(np.frombuffer(bytes(SLACK), np.uint8), 0, data, numbers, numbers, failure)
    UsualChanges(data, np.zeros(1, np.int64), 0)
    kernels.content_sizes(data, nothing, nothing, nothing)
    kernels.entries_ends(data, np.zeros((0, 3), np.int64), nothing)
    kernels.index_entries(data, 0, 0, True, 0, True, data, numbers, data, numbers, numbers, numbers, numbers, failure)
    kernels.walk(
        data, np.zeros((0, 3), np.int64), data, numbers, 0, data, 1, 0, 1, True, data, SLACK, numbers, numbers, numbers,
        np.zeros(1, np.uint64), np.zeros(16, np.int64), failure,
    )  # fmt: skip
    rows, tags = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.uint64)
    kernels.sift(data, rows, rows, tags, numbers, numbers, 0)
    kernels.merge(
        data, rows, rows, rows, tags, numbers, numbers, numbers, data, numbers, np.zeros(0, np.uint64), nothing, 1,
        1, data, data, data, SLACK, numbers, numbers, numbers, np.zeros(16, np.int64),
    )  # fmt: skip
    difference_kernels.differing(
        data, rows, rows, rows, tags, numbers, numbers, numbers, np.zeros(1, np.bool_), data, numbers,
        np.zeros(0, np.uint64), data, np.zeros((2, 4), np.uint64), data, SLACK, numbers, numbers,
        np.zeros(16, np.int64),
    )  # fmt: skip
    kernels.rows_with(data, nothing, nothing, data, numbers, np.zeros(0, np.bool_))
    _write()


def _write() -> None:
    """Writes two rows that aren't in order."""
    pending = PendingRows()
    for key in (b"\0b", b"\0a"):
        pending.add(np.frombuffer(bytes([0, 0, 0, 2]) + key + bytes(4), np.uint8))
    table = SstWriter(_Nowhere(), 2, 0, "", 1, Buffers())
    table.append(pending.in_order(), 0)
    newer_rows(pending, PendingRows())
    table.finish()
    manifest_bytes((), 3)


class _Nowhere:
    """A file that keeps nothing."""

    position = 0

    def write(self, data: Bytes | bytes) -> None:
        self.position += len(data)

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass
