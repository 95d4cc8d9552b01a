"""How this code and that of `flinkstate.scala` is compiled, and when what numba's cache has of it is outdated.

numba looks only at the file that defines a kernel. But a kernel holds the functions that it calls, too.

numba compiles a function once more for each number and flag that stands in a call of it: `np.int64(0)` avoids that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.extending

_FOLDER = Path(__file__).parent
_HERE = (
    *("compiling", "copying", "entry_kernels", "flat_maps", "flink_rows", "kernel_codes", "kernels"),
    *("kryo_2_leaves", "objects", "other_kryo_collections", "other_kryo_flat_maps"),
    *("other_kryo_kernels", "other_kryo_leaves", "primitives", "scalars", "tuples", "write_kernels"),
)
_OTHERS = (_FOLDER.parent / "serializers" / "kernels.py", _FOLDER.parent / "scala" / "kernels.py")
_COMPILED = (*(_FOLDER / f"{name}.py" for name in _HERE), *_OTHERS)
_STATS = tuple(file.stat() for file in _COMPILED)
_STAMP = tuple((stat.st_mtime, stat.st_size) for stat in _STATS)

_njit: Any = numba.njit
inlined: Any = _njit(inline="always", error_model="numpy", _nrt=False)
intrinsic: Any = numba.extending.intrinsic


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles a function when it is called, and keeps it in the cache until any of the files changes."""
    made = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
    # numba has no public way to say on what a kernel depends.
    made._cache._cache_file._source_stamp = _STAMP
    return made
