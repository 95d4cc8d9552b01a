"""Reads a sample of the values that Kryo wrote, also inside of others: their classes, and if both write them alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.errors import RefusedError
from flinkstate.files.storage import Location
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.metadata.metadata import Operator, OperatorHandle
from flinkstate.metadata.streams import expect
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import FlinkType, KryoType, type_name
from flinkstate.writing.operator_file import ElementFile
from stateferry.verdict.journey import Journey, Place
from stateferry.verdict.key_parts import KeyParts
from stateferry.verdict.kryo_extents import KryoExtents
from stateferry.verdict.sampled_serializer import Sampled, SampledSerializer
from stateferry.verdict.versions import Line

MOST_VALUES = 10_000
# However large the values are, so much is read of all operators together, but of each so much.
MOST_BYTES = 48 << 20
_LEAST_BYTES = 1 << 16
_WINDOWS = 4
_TIMESTAMP = 8
_MayEnd = Callable[[Positions], Flags]


@dataclass(slots=True)
class Finder:
    """Finds the values by Kryo in values of one type; `five` is the Kryo that wrote most of them, or all."""

    type: FlinkType
    five: bool
    most: int
    are_keys: bool = False
    all_by_kryo_5: bool = False
    read: int = 0
    why_not: str | None = None
    _serializers: dict[KryoType, SampledSerializer | Sampled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kryo in with_parts(self.type):
            if isinstance(kryo, KryoType):
                try:
                    self._serializers[kryo] = SampledSerializer(
                        kryo, self.five, self.are_keys, not self.five or self.all_by_kryo_5
                    )
                except RefusedError as error:
                    self._serializers[kryo] = Sampled(FoundClasses(), whole=False, why_not=str(error))

    @property
    def has_kryo(self) -> bool:
        """Whether there is anything by Kryo in the type."""
        return bool(self._serializers)

    @property
    def enough(self) -> bool:
        """Whether no more values are wanted."""
        if self.read >= self.most or self.why_not is not None:
            return True
        kinds = [one for one in self._serializers.values() if isinstance(one, SampledSerializer)]
        return self.has_kryo and all(one.is_done for one in kinds)

    def add_whole(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        """Reads values of the type that end where it is said."""
        if isinstance(self.type, KryoType):
            wanted = slice(self.most - self.read)
            self._add(self.type, data, starts[wanted], ends[wanted])
            self.read += len(starts[wanted])
        else:
            self.add(data, starts, ends, lambda found: found == ends)

    def add(self, data: Bytes, starts: Positions, limits: Positions, may_end: _MayEnd | None = None) -> Positions:
        """Reads values of the type, behind which there may be more. Returns where they end, -1 if that isn't known.

        `may_end` says of ends whether a value can end there.
        """
        mine, ends = np.ones(len(starts), np.bool_), np.full(len(starts), -1, np.int64)
        if may_end is not None:
            mine = ~self._only_by_the_other(data, starts, limits, may_end)
        ends[mine], walk = self._walked(data, starts[mine], limits[mine], self.five)
        other = np.flatnonzero(ends < 0)
        if len(other) and not walk.enough:
            of_other, by_other = self._walked(data, starts[other], limits[other], not self.five)
            ends[other] = of_other
            if (of_other < 0).any() and not by_other.enough and self.why_not is None:
                self.why_not = f"a value of {type_name(self.type)} can't be read to its end"
                # It says which class it is that can't be read.
                for kryo, (begins, stops) in walk.unread.items():
                    self._add(kryo, data, begins, stops)
        return ends

    def _only_by_the_other(self, data: Bytes, starts: Positions, limits: Positions, may_end: _MayEnd) -> Flags:
        """Which values end where one can if the other Kryo wrote them, and not if this one did.

        What one Kryo writes may begin like what the other does: a map by Kryo 2 like an empty one by Kryo 5.
        """
        # No more values are read than these.
        count = min(len(starts), self.most - self.read)
        by_mine, by_other = np.full((2, len(starts)), -1, np.int64)
        for found, five in ((by_mine, self.five), (by_other, not self.five)):
            found[:count] = KryoExtents(data, five, sys.maxsize).ends(self.type, starts[:count], limits[:count])
        fits: Flags = (by_other >= 0) & may_end(by_other) & ~((by_mine >= 0) & may_end(by_mine))
        return fits

    def _walked(self, data: Bytes, starts: Positions, limits: Positions, five: bool) -> tuple[Positions, KryoExtents]:
        walk = KryoExtents(data, five, self.most - self.read)
        ends = walk.ends(self.type, starts, limits)
        for kryo, extents in walk.found.items():
            for begins, stops in extents:
                self._add(kryo, data, begins, stops)
        self.read += walk.count
        return ends, walk

    def _add(self, kryo: KryoType, data: Bytes, starts: Positions, ends: Positions) -> None:
        serializer = self._serializers[kryo]
        if isinstance(serializer, SampledSerializer):
            serializer.add(data, starts, ends)

    def results(self, whole: bool) -> tuple[tuple[KryoType, Sampled], ...]:
        """What was found, of each serializer; `whole` if all values were given."""
        out = []
        for kryo, one in self._serializers.items():
            found = one if isinstance(one, Sampled) else one.result(whole and self.read < self.most)
            if self.why_not is not None and found.why_not is None:
                found = replace(found, whole=False, why_not=self.why_not)
            out.append((kryo, found))
        return tuple(out)


Found = tuple[tuple[KryoType, Sampled], ...]
Samples = Mapping[tuple[str, Place], Found]


def kryo_places(state: KeyedState) -> Iterator[tuple[Place, FlinkType]]:
    """Yields the places of a state in whose values there is something by Kryo."""
    value = Place.ELEMENT if state.kind is StateKind.LIST else Place.VALUE
    places = ((Place.KEY, state.key), (Place.USER_KEY, state.user_key), (value, state.value))
    if state.kind is not StateKind.TIMERS and not state.asynchronous:
        for place, type_ in places:
            if type_ is not None and any(isinstance(one, KryoType) for one in with_parts(type_)):
                yield place, type_


def bytes_of_each(operators: int) -> int:
    """Returns how many bytes are read of each of so many operators at most."""
    return max(MOST_BYTES // max(operators, 1), _LEAST_BYTES)


def samples_of(
    savepoint: Savepoint, operator: Operator, states: tuple[KeyedState, ...], journey: Journey, most_bytes: int | None
) -> Samples:
    """Reads values of all states of the operator's subtasks, up to limits, or all of them without `most_bytes`."""
    most = sys.maxsize if most_bytes is None else MOST_VALUES
    finders = {
        (state.name, place): (
            state,
            Finder(type_, journey.source is Line.TWO, most, place.is_key, journey.all_by_kryo_5),
        )
        for state in states
        for place, type_ in kryo_places(state)
    }
    whole = True
    if finders:
        budget = sys.maxsize if most_bytes is None else most_bytes
        for file in savepoint.open_files(operator):
            whole = _read(file, finders, budget) and whole
    return {name: finder.results(whole) for name, (_, finder) in finders.items()}


