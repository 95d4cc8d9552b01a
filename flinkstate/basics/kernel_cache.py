"""When what numba's cache has of a kernel is outdated.

numba looks only at the file that defines a kernel. But a kernel holds the functions that it calls, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numba

_njit: Any = numba.njit


def kernel_of(files: Iterable[str | Path]) -> Callable[[Callable[..., Any]], Any]:
    """Returns what compiles a function when it is called, and keeps it in the cache until any of the files changes."""
    stats = [Path(file).stat() for file in files]
    stamp = tuple((stat.st_mtime, stat.st_size) for stat in stats)

    def kernel(function: Callable[..., Any]) -> Any:
        made = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
        # numba has no public way to say on what a kernel depends.
        made._cache._cache_file._source_stamp = stamp
        return made

    return kernel
