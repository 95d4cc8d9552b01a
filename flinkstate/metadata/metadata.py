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

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from flinkstate.errors import RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.serializers.binary import ByteReader, ByteWriter

MAGIC = 0x4960672D
MASTER_STATE_MAGIC = 0xC96B1696 - 2**32
VERSIONS = range(2, 7)
MAX_PARALLELISM_LIMIT = 32768

# Operator state in a file of its own, and in a segment of a merged file.
_OPERATOR_STATE, _MERGED_OPERATOR_STATE = 4, 17
# Flink's scopes of files: exclusive to a checkpoint, shared by several.
_SCOPES = (0, 1)

# Files with their full address, and beside `_metadata`.
_ABSOLUTE, _RELATIVE = 2, 6

_KEYED_SAVEPOINT = 7
# The types in full checkpoints, and in savepoints from before Flink 1.13; type 12 has an id behind it. They are also
# those of raw keyed state.
FULL_CHECKPOINT = (3, 12)
_WITH_ID = 12
# Native savepoints and incremental checkpoints of RocksDB. Type 11 has a size and an id more than type 5.
_INCREMENTAL = (5, 11)
_CHANGELOG = (8, 9, 10, 13, 14)
# What most subtasks of a large job look like; see `_usual_subtask`.
_INDEX_AND_PRESENCE = struct.Struct(">ii")
_TYPE_AND_COUNT = struct.Struct(">bi")
_TYPE_AND_RANGE = struct.Struct(">bii")
_RELATIVE_FILE = struct.Struct(">bH")
_ABSOLUTE_FILE = struct.Struct(">bqH")
_I64, _U16 = struct.Struct(">q"), struct.Struct(">H")
_NO_RAW_STATE = bytes(4)
# No raw keyed state, no state of channels.
_NOTHING_ELSE = bytes(1 + 4 + 4)
_MODES = tuple(DistributionMode(number) for number in range(3))
HOW_TO_TAKE_A_CANONICAL_ONE = (
    "take a canonical one: flink savepoint --type canonical JOB DIR (or flink stop --type canonical; "
    "over REST formatType CANONICAL; Flink can't take one of asynchronous state)"
)


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
    type: int = _KEYED_SAVEPOINT
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
    type: int = _INCREMENTAL[-1]
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

    @property
    def hex_id(self) -> str:
        return self.id.hex()

    @property
    def label(self) -> str:
        """The name of the operator in messages: uid, else name, else id."""
        return self.uid or self.name or self.hex_id


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


def parse_metadata(data: bytes, file: str) -> Metadata:
    """Parses `_metadata`. Refuses versions and state that can't be read."""
    with _nothing_collected():
        return _parsed(data, file)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keeps Python from looking for garbage: there is none, and it would look at all objects again and again.

    Afterwards all objects are in the oldest generation, which is looked at rarely.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # What somebody else has frozen would not stay so.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _parsed(data: bytes, file: str) -> Metadata:
    reader = ByteReader(data, file)
    if reader.i32("the magic number of _metadata") != MAGIC:
        raise reader.damaged(f"the magic number of _metadata {MAGIC:#x}", f"{data[:4].hex()}", position=0)
    version = reader.i32("the version of _metadata")
    if version not in VERSIONS:
        if version > VERSIONS[-1]:
            raise RefusedError(
                f"{file}: _metadata has version {version}; versions 2 to 6 can be read (Flink up to 2.3)"
            )
        if version == 1:
            raise RefusedError(f"{file}: _metadata has version 1 (Flink 1.2), which Flink itself no longer reads")
        raise reader.damaged("a version from 2 to 6", f"{version}", position=4)
    checkpoint_id = reader.i64("the checkpoint id")
    if checkpoint_id < 0:
        raise reader.damaged("a checkpoint id >= 0", f"{checkpoint_id}", position=8)
    master_states = tuple(_master_state(reader) for _ in range(reader.count("the number of master states", 8)))
    operators = tuple(
        _operator(reader, version) for _ in range(reader.count("the number of operators", 16 + 4 + 4 + 4))
    )
    _refuse_twins(operators, file)
    properties = reader.take(reader.limit - reader.position, "the properties") if version >= 4 else b""
    if version >= 4 and properties[:4] != b"\xac\xed\x00\x05":
        raise reader.damaged(
            "Java-serialized properties (aced0005)",
            properties[:4].hex() or "the end",
            position=len(data) - len(properties),
        )
    if not reader.at_end():
        raise reader.damaged("the end of _metadata", f"{reader.limit - reader.position} more bytes")
    return Metadata(version, checkpoint_id, operators, master_states, properties)


