"""Reads and writes the state of Apache Flink's jobs: savepoints, checkpoints, types, key groups, RocksDB's files.

What `__all__` names is the public API (`docs/library.md`). It is loaded when it is first used, because it needs pyarrow
and compiled code, which not every part of this package does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flinkstate.errors import DamagedError, RefusedError, StateferryError, UsageError
    from flinkstate.library import OpenOperator, OpenSavepoint, OpenState, open, write
    from flinkstate.reading.entries import Entry
    from flinkstate.serializers.types import ListType, MapType, Scalar
    from flinkstate.writing.new_savepoint import NewState

__all__ = [
    "DamagedError",
    "Entry",
    "ListType",
    "MapType",
    "NewState",
    "OpenOperator",
    "OpenSavepoint",
    "OpenState",
    "RefusedError",
    "Scalar",
    "StateferryError",
    "UsageError",
    "open",
    "write",
]

_MODULES = {
    "flinkstate.errors": ("DamagedError", "RefusedError", "StateferryError", "UsageError"),
    "flinkstate.library": ("OpenOperator", "OpenSavepoint", "OpenState", "open", "write"),
    "flinkstate.reading.entries": ("Entry",),
    "flinkstate.serializers.types": ("ListType", "MapType", "Scalar"),
    "flinkstate.writing.new_savepoint": ("NewState",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
