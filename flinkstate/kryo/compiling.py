"""Of what files the kernels of this package and of `flinkstate.scala` are made."""

from __future__ import annotations

from pathlib import Path

from flinkstate.basics.compiling import inlined as inlined
from flinkstate.basics.compiling import kernel_of

_FOLDER = Path(__file__).parent
_HERE = (
    *("compiling", "copying", "entry_kernels", "flat_maps", "flink_rows", "kernel_codes", "kernels"),
    *("kryo_2_leaves", "objects", "other_kryo_collections", "other_kryo_flat_maps"),
    *("other_kryo_kernels", "other_kryo_leaves", "primitives", "scalars", "tuples", "write_kernels"),
)
_OTHERS = (_FOLDER.parent / "serializers" / "kernels.py", _FOLDER.parent / "scala" / "kernels.py")

kernel = kernel_of(*(_FOLDER / f"{name}.py" for name in _HERE), *_OTHERS)
