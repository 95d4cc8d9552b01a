"""Which classes occur in the maps of a state that Kryo wrote, and so which type the maps have in Flink.

Kryo's bytes don't declare the types of keys and values. The values do: each object bears its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import IDENTITY_MAP, KNOWN, PUBLIC, KnownClass, class_table
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.kryo.places_in_maps import EITHERS, INSIDE, LISTS, MAPS, ROOT, WIDER_THAN, ObjectField, places_to_find
from flinkstate.kryo.reading import MapReading, Values
from flinkstate.kryo.refusal import what_helps
from flinkstate.kryo.to_flink_maps import KryoCounts, counts_of
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import (
    ArrayType,
    EitherType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    PrimitiveArrayType,
    Scalar,
    TupleType,
    simple_name,
)

_NULL = KNOWN[codes.NULL].name
_KNOWN = {known.name: known for known in KNOWN}
_OF_THE_JOB = (codes.PARTS, codes.PARTS)
_OF_BOTH = (
    "Kryo 2 (Flink 1) wrote some maps and Kryo 5 (Flink 2) others, and their values stay Kryo's: no job could read "
    "both in one new state"
)


def map_type_of(found: FoundClasses, *, widen: bool = False) -> MapType:
    """Returns the type that all maps have in Flink, or raises `RefusedError` with the reason.

    With `widen` numbers of several classes have the widest of their types, if that has all of them as they are.
    """
    if found.foreign:
        unread = f"{_listed(found.foreign)}{what_helps(found.foreign)}"
        raise RefusedError(f"maps with objects that can't be read: {unread}")
    if not found.entries:
        raise RefusedError(
            f"all {found.maps} maps are null or empty, so they don't say which types their keys and values have"
        )
    type_ = _Types(found, widen).at(ROOT)
    if found.kryo.get("2") and found.kryo.get("5") and kept_by_kryo(type_):
        raise RefusedError(_OF_BOTH)
    if not isinstance(type_, MapType):
        raise RefusedError(f"the values are not maps: {_listed(found.classes[ROOT])}")
    return type_


@dataclass(frozen=True, slots=True)
class _Types:
    """The types of all places in the maps."""

    found: FoundClasses
    widen: bool

    def at(self, place: str) -> FlinkType:
        classes = {name: count for name, count in self.found.classes.get(place, {}).items() if name != _NULL}
        if not classes:
            raise RefusedError(f"{_of(place)} is null or missing in all of them, so it doesn't say which type it has")
        # A map of the job's own class has entries like one of the JDK; in a value it stays an object of its class.
        like = self.found.like if place == ROOT else {}
        known = [_KNOWN.get(like.get(name, name)) or KnownClass(name, _OF_THE_JOB) for name in classes]
        prefix = "" if place == ROOT else f"{place}."
        if place != ROOT and tuple(classes) == (IDENTITY_MAP,):
            return KryoType(IDENTITY_MAP)
        for kinds, make in ((MAPS, self._map_at), (LISTS, self._list_at), (EITHERS, self._either_at)):
            if all(one.kinds[0] in kinds for one in known):
                return make(prefix)
        in_inner_key = "key" in place.split(".")[1:]
        if self.widen and not in_inner_key and (wide := _widest(known)) is not None:
            return wide
        if len(known) > 1 and len(public := {PUBLIC.get(name, name) for name in classes}) == 1:
            return KryoType(public.pop())
        if len(known) > 1:
            why = f"{_of(place)} is not always of one class: {_listed(classes)}"
            if _widest(known) is None:
                why += (
                    ". Such can stay values of Kryo if you give their type as Kryo<...>, with a class that all of them "
                    "are, such as java.lang.Object"
                )
            raise RefusedError(why)
        return self._of_class(known[0], prefix)

    def _map_at(self, prefix: str) -> FlinkType:
        return MapType(self.at(f"{prefix}key"), self.at(f"{prefix}value"))

    def _list_at(self, prefix: str) -> FlinkType:
        return ListType(self.at(f"{prefix}element"))

    def _either_at(self, prefix: str) -> FlinkType:
        return EitherType(self.at(f"{prefix}left"), self.at(f"{prefix}right"))

    def _of_class(self, known: KnownClass, prefix: str) -> FlinkType:
        if known.type is not None:
            return known.type
        if known.kinds[1] > codes.ENUM_COMPARATOR or known.kinds[1] == codes.FOREIGN:
            return KryoType(PUBLIC.get(known.name, known.name))
        if known.component:
            element = _KNOWN[known.component].type
            if not isinstance(element, Scalar):
                return KryoType(known.name)
            return PrimitiveArrayType(element) if element is Scalar.STRING else ArrayType(element, known.component)
        fields = tuple(self.at(f"{prefix}f{number}") for number in range(known.param))
        return TupleType(fields, known.name)


def _widest(known: Sequence[KnownClass]) -> Scalar | None:
    """Returns the number type of one of several classes that has the numbers of all others as they are."""
    types = {one.type for one in known}
    wide = [type_ for type_, narrow in WIDER_THAN.items() if type_ in types and types <= {type_, *narrow}]
    return wide[0] if len(types) > 1 and wide else None


class ClassFinder:
    """Finds the classes of all objects in the values of one Kryo serializer; keep it, it owns buffers.

    With a `field`, the values are objects that have a map in it, and only the map counts. `five` says that this Kryo
    alone has written the values, though the other one may be able to read them.
    """

    def __init__(self, kryo: KryoType, field: str | None = None, *, five: bool | None = None) -> None:
        self._table = class_table(kryo)
        self._places = places_to_find(self._table, None if field is None else ObjectField(kryo, field))
        if five is not None:
            # As of a map with a flag for null, only the Kryo is tried that is the first to be.
            self._places = replace(self._places, nulls=self._places.nulls.copy())
            self._places.nulls[0] = -1
        self._reading = MapReading(self._table, self._places, hint=int(five or False))
        self._counts = KryoCounts()
        self._values = 0
        self._foreign: Counter[str] = Counter()

    def add(self, data: Bytes, starts: Positions, ends: Positions) -> Positions:
        """Reads the values at these places; returns how many entries each has.

        Raises `DamagedError`, whose offset is a position in `data`, for a value that Kryo didn't write.
        """
        # Without a head: the four bytes before a map are those of its length, which nothing reads.
        said = self._reading.read(Values(data, starts - 4, starts - 4, ends, 0))
        stopped = (said.found & codes.STOPPED) != 0
        self._foreign.update(self._reading.foreign(detail, data) for detail in said.stops[stopped, 1].tolist())
        self._counts += counts_of(said.found[~stopped], int(said.counts.sum()))
        self._values += len(starts)
        return said.counts

    @property
    def entries(self) -> int:
        """The entries that were read."""
        return self._counts.entries

    def found(self, *, inside: bool = False) -> FoundClasses:
        """Returns what was found in all values; with `inside` also what is in values that stay Kryo's, at one place."""
        cells, job = self._places.cells, self._table.job
        classes: dict[str, dict[str, int]] = {}
        names = {node: name for node, name in self._places.names().items() if node >= self._places.map_node}
        if inside:
            names[len(cells) - 1] = INSIDE
        for node, name in names.items():
            rows = np.flatnonzero(cells[node]).tolist()
            if rows:
                classes[name] = {}
            for row in rows:
                # Constants of an enum that have a body have classes of their own.
                class_name = job.enum_of.get(self._table.names[row], self._table.names[row])
                classes[name][class_name] = classes[name].get(class_name, 0) + int(cells[node, row])
        counts = self._counts
        kryo = {"2": counts.kryo_2, "5": counts.kryo_5, "either": counts.either, "unread": self._foreign.total()}
        return FoundClasses(
            self._values,
            counts.null_maps,
            counts.empty_maps,
            counts.entries,
            {kind: count for kind, count in kryo.items() if count},
            classes,
            dict(self._foreign),
            {name: job.collections[name] for there in classes.values() for name in there if name in job.collections},
        )


def _of(place: str) -> str:
    return "the map" if place == ROOT else f"the map's {place}"


def _listed(classes: Mapping[str, int]) -> str:
    return ", ".join(f"{simple_name(name) if name in _KNOWN else name} {count:,}" for name, count in classes.items())
