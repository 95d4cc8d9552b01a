"""Measures the ages in all states of a savepoint that have time to live, in one pass or two, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from flinkstate.errors import RefusedError
from flinkstate.keyed.keyed_file import WINDOW, Section
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.ttl import MAX_LONG, StateTtlConfig
from stateferry.basics.durations import MILLISECONDS_PER_UNIT
from stateferry.changes.section_timestamps import entries_of_maps, read_section_timestamps, why_no_timestamps
from stateferry.changes.sections import ends_of_keys, first_of_each
from stateferry.inventory.ages import Ages

# A savepoint whose youngest timestamp is older than this was not taken just now.
_STALE = MILLISECONDS_PER_UNIT["h"]

# By operator id and state.
GivenTtls = Mapping[tuple[str, str], StateTtlConfig]


@dataclass(slots=True)
class MeasuredState:
    """The ages in one state. `given_ttl` are the settings that somebody gave; `why_not` says why there are no ages.

    `keys` is the number of keys (with namespaces), None if it can't be told which rows of a map have the same one.
    """

    operator: Operator
    state: KeyedState
    given_ttl: StateTtlConfig | None
    ages: Ages = field(default_factory=Ages)
    keys: int | None = 0
    why_not: str | None = None
    _last_key: bytes = b""

    @property
    def counted(self) -> str:
        """What ages by itself in this state."""
        match self.state.kind:
            case StateKind.LIST:
                return "list elements"
            case StateKind.MAP:
                return "map entries"
            case StateKind.VALUE if self.state.why_not_split is None:
                return "entries of blobs"
            case StateKind.VALUE:
                return "values"
            case _:
                return "accumulators"

    @property
    def ttl(self) -> int | None:
        """The time to live that was given, or else the one that the ages suggest."""
        return self.given_ttl.time_to_live if self.given_ttl is not None else self.ages.suggested_ttl()

    def add(self, section: Section, now: int) -> None:
        """Counts a section."""
        if self.why_not is not None:
            return
        try:
            stamps = read_section_timestamps(section, self.state).timestamps
            weights = entries_of_maps(section, self.state)
        except RefusedError as error:
            self.ages, self.why_not = Ages(), f"{error}"
            return
        self._count_keys(section)
        ttl = MAX_LONG if self.given_ttl is None else self.given_ttl.time_to_live
        self.ages.count(stamps, np.ones_like(stamps) if weights is None else weights, ttl, now)

    def _count_keys(self, section: Section) -> None:
        if self.keys is None or not len(section):
            return
        if self.state.kind is not StateKind.MAP:
            self.keys += len(section)
            return
        starts = section.key_starts
        try:
            ends = ends_of_keys(section, self.state)
        except RefusedError:
            self.keys = None
            return
        self.keys += len(first_of_each(section.data, starts, ends))
        # A key's rows are neighbours, but may go on in the next section.
        first, last = (section.data[starts[row] : ends[row]].tobytes() for row in (0, -1))
        self.keys -= first == self._last_key
        self._last_key = last


@dataclass(frozen=True, slots=True)
class MeasuredAges:
    """The ages of all states with time to live, at `now`; `is_youngest` says that this is the youngest timestamp."""

    now: int
    is_youngest: bool
    states: tuple[MeasuredState, ...]


def measure_ages(
    savepoint: Savepoint,
    given: GivenTtls,
    clock: int,
    now: int | None = None,
    bytes_read: Callable[[int], None] = lambda count: None,
) -> MeasuredAges:
    """Measures the ages at `now`.

    Without it they count from the clock, or if the savepoint is older than an hour, from its youngest timestamp. To
    find that, all is read once before.
    """
    states = _measured(savepoint, given, clock if now is None else now, bytes_read)
    youngest = min((one.ages.youngest for one in states if one.ages.entries), default=0)
    if now is not None or youngest <= _STALE:
        return MeasuredAges(clock if now is None else now, False, states)
    written = clock - youngest
    return MeasuredAges(written, True, _measured(savepoint, given, written, lambda count: None))


def _measured(
    savepoint: Savepoint, given: GivenTtls, now: int, bytes_read: Callable[[int], None]
) -> tuple[MeasuredState, ...]:
    return tuple(
        one
        for operator in savepoint.keyed_operators()
        for one in _of_operator(savepoint, operator, given, now, bytes_read)
    )


def _of_operator(
    savepoint: Savepoint, operator: Operator, given: GivenTtls, now: int, bytes_read: Callable[[int], None]
) -> Iterator[MeasuredState]:
    found = {
        state.name: MeasuredState(
            operator, state, given.get((operator.hex_id, state.name)), why_not=why_no_timestamps(state)
        )
        for state in savepoint.keyed_states(operator)
        if state.ttl
    }
    window = np.empty(WINDOW, np.uint8)
    for file in savepoint.open_files(operator) if found else ():
        states = keyed_states(file.header, file.name)
        aging = {number for number, state in enumerate(states) if state.name in found}
        for key_group, extent in file.extents.items():
            for section in file.sections_of(key_group, aging, window):
                found[states[section.state].name].add(section, now)
            bytes_read(extent.end - extent.start)
    yield from found.values()
