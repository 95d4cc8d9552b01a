"""Reads a column family in the order of its keys: merges its runs in bounded memory and gives what a reader would find.

A run is a sorted sequence of files: each file of level 0, and the files of each other level. Of a run some blocks are
read at a time, from where the index says that the wanted key groups begin. With a single run without deletions and
merge operands, rows go from the blocks straight into the caller's buffer; otherwise each run has rows of its own, of
which `kernels.merge` takes the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions, Tags
from flinkstate.basics.closing import Closing
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.merge import Found, Merge, fragments_of
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.sorted_run import (
    BYTES_OF_A_ROW,
    PORTION,
    SearchEndedError,
    SortedRun,
)
from flinkstate.rocksdb.sst_file import SstFile

# After so many compressed bytes without a row a search ends.
_MOST_SEARCHED = 4 << 20


class Scan(Closing):
    """The rows of a column family in the key groups from `low` up to, but without, `high`; a context manager.

    `runs` has the files of each run, from the newest run to the oldest. Of each run about `portion` bytes are read at a
    time. With `keep_open`, the file that is read stays open between two portions. With `only`, no blocks are read but
    those that may have keys with these prefixes; rows with other keys may then be missing, or be of an older version.
    """

    # Of rows that need no merge nothing reads the tags.
    _unread_tags: ClassVar[Tags] = np.zeros(0, np.uint64)

    def __init__(
        self,
        runs: Sequence[Sequence[SstFile]],
        opened: ExitStack,
        prefix: int,
        low: int,
        high: int,
        portion: int = PORTION,
        *,
        keep_open: bool = True,
        only: Prefixes | None = None,
    ) -> None:
        self._opened, self._prefix = opened, prefix
        tables = [table for run in runs for table in run]
        # Of the many files of a level one is open at a time.
        ranges = []
        for number, run in enumerate(runs):
            for table in run:
                ranges += [(number, one) for one in table.deleted_ranges()]
                table.close()
        self._runs = [SortedRun(run, prefix, low, high, portion, keep_open=keep_open, only=only) for run in runs]
        self._plain = len(runs) <= 1 and not ranges and not any(table.deletions or table.operands for table in tables)
        self._merge = None if self._plain else Merge(self._runs, fragments_of(ranges), prefix, portion)

    @property
    def runs(self) -> int:
        """The number of runs, each of which has buffers of its own."""
        return len(self._runs)

    def close(self) -> None:
        self._opened.close()

    def has_rows(self, high: int, out: Bytes, positions: Positions) -> bool:
        """Whether a row in key groups below `high` is found, before some megabytes have been read."""
        starts, key_ends, ends = positions
        for run in self._runs:
            run.most = _MOST_SEARCHED // len(self._runs)
        try:
            found = self.read(high, out, 0, (starts, key_ends, ends))
        except SearchEndedError:
            return False
        return bool(found.rows or found.needed)

    def read(self, high: int, out: Bytes, at: int, rows: tuple[Positions, Positions, Positions]) -> Found:
        """Puts the next rows of key groups below `high` into `out`, from `at` on, and where they are into `rows`.

        The last `SLACK` bytes of `out` may be used, but have no rows.
        """
        if self._merge is not None:
            return self._merge.read(high, out, at, rows)
        if not self._runs:
            return Found(0, at, 0)
        if len(Scan._unread_tags) < len(rows[0]):
            Scan._unread_tags = np.zeros(len(rows[0]), np.uint64)
        run = self._runs[0]
        made, needed = run.walk(high, True, out, at, rows, Scan._unread_tags[: len(rows[0])])
        return Found(made, int(run.state[kernels.OUT]), needed)


def entries_of(
    table: SstFile, prefix: int, low: int, high: int, only: Prefixes | None = None
) -> Iterator[tuple[Bytes, Positions, Positions]]:
    """Yields the keys of all entries of one file in these key groups, deletions among them, in order.

    With `only`, these are the entries of the blocks that may have keys with one of the prefixes. Each time it yields
    `data`, where rows start, and where their keys end; these are valid until the next ones are asked for.
    """
    run = SortedRun([table], prefix, low, high, PORTION, keep_open=True, only=only)
    out = np.zeros(PORTION + SLACK, np.uint8)
    starts, key_ends, ends = np.zeros((3, PORTION // BYTES_OF_A_ROW), np.int64)
    tags, needed = np.zeros(len(starts), np.uint64), 1
    with table:
        while needed:
            made, needed = run.walk(1 << 16, False, out, 0, (starts, key_ends, ends), tags)
            if made:
                yield out, starts[:made], key_ends[:made]
            elif needed:
                out = np.zeros(2 * needed + SLACK, np.uint8)
