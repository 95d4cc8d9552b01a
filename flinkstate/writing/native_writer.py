"""Writes one subtask's keyed state as a RocksDB database, as a native savepoint has it.

The database has a column family for each state of the header, in its order. All files are in the handle's private list.
A job that claims a savepoint whose files are in the shared list uses them in its next incremental checkpoint, and Flink
(seen in 1.20.0 and 2.3.0) then writes their relative addresses into the `_metadata` of that checkpoint, which lies in
another folder: the checkpoint can't be restored.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from flinkstate.errors import UsageError
from flinkstate.files.digests import Digests, digest_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import KeyedHeader, StateMeta, build_header
from flinkstate.metadata.metadata import KeyedHandle, NamedFile, NativeHandle, RelativeFile
from flinkstate.metadata.type_numbers import FULL_CHECKPOINT
from flinkstate.rocksdb.files import StoredFile
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.write_family import PORTION, FamilyWriter
from flinkstate.rocksdb.write_manifest import CURRENT, FIRST_FILE, NAME, NewFamily, manifest_bytes
from flinkstate.rocksdb.write_sst_file import Buffers
from flinkstate.writing.heap_timers_writer import HeapTimersWriter, timers_of
from flinkstate.writing.write_behind import WriteBehind

_CURRENT = "CURRENT"
_META = "meta"
_TIMERS = "timers"


@dataclass(slots=True)
class _BegunFile:
    """A file that was begun: where it is, and the hash of its bytes."""

    location: Location
    stream: WriteBehind
    hasher: Any = field(repr=False)


class NativeFiles:
    """The files of one subtask's database while they are written. Their names in `folder` begin with `named`."""

    def __init__(
        self, folder: Location, named: str, key_groups: KeyGroupRange, checkpoint_id: int, digests: Digests | None
    ) -> None:
        self._folder, self._named, self.range, self._checkpoint_id = folder, named, key_groups, checkpoint_id
        self._digests = {} if digests is None else digests
        self.next_number, self._files = FIRST_FILE, dict[str, _BegunFile]()
        self._kept: dict[str, NamedFile] = {}
        self._timers: HeapTimersWriter | None = None

    def location(self, name: str) -> Location:
        """Returns where a file of the database is, by its own name."""
        return self._folder.child(f"{self._named}-{name}")

    def _create(self, name: str, *, stays_draft: bool = False) -> WriteBehind:
        hasher = new_hasher()
        location = self.location(name)
        stream = WriteBehind(location, hasher=hasher, stays_draft=stays_draft)
        self._files[name] = _BegunFile(location, stream, hasher)
        return stream

    def next_table(self, stays_draft: bool = False) -> tuple[int, WriteBehind]:
        """Begins the next SST file, or a draft of it, and returns its number."""
        number, self.next_number = self.next_number, self.next_number + 1
        # While a file is written, no more than one before it is on its way to disk.
        on_their_way = [written.stream for written in self._files.values() if written.stream.is_on_its_way]
        for stream in on_their_way[:-1]:
            stream.finish()
        return number, self._create(f"{number:06}.sst", stays_draft=stays_draft)

    def stored(self, file: LiveFile) -> StoredFile:
        """Returns a file that was written, for reading."""
        place = self._files[file.name].stream.place
        return StoredFile(place.shown, file.size, place.open)

    def keep(self, file: LiveFile) -> None:
        """Gives a draft its own name."""
        stream = self._files[file.name].stream
        stream.finish()
        stream.take_name()

    def remove(self, file: LiveFile) -> None:
        """Removes a draft, which only this attempt to write the database knows."""
        self._files.pop(file.name).stream.close()

    def keep_file(self, name: str, size: int, digest: str) -> None:
        """Notes a complete file, which somebody else has put in its place."""
        location = self.location(name)
        self._kept[name] = NamedFile(name, RelativeFile(location.name, size))
        self._digests[location.name] = size, digest

    def stored_states(self, header: KeyedHeader, prefix: int, *, on_heap: bool) -> dict[int, StateMeta]:
        """The states that the database has, by their ids; if timers are `on_heap`, begins the file that has them."""
        timers = timers_of(header) if on_heap else {}
        if on_heap:
            self._timers = HeapTimersWriter(self._create(_TIMERS).write, timers, self.range, prefix)
        return {number: meta for number, meta in enumerate(header.states) if number not in timers}

    def timers(self, state: int) -> HeapTimersWriter | None:
        """Returns what writes the timers of a state, if they are on the heap."""
        return self._timers if self._timers is not None and state in self._timers.states else None

    def finish(self, families: Sequence[NewFamily], header: KeyedHeader) -> NativeHandle:
        """Completes all files, with what describes them, and returns their handle; they are on disk then.

        The header is that of the database alone, without timers on the heap.
        """
        if self._timers is not None:
            self._timers.close()
            self._files[_TIMERS].stream.end()
        tables = [file.name for family in families for file in family.files]
        self._write(NAME, manifest_bytes(families, self.next_number))
        self._write(_CURRENT, CURRENT)
        self._write(_META, build_header(header))
        for written in self._files.values():
            written.stream.finish()
            self._digests[written.location.name] = written.stream.position, digest_of(written.hasher)
        meta = self._file(_META).stream
        files = tuple(self._file(name) for name in (*tables, NAME, _CURRENT))
        return NativeHandle(
            self.range,
            self._checkpoint_id,
            self._id("backend"),
            meta,
            (),
            files,
            checkpointed_size=meta.size + sum(file.stream.size for file in files),
            id=self._id("handle"),
            timers=self._timers_handle(),
        )

    def _timers_handle(self) -> KeyedHandle | None:
        if self._timers is None:
            return None
        stream = self._file(_TIMERS).stream
        return KeyedHandle(self.range, tuple(self._timers.offsets), stream, FULL_CHECKPOINT[-1], self._id("timers"))

    def close(self) -> None:
        """Removes what isn't complete."""
        for written in self._files.values():
            written.stream.close()

    def _write(self, name: str, data: bytes) -> None:
        stream = self._create(name)
        stream.write(data)
        stream.end()

    def _file(self, name: str) -> NamedFile:
        if name in self._kept:
            return self._kept[name]
        written = self._files[name]
        return NamedFile(name, RelativeFile(written.location.name, written.stream.position))

    def _id(self, of: str) -> str:
        """Returns an id as Flink's, which is the same each time that the file is written."""
        text = f"{of} {self._named} {self._checkpoint_id}".encode()
        return str(uuid.UUID(bytes=blake2b(text, digest_size=16).digest(), version=4))


