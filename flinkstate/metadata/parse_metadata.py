"""Parses `_metadata`, whose layout is in `metadata.py`."""

from __future__ import annotations

import gc
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from flinkstate.errors import RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    EmptySegment,
    FileSegment,
    InlineBytes,
    KeyedHandle,
    MergedFolders,
    Metadata,
    NamedFile,
    NativeHandle,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    StreamHandle,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.type_numbers import (
    CHANGELOG,
    FULL_CHECKPOINT,
    INCREMENTAL,
    KEYED_SAVEPOINT,
    MAGIC,
    MASTER_STATE_MAGIC,
    MAX_PARALLELISM_LIMIT,
    MERGED_OPERATOR_STATE,
    OPERATOR_STATE,
    SCOPES,
    VERSIONS,
    WITH_ID,
)
from flinkstate.metadata.usual_subtasks import LastStates, UnusualError, usual_file, usual_subtask
from flinkstate.serializers.binary import ByteReader

HOW_TO_TAKE_A_CANONICAL_ONE = (
    "take a canonical one: flink savepoint --type canonical JOB DIR (or flink stop --type canonical; "
    "over REST formatType CANONICAL; Flink can't take one of asynchronous state)"
)
# Flink has canonical savepoints since 1.13, and other ones, and --type, since 1.15.
HOW_TO_TAKE_ONE_WITH_ANY_FLINK = (
    f"{HOW_TO_TAKE_A_CANONICAL_ONE}. If the job's Flink is older than 1.15, start the job from this one with Flink "
    "1.13 or newer, and take a savepoint there"
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
    operators = _with_shared_names(operators)
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


def _with_shared_names(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Tells the operators without a uid whose name another one has: Flink names those of one kind alike."""
    uses = Counter(text for one in operators for text in {one.uid, one.name} if text)
    return tuple(
        replace(one, shares_name=True) if one.uid is None and one.name and uses[one.name] > 1 else one
        for one in operators
    )


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
    subtasks, last = dict[int, Subtask](), LastStates()
    for _ in range(count):
        at = reader.position
        subtask = usual_subtask(reader, operator, last) if version > 2 else None
        if subtask is None:
            subtask = _subtask(reader, version, operator)
        if subtask.index in subtasks:
            raise reader.damaged("each subtask once", f"subtask {subtask.index} again", position=at)
        subtasks[subtask.index] = subtask
    return replace(operator, subtasks=tuple(subtasks.values()))


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
    if kind in CHANGELOG:
        raise RefusedError(
            f"{reader.file}: operator {operator.label} has a changelog handle (type {kind}): the job runs with "
            f"state.changelog.enabled, and Stateferry doesn't read changelogs; {HOW_TO_TAKE_A_CANONICAL_ONE}"
        )
    if kind in INCREMENTAL:
        raise RefusedError(
            f"{reader.file}: operator {operator.label} has raw keyed state with an incremental RocksDB handle (type "
            f"{kind}), which isn't read; {HOW_TO_TAKE_A_CANONICAL_ONE}"
        )
    if kind not in (KEYED_SAVEPOINT, *FULL_CHECKPOINT):
        raise reader.damaged("a known type of keyed state handle", f"{kind}", position=at)
    key_groups = _key_groups(reader, operator, 8)
    offsets = reader.i64s(key_groups.size, "offsets of key groups")
    stream_at = reader.position
    stream = _stream(reader)
    if stream is None:
        raise reader.damaged("where the keyed state is", "a null handle", position=stream_at)
    id_ = reader.utf("the id of a keyed state handle") if kind == WITH_ID else None
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
    if kind not in INCREMENTAL:
        reader.position = at
        return None
    checkpoint_id = reader.i64("a checkpoint id")
    backend = reader.utf("the id of a state backend")
    key_groups = _key_groups(reader, operator, 0)
    size = reader.i64("the size of a checkpoint") if kind == INCREMENTAL[-1] else 0
    meta_at = reader.position
    meta = _stream(reader)
    if meta is None:
        raise reader.damaged("where the keyed state is described", "a null handle", position=meta_at)
    shared, private = _named_files(reader), _named_files(reader)
    id_ = reader.utf("the id of a keyed state handle") if kind == INCREMENTAL[-1] else ""
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
    if kind not in (OPERATOR_STATE, MERGED_OPERATOR_STATE):
        raise reader.damaged(
            f"operator state handle type {OPERATOR_STATE} or {MERGED_OPERATOR_STATE}", f"{kind}", position=at
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
    if kind == MERGED_OPERATOR_STATE:
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
        stream, reader.position = usual_file(reader.data, reader.position)
        return stream
    except (struct.error, IndexError, UnusualError):
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
    if scope not in SCOPES:
        raise reader.damaged(f"a scope of {SCOPES}", f"{scope}", position=at)
    return FileSegment(reader.utf("a file's URI"), start, size, scope, reader.utf("the name of a segment"))


def _size(reader: ByteReader) -> int:
    size = reader.i64("a file's size")
    if size < 0:
        raise reader.damaged("a file's size", f"{size}", position=reader.position - 8)
    return size
