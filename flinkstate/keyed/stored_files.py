"""The files of a subtask's RocksDB database, as its handle names them in `_metadata`."""

from __future__ import annotations

from functools import partial
from typing import Any

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.metadata.metadata import AbsoluteFile, InlineBytes, NativeHandle, RelativeFile, StreamHandle
from flinkstate.metadata.streams import open_stream, stream_name
from flinkstate.rocksdb.files import StoredFile


def stored_by_itself(stream: StreamHandle) -> str | None:
    """Returns the name of what holds one file of a database and nothing else, else None.

    Flink puts a small file into `_metadata`, by the name that it would have had.
    """
    return stream.name if isinstance(stream, (RelativeFile, AbsoluteFile, InlineBytes)) else None


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