class NativeFileWriter:
    """A subtask's database: key groups in ascending order, each state once in a key group, in any order."""

    def __init__(
        self, files: NativeFiles, header: KeyedHeader, prefix: int, *, is_compressed: bool = True, on_heap: bool = False
    ) -> None:
        """If timers are `on_heap`, they go into a file of their own."""
        self._files, self._range = files, files.range
        stored = files.stored_states(header, prefix, on_heap=on_heap)
        self._header = replace(header, compressed=False, states=tuple(stored.values()))
        self._pending = PendingRows()
        self._group = files.range.start - 1
        self._state: int | None = None
        self._written_states: set[int] = set()
        buffers = Buffers()
        self._families = {
            number: FamilyWriter(
                id_,
                meta.name,
                prefix,
                self._files.next_table,
                self._files.stored,
                self._files.keep,
                self._files.remove,
                buffers,
                is_compressed=is_compressed,
            )
            for id_, (number, meta) in enumerate(stored.items(), 1)
        }

    def __enter__(self) -> NativeFileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for family in self._families.values():
            family.close()
        self._files.close()

    def entries(self, key_group: int, state: int, entries: Buffer, _: int) -> None:
        """Writes entries as they are in a section."""
        if (timers := self._files.timers(state)) is not None:
            timers.add(state, entries)
            return
        if key_group != self._group:
            self._flush(is_all=True)
            if key_group not in self._range or key_group <= self._group:
                raise UsageError(f"expected a key group of {self._range} after {self._group}, found {key_group}")
            self._group, self._state, self._written_states = key_group, None, set()
        if state != self._state:
            self._flush(is_all=True)
            if state not in self._families or state in self._written_states:
                raise UsageError(f"state {state} is not in the header or was written before in key group {key_group}")
            self._state = state
            self._written_states.add(state)
        elif self._pending.bytes + len(entries) > PORTION:
            self._flush(is_all=False)
        self._pending.add(entries)

    def _flush(self, *, is_all: bool) -> None:
        if self._state is not None:
            self._families[self._state].write(self._pending, self._group, is_all=is_all)

    def close(self) -> NativeHandle:
        """Completes the files and returns their handle; they are on disk then."""
        self._flush(is_all=True)
        self._state = None
        families = [NewFamily(family.id, family.name, family.finish()) for family in self._families.values()]
        return self._files.finish(families, self._header)
