"""A run of a column family: a sorted sequence of files, of which some blocks are read at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions, Tags
from flinkstate.errors import DamagedError
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.coding import Coded
from flinkstate.rocksdb.file_index import Index
from flinkstate.rocksdb.files import (
    read_pieces,
)
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.sst_blocks import (
    TRAILER,
    check_blocks,
    content_sizes,
    decompress_each,
    entries_end,
)
from flinkstate.rocksdb.sst_file import SstFile

# So many compressed bytes of a run are read at a time; a larger block is read whole. Of each run that is merged with
# others as many bytes of rows are kept, and a row for so many bytes.
PORTION = 1 << 18
# Bytes between two wanted blocks that are read with them, because that is faster than another read.
_MOST_BETWEEN = 1 << 15
BYTES_OF_A_ROW = 1 << 5
# So many times as many bytes are uncompressed at a time, whatever the blocks say that they have; a larger block is
# taken whole.
_MOST_CONTENT = 64
KEY_SIZE = 1 << 10
# Java can't have larger arrays, so neither can a value.
LARGEST = 2**31
STATE_SIZE = 14
# The bytes of sequence and type behind a key.
_TAG = 8


class SearchEndedError(Exception):
    """A run has read as many bytes as it may."""


class _Blocks:
    """Blocks of a file in memory, uncompressed, and their entries that have not been walked yet."""

    def __init__(self) -> None:
        self.raw = np.zeros(SLACK, np.uint8)
        self.bounds = np.zeros((0, 3), np.int64)
        self.index: Index | None = None
        self.offsets = np.zeros(0, np.int64)

    def read(self, table: SstFile, index: Index, first: int, portion: int) -> int:
        """Reads blocks from the first one on, about `portion` bytes; returns the one behind them."""
        offsets, ends = index.offsets[first:], index.offsets[first:] + index.sizes[first:] + TRAILER
        between = np.append(0, offsets[1:] - ends[:-1])
        is_far = between > _MOST_BETWEEN
        taken = np.cumsum(ends - offsets + np.where(is_far, 0, between))
        after = first + max(int(np.searchsorted(taken, portion, "right")), 1)
        sizes = np.ascontiguousarray(index.sizes[first:after])
        firsts = np.append(0, np.flatnonzero(is_far[: after - first]))
        begins, stops = offsets[firsts], ends[np.append(firsts[1:], after - first) - 1]
        pieces = list(zip(begins.tolist(), (stops - begins).tolist(), strict=True))
        data = read_pieces(table.file, table.stored, pieces, SLACK)
        offsets = np.ascontiguousarray(offsets[: after - first])
        starts = taken[: after - first] - (sizes + TRAILER)
        check_blocks(table.checksum, table.name, data, starts, sizes, offsets)
        contents = content_sizes(table.name, data, starts, sizes, data[starts + sizes], offsets)
        count = max(int(np.searchsorted(np.cumsum(contents), _MOST_CONTENT * portion, "right")), 1)
        after, starts, sizes, contents = first + count, starts[:count], sizes[:count], contents[:count]
        self.offsets = offsets[:count]
        self._decompress(table, data, starts, sizes, contents)
        self.index = Index(
            index.keys, index.bounds[first : after + 1], index.offsets[first:after], sizes, index.trailer
        )
        return after

    def _decompress(
        self, table: SstFile, data: Bytes, starts: Positions, sizes: Positions, contents: Positions
    ) -> None:
        kinds = data[starts + sizes]
        self.bounds = np.zeros((len(starts), 3), np.int64)
        if not kinds.any():
            self.raw, self.bounds[:, 0] = data, starts
        else:
            ends = np.cumsum(contents)
            self.bounds[:, 0] = ends - contents
            needed = int(ends[-1]) + SLACK
            # What one large block took isn't kept.
            if not needed <= len(self.raw) <= 4 * max(needed, PORTION):
                self.raw = np.zeros(needed, np.uint8)
            decompress_each(table.name, data, starts, sizes, kinds, self.raw, ends, self.offsets)
        wrong = kernels.entries_ends(self.raw, self.bounds, contents)
        if wrong >= 0:
            begin, size = int(self.bounds[wrong, 0]), int(contents[wrong])
            entries_end(self.raw[begin : begin + size], size, table.name, self.offset_of(wrong))

    def first_key(self) -> bytes | None:
        """Returns the first key, without its tag; None if the walk will find that the first entry is damaged."""
        begin, end = self.bounds[0, :2].tolist()
        coded = Coded(self.raw[begin:end].tobytes(), "")
        try:
            shared, size, _ = (coded.varint("a size") for _ in range(3))
            key = coded.take(size, "a key")
        except DamagedError:
            return None
        return None if shared or size < _TAG else key[:-_TAG]

    def offset_of(self, block: int) -> int:
        """Returns where a block is in the file."""
        return int(self.offsets[block])


class SortedRun:
    """A sorted sequence of files, of which the next rows are asked for."""

    def __init__(
        self,
        tables: Sequence[SstFile],
        prefix: int,
        low: int,
        high: int,
        portion: int,
        *,
        keep_open: bool,
        only: Prefixes | None = None,
    ) -> None:
        self._portion, self._keep_open, self._only = portion, keep_open, only
        self._tables, self._prefix, self._low, self._high = iter(tables), prefix, low, high
        self._first, self._last = _group_key(low, prefix), _group_key(high, prefix)
        self.tables = tables
        self._table: SstFile | None = None
        self._parts: Iterator[Index] = iter(())
        self._blocks = _Blocks()
        self._part: Index | None = None
        self._next = 0
        # So many bytes may be read, if there is a limit.
        self.most: int | None = None
        self.key = np.zeros(KEY_SIZE + SLACK, np.uint8)
        self.state = np.zeros(STATE_SIZE, np.int64)
        self.state[kernels.PREVIOUS], self.state[kernels.PREVIOUS_SIZE] = -1, -1
        self.state[kernels.BLOCK] = 0
        self._failure = np.zeros(3, np.int64)

    def walk(
        self, high: int, plain: bool, out: Bytes, at: int, rows: tuple[Positions, Positions, Positions], tags: Tags
    ) -> tuple[int, int]:
        """Puts rows into `out` from `at` on; returns their number and what is needed to go on, or 0 at the end."""
        made = 0
        self.state[kernels.OUT] = at
        while True:
            if self.state[kernels.BLOCK] == len(self._blocks.bounds) and not self._read():
                return made, 0
            blocks, index = self._blocks, self._blocks.index
            assert index is not None
            starts, key_ends, ends = rows
            count = kernels.walk(
                blocks.raw, blocks.bounds, index.keys, index.bounds, index.trailer, self.key, self._prefix, self._low,
                min(high, self._high), plain, out, len(out) - SLACK, starts[made:], key_ends[made:], ends[made:],
                tags[made:], self.state, self._failure,
            )  # fmt: skip
            if count < 0:
                raise self._damaged()
            made += count
            self._keep_key(out)
            why = int(self.state[kernels.WHY])
            if why == kernels.ENDED:
                return made, 0
            if why == kernels.FULL:
                return made, max(int(self.state[kernels.NEEDED]), 1)

    def _read(self) -> bool:
        """Reads the next blocks."""
        while self._part is None or self._next == len(self._part):
            if self._part is not None and self._table is not None and self._part.ends and len(self._part):
                self._table.check_last(self.key[: self.state[kernels.PREVIOUS_SIZE]].tobytes())
            if self._table is None:
                self._table = next(self._tables, None)
                if self._table is None:
                    return False
                self._parts = self._table.indexes(self._first, self._last, self._only)
            self._part, self._next = next(self._parts, None), 0
            if self._part is None:
                self._table.close()
                self._table = None
        assert self._table is not None  # as it has a part
        if self.most is not None:
            if self.most <= 0:
                raise SearchEndedError
            self.most -= int(self._part.sizes[self._next]) + self._portion
        is_first = self._next == 0 and self._part.begins
        self._next = self._blocks.read(self._table, self._part, self._next, self._portion)
        if is_first and (first := self._blocks.first_key()) is not None:
            self._table.check_first(first)
        if not self._keep_open:
            self._table.close()
        self.state[kernels.BLOCK], self.state[kernels.POSITION] = 0, self._blocks.bounds[0, 0]
        self.state[kernels.OPEN] = self.state[kernels.RESTART] = 0
        self.state[kernels.LEAST], self.state[kernels.LARGEST] = self._table.live.sequences
        return True

    def _keep_key(self, out: Bytes) -> None:
        """Keeps the last key, with which the next entry is compared, before the caller uses its buffer anew."""
        start, size = int(self.state[kernels.PREVIOUS]), int(self.state[kernels.PREVIOUS_SIZE])
        if start >= 0 and size >= 0:
            if size + SLACK > len(self.key):
                self.key = np.zeros(2 * size + SLACK, np.uint8)
            self.key[:size] = out[start : start + size]
            self.state[kernels.PREVIOUS] = -1

    def _damaged(self) -> DamagedError:
        assert self._table is not None
        code, position, detail = self._failure.tolist()
        least, largest = self._table.live.sequences
        block = int(np.searchsorted(self._blocks.bounds[:, 0], position, "right")) - 1
        offset, name = self._blocks.offset_of(max(block, 0)), self._table.name
        inside = position - int(self._blocks.bounds[max(block, 0), 0])
        where = f"(byte {inside} of a block's content)"
        expected, found = {
            kernels.BAD_ENTRY: ("an entry inside its block", "a larger one"),
            kernels.BAD_ORDER: ("keys in their order", "a smaller one"),
            kernels.BAD_TYPE: ("an entry of a type that the file's properties allow", f"one of type {detail}"),
            kernels.SHORT_KEY: (f"a key of at least {self._prefix + 8} bytes", "a shorter one"),
            kernels.BAD_SEPARATOR: ("keys up to the one in the index", "a larger one"),
            kernels.LONG_ENTRY: (f"an entry of less than {LARGEST} bytes", "a larger one"),
            kernels.BAD_SEQUENCE: (f"sequence numbers from {least} to {largest}, as the MANIFEST says", f"{detail}"),
            kernels.BAD_RESTART: ("a restart point at an entry that shares no bytes", "another one"),
        }[code]
        return DamagedError(expected, f"{found} {where}", file=name, offset=offset)


def _group_key(group: int, prefix: int) -> bytes:
    """Returns the smallest key of a key group, or a key above all others."""
    return group.to_bytes(prefix, "big") if group < 1 << 8 * prefix else b"\xff" * (prefix + 1)
