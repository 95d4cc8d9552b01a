"""How the demo's job may have declared its `ValueState<Map<String, Long>>`, and the bytes of a map for each.

All maps have the same number of entries and texts of the same length, so a map is an element of a structured array. By
Kryo, a text's last byte has its highest bit set, and a number is a zigzag varint, which has three bytes for all numbers
of the demo.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from flinkstate.serializers.binary import varint
from flinkstate.serializers.built_snapshots import kryo_snapshot, map_snapshot, nullable_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot

SMALLEST_VALUE, LARGEST_VALUE = 1 << 13, 1_000_000

_HASH_MAP, _NEW_OBJECT, _STRING, _LONG = 0x57, 1, 3, 9

Rows = npt.NDArray[np.void]
Layout = list[Any]


class Declared(Enum):
    """What a job declares, and what Flink 1.x and 2.x make of it."""

    MAP = "Types.MAP"
    # Flink 2: `TypeHint<Map<String, Long>>`.
    NULLABLE = "nullable"
    # `TypeHint<HashMap<String, Long>>` in Flink 1 and 2.
    KRYO_2 = "Kryo 2"
    KRYO_5 = "Kryo 5"

    @property
    def is_kryo(self) -> bool:
        return self in (Declared.KRYO_2, Declared.KRYO_5)


@dataclass(frozen=True, slots=True)
class MapLayout:
    """The layout of a map of so many entries, whose user keys have a text of `text` bytes."""

    declared: Declared
    entries: int
    text: int

    def fields(self) -> Layout:
        """The fields of a map in a row."""
        if self.declared.is_kryo:
            head: Layout = [("class", "u1"), ("mark", "u1"), ("count", "u1", len(self._count))]
            user_key: Layout = [("user_key_class", "u1"), ("user_key_mark", "u1"), ("user_key", "u1", self.text)]
            value: Layout = [("value_class", "u1"), ("value", "u1", 3)]
        else:
            nullable = self.declared is Declared.NULLABLE
            head = [*([("null_map", "u1")] if nullable else []), ("count", ">i4")]
            user_key = [*([("null_user_key", "u1")] if nullable else []), ("user_key_length", "u1")]
            user_key += [("user_key", "u1", self.text), ("is_null", "u1")]
            value = [("value", ">i8")]
        return [*head, ("map", np.dtype([*user_key, *value]), (self.entries,))]

    def fill(self, maps: Rows, texts: npt.NDArray[np.uint8], numbers: npt.NDArray[np.int64]) -> None:
        """Fills in maps; texts and numbers have one row for each."""
        entries = maps["map"]
        if not self.declared.is_kryo:
            if self.declared is Declared.NULLABLE:
                maps["null_map"], entries["null_user_key"] = 0, 0
            maps["count"] = self.entries
            entries["user_key_length"], entries["user_key"], entries["is_null"] = self.text + 1, texts, 0
            entries["value"] = numbers
            return
        maps["class"], maps["mark"], maps["count"] = _HASH_MAP, _NEW_OBJECT, self._count
        texts[..., -1] |= 0x80
        entries["user_key_class"], entries["user_key_mark"], entries["user_key"] = _STRING, _NEW_OBJECT, texts
        zigzag = numbers << 1
        entries["value_class"] = _LONG
        entries["value"][..., 0] = zigzag & 0x7F | 0x80
        entries["value"][..., 1] = zigzag >> 7 & 0x7F | 0x80
        entries["value"][..., 2] = zigzag >> 14

    def snapshot(self, text: SerializerSnapshot, number: SerializerSnapshot) -> SerializerSnapshot:
        """The serializer of the map, from those of user keys and values."""
        if self.declared.is_kryo:
            return kryo_snapshot("java.util.HashMap")
        if self.declared is Declared.NULLABLE:
            return nullable_snapshot(map_snapshot(nullable_snapshot(text), number))
        return map_snapshot(text, number)

    @property
    def _count(self) -> list[int]:
        """The number of entries as Kryo writes it: Kryo 5 adds one."""
        return list(varint(self.entries + (self.declared is Declared.KRYO_5)))
