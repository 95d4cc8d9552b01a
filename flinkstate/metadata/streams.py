"""Opens what a stream handle names: a file beside `_metadata`, a file or a segment elsewhere, or inlined bytes."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flinkstate.basics.closing import Closing
from flinkstate.errors import DamagedError
from flinkstate.files.read_ahead import RemoteInput
from flinkstate.files.storage import Location
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    EmptySegment,
    FileSegment,
    InlineBytes,
    RelativeFile,
    StreamHandle,
)


class OpenSegment(Closing):
    """The `size` bytes of a file from `start` on, as a file of its own, which it closes.

    Merged files have the state of several subtasks and checkpoints.
    """

    def __init__(self, file: Any, start: int, size: int) -> None:
        self._file, self._start, self._size = file, start, size
        self._position = 0

    def size(self) -> int:
        return self._size

    def expect(self, start: int, end: int) -> None:
        """Tells a file that can read ahead which bytes of the segment will be read in order."""
        if isinstance(self._file, RemoteInput):
            self._file.expect(self._start + start, self._start + end)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        self._position = position + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Reads as many bytes, or all that are left."""
        wanted = self._left() if size < 0 else min(size, self._left())
        self._file.seek(self._start + self._position)
        data = bytes(self._file.read(wanted))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._start + self._position)
        got = int(self._file.readinto(view[: self._left()]) or 0)
        self._position += got
        return got

    def _left(self) -> int:
        return max(self._size - self._position, 0)

    def close(self) -> None:
        self._file.close()


def open_stream(folder: Location, handle: StreamHandle) -> tuple[Any, str, int]:
    """Returns a file that can seek, its name for messages, and its size, which must be as the handle says."""
    name = stream_name(folder, handle)
    match handle:
        case InlineBytes(_, data):
            return pa.BufferReader(data), name, len(data)
        case EmptySegment():
            return pa.BufferReader(b""), name, 0
        case FileSegment(uri, start, size):
            return _segment(_elsewhere(uri), name, start, size), name, size
        case RelativeFile(path, size):
            file = folder.child(path).open()
        case AbsoluteFile(uri, size):
            file = _elsewhere(uri)
    found = int(file.size())
    if found != size:
        file.close()
        raise DamagedError(f"{size} bytes, as _metadata says", f"{found}", file=name)
    return file, name, size


def expect(file: Any, start: int, end: int) -> None:
    """Tells a file that can read ahead that the bytes from `start` to `end` will be read in order."""
    if isinstance(file, RemoteInput | OpenSegment):
        file.expect(start, end)


def _elsewhere(uri: str) -> Any:
    location = Location.of(uri)
    file = location.open_if_there()
    if file is None:
        raise DamagedError(
            "a file at the absolute address that _metadata has",
            "none: if the files were moved, say where they are (--files-from OLD=NEW, where the address in "
            "_metadata begins with OLD; in Spark filesFrom); if not, a running job has removed it since, as it does "
            "with checkpoints that newer ones replace: "
            "have the job retain more checkpoints, or take a savepoint",
            file=location.shown,
        )
    return file


def _segment(file: Any, name: str, start: int, size: int) -> OpenSegment:
    found = int(file.size())
    if found < start + size:
        file.close()
        raise DamagedError(f"at least {start + size} bytes in the merged file", f"{found}", file=name)
    return OpenSegment(file, start, size)


def stream_name(folder: Location, handle: StreamHandle) -> str:
    """Returns the name of what a handle names, for messages."""
    match handle:
        case InlineBytes(name):
            return f"{folder.child('_metadata').shown} (inlined state {name})"
        case RelativeFile(path):
            return folder.child(path).shown
        case AbsoluteFile(uri):
            return Location.of(uri).shown
        case FileSegment(uri):
            return replace(handle, uri=Location.of(uri).shown).name
        case EmptySegment():
            return f"{folder.child('_metadata').shown} {handle.name}"
