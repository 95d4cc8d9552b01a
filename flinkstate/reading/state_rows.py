"""Reads the entries of states from a file, with as many whole key groups at a time as fit into the buffer.

At a large max parallelism key groups are small, and the fixed cost of each is higher than the cost of its entries. A
key group is read alone if it is compressed, too large for the buffer, or damaged (this finds what is wrong with it),
and if it lies in RocksDB's own files; of these, only the states that are wanted are read.
Stored key groups are read together like plain ones: each content is put in the place of its stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flinkstate.basics.array_types import Positions
from flinkstate.errors import DamagedError
from flinkstate.keyed import frame_kernels, kernels
from flinkstate.keyed.compression import STREAM_START, Buffer, PlainContent, begins_stored
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.keyed_file import KeyedFile
from flinkstate.reading.rows import RowPortion
from flinkstate.serializers.walker import new_failure

# So many bytes usually have no more entries than a file has room for positions.
_MOST_BYTES = 2 << 20
_MOST_SECTIONS = 1 << 14
_START = np.frombuffer(STREAM_START, np.uint8)


def read_rows(file: KeyedFile, key_groups: Sequence[int], states: set[int], window: Buffer) -> Iterator[RowPortion]:
    """Yields the entries of the states with these ids, valid until the next ones are asked for.

    Key groups are read to their ends, also behind these states, so that all damage in them is found.
    """
    if not isinstance(file, KeyGroupFile):
        for key_group in key_groups:
            yield from map(RowPortion.of, file.sections_of(key_group, states, window))
        return
    reader = _RunReader(file, key_groups, states, window)
    while reader.at < len(reader.groups):
        rows = reader.run()
        if rows is not None:
            yield rows
        else:
            yield from map(RowPortion.of, file.sections_of(int(reader.groups[reader.at]), states, window))
            reader.at += 1


class _RunReader:
    """Reads key groups of a file that follow each other. Those before `at` have been read."""

    def __init__(self, file: KeyGroupFile, key_groups: Sequence[int], states: set[int], window: Buffer) -> None:
        self._file, self._buffer = file, window[:_MOST_BYTES]
        self._is_wanted = np.zeros(len(file.header.states), np.bool_)
        self._is_wanted[list(states)] = True
        extents = [file.extents[group] for group in key_groups if group in file.extents]
        self.groups, self._begins, self._ends = (
            np.array([(extent.key_group, extent.start, extent.end) for extent in extents], np.int64)
            .reshape(-1, 3)
            .T.copy()
        )
        # Whether the key groups still to be read are likely to be in stored chunks.
        self._stored = bool(extents) and file.header.compressed and begins_stored(file.file, extents[0].start)
        self._sections = np.empty((min(len(extents) * len(file.header.states), _MOST_SECTIONS), 5), np.int64)
        self.at = 0

    def run(self) -> RowPortion | None:
        """Returns the rows of the next key groups, or None if the next key group must be read alone."""
        after = self._after()
        if after == self.at or not self._fill(int(self._begins[self.at]), int(self._ends[after - 1])):
            return None
        base, run = int(self._begins[self.at]), slice(self.at, after)
        begins, limits = self._begins[run] - base, self._ends[run] - base
        if self._stored:
            count = frame_kernels.unframe_groups(self._buffer, begins, limits, _START)
            self._stored = count > 0
            begins, limits = begins[:count], limits[:count]
        starts, key_ends, ends = self._file.positions
        done, failure, result = np.zeros(2, np.int64), new_failure(), np.zeros(4, np.int64)
        seen = np.zeros(len(self._file.header.states), np.int64)
        membership = self._file.membership
        kernels.scan_groups(
            self._buffer, begins, limits, self.groups[run], self._file.prefix,
            membership.keys, membership.max_parallelism, starts, key_ends, ends, self._sections, seen, done, result,
            failure,
        )  # fmt: skip
        sections = self._sections[: done[1]]
        if not done[0] or not membership.all_belong(sections, self._buffer, starts, key_ends):
            return None
        self.at += int(done[0])
        return self._rows(sections, base)

    def _after(self) -> int:
        """Returns the index behind the last key group that fits into the buffer together with those before it."""
        if self._file.header.compressed and not self._stored:
            return self.at
        begin = self._begins[self.at]
        fitting = self.at + int(np.searchsorted(self._ends[self.at :], begin + len(self._buffer), "right"))
        if fitting == self.at:
            return self.at
        gaps = np.flatnonzero(self._begins[self.at + 1 : fitting] != self._ends[self.at : fitting - 1])
        return self.at + 1 + int(gaps[0]) if len(gaps) else fitting

    def _fill(self, begin: int, end: int) -> bool:
        source, filled = PlainContent(self._file.file, self._file.name, begin, end), 0
        try:
            while got := source.fill(self._buffer[filled:]):
                filled += got
        except DamagedError:
            return False
        return filled == end - begin

    def _rows(self, sections: Positions, base: int) -> RowPortion:
        counts = sections[:, 3] - sections[:, 2]
        wanted = self._is_wanted[sections[:, 1]]
        entries: slice | Positions = slice(int(counts.sum()))
        if not wanted.all():
            entries = np.flatnonzero(np.repeat(wanted, counts))
        starts, key_ends, ends = (positions[entries] for positions in self._file.positions)
        key_groups = np.repeat(sections[wanted, 0], counts[wanted]).astype(np.int32)
        return RowPortion.of_run(self._file, self._buffer, base, key_groups, (starts, key_ends, ends))
