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
        case InlineBytes(name, data):
            return pa.BufferReader(data), f"{folder.child('_metadata').shown} (inlined state {name})", len(data)
        case RelativeFile(path, size):
            location = folder.child(path)
        case AbsoluteFile(uri, size):
            location = Location.of(uri)
    file = location.open()
    found = int(file.size())
    if found != size:
        file.close()
        raise DamagedError(f"{size} bytes, as _metadata says", f"{found}", file=location.shown)
    return file, location.shown, size
