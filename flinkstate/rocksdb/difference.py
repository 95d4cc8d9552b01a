"""Finds the rows by which two states of a column family differ, from the files that one of them alone has.

Entries that both have in the same files play no part: those that are newer than the entries at hand hide them on both
sides alike, and those that are older are hidden, or added to, on both sides alike. That needs the same order of all of
them, which sequence numbers say. A value that a compaction has brought to the lowest level has lost its number, so it
counts as the same only if no entry that both have of its key may be as old (`_floors`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.rocksdb import difference_kernels, kernels
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.merge import Fragments, Merge
from flinkstate.rocksdb.sorted_run import PORTION, SortedRun
from flinkstate.rocksdb.sst_file import SstFile

# All runs together have buffers of about so many bytes for their rows.
_BUFFERS = 32 << 20
_LEAST_PORTION = 1 << 12
_ROWS = 1 << 13
_KEYS = 1 << 18


def differing_rows(
    new: Sequence[SstFile], old: Sequence[SstFile], both: Sequence[LiveFile], prefix: int, low: int, high: int
) -> Iterator[tuple[Bytes, Positions, Positions]]:
    """Yields the keys of rows in these key groups of which the new files show something else than the old ones.

    `both` are the files that either side has. Each yields `data`, where rows start, and where their keys end, as
    `scan.entries_of` does. Files that delete ranges of keys in these key groups must not be among them.
    """
    runs = [(run, True) for run in _runs(new)] + [(run, False) for run in _runs(old)]
    portion = min(max(_BUFFERS // max(len(runs), 1), _LEAST_PORTION), PORTION)
    sorted_runs = [SortedRun(run, prefix, low, high, portion, keep_open=False) for run, _ in runs]
    if sorted_runs:
        yield from _Difference(sorted_runs, [is_new for _, is_new in runs], _floors(both), prefix, portion).rows()


def _runs(tables: Sequence[SstFile]) -> list[list[SstFile]]:
    """The files in sorted runs: each one of level 0, and those of each other level."""
    runs = [[table] for table in tables if table.live.level == 0]
    for level in sorted({table.live.level for table in tables} - {0}):
        runs.append(
            sorted((table for table in tables if table.live.level == level), key=lambda one: one.live.smallest[:-8])
        )
    return runs


def _floors(both: Sequence[LiveFile]) -> Fragments:
    """The least sequence numbers of entries that both sides may have, by ranges of keys."""
    ranges = [(file.smallest[:-8], file.largest[:-8] + b"\0", file.sequences[0]) for file in both]
    keys: list[bytes] = []
    least: list[int] = []
    for start, end in pairwise(sorted({point for first, after, _ in ranges for point in (first, after)})):
        found = [number for first, after, number in ranges if first <= start < after]
        if found:
            keys += [start, end]
            least.append(min(found))
    bounds = np.cumsum([0, *map(len, keys)]).astype(np.int64)
    joined = np.frombuffer(b"".join(keys) + bytes(SLACK), np.uint8).copy()
    return Fragments(joined, bounds, np.array(least, np.uint64), np.zeros(0, np.int64))


class _Difference(Merge):
    """Merges the runs of both sides; a row whose entries are the same on both is left out."""

    def __init__(self, runs: list[SortedRun], is_new: list[bool], floors: Fragments, prefix: int, portion: int) -> None:
        super().__init__(runs, floors, prefix, portion)
        self._is_new, self._sides = np.array(is_new), np.zeros((2, 4), np.uint64)

    def rows(self) -> Iterator[tuple[Bytes, Positions, Positions]]:
        out, (starts, key_ends) = np.zeros(_KEYS + SLACK, np.uint8), np.zeros((2, _ROWS), np.int64)
        state, floors = self.state, self.fragments
        self._begin()
        why = -1
        while why != kernels.ENDED:
            state[kernels.WRITTEN], state[kernels.ROWS] = 0, 0
            why = kernels.NEED_INPUT
            while why in (kernels.NEED_INPUT, kernels.NEED_KEY):
                difference_kernels.differing(
                    self.arena, self.starts, self.key_ends, self.ends, self.tags, self.at, self.counts, self.order,
                    self._is_new, floors.keys, floors.bounds, floors.sequences, self.key, self._sides, out,
                    len(out) - SLACK, starts, key_ends, state,
                )  # fmt: skip
                why, detail = int(state[kernels.REASON]), int(state[kernels.DETAIL])
                if why == kernels.NEED_INPUT:
                    self._refill(detail)
                elif why == kernels.NEED_KEY:
                    self.key = np.append(self.key, np.zeros(2 * detail, np.uint8))
            rows = int(state[kernels.ROWS])
            if rows:
                yield out, starts[:rows], key_ends[:rows]
            elif why == kernels.FULL:
                out = np.zeros(2 * detail + SLACK, np.uint8)
