"""Which classes occur in the maps of a state that Kryo wrote, as counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

ByClass = dict[str, int]


@dataclass(frozen=True, slots=True)
class FoundClasses:
    """The classes of all objects in the maps of a state, by place: `map`, `key`, `value`, `value.element`, `value.f0`.

    At `inside` are, if they were asked for, all in values of which only the outermost object has a place.

    `kryo` counts maps by the Kryo that wrote them: "2", "5", "either" (both write it alike, such as null) or "unread"
    (it has an object of a class that can't be read). `foreign` counts the latter by the first such class of each. The
    class of null is "null". `like` has for collections of the job the classes of the JDK as which Kryo writes them.
    """

    maps: int = 0
    null_maps: int = 0
    empty_maps: int = 0
    entries: int = 0
    kryo: dict[str, int] = field(default_factory=dict)
    classes: dict[str, ByClass] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)
    like: dict[str, str] = field(default_factory=dict)

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
            self.like | other.like,
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
            self.like,
        )

    def as_of_the_jdk(self) -> FoundClasses:
        """Returns what was found, with the classes of the JDK in place of the job's collections."""
        classes: dict[str, ByClass] = {}
        for place, found in self.classes.items():
            counts = classes.setdefault(place, {})
            for name, count in found.items():
                of_the_jdk = self.like.get(name, name)
                counts[of_the_jdk] = counts.get(of_the_jdk, 0) + count
        return replace(self, classes=classes)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _difference(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) - Counter(other))
