"""A file whose bytes are put on disk while more are written, and then leave the page cache.

The file gets its name only when it is complete, on a local disk and on an object store. So a worker that is still
writing after its run has ended can only replace a file by one with the same bytes, never by a part of it.

If the bytes didn't go to disk early, a large file would fill all free memory with pages that are not read again soon.
The machine must first free that memory (virtual machines often get it from their host), which costs several times what
the disk does, and the end of the file would be one long wait.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from flinkstate.errors import StateferryError
from flinkstate.files.os_errors import naming
from flinkstate.files.storage import Location
from flinkstate.files.temporary_folder import task_folder
from flinkstate.keyed.compression import Buffer

PORTION = 32 << 20


class WriteBehind:
    """A stream that writes a file, which is on disk once `finish` returns. For object stores it only hands bytes on."""

    def __init__(
        self, location: Location, portion: int = PORTION, hasher: Any = None, *, stays_draft: bool = False
    ) -> None:
        """All bytes that are written go into `hasher`.

        A file that `stays_draft` gets its own name from `take_name`. Until then it is at `place`, which no other
        attempt to write the file has: for an object store, where nothing can be renamed, that is a local disk.
        """
        self._location, self._portion, self._hasher = location, portion, hasher
        self._stays_draft = stays_draft
        self._written = location.draft() if location.is_local else _temporary() if stays_draft else location
        self._has_name = False
        self._ended = self._finished = False
        self._stream: Any = self._written.create()
        # A second descriptor of the file, which another thread can sync and drop from the page cache.
        self._descriptor: int | None = os.open(self._written.path, os.O_RDONLY) if _is_possible(location) else None
        self._disk = ThreadPoolExecutor(1, "write-behind")
        self._pending: list[Future[None]] = []
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
            self._pending = [self._disk.submit(_to_disk, self._written.path, self._descriptor, self.position)]
            self._since_portion = 0

    def _wait(self) -> None:
        pending, self._pending = self._pending, []
        for one in pending:
            one.result()

    @property
    def place(self) -> Location:
        """Where the bytes are now."""
        return self._location if self._has_name else self._written

    @property
    def is_on_its_way(self) -> bool:
        """Whether all bytes were written and `finish` has not been called yet."""
        return self._ended and not self._finished

    def end(self) -> None:
        """Says that no more bytes follow. What isn't on disk starts on its way there; `finish` waits for it."""
        if not self._ended:
            self._stream.close()
            self._ended = True
            if self._written.is_local:
                self._pending.append(self._disk.submit(self._written.sync_file))

    def finish(self) -> None:
        """Completes the file; it is on disk when this returns."""
        if self._finished:
            return
        self.end()
        try:
            self._wait()
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
            if self._location.is_local:
                self._let_in_the_same()
                self._written.replace(self._location)
            elif self._stays_draft:
                self._send()
        except (OSError, StateferryError):
            if not self._is_needless():
                raise
        self._has_name = True

    def _let_in_the_same(self) -> None:
        """Gives the draft the access of a file that it replaces.

        That file may be published, with the access that Flink needs, before an attempt that was lost comes to this.
        """
        with contextlib.suppress(OSError):
            found = os.stat(self._location.path)
            with contextlib.suppress(OSError):
                # Only root may change the owner; other users may only choose one of their own groups.
                os.chown(self._written.path, found.st_uid if os.geteuid() == 0 else -1, found.st_gid)
            os.chmod(self._written.path, stat.S_IMODE(found.st_mode))

    def _send(self) -> None:
        with self._written.open() as file, self._location.create() as stream:
            while portion := file.read(PORTION):
                stream.write(portion)
        self._written.remove()

    def _is_needless(self) -> bool:
        """Whether the draft was removed because the complete file, with the same bytes, is already there."""
        gone = self._location.is_local and not self._written.exists()
        return gone and self._location.is_file() and self._location.size() == self.position

    def close(self) -> None:
        """Closes the file. A draft that didn't get its name is removed."""
        try:
            if self._ended or self._written.is_local:
                self._stream.close()
            else:
                self._stream.abandon()
        finally:
            self._release()
            if not self._has_name and self._written.is_local:
                with contextlib.suppress(OSError):
                    os.unlink(self._written.path)

    def _release(self) -> None:
        self._disk.shutdown()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_possible(location: Location) -> bool:
    return location.is_local and hasattr(os, "posix_fadvise")


def _temporary() -> Location:
    descriptor, path = tempfile.mkstemp(".draft", "stateferry-", task_folder())
    os.close(descriptor)
    return Location.of(path)


def _to_disk(path: str, descriptor: int, end: int) -> None:
    with naming(path):
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)
