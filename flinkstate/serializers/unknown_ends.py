"""Finds where the descriptions of unknown serializers end, in one sweep over the header.

The body of a serializer snapshot has no length, so the body of an unknown class could end anywhere. What must follow it
depends only on what of the header is still missing (`Context`): a number of snapshots inside composite ones, of
serializers of the state, of states, and of lists of states. Composite snapshots have no end mark, so it doesn't matter
to which of them the missing snapshots belong.

The sweep goes over the positions once, in ascending order. For each position and context it keeps which readings lead
there: none, one (with the ends that it has chosen) or several. An unknown body stays open: it may end wherever a
landmark shows that what must follow it may begin. The number of missing states is a set of bits, so that readings that
differ only in this number are handled together. Readings that need more states than are left in the file are dropped.

The work is limited in proportion to the size of the header. A header that would need more is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.header_readings import Ways, ends_of_bodies
from flinkstate.serializers.partly_known import NestedMarks
from flinkstate.serializers.possible_starts import PossibleStarts, find_possible_starts, read_key, read_state_head

# The limit of the work for a header. Known parts are free for the first reading that reaches a position: in total they
# take no longer than reading the header once.
_FREE_STEPS = 80_000
_BYTES_OF_A_STEP = 64
_STEPS_OF_AN_END = 4  # for the beginning or the end of an unknown body
_LEAST_SNAPSHOT = 2 + 1 + 4  # a class name of one character and a version


@dataclass(frozen=True, slots=True)
class Rest:
    """What must follow a serializer snapshot that isn't part of another one: by default nothing, so the end.

    It counts further serializers of its state, further states of its list, and further lists (each of these begins with
    the number of its states).
    """

    serializers: int = 0
    states: int = 0
    lists: int = 0


class Head(NamedTuple):
    """A snapshot without its nested ones.

    `end` is where it ends (where the body begins if the class is unknown), `nested` how many nested snapshots follow
    there, `ambiguous` whether it can be read in several ways, `unknown` its class if that is unknown.
    """

    end: int
    nested: int = 0
    ambiguous: bool = False
    unknown: str | None = None


class HeadReader(Protocol):
    """Reads snapshots without their nested ones."""

    def head(self, position: int) -> Head:
        """Returns the snapshot at a position. Raises `DamagedError` if there is none."""


class Search:
    """What all searches in one header share: possible starts, the work that is left, and the first unknown class."""

    def __init__(self, data: bytes, file: str, limit: int, base: int) -> None:
        self.data = data
        self.file = file
        self.base = base
        self.unknown: str | None = None
        self.framed: dict[tuple[int, int], int] = {}
        self.marks = NestedMarks(data)
        self._limit = limit
        self._steps = _FREE_STEPS + limit // _BYTES_OF_A_STEP

    @cached_property
    def starts(self) -> PossibleStarts:
        """The possible starts in the header, found at the first access."""
        return find_possible_starts(self.data, self._limit)

    def spend(self, steps: int) -> None:
        """Takes steps from the work that is left. Refuses the header when none is left."""
        self._steps -= steps
        if self._steps < 0:
            raise self._refused("there are too many ways to read the header")

    def ambiguous(self) -> RefusedError:
        """Returns the refusal of a header that can be read in more than one way."""
        return self._refused("the header can be read in more than one way")

    def _refused(self, what: str) -> RefusedError:
        return RefusedError(
            f"{self.file}: {what}: Stateferry doesn't know the serializer snapshot of {self.unknown}, and perhaps "
            "others behind it, and the file doesn't say where it ends"
        )


def find_ends(
    search: Search, heads: HeadReader, body: int, limit: int, class_name: str, nested: int, rest: Rest
) -> dict[int, int]:
    """Returns the end of each unknown body, from the one at `body` on, by the position where the body begins.

    `nested` is the number of snapshots that are still missing inside those that have begun. All that must follow ends
    at `limit`.
    """
    search.unknown = search.unknown or class_name
    sweep = _Sweep(search, heads, limit)
    sweep.open((rest.lists, rest.serializers, nested), body, Ways([(1 << rest.states, None)]))
    sweep.run()
    if sweep.complete.several:
        raise search.ambiguous()
    if not sweep.complete.one:
        raise DamagedError(
            f"an end of the description of {class_name} after which the rest of the header can be read",
            "none",
            file=search.file,
            offset=search.base + body,
        )
    return dict(ends_of_bodies(sweep.complete.one[0][1]))


def ways_to_fill(search: Search, heads: HeadReader, start: int, end: int) -> int:
    """Returns in how many ways one snapshot can fill a frame: 0, 1, or 2 for more than one."""
    if (start, end) not in search.framed:
        search.framed[start, end] = _ways_to_fill(search, heads, start, end)
    return search.framed[start, end]


def _ways_to_fill(search: Search, heads: HeadReader, start: int, end: int) -> int:
    position, missing = start, 1
    while missing:
        try:
            head = heads.head(position)
        except DamagedError:
            return 0
        if head.unknown is not None or head.ambiguous:
            sweep = _Sweep(search, heads, end)
            sweep.arrive((0, 0, missing), position, Ways([(1, None)]))
            sweep.run()
            return 2 if sweep.complete.several else len(sweep.complete.one)
        position, missing = head.end, missing - 1 + head.nested
    return 1 if position == end else 0


# The numbers of missing lists of states, serializers of this state, and snapshots nested in those of one serializer.
Context = tuple[int, int, int]

# What a body may wait for: a nested snapshot, the next serializer, or the next state or list of states.
_NESTED, _SERIALIZER, _STATE = range(3)


class _Sweep:
    """One sweep over the positions of a header or of a frame."""

    def __init__(self, search: Search, heads: HeadReader, limit: int) -> None:
        self.complete = Ways([])
        self._search = search
        self._heads = heads
        self._limit = limit
        # What begins at positions that the sweep hasn't reached yet: something to read, or an unknown body.
        self._arriving: dict[int, dict[Context, Ways]] = {}
        self._opening: dict[int, dict[Context, Ways]] = {}
        self._ahead: list[int] = []
        # The open bodies by what they wait for, and for each of the three the index of the next landmark.
        self._open: tuple[dict[Context, Ways], ...] = ({}, {}, {})
        self._passed = [0, 0, 0]
        self._states_left = -1

    @cached_property
    def _starts(self) -> tuple[array[int], ...]:
        starts = self._search.starts
        return starts.snapshots, starts.keys, starts.states

    def open(self, context: Context, body: int, ways: Ways) -> None:
        """Plans an unknown body that begins at a position."""
        ways = ways.at(body)
        if context == (0, 0, 0):
            self.complete = self.complete.joined(ways.within(1).at(self._limit))
            ways = ways.within(-2)
        self._plan(self._opening, context, body, ways)

    def arrive(self, context: Context, position: int, ways: Ways) -> None:
        """Plans to read at a position what the context says comes next."""
        self._plan(self._arriving, context, position, ways)

    def _plan(self, planned: dict[int, dict[Context, Ways]], context: Context, position: int, ways: Ways) -> None:
        if position > self._limit or context[2] * _LEAST_SNAPSHOT > self._limit - position:
            return
        if ways.most_states:
            ways = ways.with_at_most(self._states_from(position))
        if not ways:
            return
        there = planned.get(position)
        if planned is self._opening:
            self._search.spend(ways.cost * _STEPS_OF_AN_END)
        elif there is not None or len(ways.one) > 1:
            self._search.spend(ways.cost)
        if there is None:
            if position not in self._arriving and position not in self._opening:
                heappush(self._ahead, position)
            planned[position] = {context: ways}
        elif context in there:
            there[context] = there[context].joined(ways)
        else:
            there[context] = ways

    def _states_from(self, position: int) -> int:
        states = self._search.starts.states
        return len(states) - bisect_left(states, position)

    def run(self) -> None:
        """Goes over all positions, in ascending order, and fills `complete`."""
        position = -1
        while (following := self._next(position + 1)) is not None:
            position = following
            arriving: dict[Context, Ways] = {}
            if self._ahead and self._ahead[0] == position:
                heappop(self._ahead)
                arriving = self._arriving.pop(position, arriving)
                for context, ways in self._opening.pop(position, {}).items():
                    self._open_at(context, position, ways)
            for waits_for in (_NESTED, _SERIALIZER, _STATE):
                if self._open[waits_for]:
                    self._end_open(waits_for, position, arriving)
            head = self._head(position) if any(nested for _, _, nested in arriving) else None
            for context, ways in arriving.items():
                self._read(context, position, ways, head)

    def _open_at(self, context: Context, position: int, ways: Ways) -> None:
        waits_for = _NESTED if context[2] else _SERIALIZER if context[1] else _STATE
        opened = self._open[waits_for]
        opened[context] = opened[context].joined(ways) if context in opened else ways
        self._pass(waits_for, position)

    def _pass(self, waits_for: int, position: int) -> int | None:
        """Returns the next landmark from this position on, of the kind that these bodies wait for."""
        starts, passed = self._starts[waits_for], self._passed[waits_for]
        if passed < len(starts) and starts[passed] < position:
            passed = self._passed[waits_for] = bisect_left(starts, position, passed)
        return starts[passed] if passed < len(starts) else None

    def _next(self, position: int) -> int | None:
        """Returns the next position, from this one on, where something begins or may follow an open body."""
        nearest = self._ahead[0] if self._ahead else self._limit + 1
        if any(self._open):
            self._drop_hopeless(position)
        for waits_for in (_NESTED, _SERIALIZER, _STATE):
            if self._open[waits_for]:
                landmark = self._pass(waits_for, position)
                if landmark is not None and landmark < nearest:
                    nearest = landmark
        if self._open[_STATE] and any(context[0] for context in self._open[_STATE]):
            nearest = min(nearest, self._next_list(position))
        return nearest if nearest <= self._limit else None

    def _next_list(self, position: int) -> int:
        """Returns where the next list of states may begin: two bytes before a state, or (if empty) before the end."""
        states, end = self._search.starts.states, self._limit - 2
        index = bisect_left(states, position + 2)
        following = [states[index] - 2] if index < len(states) else []
        return min([*following, *([end] if end >= position else [])], default=self._limit + 1)

    def _drop_hopeless(self, position: int) -> None:
        """Drops readings that need more states than can follow."""
        self._pass(_STATE, position)
        states = len(self._starts[_STATE]) - self._passed[_STATE]
        if states == self._states_left:
            return
        self._states_left = states
        for opened in self._open:
            for context, ways in list(opened.items()):
                if ways.most_states > states:
                    opened[context] = ways = ways.with_at_most(states)
                if not ways:
                    del opened[context]

    def _end_open(self, waits_for: int, position: int, arriving: dict[Context, Ways]) -> None:
        """Ends, at this position, the open bodies behind which may begin what they wait for."""
        is_landmark = self._pass(waits_for, position) == position
        for context, ways in self._open[waits_for].items():
            ending = ways if is_landmark else None
            if waits_for == _STATE:
                may_be_list = bool(context[0]) and self._next_list(position) == position
                ending = ways.within((-2 if is_landmark else 0) | (1 if may_be_list else 0))
            if ending:
                self._search.spend(ending.cost * _STEPS_OF_AN_END)
                ended = ending.at(position)
                arriving[context] = arriving[context].joined(ended) if context in arriving else ended

    def _head(self, position: int) -> Head | None:
        try:
            return self._heads.head(position)
        except DamagedError:
            return None

    def _read(self, context: Context, position: int, ways: Ways, head: Head | None) -> None:
        """Reads what the context says comes next, and plans what follows. `head` is the snapshot that begins here."""
        lists, serializers, nested = context
        if nested:
            if head is not None:
                self._read_snapshot(context, head, ways)
        elif serializers:
            reader = self._reader(position)
            try:
                key = read_key(reader)
            except DamagedError:
                return
            if key:
                self.arrive((lists, serializers - 1, 1), reader.position, ways)
        else:
            self._read_state(lists, position, ways)
            self._read_list(lists, position, ways.within(1))

    def _reader(self, position: int) -> ByteReader:
        return ByteReader(self._search.data, "", position=position, limit=self._limit)

    def _read_snapshot(self, context: Context, head: Head, ways: Ways) -> None:
        lists, serializers, nested = context
        if head.unknown is not None:
            self.open((lists, serializers, nested - 1), head.end, ways)
            return
        further = (lists, serializers, nested - 1 + head.nested)
        self.arrive(further, head.end, ways.ambiguous() if head.ambiguous else ways)

    def _read_state(self, lists: int, position: int, ways: Ways) -> None:
        states = self._search.starts.states
        index = bisect_left(states, position)
        if ways.most_states and index < len(states) and states[index] == position:
            head = read_state_head(self._search.data, position, self._limit)
            if head is not None:
                start, serializers = head
                self.arrive((lists, serializers, 0), start, ways.without_one_state())

    def _read_list(self, lists: int, position: int, ways: Ways) -> None:
        if not ways:
            return
        if not lists:
            if position == self._limit:
                self.complete = self.complete.joined(ways)
            return
        reader = self._reader(position)
        try:
            count = reader.i16("the number of states")
        except DamagedError:
            return
        if count >= 0:
            self.arrive((lists - 1, 0, 0), reader.position, ways.with_states(count))
