"""Carries out many changes of a MANIFEST at once: those that RocksDB writes with each flush and compaction.

A job that runs for weeks has millions of them, and nearly every file that one adds is removed by a later one. So
compiled code reads them, and only what is left is looked at file by file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.rocksdb import manifest_kernels
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile
from flinkstate.rocksdb.manifest_kernels import (
    ADDED,
    AGE,
    COLUMNS,
    FAMILY,
    LARGEST,
    LARGEST_END,
    LEAST,
    LEVEL,
    MOST,
    NUMBER,
    NUMBERS,
    RECORD,
    SIZE,
    SMALLEST,
    SMALLEST_END,
)

# So many changes, and files that they add or remove, are carried out at once.
_MOST = 1 << 16


class UsualChanges:
    """Changes from record `first` on that have only tags which RocksDB writes all the time; `count` is their number."""

    def __init__(self, records: Bytes, bounds: Positions, first: int) -> None:
        most = min(len(bounds) - 1 - first, _MOST)
        # Only what is written is read: to clear all of it would take longer than to read a change.
        files, families = np.empty((_MOST, COLUMNS), np.int64), np.empty(most, np.int64)
        numbers, taken = np.full((2, len(NUMBERS)), -1, np.int64), np.zeros(1, np.int64)
        self.count = int(manifest_kernels.usual_changes(records, bounds, first, files, families, numbers, taken))
        self._records, self._files, self._families = records, files[: taken[0]], families[: self.count]
        self._numbers = numbers[0]

    def carry_out(self, families: Mapping[int, ColumnFamily], numbers: dict[int, int]) -> bool:
        """Carries out all of them, or none if one can't be: then they must be carried out one by one, to find it."""
        if not set(np.unique(self._families).tolist()) <= families.keys():
            return False
        # By file, and then in the order of what happens to it. A change removes files before it adds others.
        order = np.lexsort(self._files[:, [ADDED, RECORD, NUMBER, FAMILY]].T)
        files = self._files[order]
        is_same = (files[1:, [FAMILY, NUMBER]] == files[:-1, [FAMILY, NUMBER]]).all(axis=1)
        is_first, is_last = np.append(True, ~is_same)[: len(files)], np.append(~is_same, True)[: len(files)]
        adds = files[:, ADDED] != 0
        is_moved = is_same & (adds[1:] | (files[1:, LEVEL] == files[:-1, LEVEL]))
        if (is_same & ((adds[1:] == adds[:-1]) | ~is_moved)).any():
            return False
        removed = files[is_first & ~adds][:, [FAMILY, NUMBER, LEVEL]].tolist()
        for family, number, level in removed:
            live = families[family].files.get(number)
            if live is None or live.level != level:
                return False
        added = files[is_first & adds][:, [FAMILY, NUMBER]].tolist()
        if any(number in families[family].files for family, number in added):
            return False
        for family, number, _ in removed:
            del families[family].files[number]
        for place in np.sort(order[is_last & adds]).tolist():
            file = self._file(place)
            families[int(self._files[place, FAMILY])].files[file.number] = file
        numbers.update({tag: one for tag, one in zip(NUMBERS, self._numbers.tolist(), strict=True) if one >= 0})
        return True

    def _file(self, place: int) -> LiveFile:
        row = self._files[place].tolist()
        smallest, largest = (
            self._records[row[begin] : row[end]].tobytes()
            for begin, end in ((SMALLEST, SMALLEST_END), (LARGEST, LARGEST_END))
        )
        return LiveFile(row[NUMBER], row[LEVEL], row[SIZE], smallest, largest, (row[LEAST], row[MOST]), row[AGE])
