"""Writes a savepoint: first the state files, in any order and from any process; last `_metadata`, atomically.

A file's name follows from its content, so a step that is repeated writes the same bytes to the same files. Without
`_metadata` no reader takes the folder for a savepoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from flinkstate.errors import DamagedError, UsageError
from flinkstate.files.digests import Digests, digest_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.compression import Buffer, Compression, new_stream
from flinkstate.keyed.header import KeyedHeader, build_header
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA, is_state_file
from flinkstate.metadata.metadata import (
    InlineBytes,
    KeyedHandle,
    Metadata,
    NativeHandle,
    OperatorHandle,
    RelativeFile,
    StreamHandle,
    Subtask,
)
from flinkstate.metadata.streams import open_stream
from flinkstate.writing.native_writer import NativeFiles, NativeFileWriter
from flinkstate.writing.newer_files import KnownFiles, NewerFilesWriter
from flinkstate.writing.write_behind import WriteBehind

_COPY = 4 << 20
_LAST = np.uint8(0x80)

Handle = TypeVar("Handle", OperatorHandle, KeyedHandle)


class KeyedFileWriter:
    """One subtask's keyed state file: key groups in ascending order, each state once in a key group, in any order.

    Whether its key groups are framed follows from `compression`, and only for `source` from the header.
    """

    def __init__(
        self,
        location: Location,
        header: KeyedHeader,
        key_groups: KeyGroupRange,
        digests: Digests | None = None,
        compression: Compression = Compression.SOURCE,
    ) -> None:
        compression = compression.of(Compression.SNAPPY if header.compressed else Compression.NONE)
        self._location, self._range = location, key_groups
        self._header = replace(header, compressed=compression is not Compression.NONE)
        self._digests, self._hasher = digests, new_hasher() if digests is not None else None
        self._stream = WriteBehind(location, hasher=self._hasher)
        self._content = new_stream(compression, self._stream.write)
        self._offsets = [0] * key_groups.size
        self._group: int | None = None
        self._last_group = key_groups.start - 1
        self._state: int | None = None
        self._written_states: set[int] = set()
        self._last_entry: Buffer = np.empty(0, np.uint8)
        self._stream.write(build_header(self._header))

    def __enter__(self) -> KeyedFileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def entries(self, key_group: int, state: int, entries: Buffer, last_start: int) -> None:
        """Writes entries as they are in a section; the last of them begins at `last_start`."""
        if key_group != self._group:
            self._begin_group(key_group)
        if state != self._state:
            self._begin_state(state)
        else:
            self._content.add(self._last_entry)
        self._content.add(entries[:last_start])
        self._last_entry = entries[last_start:].copy()

    def _begin_group(self, key_group: int) -> None:
        self._end_group()
        if key_group not in self._range or key_group <= self._last_group:
            raise UsageError(f"expected a key group of {self._range} after {self._last_group}, found {key_group}")
        self._group = self._last_group = key_group

    def _begin_state(self, state: int) -> None:
        if not 0 <= state < len(self._header.states) or state in self._written_states:
            raise UsageError(f"state {state} is not in the header or was written before in key group {self._group}")
        if self._state is None:
            self._offsets[self._last_group - self._range.start] = self._stream.position
            self._content.add(state.to_bytes(2, "big"))
        else:
            self._end_state(state)
        self._state = state
        self._written_states.add(state)

    def _end_state(self, follows: int) -> None:
        self._last_entry[4] |= _LAST
        self._content.add(self._last_entry)
        self._content.add(follows.to_bytes(2, "big"))

    def _end_group(self) -> None:
        if self._state is not None:
            self._end_state(0xFFFF)
            self._content.end()
        self._group = self._state = None
        self._written_states = set()

    def close(self) -> KeyedHandle:
        """Completes the file and returns its handle; the file is on disk then."""
        self._end_group()
        self._stream.finish()
        if self._digests is not None:
            self._digests[self._location.name] = self._stream.position, digest_of(self._hasher)
        return KeyedHandle(self._range, tuple(self._offsets), RelativeFile(self._location.name, self._stream.position))


class PlainFileWriter:
    """A state file whose bytes come from the caller; it is on disk when the context ends without an error."""

    def __init__(self, location: Location, hasher: Any = None) -> None:
        """All bytes that are written go into `hasher`."""
        self._location = location
        self._stream = WriteBehind(location, hasher=hasher)

    def __enter__(self) -> PlainFileWriter:
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            if failure[0] is None:
                self._stream.finish()
        finally:
            self._stream.close()

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    @property
    def position(self) -> int:
        return self._stream.position

    def written(self) -> RelativeFile:
        """Returns the handle of the file."""
        return RelativeFile(self._location.name, self.position)


class SavepointWriter:
    """A new savepoint in a folder of its own. The size and digest of each keyed file go into `digests`, by its name.

    A writer of one of many files says that the folder `is_checked`: to list it for each file would take too long.
    """

    def __init__(self, target: str, digests: Digests | None = None, *, is_checked: bool = False) -> None:
        self._digests = digests
        self.folder = Location.of(target)
        if not is_checked:
            self._check()
        self.folder.make_folder()

    def _check(self) -> None:
        entries = self.folder.entries()
        if not entries and self.folder.is_file():
            raise UsageError(f"{self.folder.shown} is a file: expected a folder for the savepoint")
        for entry in entries:
            if entry.name == METADATA:
                raise UsageError(f"{self.folder.shown} already holds a savepoint: choose a new folder")
            if not is_state_file(entry.name):
                raise UsageError(
                    f"{self.folder.shown} holds {entry.name}, which is not part of a savepoint: choose an empty or "
                    "a new folder"
                )

    def keyed_file(
        self,
        operator_id: str,
        subtask: int,
        header: KeyedHeader,
        key_groups: KeyGroupRange,
        compression: Compression = Compression.SOURCE,
    ) -> KeyedFileWriter:
        """Opens a subtask's new keyed state file; see `KeyedFileWriter`."""
        file = self._file(operator_id, "keyed", subtask)
        return KeyedFileWriter(file, header, key_groups, self._digests, compression)

    def native_files(
        self,
        operator_id: str,
        subtask: int,
        header: KeyedHeader,
        key_groups: KeyGroupRange,
        prefix: int,
        snapshot: int,
        *,
        is_compressed: bool,
        on_heap: bool,
    ) -> NativeFileWriter:
        """Opens a subtask's new RocksDB database; `snapshot` is the id of the checkpoint that it belongs to.

        If the job keeps timers `on_heap`, they are beside the database.
        """
        named = self._file(operator_id, "native", subtask).name
        files = NativeFiles(self.folder, named, key_groups, snapshot, self._digests)
        return NativeFileWriter(files, header, prefix, is_compressed=is_compressed, on_heap=on_heap)

    def newer_files(
        self,
        operator_id: str,
        subtask: int,
        base: NativeFile,
        known: KnownFiles,
        header: KeyedHeader,
        snapshot: int,
        *,
        is_compressed: bool,
        joins: bool = False,
    ) -> NewerFilesWriter:
        """Opens a subtask's database that is a base and newer files; see `NewerFilesWriter`."""
        named = self._file(operator_id, "native", subtask).name
        files = NativeFiles(self.folder, named, base.handle.range, snapshot, self._digests)
        return NewerFilesWriter(files, base, known, header, is_compressed=is_compressed, joins=joins)

    def carry_native(self, source: Location, operator_id: str, subtask: int, handle: NativeHandle) -> NativeHandle:
        """Copies the files of a subtask's RocksDB database byte for byte and returns their handle.

        No file of the copy is shared: see `native_writer`.
        """
        named = self._file(operator_id, "native", subtask).name

        def copied(name: str, stream: StreamHandle) -> StreamHandle:
            return self._copied(source, stream, self.folder.child(f"{named}-{name}"), self._digests)

        files = tuple(replace(file, stream=copied(file.name, file.stream)) for file in handle.files)
        timers = handle.timers and replace(handle.timers, stream=copied("timers", handle.timers.stream))
        return replace(handle, meta=copied("meta", handle.meta), shared=(), private=files, timers=timers)

    def _file(self, operator_id: str, what: str, subtask: int) -> Location:
        return self.folder.child(f"{operator_id}-{what}-{subtask:05d}")

    def operator_file(self, operator_id: str, subtask: int) -> PlainFileWriter:
        """Opens a subtask's new operator state file."""
        return PlainFileWriter(self._file(operator_id, "operator", subtask))

    def carry_over(self, source: Location, operator_id: str, subtask: Subtask) -> Subtask:
        """Copies the subtask's files byte for byte, without managed keyed state, and returns it with the copies."""

        def copied(handle: Handle | None, what: str) -> Handle | None:
            if handle is None:
                return None
            target = self._file(operator_id, what, subtask.index)
            return replace(handle, stream=self._copied(source, handle.stream, target))

        return replace(
            subtask,
            managed_operator=copied(subtask.managed_operator, "operator"),
            raw_operator=copied(subtask.raw_operator, "raw-operator"),
            managed_keyed=None,
            raw_keyed=copied(subtask.raw_keyed, "raw-keyed"),
            native_keyed=None,
        )

    def _copied(
        self, source: Location, stream: StreamHandle, target: Location, digests: Digests | None = None
    ) -> StreamHandle:
        if isinstance(stream, InlineBytes):
            return stream
        hasher = new_hasher() if digests is not None else None
        file, name, size = open_stream(source, stream)
        with file, PlainFileWriter(target, hasher) as out:
            while portion := file.read(_COPY):
                out.write(portion)
            if out.position != size:
                raise DamagedError(f"{size} bytes", f"{out.position}", file=name)
        if digests is not None:
            digests[target.name] = size, digest_of(hasher)
        return out.written()

    def commit(self, metadata: Metadata) -> None:
        """Makes the folder a savepoint by writing `_metadata`."""
        self.folder.sync_folder()
        self.folder.child(METADATA).write_atomically(build_metadata(metadata))
