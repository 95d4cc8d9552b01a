"""Maps that Kryo wrote become the bytes that Flink's own MapSerializer writes for them, in a buffer of their own.

Each has the same head (key) and the same timestamp. Behind them everything works as it does for maps by Flink's own
serializer. Null and empty maps both become a map without entries, unless the maps are nullable ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from flinkstate.basics.array_types import ByteFlags, Bytes, Positions
from flinkstate.classfiles.class_file import ClassFile
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import class_table
from flinkstate.kryo.job_pojos import pojo_type
from flinkstate.kryo.places_in_maps import ObjectField, places_of
from flinkstate.kryo.reading import MapReading, Values
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.type_parts import with_children
from flinkstate.serializers.types import (
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    SetType,
)
from flinkstate.serializers.walker import MapEntries, alternating

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


def of_the_job(collection: _Collection, kryo: KryoType, *, of_flink_2: bool) -> _Collection:
    """Returns the type with what the job's classes say, and the serializers that it has for what stays Kryo's.

    `of_flink_2` says which Flink has the new state: its POJOs have other serializers for some fields.
    """

    def of_one_jar(class_name: str) -> ClassFile | None:
        found = None if kryo.classes is None else kryo.classes.classes.get(class_name)
        if found is not None and found.differs:
            raise RefusedError(
                f"two of the jars have {class_name}, with {found.differs}: give that of the job that took the "
                "savepoint alone (--classes)"
            )
        return found

    def known(type_: FlinkType) -> FlinkType:
        match type_:
            case KryoType():
                return type_.of_the_job(kryo)
            case EnumType(class_name, ()):
                found = of_one_jar(class_name)
                if found is None or not found.constants:
                    raise RefusedError(f"which constants the enum {class_name} has is not known: give --classes")
                return EnumType(class_name, found.constants)
            case PojoType(class_name, ()):
                of_one_jar(class_name)
                return pojo_type(class_name, kryo, of_flink_2=of_flink_2)
        return with_children(type_, known)

    made = known(collection)
    if isinstance(made, MapType) and isinstance(made.key, PojoType):
        # A job may have registered the subclass: then it looks for an entry under other bytes.
        made = MapType(replace(made.key, other_subclasses=()), made.value)
    assert isinstance(made, type(collection))
    return made


class KryoReader:
    """Transcodes the values of one Kryo serializer into maps, lists or sets of one type; keep it, it owns buffers.

    With a `field`, the values are objects that have the map in it. Nullable maps are made of values of Kryo 2 alone.
    """

    def __init__(
        self,
        kryo: KryoType,
        made: MapType | ListType | SetType | NullableType,
        *,
        widen: bool = False,
        field: str | None = None,
    ) -> None:
        table = class_table(kryo)
        of_object = None if field is None else ObjectField(kryo, field)
        places = places_of(made, table, widen=widen, field=of_object)
        whole = made.value if isinstance(made, NullableType) else made
        assert isinstance(whole, MapType | ListType | SetType)
        self._reading = MapReading(table, places, whole)

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

    def without_maps(self, data: Bytes, starts: Positions, ends: Positions) -> tuple[Bytes, Positions]:
        """Returns objects with null in the field of the map, one behind another, and where each ends.

        Raises errors as `to_flink` does, and `RefusedValueError` for an object that would not be the same by each Kryo.
        """
        kinds = self._reading.read(Values(data, starts - 4, starts - 4, ends, 0)).found
        out, new_ends = self._reading.leave_maps_out(data, starts, ends, (kinds & KRYO_2) == 0)
        either = np.flatnonzero((kinds & (KRYO_2 | KRYO_5)) == KRYO_2 | KRYO_5)
        if len(either):
            begins = np.append(0, new_ends[:-1])[either]
            other, other_ends = self._reading.leave_maps_out(
                data, starts[either], ends[either], np.ones(len(either), np.bool_)
            )
            expect_equal(out, begins, new_ends[either], other, other_ends, starts[either])
        return out, new_ends


def expect_equal(
    one: Bytes, begins: Positions, ends: Positions, other: Bytes, other_ends: Positions, places: Positions
) -> None:
    """Refuses objects of which the two Kryos would leave different ones."""
    other_begins = np.append(0, other_ends[:-1])
    for number, place in enumerate(places.tolist()):
        by_2, by_5 = one[begins[number] : ends[number]], other[other_begins[number] : other_ends[number]]
        if not np.array_equal(by_2, by_5):
            raise RefusedValueError("Kryo 2 and Kryo 5 could both have written this object, and mean others", place)


def _entries(counts: Positions, marks: Positions, stops: Positions) -> MapEntries:
    starts, key_ends = alternating(marks, 2)
    ends = np.empty(len(starts), np.int64)
    ends[:-1] = starts[1:]
    filled = counts > 0
    ends[np.cumsum(counts[filled]) - 1] = stops[filled]
    return MapEntries(counts, starts, key_ends, ends, stops)
