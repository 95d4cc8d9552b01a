"""One subtask's keyed state as RocksDB's own files: of a native savepoint or an incremental checkpoint.

Each state is a column family of its name. Its rows have the bytes that they have in a canonical file. Key groups are
read in sections as those of a canonical file, in the same window; a state's scan goes on where it stopped as long as
key groups are asked for in ascending order. Where the bytes of a key group are the files don't say: its extent is an
estimate, by the first and last keys of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.digests import new_hasher
from flinkstate.files.storage import Location
from flinkstate.keyed import kernels
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import BackendKind, parse_header, refuse_twins
from flinkstate.keyed.heap_timers import HeapTimers, laid_out
from flinkstate.keyed.key_group_check import Membership
from flinkstate.keyed.keyed_file import LARGEST_HEADER, MOST_ENTRIES, WINDOW, KeyedFile, Section
from flinkstate.keyed.row_sum import RowSum
from flinkstate.keyed.stored_files import stored_by_itself, stored_files
from flinkstate.metadata.bytes_read import HEADER, SST, BytesRead
from flinkstate.metadata.key_group_extents import KeyGroupExtent, SubtaskFile, key_group_extents
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.metadata.streams import open_stream
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.merge import Found
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.scan import Scan
from flinkstate.rocksdb.sorted_run import PORTION
from flinkstate.rocksdb.sst_file import SstFile
from flinkstate.serializers.walker import Positions

# Of no state, but every database has it.
_DEFAULT = "default"
# A section has at least this room in the window, unless the window is smaller.
_LEAST_ROOM = 1 << 16
# So many bytes of rows are expected behind one byte of the files, until some have been read.
_EXPANSION = 4.0
_SAMPLED = 1 << 20
# The buffers of all states' runs have about so many bytes; those of a run have so many for each byte of its portion.
_BUFFERS = 64 << 20
_BYTES_OF_A_RUN = 5
_LEAST_PORTION = 1 << 12
# Of so many runs the buffers are kept from one key group to the next, and of so many the files stay open.
_MOST_RUNS = _BUFFERS // (_BYTES_OF_A_RUN * _LEAST_PORTION)
_MOST_OPEN = 128


class NativeFile(KeyedFile):
    """A subtask's RocksDB database, open for reading.

    `wanted` are the key groups that will be read, in ascending order; by default all.
    """

    handle: NativeHandle

    def __init__(
        self,
        folder: Location,
        handle: NativeHandle,
        max_parallelism: int,
        subtask: int,
        read: BytesRead | None = None,
        wanted: Sequence[int] | None = None,
    ) -> None:
        super().__init__(handle, max_parallelism, subtask, read)
        self.folder = folder
        self._wanted = frozenset(handle.range if wanted is None else wanted)
        self._scans: dict[int, _StateScan] = {}
        self._seen_rows = self._seen_share = 0
        # By the ids of states which keys are read, of all that are there, if not all are; and what was found of them.
        self.only: Mapping[int, Prefixes] | None = None
        self.sums: dict[int, RowSum] = {}
        self._has_noted_files = False
        file, self.name, size = open_stream(folder, handle.meta)
        with file:
            if size > LARGEST_HEADER:
                raise DamagedError(f"a header of at most {LARGEST_HEADER} bytes", f"{size}", file=self.name)
            data = bytes(file.read(size))
        self.header, self.header_end = parse_header(data, self.name, end=size)
        if read is not None:
            hasher = new_hasher()
            hasher.update(data)
            read.note(handle.meta, HEADER, hasher)
        self._refuse_asynchronous()
        # The states of the header that are in the database; those behind them are timers.
        self.stored_states = len(self.header.states)
        self._timers: HeapTimers | None = None
        if handle.timers is not None:
            self._timers = HeapTimers(folder, handle.timers, self.prefix)
            self.header = self._timers.described_in(self.header)
            refuse_twins(self.header.states, self.name)
        self.membership = Membership(self.header, max_parallelism, self.prefix)

    def _refuse_asynchronous(self) -> None:
        for state in self.header.states:
            if state.kind is BackendKind.KEY_VALUE_V2:
                raise RefusedError(
                    f"{self.name}: state {state.name} is asynchronous (V2) state, as the ForSt backend writes it. "
                    "Stateferry doesn't read it, and Flink takes no canonical savepoint of it: this state can't be "
                    "migrated"
                )

    @cached_property
    def database(self) -> Database:
        """The database, whose MANIFEST is read when it is needed: the header needs none of it."""
        database = Database(stored_files(self.folder, self.handle), f"the database that {self.name} describes")
        families = database.families
        stored = self.header.states[: self.stored_states]
        there, described = families.keys() - {_DEFAULT}, {state.name for state in stored}
        for name in sorted(there ^ described):
            found = f"none of {name}" if name in described else f"also one of {name}"
            raise DamagedError(
                f"a column family of each state that {self.name} describes", found, file=database.manifest.shown
            )
        if _DEFAULT in families and families[_DEFAULT].files:
            raise DamagedError(
                "no files of the default column family", f"{len(families[_DEFAULT].files)}",
                file=database.manifest.shown,
            )  # fmt: skip
        return database

    @cached_property
    def _subtask_file(self) -> SubtaskFile:
        range_ = self.handle.range
        shares = list(self.database.shares(self.prefix, range_.start, range_.end + 1))
        if self._timers is not None:
            shares = [share + self._timers.size_of(group) for group, share in zip(range_, shares, strict=True)]
        # Each key group has a share, as only a scan can say that one has no rows.
        *starts, end = accumulate((max(share, 1) for share in shares), initial=self.header_end)
        return SubtaskFile(self.subtask, self.name, range_, tuple(starts), end)

    @property
    def subtask_file(self) -> SubtaskFile:
        return self._subtask_file

    @cached_property
    def _extents(self) -> dict[int, KeyGroupExtent]:
        return {extent.key_group: extent for extent in key_group_extents(self._subtask_file)}

    @property
    def extents(self) -> Mapping[int, KeyGroupExtent]:
        return self._extents

    @property
    def has_places(self) -> bool:
        return False

    def read_only(self, keys: Mapping[str, Prefixes]) -> None:
        """Has sections show only rows with these keys, by state, and reads nothing of other states."""
        there = enumerate(self.header.states)
        self.only = {number: keys[meta.name] for number, meta in there if meta.name in keys}

    def close(self) -> None:
        for scan in self._scans.values():
            scan.close()
        self._scans.clear()
        if self._timers is not None:
            self._timers.close()

    def expect_known_layout(self) -> None:
        """The files say themselves that they are of RocksDB."""

    def _expect_own_rows(self) -> None:
        """Raises if the database has rows of other key groups, which another subtask's has.

        After a rescale its files may have such rows, but Flink has deleted these.
        """
        own, buffer = self.handle.range, np.empty(WINDOW, np.uint8)
        for state in self.header.states[: self.stored_states]:
            for low, high in ((0, own.start), (own.end + 1, 1 << 8 * self.prefix)):
                if low < high and self.database.has_rows(state.name, self.prefix, low, high, buffer, self.positions):
                    raise DamagedError(
                        f"rows of the key groups {own}", f"others in state {state.name}", file=self.database.shown
                    )

    def sections(self, key_group: int, window: Buffer | None = None) -> Iterator[Section]:
        """Yields the key group's sections, by the states' ids. `window` is a buffer to use.

        The digest of a key group is that of its rows: other versions of a row, and rows that were deleted, have no
        part in it. With `only`, it is that of the rows which are read. It goes into `sums`.
        """
        if key_group not in self.handle.range:
            return
        digest = RowSum()
        for section in self._sections(key_group, range(len(self.header.states)), window):
            if self.read is not None or self.only is not None:
                digest += RowSum.of(section)
            yield section
        if self.read is not None or self.only is not None:
            self.sums[key_group] = digest
        if self.read is not None:
            if self.only is None:
                self.read.add(self.handle.meta.name, key_group, digest.text)
            self._note_files(self.read)

    def _note_files(self, read: BytesRead) -> None:
        if not self._has_noted_files:
            self._has_noted_files = True
            streams = {file.name: file.stream for file in self.handle.files}
            for state in range(self.stored_states):
                for table in self.tables(state):
                    if (named := stored_by_itself(streams[table.live.name])) is not None:
                        read.add(named, SST, table.identity)

    def tables(self, state: int) -> Iterator[SstFile]:
        """Yields the SST files of a state that may have rows of the wanted key groups, each open until the next one."""
        return self.database.files(self.header.states[state].name, self.prefix, *self.wanted_range)

    @property
    def wanted_range(self) -> tuple[int, int]:
        """The first key group that is wanted, and the one behind the last."""
        return min(self._wanted, default=0), max(self._wanted, default=-1) + 1

    def sections_of(self, key_group: int, states: set[int], window: Buffer | None = None) -> Iterator[Section]:
        """Yields the key group's sections of the states with these ids, and reads nothing of other states."""
        if key_group in self.handle.range:
            yield from self._sections(key_group, sorted(states), window)

    def _sections(self, key_group: int, states: Iterable[int], window: Buffer | None) -> Iterator[Section]:
        if key_group == self.handle.range.start:
            # So one of the subtask's readers does it, and not each task.
            self._expect_own_rows()
        extent = self.extents[key_group]
        writer = _Window(np.empty(WINDOW, np.uint8) if window is None else window, self.positions)
        for state in states:
            if self.only is not None and not len(self.only.get(state, ())):
                continue
            if state < self.stored_states:
                yield from self._state_sections(state, extent, writer)
            else:
                yield from self._timer_sections(state, extent)
        self._seen_rows += writer.base + writer.position
        self._seen_share += extent.end - extent.start

    def _state_sections(self, state: int, extent: KeyGroupExtent, writer: _Window) -> Iterator[Section]:
        scan = self._scan(state, extent.key_group)
        needed = 1
        while needed:
            writer.make_room(needed)
            positions = writer.free_positions()
            found = scan.read(extent.key_group, writer.buffer, writer.position, positions)
            starts, key_ends, ends = (part[: found.rows] for part in positions)
            needed = found.needed
            if found.rows:
                section = Section(
                    self, extent, writer.base, state, writer.buffer, starts, key_ends, ends, not found.needed
                )
                position = found.position
                if self.only is not None:
                    section = _rows_with(section, self.only[state])
                    position = int(section.ends[-1]) if len(section) else writer.position
                writer.take(found.rows, position)
                with section.locating():
                    self.membership.check(state, extent.key_group, writer.buffer, section.starts, section.key_ends)
                if len(section):
                    yield section
        if scan.next_group == scan.after or self._runs > _MOST_RUNS < sum(one.runs for one in self._scans.values()):
            # Of many files that are open at a time, those that have been read keep no buffers.
            self._scans.pop(state).close()

    def _timer_sections(self, state: int, extent: KeyGroupExtent) -> Iterator[Section]:
        assert self._timers is not None  # as there are states of them
        portions = self._timers.rows(extent.key_group, state - self.stored_states)
        keys = next(portions, [])
        while keys:
            following = next(portions, [])
            most = max(min(MOST_ENTRIES, WINDOW // (max(map(len, keys)) + 8)), 1)
            for begin in range(0, len(keys), most):
                data, starts, key_ends, ends = laid_out(keys[begin : begin + most])
                last = not following and begin + most >= len(keys)
                section = Section(self, extent, 0, state, data, starts, key_ends, ends, last)
                with section.locating():
                    self.membership.check(state, extent.key_group, data, starts, key_ends)
                yield section
            keys = following

    def _scan(self, state: int, key_group: int) -> _StateScan:
        scan = self._scans.get(state)
        if scan is None or scan.next_group != key_group:
            if scan is not None:
                scan.close()
            after = self._afters.get(key_group, key_group + 1)
            opened = self.database.scan(
                self.header.states[state].name, self.prefix, key_group, after, self._portion,
                keep_open=self._runs <= _MOST_OPEN, only=self.only[state] if self.only is not None else None,
            )  # fmt: skip
            scan = self._scans[state] = _StateScan(opened, key_group, after)
        return scan

    @cached_property
    def _afters(self) -> dict[int, int]:
        """For each wanted key group the first one behind it that isn't wanted."""
        afters: dict[int, int] = {}
        for key_group in sorted(self._wanted, reverse=True):
            afters[key_group] = afters.get(key_group + 1, key_group + 1)
        return afters

    @cached_property
    def _runs(self) -> int:
        """The number of runs of all states, whose scans go on at the same time."""
        return self.database.runs(self.prefix, min(self._wanted, default=0), max(self._wanted, default=0) + 1)

    @property
    def _portion(self) -> int:
        """The number of bytes of a run that are read at a time."""
        return min(max(_BUFFERS // (_BYTES_OF_A_RUN * max(self._runs, 1)), _LEAST_PORTION), PORTION)

    def size_of(self, key_group: int) -> int:
        """Returns about how many bytes the key group takes in the window, rather too many."""
        extent = self.extents.get(key_group)
        if extent is None:
            return 0
        known = self._seen_rows / self._seen_share if self._seen_share >= _SAMPLED else _EXPANSION
        return int((extent.end - extent.start) * known * 1.25) + _LEAST_ROOM + SLACK

    def locate(self, error: DamagedError, extent: KeyGroupExtent, base: int) -> DamagedError:
        """Returns the error with its key group. Where in which file a row was isn't known any more."""
        return DamagedError(error.expected, error.found, file=self.name, key_group=extent.key_group)


class _StateScan:
    """The scan of a state, up to, but without, the key group `after`. What is before `next_group` has been read."""

    def __init__(self, scan: Scan, key_group: int, after: int) -> None:
        self._scan, self.next_group, self.after = scan, key_group, after

    @property
    def runs(self) -> int:
        return self._scan.runs

    def read(self, key_group: int, buffer: Buffer, at: int, positions: tuple[Positions, Positions, Positions]) -> Found:
        """Reads the next rows of the key group."""
        # A reader that gives up in the midst of a key group leaves a scan that isn't before the next one.
        self.next_group = -1
        found = self._scan.read(key_group + 1, buffer, at, positions)
        if not found.needed:
            self.next_group = key_group + 1
        return found

    def close(self) -> None:
        self._scan.close()


class _Window:
    """The buffer of the sections, which they fill one behind the other; it begins at `base` of what was written.

    A buffer that is too small for a row is replaced.
    """

    def __init__(self, buffer: Buffer, positions: Positions) -> None:
        self.buffer, self._positions = buffer, positions
        self.base = self.position = self._taken = 0

    def make_room(self, needed: int) -> None:
        """Makes sure that a row of so many bytes fits; earlier rows may be overwritten for it."""
        if len(self.buffer) < needed + SLACK:
            self.buffer = np.empty(2 * needed + SLACK, np.uint8)
        elif len(self.buffer) - SLACK - self.position >= max(needed, min(_LEAST_ROOM, len(self.buffer) // 2)):
            return
        self.base += self.position
        self.position = 0

    def free_positions(self) -> tuple[Positions, Positions, Positions]:
        """Returns room for the positions of rows."""
        if self._taken == MOST_ENTRIES:
            self._taken = 0
        starts, key_ends, ends = self._positions[:, self._taken :]
        return starts, key_ends, ends

    def take(self, rows: int, position: int) -> None:
        """Notes that so many rows were written, up to the position."""
        self._taken += rows
        self.position = position


def _rows_with(section: Section, prefixes: Prefixes) -> Section:
    """Returns the rows with one of the prefixes, one behind the other. Others lie beside them in their blocks."""
    rows = prefixes.rows_of(section.data, section.starts, section.key_ends)
    if rows.all():
        return section
    matching = np.flatnonzero(rows)
    starts, key_ends, ends = (part[matching] for part in (section.starts, section.key_ends, section.ends))
    sizes, prefix, begin = ends - starts, section.file.prefix, int(section.starts[0])
    # Each row moves forward in the window, over rows that were moved before or don't match.
    groups = np.full(len(matching), section.key_group, np.int64)
    kernels.copy_entries(
        section.data, starts, key_ends, groups, np.arange(len(matching)), sizes, prefix, prefix, section.data[begin:]
    )
    moved = begin + np.cumsum(sizes) - sizes
    return replace(section, starts=moved, key_ends=moved + key_ends - starts, ends=moved + sizes)
