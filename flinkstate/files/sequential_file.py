"""Local files that are read or written once from end to end, without leaving their pages in the page cache.

A savepoint is larger than memory, and each step reads it once, so cached pages are of no use. To cache them, the
machine must first free memory (virtual machines often get it from their host), which costs several times what the read
or write itself costs. Pages that were in the cache before stay there.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from flinkstate.files.os_errors import naming

# Linux has it from 6.14 on. Python has no name for it yet.
_RWF_DONTCACHE = 0x80
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
# Smaller neighbouring reads would share pages and so fetch them twice.
_LARGE = 1 << 18
_PORTION = 1 << 20


class SequentialFile(io.FileIO):
    """A local file for reading, whose pages don't stay in the page cache."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        self._path = path
        self._passes = sys.platform == "linux"

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def identity(self) -> tuple[int, ...]:
        """What another file has otherwise, or the same one once anybody has written to it."""
        found = os.fstat(self.fileno())
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self, size: int | None = -1, /) -> Any:
        with naming(self._path):
            return super().read(size)

    def readinto(self, buffer: Any) -> int | None:
        with naming(self._path):
            return self._read_into(buffer)

    def readinto_at(self, buffer: Any, position: int) -> int:
        """Reads from a position; where the next `readinto` begins isn't known then.

        For a small read a seek takes as long as the read itself.
        """
        view = memoryview(buffer)
        if not self._passes or view.nbytes >= _LARGE:
            self.seek(position)
            return self.readinto(view) or 0
        try:
            return os.preadv(self.fileno(), [view], position)
        except OSError as error:
            error.filename = self._path
            raise

    def _read_into(self, buffer: Any) -> int | None:
        view = memoryview(buffer)
        if not self._passes or view.nbytes < _LARGE:
            return super().readinto(view)
        position = self.tell()
        try:
            got = os.preadv(self.fileno(), [view], position, _RWF_DONTCACHE)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            self._passes = False
            return super().readinto(view)
        self.seek(position + got)
        return got


class SequentialOutput:
    """A new local file, which replaces an existing one; its pages don't stay in the page cache.

    It is written in whole portions. A page that two portions share would have to be read back for the second.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115  closed by close
        self._path = path
        self._passes = sys.platform == "linux"
        self._portion = memoryview(bytearray(_PORTION))
        self._filled = 0

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            if self._filled == 0 and len(view) >= _PORTION:
                self._put(view[:_PORTION])
                view = view[_PORTION:]
                continue
            part = view[: _PORTION - self._filled]
            self._portion[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == _PORTION:
                self.flush()

    def flush(self) -> None:
        self._put(self._portion[: self._filled])
        self._filled = 0

    def _put(self, rest: memoryview) -> None:
        with naming(self._path):
            while rest:
                rest = rest[self._written(rest) :]

    def _written(self, view: memoryview) -> int:
        if self._passes and len(view) == _PORTION:
            position = self._file.tell()
            try:
                got = os.pwritev(self._file.fileno(), [view], position, _RWF_DONTCACHE)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                self._passes = False
            else:
                self._file.seek(position + got)
                return got
        return self._file.write(view) or 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                self.flush()
            # A large state has many files, and who wrote them may keep these until the last one.
            self._portion.release()
