"""A local file that is read once from end to end and leaves nothing behind in the page cache.

A savepoint is larger than memory, and each step reads it once: pages kept of it serve nobody, and memory that the
machine has to find for them first (on virtual machines often from their host) costs several times what the read itself
does. What the cache held already stays there.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

# Linux, from 6.14 on; Python has no name for it yet.
_RWF_DONTCACHE = 0x80
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
# Neighbouring reads of less share pages, which would then be fetched once for each.
_LARGE = 1 << 18


class PassingFile(io.FileIO):
    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        self._passes = sys.platform == "linux"

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any) -> int | None:
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
