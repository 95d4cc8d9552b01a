"""One subtask's keyed state as RocksDB's own files: of a native savepoint or an incremental checkpoint.

Each state is a column family of its name. Its rows have the bytes that they have in a canonical file. Key groups are
read in sections as those of a `KeyGroupFile`, in the same window; a state's scan goes on where it stopped as long as
key groups are asked for in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from stateferry.errors import DamagedError, RefusedError
from stateferry.key_groups import key_group_prefix_bytes
from stateferry.rocksdb.database import Database
from stateferry.rocksdb.files import StoredFile
from stateferry.rocksdb.kernels import SLACK
from stateferry.rocksdb.scan import Found, Scan
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.header import BackendKind, parse_header
from stateferry.savepoint.key_group_extents import KeyGroupExtent, SubtaskFile
from stateferry.savepoint.key_group_file import MOST_ENTRIES, WINDOW, KeyGroupFile, Section
from stateferry.savepoint.membership import Membership
from stateferry.savepoint.metadata import HOW_TO_TAKE_A_CANONICAL_ONE, KeyedHandle, NativeHandle, StreamHandle
from stateferry.savepoint.storage import Location
from stateferry.savepoint.streams import open_stream, stream_name
from stateferry.serializers.walker import Positions

# Of no state, but every database has it.
_DEFAULT = "default"
_LARGEST_HEADER = 64 << 20
# A section has at least this room in the window, unless the window is smaller.
_LEAST_ROOM = 1 << 16


class NativeFile(KeyGroupFile):
    """A subtask's RocksDB database, open for reading; a context manager."""

    def __init__(
        self, folder: Location, handle: NativeHandle, max_parallelism: int, subtask: int, operator: str
    ) -> None:
        self.native, self.read = handle, None
        key_groups = handle.range
        self.handle = KeyedHandle(key_groups, (0,) * key_groups.size, handle.meta)
        self.prefix = key_group_prefix_bytes(max_parallelism)
        self.size = handle.size
        self._scans: dict[int, _StateScan] = {}
        self.file, self.name, size = open_stream(folder, handle.meta)
        with self.file:
            if size > _LARGEST_HEADER:
                raise DamagedError(f"a header of at most {_LARGEST_HEADER} bytes", f"{size}", file=self.name)
            self.header, self.header_end = parse_header(bytes(self.file.read(size)), self.name, end=size)
        self._refuse_asynchronous(operator)
        self.database = Database(stored_files(folder, handle), f"subtask {subtask} of operator {operator}")
        self._check_families()
        self.subtask_file = SubtaskFile(subtask, self.name, key_groups, self.handle.offsets, self.size)
        self.extents = self._shares()
        self.membership = Membership(self.header, max_parallelism, self.prefix)
        self.positions = np.empty((3, MOST_ENTRIES), np.int64)

    def _refuse_asynchronous(self, operator: str) -> None:
        for state in self.header.states:
            if state.kind is BackendKind.KEY_VALUE_V2:
                raise RefusedError(
                    f"{self.name}: state {state.name} of operator {operator} is asynchronous (V2) state, which isn't "
                    f"read from native savepoints and checkpoints; {HOW_TO_TAKE_A_CANONICAL_ONE}"
                )

    def _check_families(self) -> None:
        families = self.database.families
        there, described = families.keys() - {_DEFAULT}, {state.name for state in self.header.states}
        for name in sorted(there ^ described):
            found = f"none of {name}" if name in described else f"also one of {name}"
            raise DamagedError(
                f"a column family of each state that {self.name} describes", found, file=self.database.manifest.shown
            )
        if _DEFAULT in families and families[_DEFAULT].files:
            raise DamagedError(
                "no files of the default column family", f"{len(families[_DEFAULT].files)}",
                file=self.database.manifest.shown,
            )  # fmt: skip

    def _shares(self) -> dict[int, KeyGroupExtent]:
        """Returns an equal share of the files' bytes for each key group: where they really are the files don't say."""
        range_ = self.handle.range
        bytes_ = self.size - self.header_end
        ends = [self.header_end + bytes_ * (turn + 1) // range_.size for turn in range(range_.size)]
        starts = [self.header_end, *ends[:-1]]
        return {
            group: KeyGroupExtent(group, start, end) for group, start, end in zip(range_, starts, ends, strict=True)
        }

    @property
    def has_places(self) -> bool:
        return False

    def __exit__(self, *_: object) -> None:
        for scan in self._scans.values():
            scan.close()
        self._scans.clear()

    def expect_canonical(self) -> None:
        """Raises if the database has rows of other key groups.

        After a rescale its files may have such rows, but Flink has deleted these; so they are of another subtask. This
        reads those parts of the files, so it is called where the headers of an operator are read, and not by each task.
        """
        own, buffer, positions = self.handle.range, np.empty(WINDOW, np.uint8), self.positions
        for state in self.header.states:
            for low, high in ((0, own.start), (own.end + 1, 1 << 8 * self.prefix)):
                if low < high:
                    with self.database.scan(state.name, self.prefix, low, high) as scan:
                        starts, key_ends, ends = positions
                        found = scan.read(high, buffer, 0, (starts, key_ends, ends))
                    if found.rows or found.needed:
                        raise DamagedError(
                            f"rows of the key groups {own}", f"others in state {state.name}", file=self.database.shown
                        )

    def sections(self, key_group: int, window: Buffer | None = None) -> Iterator[Section]:
        """Yields the key group's sections, by the states' ids. `window` is a buffer to use."""
        extent = self.extents.get(key_group)
        if extent is None:
            return
        writer = _Window(np.empty(WINDOW, np.uint8) if window is None else window, self.positions)
        for state in range(len(self.header.states)):
            yield from self._state_sections(state, extent, writer)

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
                writer.take(found.rows, found.position)
                with section.locating():
                    self.membership.check(state, extent.key_group, writer.buffer, starts, key_ends)
                yield section

    def _scan(self, state: int, key_group: int) -> _StateScan:
        scan = self._scans.get(state)
        if scan is None or scan.next_group != key_group:
            if scan is not None:
                scan.close()
            opened = self.database.scan(
                self.header.states[state].name, self.prefix, key_group, self.handle.range.end + 1
            )
            scan = self._scans[state] = _StateScan(opened, key_group)
        return scan

    def locate(self, error: DamagedError, extent: KeyGroupExtent, base: int) -> DamagedError:
        """Returns the error with its key group. Where in which file a row was isn't known any more."""
        return DamagedError(error.expected, error.found, file=self.name, key_group=extent.key_group)


class _StateScan:
    """The scan of a state. What is before `next_group` has been read."""

    def __init__(self, scan: Scan, key_group: int) -> None:
        self._scan, self.next_group = scan, key_group

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


def stored_files(folder: Location, handle: NativeHandle) -> dict[str, StoredFile]:
    """Returns the files of a database by their own names."""
    files: dict[str, StoredFile] = {}
    for file in handle.files:
        if file.name in files:
            raise DamagedError(
                "each file of a database once", f"{file.name} again", file=folder.child("_metadata").shown
            )
        files[file.name] = StoredFile(
            stream_name(folder, file.stream), file.stream.size, partial(_opened, folder, file.stream)
        )
    return files


def _opened(folder: Location, stream: StreamHandle) -> Any:
    return open_stream(folder, stream)[0]
