"""Where the descriptions of unknown serializers end: found by what has to follow, in one sweep over the header.

The body of a serializer snapshot has no length, so that one of an unknown class can end anywhere. What has to follow
depends only on how much of the header is still missing (`Context`): so many snapshots inside composite ones, so many
serializers of the state, so many states, so many lists of states. Composite snapshots have no end mark: it doesn't
matter which of them the missing snapshots belong to.

The sweep goes over the positions once, in ascending order, and keeps for each context which readings lead there: none,
one (with the ends it has chosen) or several. An unknown body stays open: wherever a landmark shows that what has to
follow may begin, the body may end. The number of states still missing is a set of bits, so that readings which differ
only in that go together; those for which too few states are left in the file are dropped.

The work is bounded by the size of the header. What would need more is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple, Protocol

from stateferry.binary import ByteReader
from stateferry.errors import DamagedError, RefusedError
from stateferry.serializers.landmarks import Landmarks, find_landmarks, read_key, read_state_head

_FREE_STEPS = 50_000
_BYTES_OF_A_STEP = 8
_BITS_OF_A_STEP = 1 << 14
_LEAST_SNAPSHOT = 2 + 1 + 4  # a class name of one character and a version
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Rest:
    """What has to follow a serializer snapshot that isn't part of another one: more serializers of its state, more
    states of its list, more lists, each with the number of its states before it. Nothing: the end."""

    serializers: int = 0
    states: int = 0
    lists: int = 0


class Head(NamedTuple):
    """A snapshot without those nested in it: where it ends (an unknown one: where its body begins), how many nested
    ones follow there, whether it can be read in several ways, and its class if that is unknown."""

    end: int
    nested: int = 0
    ambiguous: bool = False
    unknown: str | None = None


class HeadReader(Protocol):
    def head(self, position: int) -> Head:
        """Raises `DamagedError` where there is none."""


class Search:
    """What all searches in one header share: the landmarks, the work that is left, and the unknown classes they met."""

    def __init__(self, data: bytes, file: str, limit: int, base: int) -> None:
        self.data = data
        self.file = file
        self.base = base
        self.unknown: dict[str, None] = {}
        self.framed: dict[tuple[int, int], int] = {}
        self._limit = limit
        self._steps = _FREE_STEPS + limit // _BYTES_OF_A_STEP

    @cached_property
    def landmarks(self) -> Landmarks:
        return find_landmarks(self.data, self._limit)

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise self._refused("there are too many ways to read the header")

    def ambiguous(self) -> RefusedError:
        return self._refused("the header can be read in more than one way")

    def _refused(self, what: str) -> RefusedError:
        names = list(islice(self.unknown, _MOST_NAMES))
        more = len(self.unknown) - len(names)
        classes = ", ".join(names) + (f" and {more} more" if more else "")
        return RefusedError(
            f"{self.file}: {what}, because nothing here knows the serializer snapshots of {classes}, and nothing says "
            f"where they end"
        )


def find_ends(
    search: Search, heads: HeadReader, body: int, limit: int, class_name: str, nested: int, rest: Rest
) -> dict[int, int]:
    """Where each unknown body from the one at `body` on ends, by where it begins. `nested` is how many more snapshots
    are missing inside those that have begun; all that has to follow ends at `limit`."""
    search.unknown[class_name] = None
    sweep = _Sweep(search, heads, limit)
    sweep.open((rest.lists, rest.serializers, nested), body, _Ways([(1 << rest.states, None)]))
    sweep.run()
    if sweep.complete.several:
        raise search.ambiguous()
    if not sweep.complete.one:
        raise DamagedError(
            f"an end of the description of {class_name} behind which everything else can be read",
            "none",
            file=search.file,
            offset=search.base + body,
        )
    return dict(_pairs(sweep.complete.one[0][1]))


def ways_to_fill(search: Search, heads: HeadReader, start: int, end: int) -> int:
    """In how many ways one snapshot fills a frame: 0, 1, or 2 for more."""
    if (start, end) not in search.framed:
        sweep = _Sweep(search, heads, end)
        sweep.arrive((0, 0, 1), start, _Ways([(1, None)]))
        sweep.run()
        search.framed[start, end] = 2 if sweep.complete.several else len(sweep.complete.one)
    return search.framed[start, end]


# Missing lists of states, serializers of this state, and snapshots nested in those of one serializer.
Context = tuple[int, int, int]

# The ends that a reading has chosen: the latest position (a body's end, before it the body's begin), and those before.
_Chain = tuple[int, "_Chain"] | None


def _pairs(chain: _Chain) -> Iterator[tuple[int, int]]:
    while chain is not None:
        end, before = chain
        assert before is not None
        start, chain = before
        yield start, end


class _Ways:
    """The readings that lead to one context at one position, by how many more states they need (a bit each): for bits
    that one reading alone leads to, that reading's ends; and the bits that several lead to."""

    __slots__ = ("one", "several")

    def __init__(self, one: list[tuple[int, _Chain]] | None = None, several: int = 0) -> None:
        self.one = one or []
        self.several = several

    def __bool__(self) -> bool:
        return bool(self.one or self.several)

    @property
    def bits(self) -> int:
        every = self.several
        for bits, _ in self.one:
            every |= bits
        return every

    @property
    def cost(self) -> int:
        return 1 + len(self.one) + sum(bits.bit_length() for bits, _ in self.one) // _BITS_OF_A_STEP

    def add(self, other: _Ways) -> None:
        if not self:
            self.one, self.several = list(other.one), other.several
            return
        seen, several = self.bits, self.several | other.several
        for bits, _ in other.one:
            several |= seen & bits
            seen |= bits
        self.several = several
        self.one = [(left, chain) for bits, chain in (*self.one, *other.one) if (left := bits & ~several)]

    def ambiguous(self) -> _Ways:
        return _Ways([], self.bits)

    def within(self, mask: int) -> _Ways:
        return _Ways([(left, chain) for bits, chain in self.one if (left := bits & mask)], self.several & mask)

    def without_one_state(self) -> _Ways:
        return _Ways([(left, chain) for bits, chain in self.one if (left := bits >> 1)], self.several >> 1)

    def with_states(self, count: int) -> _Ways:
        """Of the readings that need no more states, as a list of so many begins."""
        return _Ways([(1 << count, chain) for bits, chain in self.one if bits & 1], (self.several & 1) << count)

    def at(self, position: int) -> _Ways:
        return _Ways([(bits, (position, chain)) for bits, chain in self.one], self.several)


