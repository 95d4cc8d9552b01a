"""`_metadata`: the file that lists what a savepoint consists of.

| field | type | versions |
|---|---|---|
| magic | i32 `49 60 67 2d` | |
| version | i32, 2 to 6 (Flink 1.20 writes 4, 2.3 writes 6) | |
| checkpoint id | i64 >= 0 | |
| master states | i32 n, n x (i32 magic, i32 length, bytes) | |
| operators | i32 n, n x Operator | |
| properties | the rest: one Java-serialized object | 4, 5, 6 |

Operator: utf name and utf uid (5, 6), 16 bytes of id, i32 parallelism, i32 max parallelism, coordinator state
(StreamHandle; version 2 has an i32 chain length instead), i32 number of subtasks (-1: fully finished), then per
subtask an i32 index (negative: finished) and Subtask.

Subtask: (version 2: i64 duration, i32 number of legacy states) managed and raw operator state (i32 0 or 1,
OperatorHandle), managed and raw keyed state (KeyedHandle), input and output channel state (i32 counts; not in
version 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.type_numbers import INCREMENTAL, KEYED_SAVEPOINT


@dataclass(frozen=True, slots=True)
class InlineBytes:
    """State that is stored in `_metadata` itself."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class AbsoluteFile:
    """A state file with its full path or URI."""

    uri: str
    size: int

    @property
    def name(self) -> str:
        return self.uri


