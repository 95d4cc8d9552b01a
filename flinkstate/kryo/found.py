"""Which classes occur in the maps of a state that Kryo wrote, and so which type the maps have in Flink.

Kryo's bytes don't declare the types of keys and values. The values do: each object bears its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flinkstate.array_types import Bytes, Positions
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernels
from flinkstate.kryo.classes import KNOWN, KnownClass, class_table
from flinkstate.kryo.places import LISTS, MAPS, ROOT, names_of, places_to_find
from flinkstate.kryo.reading import MapReading, Values
from flinkstate.kryo.transcoding import OF_BOTH, counts_of
from flinkstate.serializers.types import (
    ArrayType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    PrimitiveArrayType,
    Scalar,
    TupleType,
    kept_by_kryo,
    simple_name,
)

_NULL = KNOWN[kernels.NULL].name
_KNOWN = {known.name: known for known in KNOWN}
_OF_THE_JOB = (kernels.PARTS, kernels.PARTS)

ByClass = dict[str, int]


@dataclass(frozen=True, slots=True)
class FoundClasses:
    """The classes of all objects in the maps of a state, by place: `map`, `key`, `value`, `value.element`, `value.f0`...

    `kryo` counts maps by the Kryo that wrote them: "2", "5", "either" (both write it alike, such as null) or "unread"
    (it has an object of a class that can't be read). `foreign` counts the latter by the first such class of each. The
    class of null is "null".
    """

    maps: int = 0
    null_maps: int = 0
    empty_maps: int = 0
    entries: int = 0
    kryo: dict[str, int] = field(default_factory=dict)
    classes: dict[str, ByClass] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: FoundClasses) -> FoundClasses:
        places = dict.fromkeys((*self.classes, *other.classes))
        return FoundClasses(
            self.maps + other.maps,
            self.null_maps + other.null_maps,
            self.empty_maps + other.empty_maps,
            self.entries + other.entries,
            _sum(self.kryo, other.kryo),
            {place: _sum(self.classes.get(place, {}), other.classes.get(place, {})) for place in places},
            _sum(self.foreign, other.foreign),
        )

    def proposed(self) -> MapType:
        """Returns the type that all maps have in Flink, or raises `RefusedError` with the reason."""
        if self.foreign:
            raise RefusedError(f"maps with objects that can't be read: {_listed(self.foreign)}")
        if not self.entries:
            raise RefusedError(
                f"all {self.maps} maps are null or empty, so they don't say which types their keys and values have"
            )
        type_ = self._type_at(ROOT)
        if self.kryo.get("2") and self.kryo.get("5") and kept_by_kryo(type_):
            raise RefusedError(OF_BOTH)
        if not isinstance(type_, MapType):
            raise RefusedError(f"the values are not maps: {_listed(self.classes[ROOT])}")
        return type_

    def _type_at(self, place: str) -> FlinkType:
        classes = {name: count for name, count in self.classes.get(place, {}).items() if name != _NULL}
        if not classes:
            raise RefusedError(f"every {_of(place)} is null or missing, so it doesn't say which type it has")
        known = [_KNOWN.get(name) or KnownClass(name, _OF_THE_JOB) for name in classes]
        prefix = "" if place == ROOT else f"{place}."
        for kinds, make in ((MAPS, self._map_at), (LISTS, self._list_at)):
            if all(one.kinds[0] in kinds for one in known):
                return make(prefix)
        if len(known) > 1:
            raise RefusedError(
                f"{_of(place)} is not always of one class: {_listed(classes)}. Such can only stay a value of Kryo, as "
                "Kryo<java.lang.Object> in the type that you give"
            )
        return self._of_class(known[0], prefix)

    def _map_at(self, prefix: str) -> FlinkType:
        return MapType(self._type_at(f"{prefix}key"), self._type_at(f"{prefix}value"))

    def _list_at(self, prefix: str) -> FlinkType:
        return ListType(self._type_at(f"{prefix}element"))

    def _of_class(self, known: KnownClass, prefix: str) -> FlinkType:
        if known.type is not None:
            return known.type
        if known.kinds[1] > kernels.ENUM_COMPARATOR or known.kinds[1] == kernels.FOREIGN:
            return KryoType(known.name)
        if known.component:
            element = _KNOWN[known.component].type
            if not isinstance(element, Scalar):
                return KryoType(known.name)
            return PrimitiveArrayType(element) if element is Scalar.STRING else ArrayType(element, known.component)
        fields = tuple(self._type_at(f"{prefix}f{number}") for number in range(known.param))
        return TupleType(fields, known.name)


def find_classes(kryo: KryoType, data: Bytes, starts: Positions, ends: Positions) -> FoundClasses:
    """Reads the values at these places and says which classes occur in them.

    Raises `DamagedError`, whose offset is a position in `data`, for a value that Kryo didn't write.
    """
    table = class_table(kryo)
    places = places_to_find(table)
    reading = MapReading(table, places, finding=True)
    # Without a head: the four bytes before a map are those of its length, which nothing reads.
    said = reading.read(Values(data, starts - 4, starts - 4, ends, 0))
    names = names_of(places.children)
    classes = {}
    for node, name in names.items():
        rows = np.flatnonzero(places.cells[node]).tolist()
        if rows:
            classes[name] = {}
            for row in rows:
                # Constants of an enum that have a body have classes of their own.
                class_name = table.job.enum_of.get(table.names[row], table.names[row])
                classes[name][class_name] = classes[name].get(class_name, 0) + int(places.cells[node, row])
    stopped = (said.found & kernels.STOPPED) != 0
    foreign = Counter(reading.foreign(detail, data) for detail in said.stops[stopped, 1].tolist())
    counts = counts_of(said.found[~stopped], int(said.counts.sum()))
    kryo_counts = {"2": counts.kryo_2, "5": counts.kryo_5, "either": counts.either, "unread": int(stopped.sum())}
    return FoundClasses(
        len(starts),
        counts.null_maps,
        counts.empty_maps,
        counts.entries,
        {kind: count for kind, count in kryo_counts.items() if count},
        classes,
        dict(foreign),
    )


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _of(place: str) -> str:
    return "the map" if place == ROOT else f"the map's {place}"


def _listed(classes: Mapping[str, int]) -> str:
    return ", ".join(f"{simple_name(name) if name in _KNOWN else name} {count:,}" for name, count in classes.items())
