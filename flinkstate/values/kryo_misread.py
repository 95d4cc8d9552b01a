"""What a job of Flink 2 reads of a value that Kryo 2 wrote, before it has written the value itself.

It takes the bytes for those of Kryo 5, reads one object, and leaves the rest. Kryo 5 writes the number of entries + 1,
so a map loses its last entry, and 0 means null: an empty map, and each TreeMap, whose comparator Kryo 2 wrote there.
Numbers of several bytes have the other order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkstate.classfiles.constructors import may_put_entries
from flinkstate.errors import RefusedError
from flinkstate.serializers.types import KryoType
from flinkstate.values.kryo_class_names import ENTRY_BY_ENTRY
from flinkstate.values.kryo_reader import KryoReader
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import known_classes

_NULL = object()
_NULL_IF_0 = frozenset((*ENTRY_BY_ENTRY, "java.util.TreeMap"))


def misread(type_: KryoType, data: bytes) -> KryoObject | None:
    """Returns what Flink 2 reads of a value that Kryo 2 wrote.

    Raises `DamagedError` or `RefusedError` where that isn't known. Flink 2 may fail there, or read something else.
    """
    return misread_part(type_, data, 0)[0]


def misread_part(type_: KryoType, data: bytes, position: int) -> tuple[KryoObject | None, int]:
    """Returns what Flink 2 reads at the position, and where it goes on to read: not always where the value ends."""
    reader = _Misreader(True, *known_classes(type_), type_.classes, data, position, len(data))
    return reader.object(), reader.position


class _Misreader(KryoReader):
    """Reads as Kryo 5 does, also what no Kryo 5 writes: 0 in place of a map, any NaN, longer ASCII Strings."""

    def pairs(self, name: str) -> Any:
        if name in _NULL_IF_0 and self.left and self._data[self.position] == 0:
            self.position += 1
            return _NULL
        return super().pairs(name)

    def _referable(
        self, name: str, read: Callable[[KryoReader, str], Any], *, may_be_null: bool, like: str = ""
    ) -> KryoObject | None:
        if like and self._job is not None and may_put_entries(name, self._job):
            raise RefusedError(f"the constructor of {name} may put entries itself")
        found = super()._referable(name, read, may_be_null=may_be_null, like=like)
        return None if found is not None and found.value is _NULL else found

    def string(self, *, is_name: bool = False) -> str:
        self.five = False
        try:
            return super().string(is_name=is_name)
        finally:
            self.five = True

    def floating(self, layout: str, nan: int) -> float:
        found: float = self.unpack(layout)
        return found
