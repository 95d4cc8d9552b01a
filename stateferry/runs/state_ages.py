"""The ages of entries in each state with time to live, as facts of a snapshot and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

from stateferry.durations import format_duration, moment, rough_duration
from stateferry.shares import percent

AGES = "ages"
"""Where a snapshot's facts have them."""
_STATES = "states"


class Holds(Enum):
    """What a state holds: blobs of the legacy state, rows of the new state, or flags."""

    BLOBS = "blobs"
    ROWS = "rows"
    FLAGS = "flags"


@dataclass(frozen=True, slots=True)
class StateAges:
    """The ages of the entries in one state; times and ages are in milliseconds.

    An age is negative if its timestamp is later than `now`; `future` counts these. `legacy` is the state that is
    migrated together with this one. `sharp_end` and `suggested_ttl` are set if the ages end abruptly.
    """

    operator: str
    legacy: str
    state: str
    holds: str
    ttl: int
    counted: int
    expired: int
    future: int
    youngest: int
    quartiles: tuple[int, int, int]
    oldest: int
    sharp_end: int | None = None
    suggested_ttl: int | None = None

    @property
    def share(self) -> float:
        """The share of entries that would expire."""
        return self.expired / self.counted

    @property
    def where(self) -> str:
        """The state and its operator in words, for messages."""
        return f"state {self.state} of operator {self.operator}"

    @property
    def ages(self) -> str:
        """The ages in words, for messages."""
        quartiles = ", ".join(rough_duration(max(age, 0)) for age in self.quartiles)
        return f"youngest {_age(self.youngest)}, quartiles {quartiles}, oldest {_age(self.oldest)}"


@dataclass(frozen=True, slots=True)
class FoundAges:
    """The ages that a snapshot found, at the `now` of its run."""

    now: int
    keeps_expired: bool
    states: tuple[StateAges, ...]

    def to_facts(self) -> dict[str, Any]:
        """The ages as facts of the snapshot step."""
        return {**asdict(self), _STATES: [asdict(state) for state in self.states]}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any] | None) -> FoundAges | None:
        """The ages in a snapshot's facts; None if the snapshot recorded none."""
        found = (facts or {}).get(AGES)
        if found is None:
            return None
        # A later version may record more fields.
        known = [field.name for field in fields(StateAges)]
        states = tuple(
            StateAges(**{name: one.get(name) for name in known} | {"quartiles": tuple(one["quartiles"])})
            for one in found[_STATES]
        )
        return cls(found["now"], found["keeps_expired"], states)

    def lines(self) -> Iterator[str]:
        """The ages as lines of text."""
        if self.states:
            yield f"ages at {moment(self.now)}:"
        for one in self.states:
            kept = ", kept all the same" if self.keeps_expired and one.expired else ""
            yield (
                f"  {one.operator}/{one.state}: {one.expired:,} of {one.counted:,} {_counted(one)} expired "
                f"({percent(one.share)}) under a time to live of {format_duration(one.ttl)}{kept}; {one.ages}"
            )


def _counted(one: StateAges) -> str:
    return "flags" if one.holds == Holds.FLAGS.value else "entries"


def _age(milliseconds: int) -> str:
    return rough_duration(milliseconds) if milliseconds >= 0 else f"{rough_duration(-milliseconds)} in the future"