def _refuse_twins(operators: tuple[Operator, ...], file: str) -> None:
    seen = set[bytes]()
    for operator in operators:
        if operator.id in seen:
            raise RefusedError(f"{file}: operator {operator.hex_id} is described more than once")
        seen.add(operator.id)


def _master_state(reader: ByteReader) -> bytes:
    reader.expect_i32(MASTER_STATE_MAGIC, "the magic number of a master state")
    return reader.take(reader.i32("the length of a master state"), "a master state")


def _operator(reader: ByteReader, version: int) -> Operator:
    name = reader.utf("an operator's name") if version >= 5 else ""
    uid = reader.utf("an operator's uid") if version >= 5 else ""
    id_ = reader.take(16, "an operator's id")
    parallelism = reader.i32("an operator's parallelism")
    max_parallelism = reader.i32("an operator's max parallelism")
    if not 1 <= parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise reader.damaged(
            f"1 <= parallelism <= max parallelism <= {MAX_PARALLELISM_LIMIT}",
            f"{parallelism} and {max_parallelism}",
            position=reader.position - 8,
        )
    coordinator = None
    if version == 2:
        reader.i32("the unused chain length")
    else:
        at = reader.position
        handle = _stream(reader)
        if handle is not None and not isinstance(handle, InlineBytes):
            raise reader.damaged("inlined coordinator state", type(handle).__name__, position=at)
        coordinator = handle
    operator = Operator(id_, parallelism, max_parallelism, name or None, uid or None, coordinator)
    count = reader.i32("the number of subtasks")
    if count == -1 and version > 2:
        return replace(operator, fully_finished=True)
    if not 0 <= count <= parallelism:
        raise reader.damaged(f"0 to {parallelism} subtasks", f"{count}", position=reader.position - 4)
    subtasks, last = dict[int, Subtask](), _States()
    for _ in range(count):
        at = reader.position
        subtask = _usual_subtask(reader, operator, last) if version > 2 else None
        if subtask is None:
            subtask = _subtask(reader, version, operator)
        if subtask.index in subtasks:
            raise reader.damaged("each subtask once", f"subtask {subtask.index} again", position=at)
        subtasks[subtask.index] = subtask
    return replace(operator, subtasks=tuple(subtasks.values()))


@dataclass(slots=True)
class _States:
    """The operator states that were read last, and their bytes; those of the next subtask are often the same."""

    data: bytes = b"\xff"
    states: tuple[PartitionedState, ...] = ()


def _usual_subtask(reader: ByteReader, operator: Operator, last: _States) -> Subtask | None:
    """Reads a subtask with canonical keyed state and operator state in files of their own, one of them or none.

    Whatever is otherwise, or wrong, is left to `_subtask`, which reads it field by field and says what is wrong. A
    large job has hundreds of thousands of subtasks, and to read each of their fields takes three times as long.
    """
    data = reader.data
    try:
        index, has_state = _INDEX_AND_PRESENCE.unpack_from(data, reader.position)
        operator_handle, keyed, at = None, None, reader.position + _INDEX_AND_PRESENCE.size
        if has_state == 1:
            operator_handle, at = _usual_operator_handle(data, at, last)
        if data[at : at + 4] != _NO_RAW_STATE:
            return None
        at += 4
        if data[at]:
            keyed, at = _usual_keyed_handle(data, at, operator.max_parallelism)
        else:
            at += 1
    except (struct.error, IndexError, _UnusualError):
        return None
    if has_state not in (0, 1) or not 0 <= index < operator.parallelism:
        return None
    if data[at : at + len(_NOTHING_ELSE)] != _NOTHING_ELSE:
        return None
    reader.position = at + len(_NOTHING_ELSE)
    return Subtask(index, False, operator_handle, None, keyed)


