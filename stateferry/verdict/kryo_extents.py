"""Finds the values by Kryo inside of other values: in fields of POJOs and tuples, in lists, sets, arrays and maps.

A value by Kryo doesn't say where it ends, so the Kryo of the Flink that wrote it is tried, then the other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.keyed.kryo_parts import behind_flags, ends_of_parts
from flinkstate.keyed.pojo_fields import of_subclasses
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import (
    ArrayType,
    EitherType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoType,
    SetType,
    TtlType,
    TupleType,
)
from flinkstate.serializers.walker import skip_possible

_NULL, _OWN = 1, 2
_UNREADABLE = -1
_TIMESTAMP = 8
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
        if len(there) and not self.enough:
            out[there] = self._ends(type_, starts[there], limits[there])
        return out

    def _ends(self, type_: FlinkType, starts: Positions, limits: Positions) -> Positions:
        if isinstance(type_, KryoType):
            return self._of_kryo(type_, starts, limits)
        if not any(isinstance(one, OpaqueType) for one in with_parts(type_)):
            return skip_possible(type_, self.data, starts, limits)
        match type_:
            case NullableType(value, padding):
                return self._behind_flag(value, starts, limits, padding)
            case TtlType(value):
                return self.ends(value, starts + _TIMESTAMP, limits)
            case TupleType(fields):
                for one in fields:
                    starts = self.ends(one, starts, limits)
                return starts
            case PojoType():
                return self._of_pojos(type_, starts, limits)
            case ListType(element):
                return self._repeated((element,), starts, limits)
            case SetType(element) | ArrayType(element):
                value_there = int(isinstance(type_, ArrayType))
                return self._repeated((element,), starts, limits, flagged=0, value_there=value_there)
            case MapType(key, value):
                return self._repeated((key, value), starts, limits, flagged=1)
            case EitherType():
                return self._of_sides(type_, starts, limits)
        return np.full(len(starts), _UNREADABLE, np.int64)

    def _of_kryo(self, type_: KryoType, starts: Positions, limits: Positions) -> Positions:
        ends, wanted = np.full(len(starts), _UNREADABLE, np.int64), slice(self.most - self.count)
        with _READING:
            ends[wanted] = ends_of_parts(type_, self.data, starts[wanted], limits[wanted], five=self.five, strict=False)
        read = ends >= 0
        self.found.setdefault(type_, []).append((starts[read], ends[read]))
        for row in np.flatnonzero(~read[wanted])[:1]:
            self.unread.setdefault(type_, (starts[row : row + 1], limits[row : row + 1]))
        self.count += int(read.sum())
        return ends

    def _behind_flag(
        self, type_: FlinkType, starts: Positions, limits: Positions, padding: int = 0, value_there: int = 0
    ) -> Positions:
        """A value behind a byte that says whether it is there."""
        ends, zero = behind_flags("", self.data, starts, limits, strict=False)
        present = zero if value_there == 0 else (ends >= 0) & ~zero
        ends = np.where(present | (ends < 0), ends, ends + padding)
        ends[present] = self.ends(type_, ends[present], limits[present])
        return ends

    def _repeated(
        self,
        types: tuple[FlinkType, ...],
        starts: Positions,
        limits: Positions,
        flagged: int = -1,
        value_there: int = 0,
    ) -> Positions:
        """A count, and so many times these types; that with the number `flagged` stands behind a byte."""
        at = np.where(starts + 4 <= limits, starts + 4, _UNREADABLE)
        counts = np.zeros(len(starts), np.int64)
        readable = at >= 0
        places = starts[readable][:, None] + np.arange(4)
        counts[readable] = self.data[places].astype(np.int64) @ (1 << np.array([24, 16, 8, 0], np.int64))
        done = 0
        while len(more := np.flatnonzero((counts > done) & (at >= 0))) and not self.enough:
            for number, type_ in enumerate(types):
                if number == flagged:
                    at[more] = self._behind_flag(type_, at[more], limits[more], value_there=value_there)
                else:
                    at[more] = self.ends(type_, at[more], limits[more])
            done += 1
        return np.where(counts > done, _UNREADABLE, at)

    def _of_sides(self, type_: EitherType, starts: Positions, limits: Positions) -> Positions:
        """A value behind a byte that says which of two types it has."""
        ends = np.full(len(starts), _UNREADABLE, np.int64)
        there = np.flatnonzero(starts < limits)
        tags = self.data[starts[there]]
        for tag, side in ((1, type_.left), (type_.right_tag, type_.right)):
            chosen = there[tags == tag]
            ends[chosen] = self.ends(side, starts[chosen] + 1, limits[chosen])
        return ends

    def _of_pojos(self, type_: PojoType, starts: Positions, limits: Positions) -> Positions:
        ends = np.full(len(starts), _UNREADABLE, np.int64)
        there = np.flatnonzero(starts < limits)
        starts, limits = starts[there], limits[there]
        flags = self.data[starts]
        behind = np.full(len(there), _UNREADABLE, np.int64)
        behind[flags == _NULL] = starts[flags == _NULL] + 1
        own = flags == _OWN
        behind[own] = self._of_fields(type_, starts[own] + 1, limits[own])
        for subclass, of_class, bodies in of_subclasses(type_, self.data, flags, starts, limits):
            behind[of_class] = self.ends(subclass, bodies, limits[of_class])
        ends[there] = behind
        return ends

    def _of_fields(self, type_: PojoType, at: Positions, limits: Positions) -> Positions:
        for one in type_.fields:
            at = self._behind_flag(one.type, at, limits)
        return at
