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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flinkstate.basics.closing import Closing
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import VALUE_SERIALIZER, BackendKind, KeyedHeader, StateMeta
from flinkstate.metadata.key_group_extents import KeyGroupExtent, SubtaskFile, key_group_extents
from flinkstate.metadata.metadata import KeyedHandle
from flinkstate.metadata.streams import open_stream, stream_name
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.built_snapshots import composite_snapshot
from flinkstate.serializers.programs import least_size
from flinkstate.serializers.snapshot_classes import TIMER_SNAPSHOT
from flinkstate.serializers.snapshot_merge import merge_snapshots
from flinkstate.serializers.snapshots import SerializerSnapshot, SnapshotParser
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import ListType, Scalar, TimerType, TupleType, type_name
from flinkstate.serializers.walker import Positions, walk_elements

MAGIC = 0xF1CD859F - 2**32
VERSION = 2
# In the order of the file.
SORTS = ("event", "processing")
_TIMER_VERSION = 2
_TIMESTAMP = 8
_HEADER = 12
# So many bytes of a key group are read at a time.
_PORTION = 1 << 20


@dataclass(frozen=True, slots=True)
class _Timers:
    """The timers of one sort of a service: where they begin in the key group, and how many they are."""

    state: StateMeta
    key: SerializerSnapshot
    element: TupleType
    position: int
    count: int


def name_of(sort: str, service: str) -> str:
    """The name of the state of a service's timers."""
    return f"_timer_state/{sort}_{service}"


def are_timers(folder: Location, handle: KeyedHandle) -> bool:
    """Whether raw keyed state is timers that can be read: whether a key group of it has their layout.

    A file that can't be opened is told as that: what it held isn't known.
    """
    open_stream(folder, handle.stream)[0].close()
    try:
        with HeapTimers(folder, handle, 1):
            return True
    except (DamagedError, RefusedError):
        return False


class HeapTimers(Closing):
    """A subtask's timers, open for reading; a context manager. `prefix` is the number of bytes of key group.

    Of a key group a portion is in memory at a time.
    """

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
        # All key groups describe the same timers, so the smallest one says which there are.
        smallest = min(self._extents, key=self.size_of, default=None)
        self._group: _KeyGroup | None = None
        self._timers: list[_Timers] = []
        try:
            if smallest is not None:
                self._timers = self._opened(smallest).all()
        except BaseException:
            self.close()
            raise
        self.states = tuple(timers.state for timers in self._timers)

    def close(self) -> None:
        """Closes the file until it is read again."""
        self._group = None
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

    def rows(self, key_group: int, state: int) -> Iterator[list[bytes]]:
        """Yields the keys of a state's rows, with the key group before them: a portion at a time, each in order."""
        if key_group not in self._extents:
            return
        group = self._group if self._group is not None and self._group.number == key_group else None
        group = group or self._opened(key_group)
        with group.locating():
            timers = group.timers(state, self.states)
            prefix = key_group.to_bytes(self._prefix, "big")
            for data, starts, ends in group.portions(timers):
                stamps = (ends - _TIMESTAMP).tolist()
                yield sorted(
                    prefix + bytes((data[stamp] ^ 0x80,)) + data[stamp + 1 : stamp + _TIMESTAMP] + data[start:stamp]
                    for start, stamp in zip(starts.tolist(), stamps, strict=True)
                )

    def _opened(self, key_group: int) -> _KeyGroup:
        if self._file is None:
            self._file = open_stream(self._folder, self._handle.stream)[0]
        extent = self._extents[key_group]
        self._group = None
        self._group = _KeyGroup(self._file, self.name, key_group, extent.start, extent.end - extent.start)
        return self._group


