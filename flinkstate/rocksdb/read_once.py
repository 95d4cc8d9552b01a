"""What a task has read of a file counts for the same file again, as long as the task goes on.

Two snapshots of a job have most files in common, and a task reads each of them several times. A file is the same if the
operating system says so: device, inode, size, and the times of the last change of its content and of its inode, of
which nobody can set the last one. Of files that aren't local nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_MOST = 1 << 14
_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("_kept", default=None)

Found = TypeVar("Found")


@contextmanager
def reading_once() -> Iterator[None]:
    """Keeps meanwhile what `once` reads. What was read before counts for nothing."""
    before = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(before)


def once(file: Any, what: Hashable, read: Callable[[], Found]) -> Found:
    """Returns what `read` finds in the open file, or has found in it before; `what` tells that from all else."""
    kept, identity = _kept.get(), getattr(file, "identity", None)
    if kept is None or identity is None:
        return read()
    key = (identity(), what)
    if key not in kept and len(kept) < _MOST:
        kept[key] = read()
    found: Found = kept[key] if key in kept else read()
    return found
