"""How this code and that of `flinkstate.scala` is compiled.

numba compiles a function once more for each number and flag that stands in a call of it: `np.int64(0)` avoids that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numba.extending

from flinkstate.basics.kernel_cache import kernel_of

_FOLDER = Path(__file__).parent
_HERE = (
    *("compiling", "copying", "entry_kernels", "flat_maps", "flink_rows", "kernel_codes", "kernels"),
    *("kryo_2_leaves", "objects", "other_kryo_collections", "other_kryo_flat_maps"),
    *("other_kryo_kernels", "other_kryo_leaves", "primitives", "scalars", "tuples", "write_kernels"),
)
_OTHERS = (_FOLDER.parent / "serializers" / "kernels.py", _FOLDER.parent / "scala" / "kernels.py")
_COMPILED = (*(_FOLDER / f"{name}.py" for name in _HERE), *_OTHERS)

_njit: Any = numba.njit
inlined: Any = _njit(inline="always", error_model="numpy", _nrt=False)
intrinsic: Any = numba.extending.intrinsic
kernel = kernel_of(_COMPILED)
