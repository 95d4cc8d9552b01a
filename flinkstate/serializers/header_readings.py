"""The ways to read a header whose unknown parts may end at several places, many ways at a time as bits of numbers."""

from __future__ import annotations

from collections.abc import Iterator

_BITS_OF_A_STEP = 1 << 14

# The ends that a reading has chosen, latest first: the end of a body, the begin of that body, and so on.
Chain = tuple[int, "Chain"] | None


def ends_of_bodies(chain: Chain) -> Iterator[tuple[int, int]]:
    while chain is not None:
        end, before = chain
        assert before is not None
        start, chain = before
        yield start, end


class Ways:
    """The readings that lead to one context at one position. A bit stands for a number of states they still need.

    `one` has the bits to which a single reading leads, with the ends that this reading chose; `several` has the bits to
    which more than one reading leads.
    """

    __slots__ = ("most_states", "one", "several")

    def __init__(self, one: list[tuple[int, Chain]], several: int = 0) -> None:
        self.one = one
        self.several = several
        most = several.bit_length()
        for bits, _ in one:
            most = max(most, bits.bit_length())
        self.most_states = most - 1

    def __bool__(self) -> bool:
        return bool(self.one or self.several)

    @property
    def cost(self) -> int:
        return max(1, len(self.one)) * (1 + self.most_states // _BITS_OF_A_STEP)

    def joined(self, other: Ways) -> Ways:
        """Returns the readings of both; where both have a bit, several readings lead to it."""
        seen, several = 0, self.several | other.several
        for bits, _ in (*self.one, *other.one):
            several |= seen & bits
            seen |= bits
        return Ways([(left, chain) for bits, chain in (*self.one, *other.one) if (left := bits & ~several)], several)

    def ambiguous(self) -> Ways:
        """Returns the same bits, all of them as reached by several readings."""
        every = self.several
        for bits, _ in self.one:
            every |= bits
        return Ways([], every)

    def within(self, mask: int) -> Ways:
        """Returns the readings with a bit in the mask."""
        return Ways([(left, chain) for bits, chain in self.one if (left := bits & mask)], self.several & mask)

    def with_at_most(self, states: int) -> Ways:
        return self if self.most_states <= states else self.within((2 << states) - 1)

    def without_one_state(self) -> Ways:
        return Ways([(left, chain) for bits, chain in self.one if (left := bits >> 1)], self.several >> 1)

    def with_states(self, count: int) -> Ways:
        """Returns the readings that need no more states, after a list of `count` states has begun."""
        return Ways([(1 << count, chain) for bits, chain in self.one if bits & 1], (self.several & 1) << count)

    def at(self, position: int) -> Ways:
        """Returns the readings after each has noted a position (an end or a begin of a body)."""
        return Ways([(bits, (position, chain)) for bits, chain in self.one], self.several)