class _UnusualError(Exception):
    """What is read isn't as in most savepoints."""


def _usual_operator_handle(data: bytes, at: int, last: _States) -> tuple[OperatorHandle, int]:
    if data.startswith(last.data, at):
        at += len(last.data)
    else:
        began, (kind, count) = at, _TYPE_AND_COUNT.unpack_from(data, at)
        if kind != _OPERATOR_STATE or count < 0:
            raise _UnusualError
        at += _TYPE_AND_COUNT.size
        states = []
        for _ in range(count):
            state, at = _usual_operator_state(data, at)
            states.append(state)
        last.data, last.states = data[began:at], tuple(states)
    stream, at = _usual_file(data, at)
    return OperatorHandle(last.states, stream), at


def _usual_operator_state(data: bytes, at: int) -> tuple[PartitionedState, int]:
    end = at + 2 + _U16.unpack_from(data, at)[0]
    name = data[at + 2 : end]
    mode, elements = _TYPE_AND_COUNT.unpack_from(data, end)
    at = end + _TYPE_AND_COUNT.size
    if elements < 0 or not 0 <= mode < len(_MODES) or not _is_plain(name):
        raise _UnusualError
    offsets = struct.unpack_from(f">{elements}q", data, at)
    return PartitionedState(name.decode("ascii"), _MODES[mode], offsets), at + 8 * elements


def _usual_keyed_handle(data: bytes, at: int, max_parallelism: int) -> tuple[KeyedHandle, int]:
    kind, start, count = _TYPE_AND_RANGE.unpack_from(data, at)
    if kind != _KEYED_SAVEPOINT or start < 0 or count < 1 or start + count > max_parallelism:
        raise _UnusualError
    at += _TYPE_AND_RANGE.size
    offsets = struct.unpack_from(f">{count}q", data, at)
    stream, at = _usual_file(data, at + 8 * count)
    return KeyedHandle(_range(start, count), offsets, stream), at


@lru_cache(MAX_PARALLELISM_LIMIT)
def _range(start: int, count: int) -> KeyGroupRange:
    """The range of so many key groups; the operators of a job have the same ones."""
    return KeyGroupRange(start, start + count - 1)


def _usual_file(data: bytes, at: int) -> tuple[RelativeFile | AbsoluteFile, int]:
    """Returns the file that is described at this place, and the place behind it."""
    kind = data[at]
    if kind == _RELATIVE:
        _, length = _RELATIVE_FILE.unpack_from(data, at)
        start = at + _RELATIVE_FILE.size
        end = start + length
        (size,) = _I64.unpack_from(data, end)
        path = data[start:end]
        if size < 0 or not path.isascii() or 0 in path or b".." in path or path[:1] == b"/":
            raise _UnusualError
        return RelativeFile(path.decode("ascii"), size), end + _I64.size
    if kind == _ABSOLUTE:
        _, size, length = _ABSOLUTE_FILE.unpack_from(data, at)
        start = at + _ABSOLUTE_FILE.size
        end = start + length
        uri = data[start:end]
        if size < 0 or not _is_plain(uri) or len(uri) < length:
            raise _UnusualError
        return AbsoluteFile(uri.decode("ascii"), size), end
    raise _UnusualError


def _is_plain(text: bytes) -> bool:
    """Whether the text is the same in ASCII and in Java's modified UTF-8."""
    return text.isascii() and 0 not in text


