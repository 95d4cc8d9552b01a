"""Rows of one state and key group that wait to be sorted and written."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError
from flinkstate.rocksdb import write_kernels as kernels
from flinkstate.rocksdb.write_kernels import SLACK
from flinkstate.rocksdb.write_sst_file import SortedRows

_LEAST = 1 << 16


class PendingRows:
    """Rows in a buffer that grows up to the largest portion of rows that were added."""

    def __init__(self) -> None:
        self._data = np.zeros(_LEAST + SLACK, np.uint8)
        self.bytes = self.rows = 0
        self._positions = np.zeros((3, _LEAST), np.int64)
        self._order = np.zeros(_LEAST, np.int64)
        # Where a sort works; many inputs need none.
        self._words = np.zeros((2, 0), np.uint64)
        self._spare, self._segments = np.zeros(0, np.int64), np.zeros((0, 3), np.int64)

    def add(self, data: Bytes) -> None:
        """Adds rows as they are in a section."""
        end = self.bytes + len(data)
        if end + SLACK > len(self._data):
            grown = np.zeros(2 * end + SLACK, np.uint8)
            grown[: self.bytes] = self._data[: self.bytes]
            self._data = grown
        self._data[self.bytes : end] = data
        at = self.bytes
        while True:
            starts, key_ends, ends = self._positions
            rows = int(kernels.row_positions(self._data, at, end, starts, key_ends, ends, self.rows))
            if rows >= 0:
                break
            if starts.shape[0] >= end // 8:
                raise DamagedError("rows that fill a section", "others", offset=at)
            self._positions = np.concatenate((self._positions, np.zeros_like(self._positions)), axis=1)
        self.rows, self.bytes = rows, end

    def add_some(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        """Adds some of the rows of a section, which has others between them."""
        if len(starts):
            gaps = np.flatnonzero(starts[1:] != ends[:-1]) + 1
            for begin, end in zip(starts[np.append(0, gaps)], ends[np.append(gaps - 1, len(ends) - 1)], strict=True):
                self.add(data[begin:end])

    def in_order(self) -> SortedRows:
        """Returns the rows in the order of their keys, until rows are added."""
        starts, key_ends, ends = self._positions
        rows = self.rows
        if len(self._order) < rows:
            self._order = np.zeros(len(starts), np.int64)
        if kernels.are_in_order(self._data, starts, key_ends, rows):
            self._order[:rows] = np.arange(rows)
        else:
            if len(self._spare) < rows:
                self._words = np.zeros((2, len(starts)), np.uint64)
                self._spare = np.zeros(len(starts), np.int64)
                self._segments = np.zeros((len(starts), 3), np.int64)
            words, spare_words = self._words
            kernels.order_rows(
                self._data, starts, key_ends, rows, self._order, words, spare_words, self._spare, self._segments
            )
        return SortedRows(self._data, starts, key_ends, ends, self._order, rows)

    def clear(self) -> None:
        self.bytes = self.rows = 0
