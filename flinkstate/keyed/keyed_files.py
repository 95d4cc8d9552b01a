"""Opens a subtask's keyed state, and says where its key groups are, whatever wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from flinkstate.files.storage import Location
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.keyed_file import KeyedFile
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.metadata.key_group_extents import SubtaskFile
from flinkstate.metadata.metadata import KeyedHandle, NativeHandle


def open_keyed(
    folder: Location,
    handle: KeyedHandle | NativeHandle,
    max_parallelism: int,
    subtask: int,
    read: BytesRead | None = None,
    wanted: Sequence[int] | None = None,
) -> KeyedFile:
    """Opens a subtask's keyed state of the snapshot in `folder`.

    Digests of what is read go into `read`. `wanted` are the key groups that will be read, by default all.
    """
    if isinstance(handle, NativeHandle):
        return NativeFile(folder, handle, max_parallelism, subtask, read, wanted)
    return KeyGroupFile(folder, handle, max_parallelism, subtask, read, wanted)


def subtask_file_of(
    folder: Location, handle: KeyedHandle | NativeHandle, max_parallelism: int, subtask: int
) -> SubtaskFile:
    """Returns where the key groups are: as the handle says, or for RocksDB's own files an estimate by their keys."""
    if isinstance(handle, NativeHandle):
        with NativeFile(folder, handle, max_parallelism, subtask) as file:
            return file.subtask_file
    return SubtaskFile(subtask, handle.stream.name, handle.range, handle.offsets, handle.stream.size)