def _subtask(reader: ByteReader, version: int, operator: Operator) -> Subtask:
    index = reader.i32("a subtask's index")
    finished = index < 0 and version > 2
    if finished:
        index = -index - 1
    if not 0 <= index < operator.parallelism:
        raise reader.damaged(f"a subtask below {operator.parallelism}", f"{index}", position=reader.position - 4)
    if finished:
        return Subtask(index, finished=True)
    if version == 2:
        reader.i64("the unused duration")
        if reader.i32("the number of legacy states") > 0:
            raise RefusedError(
                f"{reader.file}: operator {operator.label} has state of Flink 1.1, which no supported Flink reads"
            )
    managed_operator = _optional_operator_handle(reader)
    raw_operator = _optional_operator_handle(reader)
    native_keyed = _native_handle(reader, operator)
    managed_keyed = None if native_keyed is not None else _keyed_handle(reader, operator)
    raw_keyed = _keyed_handle(reader, operator)
    if version > 2:
        for channel in ("input", "output"):
            if reader.i32(f"the number of {channel} channel states") != 0:
                raise RefusedError(
                    f"{reader.file}: operator {operator.label} subtask {index} has {channel} channel state, so this is "
                    f"an unaligned checkpoint; {HOW_TO_TAKE_A_CANONICAL_ONE}"
                )
    return Subtask(index, False, managed_operator, raw_operator, managed_keyed, raw_keyed, native_keyed)


def _keyed_handle(reader: ByteReader, operator: Operator) -> KeyedHandle | None:
    at = reader.position
    kind = reader.i8("the type of a keyed state handle")
    if kind == 0:
        return None
    if kind in _CHANGELOG:
        raise RefusedError(
            f"{reader.file}: operator {operator.label} has a changelog handle (type {kind}): the job runs with "
            f"state.changelog.enabled, and Stateferry doesn't read changelogs; {HOW_TO_TAKE_A_CANONICAL_ONE}"
        )
    if kind in _INCREMENTAL:
        raise RefusedError(
            f"{reader.file}: operator {operator.label} has raw keyed state with an incremental RocksDB handle (type "
            f"{kind}), which isn't read; {HOW_TO_TAKE_A_CANONICAL_ONE}"
        )
    if kind not in (_KEYED_SAVEPOINT, *FULL_CHECKPOINT):
        raise reader.damaged("a known type of keyed state handle", f"{kind}", position=at)
    key_groups = _key_groups(reader, operator, 8)
    offsets = reader.i64s(key_groups.size, "offsets of key groups")
    stream_at = reader.position
    stream = _stream(reader)
    if stream is None:
        raise reader.damaged("where the keyed state is", "a null handle", position=stream_at)
    id_ = reader.utf("the id of a keyed state handle") if kind == _WITH_ID else None
    return KeyedHandle(key_groups, offsets, stream, kind, id_)


def _key_groups(reader: ByteReader, operator: Operator, least_size: int) -> KeyGroupRange:
    start = reader.i32("the first key group")
    count_at = reader.position
    count = reader.count("the number of key groups", least_size)
    if start < 0 or count < 1 or start + count > operator.max_parallelism:
        raise reader.damaged(
            f"a non-empty range of key groups below {operator.max_parallelism}",
            f"{count} from {start}",
            position=count_at - 4,
        )
    return KeyGroupRange(start, start + count - 1)


def _native_handle(reader: ByteReader, operator: Operator) -> NativeHandle | None:
    """Reads the handle if it is one of a RocksDB database, else nothing."""
    at = reader.position
    kind = reader.i8("the type of a keyed state handle")
    if kind not in _INCREMENTAL:
        reader.position = at
        return None
    checkpoint_id = reader.i64("a checkpoint id")
    backend = reader.utf("the id of a state backend")
    key_groups = _key_groups(reader, operator, 0)
    size = reader.i64("the size of a checkpoint") if kind == _INCREMENTAL[-1] else 0
    meta_at = reader.position
    meta = _stream(reader)
    if meta is None:
        raise reader.damaged("where the keyed state is described", "a null handle", position=meta_at)
    shared, private = _named_files(reader), _named_files(reader)
    id_ = reader.utf("the id of a keyed state handle") if kind == _INCREMENTAL[-1] else ""
    return NativeHandle(key_groups, checkpoint_id, backend, meta, shared, private, kind, size, id_)


