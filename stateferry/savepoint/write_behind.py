"""A file whose bytes are put on disk while more are written, and then leave the page cache.

The file gets its name only when it is complete, on a local disk and on an object store. So a worker that is still
writing after its run has ended can only replace a file by one with the same bytes, never by a part of it.

If the bytes didn't go to disk early, a large file would fill all free memory with pages that are not read again soon.
The machine must first free that memory (virtual machines often get it from their host), which costs several times what
the disk does, and the end of the file would be one long wait.
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
    """A stream that writes a file, which is on disk once `finish` returns. For object stores it only hands bytes on."""

    def __init__(
        self, location: Location, portion: int = PORTION, hasher: Any = None, *, stays_draft: bool = False
    ) -> None:
        """All bytes that are written go into `hasher`.

        A file that `stays_draft` gets its own name from `take_name`, on an object store too; until then it is at
        `place`, which no other attempt to write the file has.
        """
        self._location, self._portion, self._hasher = location, portion, hasher
        self._stays_draft = stays_draft
        self._written = location.draft() if location.is_local or stays_draft else location
        self._has_name = False
        self._finished = False
        self._stream: Any = self._written.create()
        # A second descriptor of the file, which another thread can sync and drop from the page cache.
        self._descriptor: int | None = os.open(self._written.path, os.O_RDONLY) if _is_possible(location) else None
        self._disk = ThreadPoolExecutor(1, "write-behind")
        self._pending: Future[None] | None = None
        self._since_portion = self.position = 0

    def write(self, data: Buffer | bytes) -> None:
        """Writes bytes; every `portion` of them starts on its way to disk."""
        self._stream.write(data)
        if self._hasher is not None:
            self._hasher.update(data)
        self.position += len(data)
        self._since_portion += len(data)
        if self._since_portion >= self._portion and self._descriptor is not None:
            # At most one portion is on its way to disk while the next one is filled.
            self._wait()
            self._stream.flush()
            self._pending = self._disk.submit(_to_disk, self._written.path, self._descriptor, self.position)
            self._since_portion = 0

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    @property
    def place(self) -> Location:
        """Where the bytes are now."""
        return self._location if self._has_name else self._written

    def finish(self) -> None:
        """Completes the file; it is on disk when this returns."""
        self._wait()
        self._stream.close()
        try:
            self._written.sync_file()
        except (OSError, StateferryError):
            if not self._is_needless():
                raise
        self._finished = True
        self._release()
        if not self._stays_draft:
            self.take_name()

    def take_name(self) -> None:
        """Gives the complete file its own name."""
        try:
            if self._written is not self._location:
                self._written.replace(self._location)
        except (OSError, StateferryError):
            if not self._is_needless():
                raise
        self._has_name = True

    def _is_needless(self) -> bool:
        """Whether the draft was removed because the complete file, with the same bytes, is already there."""
        gone = self._location.is_local and not self._written.exists()
        return gone and self._location.is_file() and self._location.size() == self.position

    def close(self) -> None:
        """Closes the file. A draft that didn't get its name is removed."""
        try:
            if self._finished or self._location.is_local:
                self._stream.close()
            else:
                _abandon(self._stream)
        finally:
            self._release()
            if not self._has_name and self._location.is_local:
                with contextlib.suppress(OSError):
                    os.unlink(self._written.path)
            elif not self._has_name and self._finished:
                self._written.remove()

    def _release(self) -> None:
        self._disk.shutdown()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_possible(location: Location) -> bool:
    return location.is_local and hasattr(os, "posix_fadvise")


def _abandon(stream: Any) -> None:
    """Keeps an object store's stream from ever being closed, by a reference that is never released.

    Closing it, or collecting it as garbage, would put the incomplete bytes under the file's name. They would replace a
    complete file that another attempt may have written.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


def _to_disk(path: str, descriptor: int, end: int) -> None:
    with naming(path):
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)
