"""Builds `_metadata`, whose layout is in `metadata.py`."""

from __future__ import annotations

from flinkstate.errors import RefusedError
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    EmptySegment,
    FileSegment,
    InlineBytes,
    KeyedHandle,
    Metadata,
    NativeHandle,
    Operator,
    OperatorHandle,
    RelativeFile,
    StreamHandle,
)
from flinkstate.metadata.type_numbers import (
    INCREMENTAL,
    MAGIC,
    MASTER_STATE_MAGIC,
    MERGED_OPERATOR_STATE,
    OPERATOR_STATE,
    VERSIONS,
)
from flinkstate.serializers.binary import ByteWriter


def expect_writable(version: int, file: str = METADATA) -> None:
    """Raises unless `_metadata` of this version is written, too. `file` names the one that was read."""
    if version not in VERSIONS[1:]:
        raise RefusedError(
            f"{file}: version {version} can be read, but not written: Flink 1.10 was the last to write it. Start the "
            "job from this savepoint with Flink 1.13 or newer, and take a savepoint there"
        )


def build_metadata(metadata: Metadata) -> bytes:
    """Returns the bytes of `_metadata` in its own version."""
    expect_writable(metadata.version)
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
    writer.i32(1).i8(OPERATOR_STATE if merged is None else MERGED_OPERATOR_STATE).i32(len(handle.states))
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
    if handle.type == INCREMENTAL[-1]:
        writer.i64(handle.checkpointed_size)
    _write_stream(writer, handle.meta)
    for files in (handle.shared, handle.private):
        writer.i32(len(files))
        for file in files:
            _write_stream(writer.utf(file.name), file.stream)
    if handle.type == INCREMENTAL[-1]:
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
