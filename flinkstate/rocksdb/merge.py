"""Merges runs of a column family: for each key the newest version, or the operands of a list one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions, Tags
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.sorted_run import (
    BYTES_OF_A_ROW,
    KEY_SIZE,
    LARGEST,
    STATE_SIZE,
    SortedRun,
)
from flinkstate.rocksdb.sst_file import DeletedRange

# What a larger row took of a run's room is given back.
_LARGE = 4 << 20
_OPERANDS = 1 << 16
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


@dataclass(slots=True)
class Fragments:
    """Deleted ranges that don't overlap, in order; of those that do, the newest counts."""

    keys: Bytes
    bounds: Positions
    sequences: Tags
    runs: Positions


def fragments_of(ranges: Sequence[tuple[int, DeletedRange]]) -> Fragments:
    points = sorted({point for _, one in ranges for point in (one.start, one.end)})
    begun: dict[bytes, list[tuple[int, DeletedRange]]] = {}
    for run, one in ranges:
        begun.setdefault(one.start, []).append((run, one))
    # What has begun, the newest first: of those that have ended only the first ones are dropped.
    open_: list[tuple[int, int, bytes]] = []
    keys: list[bytes] = []
    newest: list[tuple[int, int]] = []
    for start, end in pairwise(points):
        for run, one in begun.get(start, []):
            heappush(open_, (-one.sequence, run, one.end))
        while open_ and open_[0][2] <= start:
            heappop(open_)
        if open_:
            keys += [start, end]
            newest.append(open_[0][:2])
    joined = b"".join(keys)
    return Fragments(
        np.frombuffer(joined + bytes(SLACK), np.uint8).copy(),
        np.cumsum([0, *map(len, keys)]).astype(np.int64),
        np.array([-sequence for sequence, _ in newest], np.uint64),
        np.array([run for _, run in newest], np.int64),
    )


class OlderAboveError(DamagedError):
    """A key is in several runs, in an order in which RocksDB would show one or the other version of it."""

    key = b""
    """Set where the error is raised; another process that gets the error doesn't know it."""


class Merge:
    """Merges runs, each of which has rows in a region of the arena; `begins` has where each region begins."""

    def __init__(self, runs: list[SortedRun], fragments: Fragments, prefix: int, portion: int) -> None:
        self.runs, self.fragments, self.prefix = runs, fragments, prefix
        self.region, self.begun = portion, False
        count, rows = len(runs), max(portion // BYTES_OF_A_ROW, 1)
        self.begins = [run * portion for run in range(count + 1)]
        self.arena = np.zeros(count * portion + SLACK, np.uint8)
        self.starts, self.key_ends, self.ends = np.zeros((3, count, rows), np.int64)
        self.tags = np.zeros((count, rows), np.uint64)
        self.at, self.counts, self.order = np.zeros((3, count), np.int64)
        self.state = np.zeros(STATE_SIZE, np.int64)
        self.key = np.zeros(KEY_SIZE + SLACK, np.uint8)
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

    def _older_above(self, run: int) -> OlderAboveError:
        row = int(self.at[run])
        key = self.arena[self.starts[run, row] + 4 : self.key_ends[run, row]].tobytes()
        file = next(one for one in self.runs[run].tables if one.live.smallest[:-8] <= key <= one.live.largest[:-8])
        error = OlderAboveError(
            "each key of a state once, or its newest version in the newest file that has it",
            f"{key[:_SHOWN].hex()} again, in a file below this one: RocksDB would show one or the other version",
            file=file.name,
        )
        error.key = key
        return error

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
            raise RefusedError(f"a list of more than {LARGEST} bytes, which is more than Java can have")
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