def _read(file: KeyedFile, finders: Mapping[tuple[str, Place], tuple[KeyedState, Finder]], budget: int) -> bool:
    """Reads a file's values; returns whether it has read all of them."""
    names = [state.name for state in file.header.states]
    window, read = np.empty(min(WINDOW, max(budget // _WINDOWS, _LEAST_BYTES)), np.uint8), 0
    if isinstance(file, KeyGroupFile) and file.extents:
        first = min(extent.start for extent in file.extents.values())
        # A store is asked for no more.
        expect(file.file, first, first + budget + len(window))
    for key_group in file.extents:
        for section in file.sections(key_group, window):
            for (name, place), (state, finder) in finders.items():
                if name == names[section.state] and len(section) and not finder.enough:
                    _add(section, place, state, finder)
            read += len(section.raw) if len(section) else 0
            if read > budget:
                return False
        if all(finder.enough for _, finder in finders.values()):
            return False
    return True


def operator_samples(
    folder: Location,
    handles: Sequence[OperatorHandle],
    types: Mapping[str, tuple[FlinkType, ...]],
    journey: Journey,
    *,
    most_bytes: int | None,
    whole: bool,
) -> Mapping[str, tuple[Found | None, ...]]:
    """Reads values in files of operator state, whose states have these types: of elements, or of keys and values.

    Returns what was found of each type by Kryo. `whole` says that the files are all there are.
    """
    most = sys.maxsize if most_bytes is None else MOST_VALUES
    five, all_by_5 = journey.source is Line.TWO, journey.all_by_kryo_5
    finders = {
        name: [Finder(type_, five, most, all_by_kryo_5=all_by_5) for type_ in of_state]
        for name, of_state in types.items()
    }
    wanted = {name: found for name, found in finders.items() if any(finder.has_kryo for finder in found)}
    in_part: set[str] = set()
    for handle in handles if wanted else ():
        with ElementFile(folder, handle) as file:
            for state in handle.states:
                if state.name in wanted:
                    budget = sys.maxsize if most_bytes is None else most_bytes
                    data, starts, ends, all_read = _elements(file, state.offsets, budget)
                    if not _add_elements(wanted[state.name], data, starts, ends) or not all_read:
                        in_part.add(state.name)
    return {
        name: tuple(finder.results(whole and name not in in_part) if finder.has_kryo else None for finder in found)
        for name, found in wanted.items()
    }


def _add_elements(finders: Sequence[Finder], data: Bytes, starts: Positions, ends: Positions) -> bool:
    """Reads elements; returns whether it has read all of them."""
    if len(finders) == 1:
        finders[0].add_whole(data, starts, ends)
        return True
    return all(_add_entries(finders, data, *extent) for extent in zip(starts.tolist(), ends.tolist(), strict=True))


def _elements(file: ElementFile, offsets: Sequence[int], budget: int) -> tuple[Bytes, Positions, Positions, bool]:
    """Returns elements one after another, where they begin and end, and whether these are all."""
    parts: list[bytes] = []
    for offset in offsets:
        if budget <= 0:
            break
        parts.append(file.whole_element(offset))
        budget -= len(parts[-1])
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends))[: len(ends)]
    # Not read-only: the kernels that read Kryo are compiled for what can be written.
    return np.frombuffer(bytearray().join(parts), np.uint8), starts, ends, len(parts) == len(offsets)


def _add_entries(finders: Sequence[Finder], data: Bytes, start: int, end: int) -> bool:
    """Reads the keys and values of a broadcast state: a count, then each key and value.

    Returns whether it has read them all. Nobody knows where what stands behind an unreadable one begins.
    """
    count = int.from_bytes(bytes(data[start : start + 4]), "big")
    at, limit = np.array([start + 4]), np.array([end])
    for _ in range(count):
        for finder in finders:
            if at[0] < 0 or finder.read >= finder.most:
                return False
            at = finder.add(data, at, limit)
            if finder.why_not is not None:
                for other in finders:
                    other.why_not = other.why_not or finder.why_not
                return False
    return True


def _ends_an_element(ends: Positions, data: Bytes, limits: Positions) -> Flags:
    found: Flags = (ends == limits) | (data[np.minimum(ends, len(data) - 1)] == ord(","))
    return found


def _add(section: Section, place: Place, state: KeyedState, finder: Finder) -> None:
    starts, ends, data = section.value_starts, section.ends, section.data
    timestamp = _TIMESTAMP if state.ttl else 0
    if place in (Place.KEY, Place.USER_KEY):
        parts = KeyParts(state, data, section.key_starts + section.file.prefix, section.key_ends)
        if place is Place.USER_KEY:
            keys = parts.user_keys(finder.five)
            if (keys < 0).any():
                finder.why_not = "a key in front of one can't be read to its end"
            finder.add_whole(data, keys[keys >= 0], section.key_ends[keys >= 0])
        else:
            finder.add(data, parts.starts, section.key_ends, parts.may_end)
    elif place is Place.ELEMENT:
        while len(starts) and not finder.enough:
            # A comma stands between two elements.
            stops = finder.add(data, starts + timestamp, ends, partial(_ends_an_element, data=data, limits=ends))
            more = (stops >= 0) & (stops + 1 < ends)
            starts, ends = stops[more] + 1, ends[more]
    elif state.kind is StateKind.MAP:
        # Behind the flag for null.
        present = np.flatnonzero((ends > starts) & (data[np.minimum(starts, ends - 1)] == 0))
        finder.add_whole(data, starts[present] + 1 + timestamp, ends[present])
    else:
        finder.add_whole(data, starts + timestamp, ends)
