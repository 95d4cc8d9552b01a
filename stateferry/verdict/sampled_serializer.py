"""What is found in the values of one serializer by Kryo: their classes, and which Kryo wrote them."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field, replace

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.class_finder import ClassFinder
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.types import KryoType
from stateferry.verdict.bytes_by_kryo_5 import same_by_kryo_5
from stateferry.verdict.kryo_extents import KryoExtents


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was found in values by Kryo; `whole` if these were all there are.

    `two_meanings` are the classes in a value that both Kryos can read, but not as the same, where nobody knows which
    one wrote it. `why_not` says why no more values could be read. `other_bytes` says that Kryo 5 writes a key with
    other bytes than Kryo 2 did.
    """

    found: FoundClasses
    whole: bool
    two_meanings: tuple[str, ...] = ()
    why_not: str | None = None
    other_bytes: bool = False

    @property
    def values(self) -> int:
        """How many values were read."""
        return self.found.maps


@dataclass(slots=True)
class SampledSerializer:
    """What was found of one serializer by Kryo; `five` says which Kryo wrote most of its values, or all: `by_one`."""

    kryo: KryoType
    five: bool
    are_keys: bool
    by_one: bool
    classes: ClassFinder = field(init=False)
    two_meanings: tuple[str, ...] = ()
    why_not: str | None = None
    other_bytes: bool = False
    # Of values that both Kryos can read: those that both write with these bytes, and the others.
    _alike: ClassFinder | None = None
    _others: ClassFinder | None = None

    def __post_init__(self) -> None:
        self.classes = ClassFinder(self.kryo)

    def add(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        """Reads the values at these places."""
        if self.is_done or not len(starts):
            return
        if self.are_keys and not self.five and not self.other_bytes:
            same = same_by_kryo_5(self.kryo, data, starts, ends)
            self.other_bytes = same is not None and not same.all()
        try:
            if self._alike is None and self._others is None and not self.two_meanings:
                self.classes.add(data, starts, ends)
                return
        except RefusedValueError as error:
            if "could both have written" not in error.why:
                self.why_not = error.why
                return
        except (DamagedError, RefusedError) as error:
            self.why_not = str(error)
            return
        self._add_by_each(data, starts, ends)

    @property
    def is_done(self) -> bool:
        """Whether more values would say no more."""
        return self.why_not is not None and not self.two_meanings

    def _add_by_each(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        """Reads values of which both Kryos can have written some."""
        by_2, by_5 = (
            KryoExtents(data, five, sys.maxsize).ends(self.kryo, starts, ends) == ends for five in (False, True)
        )
        both = by_2 & by_5
        alike = np.zeros(len(starts), np.bool_)
        same = same_by_kryo_5(self.kryo, data, starts[both], ends[both])
        alike[both] = False if same is None else same
        differing = both & ~alike
        try:
            self.classes.add(data, starts[~both], ends[~both])
            if alike.any():
                self._alike = self._alike or ClassFinder(self.kryo, five=False)
                self._alike.add(data, starts[alike], ends[alike])
            if differing.any() and self.by_one:
                self._others = self._others or ClassFinder(self.kryo, five=self.five)
                self._others.add(data, starts[differing], ends[differing])
        except (DamagedError, RefusedError) as error:
            self.why_not = str(error)
        if differing.any() and not self.by_one and not self.two_meanings:
            row = int(np.argmax(differing))
            self.two_meanings = self._classes_of(data, starts[row : row + 1], ends[row : row + 1])

    def _classes_of(self, data: Bytes, start: Positions, end: Positions) -> tuple[str, ...]:
        """Returns the classes in a value that both Kryos can read, as the Kryo of the savepoint's Flink wrote it."""
        finder = ClassFinder(self.kryo, five=self.five)
        with contextlib.suppress(DamagedError, RefusedError):
            finder.add(data, start, end)
        found = finder.found(inside=True).classes.values()
        return tuple(dict.fromkeys(name for there in found for name in there)) or (self.kryo.class_name,)

    def result(self, whole: bool) -> Sampled:
        """What was found; `whole` if all values were given."""
        found, whole = self.classes.found(inside=True), whole and self.why_not is None and not self.two_meanings
        if self._others is not None:
            found += self._others.found(inside=True)
        if self._alike is not None:
            alike = self._alike.found(inside=True)
            found += replace(alike, kryo={"either": alike.maps})
        return Sampled(found, whole, self.two_meanings, self.why_not, self.other_bytes)
