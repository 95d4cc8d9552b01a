"""Files of object stores and HDFS that are read ahead of the reader.

Each request to a store takes tens of milliseconds, however little it asks for. So a file is read in large pieces, and
the next pieces are on their way while one is worked on. What is held in memory is bounded.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from flinkstate.basics.closing import Closing
from flinkstate.errors import TransientError
from flinkstate.files.os_errors import naming

# The first piece that a reader gets after a jump; the longer it reads on, the more is asked for.
_LEAST = 1 << 18
_PIECE = 4 << 20
# Of one file, and of all files that a process has open; but of each file `_LEAST`.
_MOST_AHEAD = 16 << 20
_ALL_AHEAD = 64 << 20
# Of all files that a process has open, so many requests are on their way at a time.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Piece:
    start: int
    end: int
    data: Future[bytes]


class RemoteInput(Closing):
    """A file for reading, which can seek. Errors name it."""

    _open: ClassVar[int] = 0

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        RemoteInput._open += 1
        self._size = int(file.size())
        self._position = 0
        # These lie one behind the other, up to `_asked`.
        self._pieces: deque[_Piece] = deque()
        self._asked = 0
        self._ahead = _LEAST
        self._expected = 0, 0
        self.closed = False

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self._position = position + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def expect(self, start: int, end: int) -> None:
        """Tells that the bytes from `start` to `end` will be read in order: all of them, and not those behind."""
        self._expected = start, min(end, self._size)

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._position, 0)
        buffer = bytearray(left if size is None or size < 0 else min(size, left))
        return bytes(memoryview(buffer)[: self.readinto(buffer)])

    def readinto(self, buffer: Any) -> int:
        view, filled = memoryview(buffer).cast("B"), 0
        with naming(self._name):
            while filled < len(view) and self._position < self._size:
                piece = self._piece(len(view) - filled)
                data = piece.data.result()
                if len(data) != piece.end - piece.start:
                    # The file has them, so another try may get them: this is no damage.
                    size = piece.end - piece.start
                    raise TransientError(f"{self._name} can't be read: expected {size} bytes, got {len(data)}")
                part = memoryview(data)[self._position - piece.start :][: len(view) - filled]
                view[filled : filled + len(part)] = part
                filled += len(part)
                self._position += len(part)
        return filled

    def _piece(self, wanted: int) -> _Piece:
        """Returns the piece at the position, and asks for those behind it."""
        pieces, position = self._pieces, self._position
        most = max(min(_MOST_AHEAD, _ALL_AHEAD // RemoteInput._open), _LEAST)
        if pieces and not pieces[0].start <= position < pieces[0].end:
            self._ahead *= 2
        while pieces and not pieces[0].start <= position < pieces[0].end:
            pieces.popleft().data.cancel()
        if not pieces and position != self._asked:
            self._asked, self._ahead = position, _LEAST
        start, end = self._expected
        is_expected = start <= position < end
        self._ahead = most if is_expected else min(max(self._ahead, wanted), most)
        last = end if is_expected else self._size
        # Whole pieces: if each read asked for as much as it has taken, there would be many small requests.
        while self._asked < last and self._asked - position < self._ahead:
            after = min(self._asked + min(_PIECE, self._ahead), last)
            data = _requests(os.getpid()).submit(self._file.read_at, after - self._asked, self._asked)
            pieces.append(_Piece(self._asked, after, data))
            self._asked = after
        return pieces[0]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            RemoteInput._open -= 1
            while self._pieces:
                self._pieces.popleft().data.cancel()
            with naming(self._name):
                self._file.close()


@cache
def _requests(_: int) -> ThreadPoolExecutor:
    """The threads of a process, by its id: a forked process has none of its parent's."""
    return ThreadPoolExecutor(_AT_ONCE, "remote-input")
