"""A segment of a file, read as a file of its own: merged files have the state of several subtasks and checkpoints."""

from __future__ import annotations

import io
from typing import Any

from flinkstate.files.read_ahead import RemoteInput


class OpenSegment:
    """The `size` bytes of a file from `start` on. It closes the file."""

    def __init__(self, file: Any, start: int, size: int) -> None:
        self._file, self._start, self._size = file, start, size
        self._position = 0

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