class _Sweep:
    def __init__(self, search: Search, heads: HeadReader, limit: int) -> None:
        self.complete = _Ways()
        self._search = search
        self._heads = heads
        self._limit = limit
        # What begins at a position that is still ahead: something to read, and an unknown body.
        self._arriving: dict[int, dict[Context, _Ways]] = {}
        self._opening: dict[int, dict[Context, _Ways]] = {}
        self._ahead: list[int] = []
        # The bodies that have begun and that may end wherever what they need begins.
        self._open: dict[Context, _Ways] = {}

    def open(self, context: Context, body: int, ways: _Ways) -> None:
        ways = ways.at(body)
        if context == (0, 0, 0):
            self.complete.add(ways.within(1).at(self._limit))
            ways = ways.within(-2)
        self._plan(self._opening, context, body, ways)

    def arrive(self, context: Context, position: int, ways: _Ways) -> None:
        self._plan(self._arriving, context, position, ways)

    def _plan(self, planned: dict[int, dict[Context, _Ways]], context: Context, position: int, ways: _Ways) -> None:
        if position > self._limit or context[2] * _LEAST_SNAPSHOT > self._limit - position:
            return
        if max((bits.bit_length() for bits, _ in ways.one), default=0) > 1 or ways.several > 1:
            ways = self._with_enough_states(position, ways)
        if not ways:
            return
        self._search.spend(ways.cost)
        if position not in self._arriving and position not in self._opening:
            heappush(self._ahead, position)
        planned.setdefault(position, {}).setdefault(context, _Ways()).add(ways)

    def _states_from(self, position: int) -> int:
        states = self._search.landmarks.states
        return len(states) - bisect_left(states, position)

    def _with_enough_states(self, position: int, ways: _Ways) -> _Ways:
        most = self._states_from(position)
        return ways if ways.bits.bit_length() <= most + 1 else ways.within((2 << most) - 1)

    def run(self) -> None:
        position = -1
        while (following := self._next(position + 1)) is not None:
            position = following
            if self._ahead and self._ahead[0] == position:
                heappop(self._ahead)
            arriving, opening = self._arriving.pop(position, {}), self._opening.pop(position, {})
            if self._open:
                self._drop_hopeless(position)
            for context, ways in opening.items():
                self._open.setdefault(context, _Ways()).add(ways)
            for context, ways in self._open.items():
                ending = self._ending(context, position, ways)
                if ending:
                    self._search.spend(ending.cost)
                    arriving.setdefault(context, _Ways()).add(ending.at(position))
            for context, ways in arriving.items():
                self._read(context, position, ways)

    def _drop_hopeless(self, position: int) -> None:
        for context, ways in list(self._open.items()):
            left = self._with_enough_states(position, ways)
            if left is not ways:
                self._open[context] = left
            if not left or context[2] * _LEAST_SNAPSHOT > self._limit - position:
                del self._open[context]

    def _next(self, position: int) -> int | None:
        """The next position, from this one on, where something begins or may follow an open body."""
        found = [self._ahead[0]] if self._ahead else []
        if self._open:
            landmarks = self._search.landmarks
            if any(context[2] for context in self._open):
                found += _first(landmarks.snapshots, position)
            if any(context[1] and not context[2] for context in self._open):
                found += _first(landmarks.keys, position)
            between = [context for context in self._open if not context[1] and not context[2]]
            if between:
                found += _first(landmarks.states, position)
            if any(context[0] for context in between):
                found += [self._next_list(position)]
        return min((one for one in found if one <= self._limit), default=None)

    def _next_list(self, position: int) -> int:
        """Of an i16 with a state behind it, or, for no states, with the end behind it."""
        states = _first(self._search.landmarks.states, position + 2)
        end = self._limit - 2
        return min([state - 2 for state in states] + ([end] if end >= position else []), default=self._limit + 1)

    def _ending(self, context: Context, position: int, ways: _Ways) -> _Ways | None:
        """Those of the readings for which an open body may end here."""
        lists, serializers, nested = context
        landmarks = self._search.landmarks
        if nested:
            return ways if _is_in(landmarks.snapshots, position) else None
        if serializers:
            return ways if _is_in(landmarks.keys, position) else None
        mask = -2 if _is_in(landmarks.states, position) else 0
        if lists and self._next_list(position) == position:
            mask |= 1
        return ways.within(mask) if mask else None

    def _read(self, context: Context, position: int, ways: _Ways) -> None:
        """Reads what the context says, and goes on behind it."""
        lists, serializers, nested = context
        if nested:
            self._read_snapshot(context, position, ways)
        elif serializers:
            reader = self._reader(position)
            try:
                read_key(reader)
            except DamagedError:
                return
            self.arrive((lists, serializers - 1, 1), reader.position, ways)
        else:
            self._read_state(lists, position, ways.without_one_state())
            self._read_list(lists, position, ways.within(1))

    def _reader(self, position: int) -> ByteReader:
        return ByteReader(self._search.data, "", position=position, limit=self._limit)

    def _read_snapshot(self, context: Context, position: int, ways: _Ways) -> None:
        lists, serializers, nested = context
        try:
            head = self._heads.head(position)
        except DamagedError:
            return
        if head.unknown is not None:
            self._search.unknown[head.unknown] = None
            self.open((lists, serializers, nested - 1), head.end, ways)
            return
        further = (lists, serializers, nested - 1 + head.nested)
        self.arrive(further, head.end, ways.ambiguous() if head.ambiguous else ways)

    def _read_state(self, lists: int, position: int, ways: _Ways) -> None:
        if ways and _is_in(self._search.landmarks.states, position):
            head = read_state_head(self._search.data, position, self._limit)
            if head is not None:
                start, serializers = head
                self.arrive((lists, serializers, 0), start, ways)

    def _read_list(self, lists: int, position: int, ways: _Ways) -> None:
        if not ways:
            return
        if not lists:
            if position == self._limit:
                self.complete.add(ways)
            return
        reader = self._reader(position)
        try:
            count = reader.i16("the number of states")
        except DamagedError:
            return
        if count >= 0:
            self.arrive((lists - 1, 0, 0), reader.position, ways.with_states(count))


def _first(positions: array[int], position: int) -> list[int]:
    index = bisect_left(positions, position)
    return [positions[index]] if index < len(positions) else []


def _is_in(positions: array[int], position: int) -> bool:
    return _first(positions, position) == [position]
