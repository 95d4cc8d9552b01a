"""Opens what a stream handle names: a file beside `_metadata`, a file elsewhere, or bytes inside `_metadata`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stateferry.errors import DamagedError
from stateferry.savepoint.metadata import AbsoluteFile, InlineBytes, RelativeFile, StreamHandle
from stateferry.savepoint.storage import Location


def open_stream(folder: Location, handle: StreamHandle) -> tuple[Any, str, int]:
    """Returns a file that can seek, its name for messages, and its size, which must be as the handle says."""
    match handle:
        case InlineBytes(_, data):
            return pa.BufferReader(data), stream_name(folder, handle), len(data)
        case RelativeFile(path, size):
            location = folder.child(path)
        case AbsoluteFile(uri, size):
            location = Location.of(uri)
            if not location.is_file():
                raise DamagedError(
                    "a file at the absolute address that _metadata has",
                    "none: if the files were moved, say where they are (--files-from OLD=NEW; in Spark filesFrom); if "
                    "not, a running job has removed it since, as it does with checkpoints that newer ones replace: "
                    "have the job retain more checkpoints, or take a savepoint",
                    file=location.shown,
                )
    file = location.open()
    found = int(file.size())
    if found != size:
        file.close()
        raise DamagedError(f"{size} bytes, as _metadata says", f"{found}", file=location.shown)
    return file, location.shown, size


def stream_name(folder: Location, handle: StreamHandle) -> str:
    """Returns the name of what a handle names, for messages."""
    match handle:
        case InlineBytes(name):
            return f"{folder.child('_metadata').shown} (inlined state {name})"
        case RelativeFile(path):
            return folder.child(path).shown
        case AbsoluteFile(uri):
            return Location.of(uri).shown
