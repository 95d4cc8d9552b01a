"""Finds the values by Kryo inside of other values: in fields, in elements, in entries of maps.

A value by Kryo doesn't say where it ends, so the Kryo of the Flink that wrote it is tried, then the other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.kryo.reading import kryo_reading
from flinkstate.kryo.to_other_kryo import ends_of_values
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.types import FlinkType, KryoType, OpaqueType

_UNREADABLE = -1
# What finds the ends of values by Kryo works with memory of its own, which all threads share.
_READING = Lock()
Extents = tuple[Positions, Positions]


@dataclass(slots=True)
class KryoExtents:
    """Where values by Kryo are, of each serializer; `most` is how many are wanted at most."""

    data: Bytes
    five: bool
    most: int
    found: dict[KryoType, list[Extents]] = field(default_factory=dict)
    # Of each serializer the first value that can't be read, and where the value around it ends.
    unread: dict[KryoType, Extents] = field(default_factory=dict)
    count: int = 0

    @property
    def enough(self) -> bool:
        """Whether there are as many as are wanted, so that no more were looked for."""
        return self.count >= self.most

    def ends(self, type_: FlinkType, starts: Positions, limits: Positions) -> Positions:
        """Returns where the values end, behind which there may be more; -1 if one can't be read, or isn't wanted."""
        out = np.full(len(starts), _UNREADABLE, np.int64)
        there = np.flatnonzero((starts >= 0) & (starts <= limits))
        with _READING:
            out[there] = ends_of_values(compile_type(type_), self.data, starts[there], limits[there], self._ends_of)
        return out

    def _ends_of(self, part: OpaqueType, starts: Positions, limits: Positions) -> Positions:
        ends, wanted = np.full(len(starts), _UNREADABLE, np.int64), slice(self.most - self.count)
        if not isinstance(part, KryoType):
            return ends
        ends[wanted] = kryo_reading(part).find_ends(
            self.data, starts[wanted], limits[wanted], five=self.five, strict=False
        )
        read = ends >= 0
        self.found.setdefault(part, []).append((starts[read], ends[read]))
        for row in np.flatnonzero(~read[wanted])[:1]:
            self.unread.setdefault(part, (starts[row : row + 1], limits[row : row + 1]))
        self.count += int(read.sum())
        return ends