class _KeyGroup:
    """The timers of a key group, which are found one sort after the other, as none says where it ends."""

    def __init__(self, file: Any, name: str, number: int, start: int, size: int) -> None:
        self.number = number
        self._file, self._name, self._start, self._size = file, name, start, size
        self._found: list[_Timers] = []
        with self.locating():
            data = self._bytes(0, min(size, _HEADER))
            reader = ByteReader(data, name, base=start)
            reader.expect_i32(MAGIC, "the magic number of timers")
            version = reader.i32("the version of timers")
            if version != VERSION:
                raise RefusedError(f"{name}: timers of version {version}; version {VERSION} is read (since Flink 1.8)")
            self._services = reader.i32("the number of timer services")
            # A service has at least its name and two counts.
            if not 0 <= self._services <= size // 10:
                raise reader.damaged("a number of timer services that fits into the key group", f"{self._services}")
        # Where the next service begins, unless it is known only when the last timers have been walked over.
        self._next: int | None = reader.position

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Adds the place to errors."""
        try:
            yield
        except DamagedError as error:
            raise error.located(file=self._name, key_group=self.number) from None

    def all(self) -> list[_Timers]:
        """Returns the timers of all sorts of all services, which end where the key group ends."""
        with self.locating():
            while len(self._found) < len(SORTS) * self._services:
                self._find()
            self._end()
        return self._found

    def timers(self, state: int, expected: tuple[StateMeta, ...]) -> _Timers:
        """Returns the timers of a state; the states must be those that other key groups have."""
        if len(SORTS) * self._services == len(expected):
            while len(self._found) <= state:
                self._find()
        found = tuple(timers.state for timers in self._found)
        if found != expected[: len(found)] or len(SORTS) * self._services != len(expected):
            known, others = (", ".join(one.name for one in states) or "none" for states in (expected, found))
            raise DamagedError(f"the timers {known}, as in other key groups", others, offset=self._start)
        return self._found[state]

    def portions(self, timers: _Timers) -> Iterator[tuple[bytes, Positions, Positions]]:
        """Yields timers: a portion of bytes, and where in it they begin and end."""
        position, left = timers.position, timers.count
        most, size = _PORTION // 64, _PORTION
        while left:
            data = self._bytes(position, min(size, self._size - position))
            walked = min(left, most)
            head = walked.to_bytes(4, "big")
            # Writable, as the kernels have been compiled for.
            buffer = np.frombuffer(bytearray(head + data + bytes(SLACK)), np.uint8)
            at, limit = np.zeros(1, np.int64), np.array([4 + len(data)], np.int64)
            try:
                found = walk_elements(ListType(timers.element), buffer, at, limit)
            except DamagedError as error:
                if position + len(data) < self._size:
                    # The last of them may go beyond the portion.
                    most, size = (walked // 2, size) if walked > 1 else (1, 2 * size)
                    continue
                raise error.located(offset=self._start + position + max((error.offset or 0) - 4, 0)) from None
            end = int(found.stops[0]) - 4
            yield data, found.starts - 4, np.append(found.starts, found.stops)[1:] - 4
            position, left = position + end, left - walked
            most, size = max(walked * (_PORTION // 2) // max(end, 1), 1), _PORTION
        if timers is self._found[-1] and self._next is None:
            self._next = position
            if len(self._found) == len(SORTS) * self._services:
                self._end()

    def _find(self) -> None:
        """Finds the timers of the next sort."""
        if self._next is None:
            for _ in self.portions(self._found[-1]):
                pass
        position, self._next = self._next, None
        assert position is not None  # as the timers before have been walked over
        if len(self._found) % len(SORTS):
            last = self._found[-1]
            data = self._bytes(position, min(4, self._size - position))
            reader = ByteReader(data, self._name, base=self._start + position)
            service = last.state.name.removeprefix(name_of(SORTS[0], ""))
            state = replace(last.state, name=name_of(SORTS[1], service))
            found = replace(last, state=state)
        else:
            found, reader = self._service(position)
        least = least_size(found.element)
        count = reader.i32("the number of timers")
        position += reader.position
        if not 0 <= count * least <= self._size - position:
            raise reader.damaged(f"timers that fit into the key group's {self._size} bytes", f"{count} of them")
        self._found.append(replace(found, position=position, count=count))

    def _service(self, position: int) -> tuple[_Timers, ByteReader]:
        """Reads what describes the timers of the next service, up to their number."""
        size = _PORTION
        while True:
            data = self._bytes(position, min(size, self._size - position))
            try:
                return self._described(data, self._start + position)
            except DamagedError:
                if position + len(data) == self._size:
                    raise
                size *= 2

    def _described(self, data: bytes, base: int) -> tuple[_Timers, ByteReader]:
        reader, parser = ByteReader(data, self._name, base=base), SnapshotParser(data, self._name, base=base)
        name = reader.utf("the name of a timer service")
        key, position = parser.read(reader.position)
        namespace, reader.position = parser.read(position)
        for part in (*opaque_parts(key.type), *opaque_parts(namespace.type)):
            raise RefusedError(f"{self._name}: timers whose keys or namespaces can't be read: {part.class_name}")
        element = TupleType((key.type, namespace.type, Scalar.LONG), "a timer")
        described = composite_snapshot(
            TIMER_SNAPSHOT, _TIMER_VERSION, TimerType(key.type, namespace.type), (key, namespace)
        )
        state = StateMeta(name_of(SORTS[0], name), BackendKind.PRIORITY_QUEUE, (), ((VALUE_SERIALIZER, described),))
        return _Timers(state, key, element, 0, 0), reader

    def _end(self) -> None:
        if self._next is None:
            for _ in self.portions(self._found[-1]):
                pass
        if self._next is not None and self._next != self._size:
            raise DamagedError(
                "the end of the key group's timers", f"{self._size - self._next} more bytes",
                offset=self._start + self._next,
            )  # fmt: skip

    def _bytes(self, position: int, size: int) -> bytes:
        self._file.seek(self._start + position)
        data = bytes(self._file.read(size))
        if len(data) < size:
            raise DamagedError(f"{size} bytes", f"{len(data)}", offset=self._start + position)
        return data


def laid_out(keys: list[bytes]) -> tuple[Buffer, Positions, Positions, Positions]:
    """Returns rows without values as they are in a section, and where each one, its key and its value end begin."""
    sizes = np.array([len(key) for key in keys], np.int64)
    ends = np.cumsum(sizes + 8)
    data = bytearray().join([*(len(key).to_bytes(4, "big") + key + bytes(4) for key in keys), bytes(SLACK)])
    return np.frombuffer(data, np.uint8), ends - sizes - 8, ends - 4, ends
