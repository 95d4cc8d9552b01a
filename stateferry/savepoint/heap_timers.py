"""Timers that a job on RocksDB keeps on the heap, as its checkpoints have them: raw keyed state in Flink's own layout.

| part of a key group | bytes |
|---|---|
| magic number, version | `f1 cd 85 9f`, i32 2 |
| services | i32 n, n x Service |

Service: utf name, Snapshot of the key's serializer, Snapshot of the namespace's serializer, timers of event time,
timers of processing time. Timers: i32 n, n x (key, namespace, i64 timestamp).

A canonical savepoint has the same timers as two states for each service. They are read as these: a row's key is the key
group, the timestamp with its sign bit flipped, key and namespace; its value is empty. All that reads states reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stateferry.binary import ByteReader
from stateferry.errors import DamagedError, RefusedError
from stateferry.rocksdb.kernels import SLACK
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.header import VALUE_SERIALIZER, BackendKind, KeyedHeader, StateMeta
from stateferry.savepoint.key_group_extents import KeyGroupExtent, SubtaskFile, key_group_extents
from stateferry.savepoint.metadata import KeyedHandle
from stateferry.savepoint.storage import Location
from stateferry.savepoint.streams import open_stream, stream_name
from stateferry.serializers.snapshot_classes import TIMER_SNAPSHOT
from stateferry.serializers.snapshot_merge import merge_snapshots
from stateferry.serializers.snapshots import SerializerSnapshot, SnapshotParser, composite_snapshot
from stateferry.serializers.types import ListType, Scalar, TimerType, TupleType, opaque_parts, type_name
from stateferry.serializers.walker import Positions, walk_elements

_MAGIC = 0xF1CD859F - 2**32
_VERSION = 2
# In the order of the file.
_SORTS = ("event", "processing")
_TIMER_VERSION = 2
_TIMESTAMP = 8


@dataclass(frozen=True, slots=True)
class _Timers:
    """The timers of one sort of a service; `starts` and `ends` say where they are in the key group."""

    state: StateMeta
    key: SerializerSnapshot
    starts: Positions
    ends: Positions


def are_timers(folder: Location, handle: KeyedHandle) -> bool:
    """Whether raw keyed state is timers that can be read: whether a key group of it has their layout."""
    try:
        with HeapTimers(folder, handle, 1):
            return True
    except (DamagedError, RefusedError):
        return False


class HeapTimers:
    """A subtask's timers, open for reading; a context manager. `prefix` is the number of bytes of key group."""

    def __init__(self, folder: Location, handle: KeyedHandle, prefix: int) -> None:
        self._folder, self._handle, self._prefix = folder, handle, prefix
        self._file: Any = None
        # An offset may be 0 here, and is negative for a key group without timers.
        offsets = tuple(offset + 1 for offset in handle.offsets)
        file = SubtaskFile(0, self.name, handle.range, offsets, handle.stream.size + 1)
        self._extents = {
            extent.key_group: KeyGroupExtent(extent.key_group, extent.start - 1, extent.end - 1)
            for extent in key_group_extents(file)
        }
        self._data, self._read = b"", -1
        self._timers: list[_Timers] = []
        # All key groups describe the same timers, so the smallest one says which there are.
        smallest = min(self._extents, key=self.size_of, default=None)
        try:
            self._parse(smallest)
        except BaseException:
            self.close()
            raise
        self.states = tuple(timers.state for timers in self._timers)

    def __enter__(self) -> HeapTimers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file until it is read again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def name(self) -> str:
        """The file, for messages."""
        return stream_name(self._folder, self._handle.stream)

    def described_in(self, header: KeyedHeader) -> KeyedHeader:
        """Returns the header with the timers' states behind its own."""
        for timers in self._timers:
            if merge_snapshots(timers.key, header.key_serializer) is None:
                raise DamagedError(
                    f"timers of keys of type {type_name(header.key_serializer.type)}, as those of the other states",
                    type_name(timers.key.type), file=self.name,
                )  # fmt: skip
        return replace(header, states=(*header.states, *self.states))

    def size_of(self, key_group: int) -> int:
        """Returns the key group's bytes in the file."""
        extent = self._extents.get(key_group)
        return extent.end - extent.start if extent is not None else 0

    def rows(self, key_group: int, state: int) -> list[bytes]:
        """Returns the keys of a state's rows in order, with the key group before them."""
        if key_group not in self._extents:
            return []
        if self._read != key_group:
            self._parse(key_group)
            found = tuple(timers.state for timers in self._timers)
            if found != self.states:
                expected, others = (", ".join(one.name for one in states) or "none" for states in (self.states, found))
                raise DamagedError(f"the timers {expected}, as in other key groups", others, **self._place())
        timers, data = self._timers[state], self._data
        group = key_group.to_bytes(self._prefix, "big")
        stamps = timers.ends - _TIMESTAMP
        return sorted(
            group + bytes((data[stamp] ^ 0x80,)) + data[stamp + 1 : stamp + _TIMESTAMP] + data[start:stamp]
            for start, stamp in zip(timers.starts.tolist(), stamps.tolist(), strict=True)
        )

    def _parse(self, key_group: int | None) -> None:
        """Reads a key group and finds its timers."""
        self._timers, self._read = [], -1
        if key_group is None:
            return
        extent = self._extents[key_group]
        if self._file is None:
            self._file = open_stream(self._folder, self._handle.stream)[0]
        self._file.seek(extent.start)
        self._data, self._read = bytes(self._file.read(extent.end - extent.start)), key_group
        if len(self._data) < extent.end - extent.start:
            raise DamagedError(f"{extent.end - extent.start} bytes", f"{len(self._data)}", **self._place())
        try:
            self._timers = list(self._services())
        except DamagedError as error:
            raise error.located(file=self.name, key_group=key_group) from None

    def _services(self) -> Iterator[_Timers]:
        base = self._extents[self._read].start
        reader = ByteReader(self._data, self.name, base=base)
        reader.expect_i32(_MAGIC, "the magic number of timers")
        version = reader.i32("the version of timers")
        if version != _VERSION:
            raise RefusedError(
                f"{self.name}: timers of version {version}; version {_VERSION} is read (since Flink 1.8)"
            )
        # Writable, as the kernels have been compiled for.
        data = np.frombuffer(bytearray(self._data + bytes(SLACK)), np.uint8)
        parser = SnapshotParser(self._data, self.name, base=base)
        for _ in range(reader.count("the number of timer services", 2)):
            name = reader.utf("the name of a timer service")
            key, position = parser.read(reader.position)
            namespace, reader.position = parser.read(position)
            for part in (*opaque_parts(key.type), *opaque_parts(namespace.type)):
                raise RefusedError(f"{self.name}: timers whose keys or namespaces can't be read: {part.class_name}")
            element = ListType(TupleType((key.type, namespace.type, Scalar.LONG), "a timer"))
            described = composite_snapshot(
                TIMER_SNAPSHOT, _TIMER_VERSION, TimerType(key.type, namespace.type), (key, namespace)
            )
            for sort in _SORTS:
                at = np.array([reader.position], np.int64)
                try:
                    found = walk_elements(element, data, at, np.array([reader.limit], np.int64))
                except DamagedError as error:
                    raise error.located(offset=base + (error.offset or 0)) from None
                reader.position = int(found.stops[0])
                meta = StateMeta(
                    f"_timer_state/{sort}_{name}", BackendKind.PRIORITY_QUEUE, (), ((VALUE_SERIALIZER, described),)
                )
                yield _Timers(meta, key, found.starts, np.append(found.starts, found.stops)[1:])
        if not reader.at_end():
            raise reader.damaged("the end of the key group's timers", f"{reader.limit - reader.position} more bytes")

    def _place(self) -> dict[str, Any]:
        return {"file": self.name, "key_group": self._read, "offset": self._extents[self._read].start}


def laid_out(keys: list[bytes]) -> tuple[Buffer, Positions, Positions, Positions]:
    """Returns rows without values as they are in a section, and where each one, its key and its value end begin."""
    sizes = np.array([len(key) for key in keys], np.int64)
    ends = np.cumsum(sizes + 8)
    data = bytearray().join([*(len(key).to_bytes(4, "big") + key + bytes(4) for key in keys), bytes(SLACK)])
    return np.frombuffer(data, np.uint8), ends - sizes - 8, ends - 4, ends
