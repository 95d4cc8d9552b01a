"""Which classes occur in the maps of a state that Kryo wrote, and so which type the maps have in Flink.

Kryo's bytes don't declare the types of keys and values. The values do: each object bears its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flinkstate.array_types import Bytes, Positions
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernels
from flinkstate.kryo.classes import KNOWN, KnownClass, class_table
from flinkstate.kryo.places import LISTS, MAPS, ROOT, WIDER_THAN, names_of, places_to_find
from flinkstate.kryo.reading import MapReading, Values
from flinkstate.kryo.transcoding import KryoCounts, counts_of
from flinkstate.serializers.types import (
    ArrayType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    PrimitiveArrayType,
    Scalar,
    TupleType,
    simple_name,
)

_NULL = KNOWN[kernels.NULL].name
_KNOWN = {known.name: known for known in KNOWN}

ByClass = dict[str, int]


@dataclass(frozen=True, slots=True)
class FoundClasses:
    """The classes of all objects in the maps of a state, by place: `map`, `key`, `value`, `value.element`, `value.f0`.

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

    def without(self, other: FoundClasses) -> FoundClasses:
        """Returns what is left without some of the maps."""
        return FoundClasses(
            self.maps - other.maps,
            self.null_maps - other.null_maps,
            self.empty_maps - other.empty_maps,
            self.entries - other.entries,
            _difference(self.kryo, other.kryo),
            {
                place: left
                for place, found in self.classes.items()
                if (left := _difference(found, other.classes.get(place, {})))
            },
            _difference(self.foreign, other.foreign),
        )

    def proposed(self, *, widen: bool = False) -> MapType:
        """Returns the type that all maps have in Flink, or raises `RefusedError` with the reason.

        With `widen` numbers of several classes have the widest of their types, if that has all of them as they are.
        """
        if self.foreign:
            raise RefusedError(f"maps with objects that can't be read: {_listed(self.foreign)}")
        if not self.entries:
            raise RefusedError(
                f"all {self.maps} maps are null or empty, so they don't say which types their keys and values have"
            )
        type_ = self._type_at(ROOT, widen)
        if not isinstance(type_, MapType):
            raise RefusedError(f"the values are not maps: {_listed(self.classes[ROOT])}")
        return type_

    def _type_at(self, place: str, widen: bool) -> FlinkType:
        classes = {name: count for name, count in self.classes.get(place, {}).items() if name != _NULL}
        if not classes:
            raise RefusedError(f"every {_of(place)} is null or missing, so it doesn't say which type it has")
        known = [_KNOWN[name] for name in classes]
        prefix = "" if place == ROOT else f"{place}."
        for kinds, make in ((MAPS, self._map_at), (LISTS, self._list_at)):
            if all(one.kinds[0] in kinds for one in known):
                return make(prefix, widen)
        if widen and (place == "key" or not place.endswith("key")) and (wide := _widest(known)) is not None:
            return wide
        if len(known) > 1:
            raise RefusedError(f"{_of(place)} is not always of one class: {_listed(classes)}")
        return self._of_class(known[0], prefix, widen)

    def _map_at(self, prefix: str, widen: bool) -> FlinkType:
        return MapType(self._type_at(f"{prefix}key", widen), self._type_at(f"{prefix}value", widen))

    def _list_at(self, prefix: str, widen: bool) -> FlinkType:
        return ListType(self._type_at(f"{prefix}element", widen))

    def _of_class(self, known: KnownClass, prefix: str, widen: bool) -> FlinkType:
        if known.type is not None:
            return known.type
        if known.component:
            element = _KNOWN[known.component].type
            assert isinstance(element, Scalar)
            return PrimitiveArrayType(element) if element is Scalar.STRING else ArrayType(element, known.component)
        fields = tuple(self._type_at(f"{prefix}f{number}", widen) for number in range(known.param))
        return TupleType(fields, known.name)


def _widest(known: Sequence[KnownClass]) -> Scalar | None:
    """Returns the number type of one of several classes that has the numbers of all others as they are."""
    types = {one.type for one in known}
    wide = [type_ for type_, narrow in WIDER_THAN.items() if type_ in types and types <= {type_, *narrow}]
    return wide[0] if len(types) > 1 and wide else None


class ClassFinder:
    """Finds the classes of all objects in the values of one Kryo serializer; keep it, it owns buffers."""

    def __init__(self, kryo: KryoType) -> None:
        self._table = class_table(kryo)
        self._places = places_to_find(self._table)
        self._reading = MapReading(self._table, self._places)
        self._counts = KryoCounts()
        self._values = 0
        self._foreign: Counter[str] = Counter()

    def add(self, data: Bytes, starts: Positions, ends: Positions) -> Positions:
        """Reads the values at these places; returns how many entries each has.

        Raises `DamagedError`, whose offset is a position in `data`, for a value that Kryo didn't write.
        """
        # Without a head: the four bytes before a map are those of its length, which nothing reads.
        said = self._reading.read(Values(data, starts - 4, starts - 4, ends, 0))
        stopped = (said.found & kernels.STOPPED) != 0
        self._foreign.update(self._reading.foreign(detail, data) for detail in said.stops[stopped, 1].tolist())
        self._counts += counts_of(said.found[~stopped], int(said.counts.sum()))
        self._values += len(starts)
        return said.counts

    def found(self) -> FoundClasses:
        """Returns what was found in all values."""
        cells, classes = self._places.cells, {}
        for node, name in names_of(self._places.children).items():
            rows = np.flatnonzero(cells[node]).tolist()
            if rows:
                classes[name] = {self._table.names[row]: int(cells[node, row]) for row in rows}
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
        )


def find_classes(kryo: KryoType, data: Bytes, starts: Positions, ends: Positions) -> FoundClasses:
    """Reads the values at these places and says which classes occur in them; raises errors as `ClassFinder` does."""
    finder = ClassFinder(kryo)
    finder.add(data, starts, ends)
    return finder.found()


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _difference(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) - Counter(other))


def _of(place: str) -> str:
    return "the map" if place == ROOT else f"the map's {place}"


def _listed(classes: Mapping[str, int]) -> str:
    return ", ".join(f"{simple_name(name) if name in _KNOWN else name} {count:,}" for name, count in classes.items())