@dataclass(frozen=True, slots=True)
class RelativeFile:
    """A file beside `_metadata`."""

    path: str
    size: int

    @property
    def name(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class FileSegment:
    """A segment of a merged file, which has the state of several subtasks and checkpoints.

    `scope` is the number of Flink's scope of the file, `id` its name of the segment.
    """

    uri: str
    start: int
    size: int
    scope: int
    id: str

    @property
    def name(self) -> str:
        return f"{self.uri} (bytes {self.start} to {self.start + self.size})"


@dataclass(frozen=True, slots=True)
class EmptySegment:
    """A segment of no file, without content."""

    @property
    def name(self) -> str:
        return "(an empty segment of a merged file)"

    @property
    def size(self) -> int:
        return 0


# Not in `_metadata` itself.
FileHandle = AbsoluteFile | RelativeFile | FileSegment
StreamHandle = InlineBytes | FileHandle | EmptySegment


@dataclass(frozen=True, slots=True)
class KeyedHandle:
    """Where the key groups of `range` are in one state file; offset 0 means a key group without data.

    Handles of raw state have another `type`, and may have an `id`.
    """

    range: KeyGroupRange
    offsets: tuple[int, ...]
    stream: StreamHandle
    type: int = KEYED_SAVEPOINT
    id: str | None = None

    @property
    def size(self) -> int:
        """The bytes of the state file."""
        return self.stream.size


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a RocksDB database: its name there, and where it is."""

    name: str
    stream: StreamHandle


@dataclass(frozen=True, slots=True)
class NativeHandle:
    """The files of a subtask's RocksDB database, of which the key groups of `range` are the subtask's state.

    `meta` is a header as canonical files have it. `shared` are the files that several checkpoints may use. `timers` are
    those that the job keeps on the heap: raw keyed state in the snapshot, read as states beside those of the database.
    """

    range: KeyGroupRange
    checkpoint_id: int
    backend: str
    meta: StreamHandle
    shared: tuple[NamedFile, ...]
    private: tuple[NamedFile, ...]
    type: int = INCREMENTAL[-1]
    checkpointed_size: int = 0
    id: str = ""
    timers: KeyedHandle | None = None

    @property
    def files(self) -> tuple[NamedFile, ...]:
        """All files of the database."""
        return (*self.shared, *self.private)

    @property
    def size(self) -> int:
        """The bytes of all that belongs to the state."""
        timers = 0 if self.timers is None else self.timers.stream.size
        return self.meta.size + timers + sum(file.stream.size for file in self.files)


@dataclass(frozen=True, slots=True)
class PartitionedState:
    """One operator state in an operator state file; `offsets` are where its elements begin."""

    name: str
    mode: DistributionMode
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MergedFolders:
    """What a handle of operator state in a merged file says besides: the folders of such files.

    A handle that is empty stands for no state, and has no file.
    """

    task_owned: str
    shared: str
    is_empty: bool


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """An operator state file and the states in it; `merged` is there if it is a segment of a merged file."""

    states: tuple[PartitionedState, ...]
    stream: StreamHandle
    merged: MergedFolders | None = None


_Handle = TypeVar("_Handle", OperatorHandle, KeyedHandle)


@dataclass(frozen=True, slots=True)
class Subtask:
    """The state of one subtask. A finished subtask has none.

    Its keyed state is in one of the two: canonical or native.
    """

    index: int
    finished: bool = False
    managed_operator: OperatorHandle | None = None
    raw_operator: OperatorHandle | None = None
    managed_keyed: KeyedHandle | None = None
    raw_keyed: KeyedHandle | None = None
    native_keyed: NativeHandle | None = None

    @property
    def keyed(self) -> KeyedHandle | NativeHandle | None:
        """The handle of its keyed state."""
        return self.managed_keyed or self.native_keyed

    def with_keyed(self, handle: KeyedHandle | NativeHandle) -> Subtask:
        """Returns the subtask with this keyed state."""
        return replace(
            self,
            managed_keyed=None if isinstance(handle, NativeHandle) else handle,
            native_keyed=handle if isinstance(handle, NativeHandle) else None,
        )

    def with_streams(self, changed: Callable[[StreamHandle], StreamHandle]) -> Subtask:
        """Returns the subtask with each of its files, or inlined bytes, changed."""

        def held(handle: _Handle | None) -> _Handle | None:
            return handle and replace(handle, stream=changed(handle.stream))

        def named(files: tuple[NamedFile, ...]) -> tuple[NamedFile, ...]:
            return tuple(replace(file, stream=changed(file.stream)) for file in files)

        native = self.native_keyed
        if native is not None:
            native = replace(
                native,
                meta=changed(native.meta),
                shared=named(native.shared),
                private=named(native.private),
                timers=held(native.timers),
            )
        return replace(
            self,
            managed_operator=held(self.managed_operator),
            raw_operator=held(self.raw_operator),
            managed_keyed=held(self.managed_keyed),
            raw_keyed=held(self.raw_keyed),
            native_keyed=native,
        )

    def streams(self) -> tuple[StreamHandle, ...]:
        """The files, or inlined bytes, of all its state."""
        handles = (self.managed_operator, self.raw_operator, self.managed_keyed, self.raw_keyed)
        streams = tuple([handle.stream for handle in handles if handle is not None])
        native = self.native_keyed
        if native is None:
            return streams
        timers = () if native.timers is None else (native.timers.stream,)
        return (*streams, *timers, native.meta, *[file.stream for file in native.files])


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator and the state of its subtasks."""

    id: bytes
    parallelism: int
    max_parallelism: int
    name: str | None = None
    uid: str | None = None
    coordinator: InlineBytes | None = None
    fully_finished: bool = False
    subtasks: tuple[Subtask, ...] = ()
    # Whether another operator of the savepoint has this name, as its name or uid.
    shares_name: bool = False

    @property
    def hex_id(self) -> str:
        return self.id.hex()

    @property
    def label(self) -> str:
        """What names the operator, and no other one of its savepoint: uid, else name if no other has it, else id."""
        return self.uid or (self.name if not self.shares_name else None) or self.hex_id


@dataclass(frozen=True, slots=True)
class Metadata:
    """The whole content of `_metadata`."""

    version: int
    checkpoint_id: int
    operators: tuple[Operator, ...]
    master_states: tuple[bytes, ...] = ()
    properties: bytes = b""


def without_empty_handles(metadata: Metadata) -> Metadata:
    """Returns the metadata without handles that stand for no state, which checkpoints with merged files have."""

    def cleared(operator: Operator) -> Operator:
        if not any(map(_has_empty_handle, operator.subtasks)):
            return operator
        return replace(operator, subtasks=tuple(_without_empty_handles(subtask) for subtask in operator.subtasks))

    return replace(metadata, operators=tuple(map(cleared, metadata.operators)))


def _is_empty(handle: OperatorHandle | None) -> bool:
    return handle is not None and handle.merged is not None and handle.merged.is_empty


def _has_empty_handle(subtask: Subtask) -> bool:
    return _is_empty(subtask.managed_operator) or _is_empty(subtask.raw_operator)


def _without_empty_handles(subtask: Subtask) -> Subtask:
    managed, raw = subtask.managed_operator, subtask.raw_operator
    return replace(
        subtask,
        managed_operator=None if _is_empty(managed) else managed,
        raw_operator=None if _is_empty(raw) else raw,
    )
