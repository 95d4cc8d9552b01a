"""Reads a column family in the order of its keys: merges its runs in bounded memory and gives what a reader would find.

A run is a sorted sequence of files: each file of level 0, and the files of each other level. Of a run some blocks are
read at a time, from where the index says that the wanted key groups begin. With a single run without deletions and
merge operands, rows go from the blocks straight into the caller's buffer; otherwise each run has rows of its own, of
which `kernels.merge` takes the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.coding import Coded
from flinkstate.rocksdb.files import Bytes, read_pieces
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.sst_file import TRAILER, DeletedRange, Index, Positions, SstFile, entries_end

Tags = npt.NDArray[np.uint64]

# So many compressed bytes of a run are read at a time; a larger block is read whole. Of each run that is merged with
# others as many bytes of rows are kept, and a row for so many bytes.
PORTION = 1 << 18
# Bytes between two wanted blocks that are read with them, because that is faster than another read.
_MOST_BETWEEN = 1 << 15
_BYTES_OF_A_ROW = 1 << 5
# What a larger row took of a run's room is given back.
_LARGE = 4 << 20
# So many times as many bytes are uncompressed at a time, whatever the blocks say that they have; a larger block is
# taken whole.
_MOST_CONTENT = 64
_KEY = 1 << 10
_OPERANDS = 1 << 16
# After so many compressed bytes without a row a search ends.
_MOST_SEARCHED = 4 << 20
# Java can't have larger arrays, so neither can a value.
_LARGEST = 2**31
_STATE = 14
# The bytes of sequence and type behind a key.
_TAG = 8
# So many bytes of a key are in messages.
_SHOWN = 40


@dataclass(slots=True)
class Found:
    """What a scan wrote into the caller's buffer: so many rows up to `position`, and what it needs to go on.

    `needed` is 0 if the wanted key groups have no more rows, else the size of the next row or 1.
    """

    rows: int
    position: int
    needed: int


class _SearchEndedError(Exception):
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
        table.check(data, starts, sizes, offsets)
        contents = table.content_sizes(data, starts, sizes, data[starts + sizes], offsets)
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
            table.decompress_each(data, starts, sizes, kinds, self.raw, ends, self.offsets)
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


class _Run:
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
        self.key = np.zeros(_KEY + SLACK, np.uint8)
        self.state = np.zeros(_STATE, np.int64)
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
                self._parts = self._table.indexes(self._first, self._last)
            self._part, self._next = next(self._parts, None), 0
            if self._part is None:
                self._table.close()
                self._table = None
            elif self._only is not None:
                self._part = self._only.blocks_of(self._part)
        assert self._table is not None  # as it has a part
        if self.most is not None:
            if self.most <= 0:
                raise _SearchEndedError
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
        """Keeps the last key, which the next entry is told apart from, before the caller uses its buffer anew."""
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
            kernels.LONG_ENTRY: (f"an entry of less than {_LARGEST} bytes", "a larger one"),
            kernels.BAD_SEQUENCE: (f"sequence numbers from {least} to {largest}, as the MANIFEST says", f"{detail}"),
            kernels.BAD_RESTART: ("a restart point at an entry that shares no bytes", "another one"),
        }[code]
        return DamagedError(expected, f"{found} {where}", file=name, offset=offset)


class Scan:
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
        self._runs = [_Run(run, prefix, low, high, portion, keep_open=keep_open, only=only) for run in runs]
        self._plain = len(runs) <= 1 and not ranges and not any(table.deletions or table.operands for table in tables)
        self._merge = None if self._plain else _Merge(self._runs, _fragments(ranges), prefix, portion)

    @property
    def runs(self) -> int:
        """The number of runs, each of which has buffers of its own."""
        return len(self._runs)

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def has_rows(self, high: int, out: Bytes, positions: Positions) -> bool:
        """Whether a row in key groups below `high` is found, before some megabytes have been read."""
        starts, key_ends, ends = positions
        for run in self._runs:
            run.most = _MOST_SEARCHED // len(self._runs)
        try:
            found = self.read(high, out, 0, (starts, key_ends, ends))
        except _SearchEndedError:
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


def entries_of(table: SstFile, prefix: int, low: int, high: int) -> Iterator[tuple[Bytes, Positions, Positions]]:
    """Yields the keys of all entries of one file in these key groups, deletions among them, in order.

    Each yields `data`, where rows start, and where their keys end; it is valid until the next one is asked for.
    """
    run = _Run([table], prefix, low, high, PORTION, keep_open=True)
    out = np.zeros(PORTION + SLACK, np.uint8)
    starts, key_ends, ends = np.zeros((3, PORTION // _BYTES_OF_A_ROW), np.int64)
    tags, needed = np.zeros(len(starts), np.uint64), 1
    with table:
        while needed:
            made, needed = run.walk(1 << 16, False, out, 0, (starts, key_ends, ends), tags)
            if made:
                yield out, starts[:made], key_ends[:made]
            elif needed:
                out = np.zeros(2 * needed + SLACK, np.uint8)


@dataclass(slots=True)
class _Fragments:
    """Deleted ranges that don't overlap, in order; of those that do, the newest counts."""

    keys: Bytes
    bounds: Positions
    sequences: Tags
    runs: Positions