def _named_files(reader: ByteReader) -> tuple[NamedFile, ...]:
    files = []
    for _ in range(reader.count("the number of files", 3)):
        name = reader.utf("a file's name")
        at = reader.position
        stream = _stream(reader)
        if stream is None:
            raise reader.damaged(f"where the file {name} is", "a null handle", position=at)
        files.append(NamedFile(name, stream))
    return tuple(files)


def _optional_operator_handle(reader: ByteReader) -> OperatorHandle | None:
    at = reader.position
    present = reader.i32("the presence of operator state")
    if present not in (0, 1):
        raise reader.damaged("0 or 1", f"{present}", position=at)
    return _operator_handle(reader) if present else None


def _operator_handle(reader: ByteReader) -> OperatorHandle | None:
    at = reader.position
    kind = reader.i8("the type of an operator state handle")
    if kind == 0:
        return None
    if kind not in (_OPERATOR_STATE, _MERGED_OPERATOR_STATE):
        raise reader.damaged(
            f"operator state handle type {_OPERATOR_STATE} or {_MERGED_OPERATOR_STATE}", f"{kind}", position=at
        )
    states = []
    for _ in range(reader.count("the number of operator states", 7)):
        name = reader.utf("an operator state's name")
        mode_at = reader.position
        mode = reader.i8("a distribution mode")
        if mode not in (0, 1, 2):
            raise reader.damaged("distribution mode 0, 1 or 2", f"{mode}", position=mode_at)
        count = reader.count("the number of elements", 8)
        offsets = reader.i64s(count, "offsets of elements")
        states.append(PartitionedState(name, DistributionMode(mode), offsets))
    merged = None
    if kind == _MERGED_OPERATOR_STATE:
        folders = (reader.utf("the folder of a task manager's files"), reader.utf("the folder of shared files"))
        merged = MergedFolders(*folders, reader.boolean("whether operator state is empty"))
    stream_at = reader.position
    stream = _stream(reader)
    if stream is None:
        raise reader.damaged("where the operator state is", "a null handle", position=stream_at)
    if merged is not None and not isinstance(stream, FileSegment | EmptySegment):
        raise reader.damaged("operator state in a merged file", type(stream).__name__, position=stream_at)
    return OperatorHandle(tuple(states), stream, merged)


def _stream(reader: ByteReader) -> StreamHandle | None:
    try:
        stream, reader.position = _usual_file(reader.data, reader.position)
        return stream
    except (struct.error, IndexError, _UnusualError):
        return _any_stream(reader)


def _any_stream(reader: ByteReader) -> StreamHandle | None:
    at = reader.position
    kind = reader.i8("the type of a stream handle")
    match kind:
        case 0:
            return None
        case 1:
            name = reader.utf("the name of inlined state")
            return InlineBytes(name, reader.take(reader.i32("the length of inlined state"), "inlined state"))
        case 2:
            size = _size(reader)
            return AbsoluteFile(reader.utf("a file's URI"), size)
        case 6:
            path = reader.utf("a relative path")
            if path.startswith("/") or ".." in path.split("/"):
                raise reader.damaged("a path inside the savepoint's folder", repr(path), position=at)
            return RelativeFile(path, _size(reader))
        case 15:
            return _segment(reader)
        case 16:
            return EmptySegment()
        case _:
            raise reader.damaged("a known type of stream handle", f"{kind}", position=at)


def _segment(reader: ByteReader) -> FileSegment:
    at = reader.position
    start = reader.i64("where a segment of a merged file begins")
    if start < 0:
        raise reader.damaged("where a segment of a merged file begins", f"{start}", position=at)
    size = _size(reader)
    at = reader.position
    scope = reader.i32("the scope of a merged file")
    if scope not in _SCOPES:
        raise reader.damaged(f"a scope of {_SCOPES}", f"{scope}", position=at)
    return FileSegment(reader.utf("a file's URI"), start, size, scope, reader.utf("the name of a segment"))


def _size(reader: ByteReader) -> int:
    size = reader.i64("a file's size")
    if size < 0:
        raise reader.damaged("a file's size", f"{size}", position=reader.position - 8)
    return size


