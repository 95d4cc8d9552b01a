"""Memory of processes that do one piece of work after another: what one lets go of stays for the next.

To get it from the system anew for each few megabytes of a savepoint takes a tenth as long as all that is done with
them; on virtual machines, which first get it from their host, longer than that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MOST_KEPT, _MOST_OF_OLD = 256 << 20, 32 << 20


def keep() -> None:
    """For this process and its children; before Arrow is imported, and where there is no glibc without effect."""
    # Arrow's own allocator would keep what numpy could use, and the other way round.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        # Before 2.35 or so it takes no more than 32 MB, and once one of these is set it adapts none of them by itself.
        if libc.mallopt(_M_MMAP_THRESHOLD, _MOST_KEPT) or libc.mallopt(_M_MMAP_THRESHOLD, _MOST_OF_OLD):
            libc.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
        libc.mallopt(_M_ARENA_MAX, 1)
