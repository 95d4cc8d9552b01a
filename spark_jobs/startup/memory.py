"""Keeps freed memory in processes that do one task after the other, for the next task.

Getting memory from the system again for every few megabytes of a savepoint takes a tenth as long as all the work on
them. It takes longer on virtual machines, which get the memory from their host first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MOST_OPEN, _MOST_OF_OLD = 256 << 20, 32 << 20


def keep() -> None:
    """Sets this for the process and its children.

    Call it before Arrow is imported. It has no effect without glibc.
    """
    # Memory that Arrow's own allocator keeps can't be used by numpy, and vice versa.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        # Before about version 2.35, glibc accepts no more than 32 MB. When one threshold is set, glibc no longer adapts
        # either.
        if libc.mallopt(_M_MMAP_THRESHOLD, _MOST_OPEN) or libc.mallopt(_M_MMAP_THRESHOLD, _MOST_OF_OLD):
            libc.mallopt(_M_TRIM_THRESHOLD, _MOST_OPEN)
        libc.mallopt(_M_ARENA_MAX, 1)
