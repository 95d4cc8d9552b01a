"""A file whose bytes go to disk while more are written, and then leave the page cache.

It has its name only when it is whole, on a local disk as on an object store: a writer that outlives the run it belonged
to puts the same bytes in the place of those that stand, and never half of them.

Without going to disk early a large file takes all free memory for pages that nobody reads soon: memory the machine has
to find first (on virtual machines often from their host, which costs several times what the disk does), and one long
wait at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from stateferry.errors import StateferryError
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.named_file import naming
from stateferry.savepoint.storage import Location

PORTION = 32 << 20


class WriteBehind:
    """A stream into a location, on disk once it is closed by `finish`; object stores take it as it comes."""

    def __init__(self, location: Location, portion: int = PORTION, hasher: Any = None) -> None:
        """`hasher` hears of all that is written."""
        self._location, self._portion, self._hasher = location, portion, hasher
        self._written = location.draft() if location.is_local else location
        self._finished = False
        self._stream: Any = self._written.create()
        # Sees the same file, and can be synced and forgotten from another thread.
        self._descriptor: int | None = os.open(self._written.path, os.O_RDONLY) if _is_possible(location) else None
        self._disk = ThreadPoolExecutor(1, "write-behind")
        self._pending: Future[None] | None = None
        self._since_portion = self.position = 0

    def write(self, data: Buffer | bytes) -> None:
        self._stream.write(data)
        if self._hasher is not None:
            self._hasher.update(data)
        self.position += len(data)
        self._since_portion += len(data)
        if self._since_portion >= self._portion and self._descriptor is not None:
            # One portion is on its way and one is being filled, never more.
            self._wait()
            self._stream.flush()
            self._pending = self._disk.submit(_to_disk, self._written.path, self._descriptor, self.position)
            self._since_portion = 0

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def finish(self) -> None:
        """Ends the file; it is on disk when this returns."""
        self._wait()
        self._stream.close()
        try:
            self._written.sync_file()
            if self._location.is_local:
                self._written.replace(self._location)
        except (OSError, StateferryError):
            if not self._is_needless():
                raise
        self._finished = True

    def _is_needless(self) -> bool:
        """Whether the draft is gone: who removed it had the whole file already, of the same bytes."""
        gone = self._location.is_local and not self._written.exists()
        return gone and self._location.is_file() and self._location.size() == self.position

    def close(self) -> None:
        """Lets go of the file, whether it is finished or not. What isn't finished never has the file's name."""
        self._disk.shutdown()
        try:
            if self._finished or self._location.is_local:
                self._stream.close()
            else:
                _abandon(self._stream)
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            if not self._finished and self._location.is_local:
                with contextlib.suppress(OSError):
                    os.unlink(self._written.path)


def _is_possible(location: Location) -> bool:
    return location.is_local and hasattr(os, "posix_fadvise")


def _abandon(stream: Any) -> None:
    """An object store's stream puts what it has so far under the file's name when it is closed, and when it is garbage:
    in the place of a whole file that another attempt may have put there. So it is never either."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


def _to_disk(path: str, descriptor: int, end: int) -> None:
    with naming(path):
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)
