"""Maps that Kryo wrote become the bytes that Flink's own MapSerializer writes for them, in a buffer of their own.

Each has the same head (key) and the same timestamp. Behind them everything works as it does for maps by Flink's own
serializer. Null and empty maps both become a map without entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from flinkstate.array_types import ByteFlags, Bytes, Positions
from flinkstate.errors import RefusedError
from flinkstate.kryo import codes
from flinkstate.kryo.classes import class_table
from flinkstate.kryo.job_pojos import pojo_type
from flinkstate.kryo.places import places_of
from flinkstate.kryo.reading import MapReading, Values
from flinkstate.serializers.types import EnumType, FlinkType, KryoType, ListType, MapType, PojoType, SetType, TupleType
from flinkstate.serializers.walker import MapEntries

TIMESTAMP = 8
KRYO_2, KRYO_5 = codes.KRYO_2, codes.KRYO_5
NULL_MAP, EMPTY_MAP = codes.NULL_MAP, codes.EMPTY_MAP_FLAG


@dataclass(frozen=True, slots=True)
class KryoCounts:
    """Maps by the Kryo that wrote them; `either` are those that both write alike, such as null."""

    kryo_2: int = 0
    kryo_5: int = 0
    either: int = 0
    null_maps: int = 0
    empty_maps: int = 0
    entries: int = 0

    def __add__(self, other: KryoCounts) -> KryoCounts:
        return KryoCounts(
            self.kryo_2 + other.kryo_2, self.kryo_5 + other.kryo_5, self.either + other.either,
            self.null_maps + other.null_maps, self.empty_maps + other.empty_maps, self.entries + other.entries,
        )  # fmt: skip


def counts_of(kinds: ByteFlags, entries: int) -> KryoCounts:
    """Counts what is said of each value."""
    by = np.bincount(kinds & (KRYO_2 | KRYO_5), minlength=4).tolist()
    null, empty = (int(np.count_nonzero(kinds & flag)) for flag in (NULL_MAP, EMPTY_MAP))
    return KryoCounts(by[KRYO_2], by[KRYO_5], by[KRYO_2 | KRYO_5], null, empty, entries)


@dataclass(frozen=True, slots=True, eq=False)
class FlinkMaps:
    """Entries as a section has them: i32 key length, key, i32 value length, timestamp if there is one, the map.

    Entry i is `data[starts[i]:ends[i]]`, its key ends at `key_ends[i]`. `kinds[i]` has KRYO_2 or KRYO_5 (both if both
    write the map alike), and NULL_MAP or EMPTY_MAP. `entries` are those of the maps.
    """

    data: Bytes
    starts: Positions
    key_ends: Positions
    ends: Positions
    kinds: ByteFlags
    counts: KryoCounts
    entries: MapEntries


_Collection = TypeVar("_Collection", MapType, ListType, SetType)


def of_the_job(collection: _Collection, kryo: KryoType) -> _Collection:
    """Returns the type with the serializers that the job has for what stays a value of Kryo."""
    made = _of_the_job(collection, kryo)
    assert isinstance(made, type(collection))
    return made


def _of_the_job(type_: FlinkType, kryo: KryoType) -> FlinkType:
    match type_:
        case KryoType():
            return type_.of_the_job(kryo)
        case EnumType(class_name, ()):
            known = None if kryo.classes is None else kryo.classes.classes.get(class_name)
            if known is None or not known.constants:
                raise RefusedError(f"which constants the enum {class_name} has is not known: give --classes")
            return EnumType(class_name, known.constants)
        case PojoType(class_name, ()):
            return pojo_type(class_name, kryo.classes)
        case MapType(key, value):
            return MapType(_of_the_job(key, kryo), _of_the_job(value, kryo))
        case ListType(element):
            return ListType(_of_the_job(element, kryo))
        case SetType(element):
            return SetType(_of_the_job(element, kryo))
        case TupleType(fields, name):
            return TupleType(tuple(_of_the_job(one, kryo) for one in fields), name)
    return type_


class KryoReader:
    """Transcodes the values of one Kryo serializer into maps, lists or sets of one type; keep it, it owns buffers."""

    def __init__(self, kryo: KryoType, type_: MapType | ListType | SetType, *, widen: bool = False) -> None:
        table, made = class_table(kryo), _of_the_job(type_, kryo)
        assert isinstance(made, MapType | ListType | SetType)
        self._reading = MapReading(table, places_of(made, table, widen=widen), made)

    def to_flink(
        self, data: Bytes, starts: Positions, key_ends: Positions, ends: Positions, *, timestamps: bool
    ) -> FlinkMaps:
        """Returns the entries with their maps as Flink's MapSerializer writes them.

        Raises `DamagedError` with an offset in `data`, or `RefusedError` for what can't become such a map.
        """
        said = self._reading.read(Values(data, starts, key_ends, ends, TIMESTAMP if timestamps else 0))
        size = int(said.ends[-1]) if len(said.ends) else 0
        begins = np.append(np.int64(0), said.ends[:-1]) if len(said.ends) else said.ends
        counts = counts_of(said.found, int(said.counts.sum()))
        entries = _entries(said.counts, said.marks[: 2 * counts.entries], said.ends)
        return FlinkMaps(said.out[:size], begins, said.head_ends, said.ends, said.found, counts, entries)


def _entries(counts: Positions, marks: Positions, stops: Positions) -> MapEntries:
    starts, key_ends = marks[0::2], marks[1::2]
    ends = np.empty(len(starts), np.int64)
    ends[:-1] = starts[1:]
    filled = counts > 0
    ends[np.cumsum(counts[filled]) - 1] = stops[filled]
    return MapEntries(counts, starts, key_ends, ends, stops)