def build_metadata(metadata: Metadata) -> bytes:
    """Returns the bytes of `_metadata` in its own version. Version 2 is only read: Flink no longer writes it."""
    if metadata.version not in VERSIONS[1:]:
        raise RefusedError(
            f"_metadata of version {metadata.version} can be read, but not written: Flink no longer writes this version"
        )
    writer = ByteWriter().raw(MAGIC.to_bytes(4, "big")).i32(metadata.version).i64(metadata.checkpoint_id)
    writer.i32(len(metadata.master_states))
    for state in metadata.master_states:
        writer.i32(MASTER_STATE_MAGIC).i32(len(state)).raw(state)
    writer.i32(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator(writer, metadata.version, operator)
    return writer.raw(metadata.properties).bytes()


def _write_operator(writer: ByteWriter, version: int, operator: Operator) -> None:
    if version >= 5:
        writer.utf(operator.name or "").utf(operator.uid or "")
    writer.raw(operator.id).i32(operator.parallelism).i32(operator.max_parallelism)
    _write_stream(writer, operator.coordinator)
    if operator.fully_finished:
        writer.i32(-1)
        return
    writer.i32(len(operator.subtasks))
    for subtask in operator.subtasks:
        if subtask.finished:
            writer.i32(-subtask.index - 1)
            continue
        writer.i32(subtask.index)
        _write_operator_handle(writer, subtask.managed_operator)
        _write_operator_handle(writer, subtask.raw_operator)
        if subtask.native_keyed is not None:
            _write_native_handle(writer, subtask.native_keyed)
        else:
            _write_keyed_handle(writer, subtask.managed_keyed)
        _write_keyed_handle(writer, (subtask.native_keyed and subtask.native_keyed.timers) or subtask.raw_keyed)
        writer.i32(0).i32(0)


def _write_operator_handle(writer: ByteWriter, handle: OperatorHandle | None) -> None:
    if handle is None:
        writer.i32(0)
        return
    # A copy of a segment is a file like any other.
    merged = handle.merged if isinstance(handle.stream, FileSegment | EmptySegment) else None
    writer.i32(1).i8(_OPERATOR_STATE if merged is None else _MERGED_OPERATOR_STATE).i32(len(handle.states))
    for state in handle.states:
        writer.utf(state.name).i8(state.mode.value).i32(len(state.offsets)).i64s(state.offsets)
    if merged is not None:
        writer.utf(merged.task_owned).utf(merged.shared).boolean(merged.is_empty)
    _write_stream(writer, handle.stream)


def _write_keyed_handle(writer: ByteWriter, handle: KeyedHandle | None) -> None:
    if handle is None:
        writer.i8(0)
        return
    writer.i8(handle.type).i32(handle.range.start).i32(len(handle.offsets)).i64s(handle.offsets)
    _write_stream(writer, handle.stream)
    if handle.id is not None:
        writer.utf(handle.id)


def _write_native_handle(writer: ByteWriter, handle: NativeHandle) -> None:
    writer.i8(handle.type).i64(handle.checkpoint_id).utf(handle.backend)
    writer.i32(handle.range.start).i32(handle.range.size)
    if handle.type == _INCREMENTAL[-1]:
        writer.i64(handle.checkpointed_size)
    _write_stream(writer, handle.meta)
    for files in (handle.shared, handle.private):
        writer.i32(len(files))
        for file in files:
            _write_stream(writer.utf(file.name), file.stream)
    if handle.type == _INCREMENTAL[-1]:
        writer.utf(handle.id)


def _write_stream(writer: ByteWriter, handle: StreamHandle | None) -> None:
    match handle:
        case None:
            writer.i8(0)
        case InlineBytes(name, data):
            writer.i8(1).utf(name).i32(len(data)).raw(data)
        case AbsoluteFile(uri, size):
            writer.i8(2).i64(size).utf(uri)
        case RelativeFile(path, size):
            writer.i8(6).utf(path).i64(size)
        case FileSegment(uri, start, size, scope, id_):
            writer.i8(15).i64(start).i64(size).i32(scope).utf(uri).utf(id_)
        case EmptySegment():
            writer.i8(16)
