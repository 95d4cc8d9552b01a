"""Reads a sample of the values that Kryo wrote: their classes, and whether both Kryos write them alike."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flinkstate.array_types import Bytes, Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.kryo_parts import kryo_reading
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.counted import FoundClasses
from flinkstate.kryo.found import ClassFinder
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, KryoType
from flinkstate.values.kryo_reader import KryoObject
from flinkstate.values.kryo_values import read_kryo_part
from stateferry.verdict.journey import Place

MOST_VALUES = 10_000
# However large the values are, so much is read of an operator at most.
MOST_BYTES = 64 << 20
_TIMESTAMP = 8


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was found in values by Kryo; `whole` if these were all there are.

    `two_meanings` are the classes in a value that both Kryos can read, but perhaps not as the same. `why_not` says why
    no more values could be read.
    """

    found: FoundClasses
    whole: bool
    two_meanings: tuple[str, ...] = ()
    why_not: str | None = None

    @property
    def values(self) -> int:
        """How many values were read."""
        return self.found.maps


@dataclass(slots=True)
class _Finder:
    kryo: KryoType
    place: Place
    state: KeyedState
    five: bool
    classes: ClassFinder = field(init=False)
    read: int = 0
    two_meanings: tuple[str, ...] = ()
    why_not: str | None = None

    def __post_init__(self) -> None:
        self.classes = ClassFinder(self.kryo)

    def add(self, section: Section, most: int | None) -> None:
        starts, ends = self._extents(section)
        if most is not None:
            starts, ends = starts[: most - self.read], ends[: most - self.read]
        self.read += len(starts)
        try:
            self.classes.add(section.data, starts, ends)
        except RefusedValueError as error:
            self._refused(error, section.data, starts, ends)
        except (DamagedError, RefusedError) as error:
            self.why_not = str(error)

    def _refused(self, error: RefusedValueError, data: Bytes, starts: Positions, ends: Positions) -> None:
        """A value that both Kryos can read in their way: its class is read as the one that wrote it."""
        self.why_not = error.why
        if "could both have written" not in error.why:
            return
        row = max(0, int(np.searchsorted(starts, error.offset, "right")) - 1)
        value = bytes(data[starts[row] : ends[row]])
        self.two_meanings = (self.kryo.class_name,)
        # The plain reader says no more of classes that it doesn't know.
        with contextlib.suppress(DamagedError, RefusedError):
            read, _ = read_kryo_part(self.kryo, value, 0, len(value), five=self.five)
            self.two_meanings = tuple(dict.fromkeys(_classes_in(read))) or self.two_meanings
            return
        # The class of the job is the first that can't be read without its jar.
        without = ClassFinder(replace(self.kryo, classes=None))
        with contextlib.suppress(DamagedError, RefusedError):
            without.add(data, starts[row : row + 1], ends[row : row + 1])
            self.two_meanings = tuple(without.found().foreign) or self.two_meanings

    def _extents(self, section: Section) -> tuple[Positions, Positions]:
        """Where the values begin and end. Of a list it is the first element."""
        starts, ends = section.value_starts, section.ends
        timestamp = _TIMESTAMP if self.state.ttl else 0
        if self.place in (Place.KEY, Place.USER_KEY):
            return self._keys(section)
        if self.state.kind is StateKind.MAP:
            # Behind the flag for null.
            present = np.flatnonzero((ends > starts) & (section.data[np.minimum(starts, ends - 1)] == 0))
            return starts[present] + 1 + timestamp, ends[present]
        if self.place is Place.ELEMENT:
            return self._with_ends(section.data, starts + timestamp, ends)
        return starts + timestamp, ends

    def _keys(self, section: Section) -> tuple[Positions, Positions]:
        starts, ends = section.key_starts + section.file.prefix, section.key_ends
        return self._with_ends(section.data, starts, ends)

    def _with_ends(self, data: Bytes, starts: Positions, limits: Positions) -> tuple[Positions, Positions]:
        ends = kryo_reading(self.kryo).find_ends(data, starts, limits, five=self.five, strict=False)
        return starts, np.where(ends < 0, limits, ends)

    def result(self, whole: bool) -> Sampled:
        return Sampled(self.classes.found(), whole and self.why_not is None, self.two_meanings, self.why_not)


def _classes_in(value: object) -> Iterator[str]:
    """Yields the classes of an object and of all in it."""
    if isinstance(value, KryoObject):
        yield value.class_name
        yield from _classes_in(value.value)
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _classes_in(one)


Samples = Mapping[tuple[str, Place], Sampled]


def kryo_places(state: KeyedState) -> Iterator[tuple[Place, KryoType]]:
    """Yields the places of a state whose values are wholly by Kryo, and where a sample can be read."""
    value = Place.ELEMENT if state.kind is StateKind.LIST else Place.VALUE
    places: tuple[tuple[Place, FlinkType | None], ...] = ((Place.KEY, state.key), (value, state.value))
    if state.kind is not StateKind.TIMERS and not state.asynchronous:
        yield from ((place, type_) for place, type_ in places if isinstance(type_, KryoType))


def samples_of(
    savepoint: Savepoint, operator: Operator, states: tuple[KeyedState, ...], *, five: bool, everything: bool
) -> Samples:
    """Reads values of all states of the operator's subtasks, up to a limit unless `everything` is wanted."""
    finders: dict[tuple[str, Place], _Finder] = {}
    unread: dict[tuple[str, Place], Sampled] = {}
    for state in states:
        for place, kryo in kryo_places(state):
            try:
                finders[state.name, place] = _Finder(kryo, place, state, five)
            except RefusedError as error:
                unread[state.name, place] = Sampled(FoundClasses(), whole=False, why_not=str(error))
    whole = True
    if finders:
        budget = None if everything else MOST_BYTES
        for file in savepoint.open_files(operator):
            whole = _read(file, finders, budget) and whole
    return unread | {name: finder.result(whole) for name, finder in finders.items()}


def _read(file: KeyedFile, finders: Mapping[tuple[str, Place], _Finder], budget: int | None) -> bool:
    """Reads a file's values; returns whether it has read all of them."""
    names = [state.name for state in file.header.states]
    window, read = np.empty(WINDOW, np.uint8), 0
    most = None if budget is None else MOST_VALUES
    for key_group in file.extents:
        for section in file.sections(key_group, window):
            wanted = [one for (name, _), one in finders.items() if name == names[section.state]]
            for finder in wanted:
                if finder.why_not is None and (most is None or finder.read < most) and len(section):
                    finder.add(section, most)
            read += len(section.raw) if len(section) else 0
            if budget is not None and read > budget:
                return False
        if most is not None and all(one.read >= most or one.why_not is not None for one in finders.values()):
            return False
    return most is None or all(one.read < most for one in finders.values())