def _fragments(ranges: Sequence[tuple[int, DeletedRange]]) -> _Fragments:
    points = sorted({point for _, one in ranges for point in (one.start, one.end)})
    begun: dict[bytes, list[tuple[int, DeletedRange]]] = {}
    for run, one in ranges:
        begun.setdefault(one.start, []).append((run, one))
    open_: list[tuple[int, DeletedRange]] = []
    keys: list[bytes] = []
    newest: list[tuple[int, int]] = []
    for start, end in pairwise(points):
        open_ = [(run, one) for run, one in open_ if one.end > start] + begun.get(start, [])
        if open_:
            keys += [start, end]
            newest.append(max((one.sequence, -run) for run, one in open_))
    joined = b"".join(keys)
    return _Fragments(
        np.frombuffer(joined + bytes(SLACK), np.uint8).copy(),
        np.cumsum([0, *map(len, keys)]).astype(np.int64),
        np.array([sequence for sequence, _ in newest], np.uint64),
        np.array([-run for _, run in newest], np.int64),
    )


class _Merge:
    """Merges runs, each of which has rows in a region of the arena; `begins` has where each region begins."""

    def __init__(self, runs: list[_Run], fragments: _Fragments, prefix: int, portion: int) -> None:
        self.runs, self.fragments, self.prefix = runs, fragments, prefix
        self.region, self.begun = portion, False
        count, rows = len(runs), max(portion // _BYTES_OF_A_ROW, 1)
        self.begins = [run * portion for run in range(count + 1)]
        self.arena = np.zeros(count * portion + SLACK, np.uint8)
        self.starts, self.key_ends, self.ends = np.zeros((3, count, rows), np.int64)
        self.tags = np.zeros((count, rows), np.uint64)
        self.at, self.counts, self.order = np.zeros((3, count), np.int64)
        self.state = np.zeros(_STATE, np.int64)
        self.key = np.zeros(_KEY + SLACK, np.uint8)
        self.operands = np.zeros(_OPERANDS + SLACK, np.uint8)

    def read(self, high: int, out: Bytes, at: int, rows: tuple[Positions, Positions, Positions]) -> Found:
        if not self.begun:
            self._begin()
        state = self.state
        state[kernels.WRITTEN], state[kernels.ROWS] = at, 0
        starts, key_ends, ends = rows
        while True:
            kernels.merge(
                self.arena, self.starts, self.key_ends, self.ends, self.tags, self.at, self.counts, self.order,
                self.fragments.keys, self.fragments.bounds, self.fragments.sequences, self.fragments.runs, self.prefix,
                high, self.key, self.operands, out, len(out) - SLACK, starts, key_ends, ends, state,
            )  # fmt: skip
            why, detail = int(state[kernels.REASON]), int(state[kernels.DETAIL])
            if why == kernels.NEED_INPUT:
                self._refill(detail)
            elif why == kernels.NEED_KEY:
                self.key = _grown(self.key, 2 * detail)
            elif why == kernels.NEED_OPERANDS:
                self._grow_operands(detail)
            elif why == kernels.OLDER_ABOVE:
                raise self._older_above(detail)
            else:
                needed = 0 if why == kernels.ENDED else max(detail, 1)
                return Found(int(state[kernels.ROWS]), int(state[kernels.WRITTEN]), needed)

    def _older_above(self, run: int) -> DamagedError:
        row = int(self.at[run])
        key = self.arena[self.starts[run, row] + 4 : self.key_ends[run, row]].tobytes()
        file = next(one for one in self.runs[run].tables if one.live.smallest[:-8] <= key <= one.live.largest[:-8])
        return DamagedError(
            "each key of a state once, or its newest version in the newest file that has it",
            f"{key[:_SHOWN].hex()} again, in a file below this one: RocksDB would show one or the other version",
            file=file.name,
        )

    def _begin(self) -> None:
        self.begun = True
        for run in range(len(self.runs)):
            if self._fill(run):
                live = int(self.state[kernels.RUNS])
                self.order[1 : live + 1] = self.order[:live].copy()
                self.order[0] = run
                self.state[kernels.RUNS] = live + 1
                kernels.sift(
                    self.arena, self.starts, self.key_ends, self.tags, self.at, self.order, live + 1
                )  # fmt: skip

    def _refill(self, run: int) -> None:
        if self._fill(run):
            self.state[kernels.SIFT] = 1
        else:
            live = int(self.state[kernels.RUNS])
            self.order[: live - 1] = self.order[1:live].copy()
            self.state[kernels.RUNS] = live - 1

    def _fill(self, run: int) -> bool:
        """Fetches the run's next rows; returns whether there are any."""
        rows = (self.starts[run], self.key_ends[run], self.ends[run])
        if self.begins[run + 1] - self.begins[run] > max(_LARGE, self.region):
            self._resize(run, self.region)
        while True:
            begin = self.begins[run]
            room = self.arena[: self.begins[run + 1]]
            made, needed = self.runs[run].walk(1 << 16, False, room, begin, rows, self.tags[run])
            if made or not needed:
                self.at[run], self.counts[run] = 0, made
                return made > 0
            self._resize(run, 2 * (needed + SLACK))

    def _resize(self, run: int, size: int) -> None:
        """Gives a run's region another size. Its rows are lost; those of the other runs move with their regions."""
        begin, end = self.begins[run], self.begins[run + 1]
        more = size - (end - begin)
        arena = np.zeros(len(self.arena) + more, np.uint8)
        arena[:begin] = self.arena[:begin]
        arena[end + more :] = self.arena[end:]
        for positions in (self.starts, self.key_ends, self.ends):
            positions[run + 1 :] += more
        self.begins[run + 1 :] = [place + more for place in self.begins[run + 1 :]]
        self.arena = arena

    def _grow_operands(self, needed: int) -> None:
        if needed < 0:
            raise RefusedError(f"a list of more than {_LARGEST} bytes, which is more than Java can have")
        old = self.operands
        self.operands = np.zeros(2 * needed + SLACK, np.uint8)
        used = len(old) - SLACK - int(self.state[kernels.OPERANDS])
        if self.state[kernels.MODE]:
            self.operands[len(self.operands) - SLACK - used : -SLACK] = old[len(old) - SLACK - used : -SLACK]
        self.state[kernels.OPERANDS] = len(self.operands) - SLACK - used


def _grown(old: Bytes, size: int) -> Bytes:
    new = np.zeros(size + SLACK, np.uint8)
    new[: len(old)] = old
    return new


def _group_key(group: int, prefix: int) -> bytes:
    """Returns the smallest key of a key group, or a key above all others."""
    return group.to_bytes(prefix, "big") if group < 1 << 8 * prefix else b"\xff" * (prefix + 1)
