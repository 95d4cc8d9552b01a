"""How kernels and the functions that they call are compiled, and when what numba's cache has of a kernel is outdated.

numba compiles a function once more for each number and flag that stands in a call of it: `np.int64(0)` avoids that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.extending

_Decorator = Callable[[Callable[..., Any]], Any]

# Every kernel is compiled as is said here, and nearly every one of these words.
_OF_ALL = (Path(__file__), Path(__file__).with_name("words.py"))
# Without `_nrt=False` numba counts references to the arrays inside the loops, which takes several times as long as the
# work. No C code calls these functions, so they need no wrapper for it.
_OPTIONS = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_njit: Any = numba.njit

# Functions that kernels call: those that are large or seldom called, and those that become a part of each caller.
compiled: _Decorator = _njit(**_OPTIONS)
inlined: _Decorator = _njit(forceinline=True, **_OPTIONS)
# Takes twice as long to compile, as numba does it anew for each call: for the hashes of bytes and comparisons of keys
# alone, of which no loss of speed is accepted.
copied_in: _Decorator = _njit(inline="always", **_OPTIONS)
intrinsic: _Decorator = numba.extending.intrinsic


def kernel_of(*files: str | Path) -> _Decorator:
    """Returns what compiles a function when it is called, and keeps it in the cache until any of the files changes.

    numba looks only at the file that defines a kernel. But a kernel holds the functions that it calls, too.
    """
    stats = [Path(file).stat() for file in (*files, *_OF_ALL)]
    stamp = tuple((stat.st_mtime, stat.st_size) for stat in stats)

    def kernel(function: Callable[..., Any]) -> Any:
        made = _njit(cache=True, nogil=True, **_OPTIONS)(function)
        # numba has no public way to say on what a kernel depends.
        made._cache._cache_file._source_stamp = stamp
        return made

    return kernel
