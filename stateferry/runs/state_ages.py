"""How old the entries of each state under time to live were found to be: facts of a snapshot, and words for them."""

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
    """What a state holds of a migration."""

    BLOBS = "blobs"
    ROWS = "rows"
    FLAGS = "flags"


@dataclass(frozen=True, slots=True)
class StateAges:
    """Of one state; times and ages are in milliseconds, and an age is negative if its timestamp is of the future, which
    `future` counts. `legacy` is the state that it is migrated with; `sharp_end` and `suggested_ttl` are there if the
    ages end all at once."""

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
        return self.expired / self.counted

    @property
    def where(self) -> str:
        return f"state {self.state} of operator {self.operator}"

    @property
    def ages(self) -> str:
        """For people."""
        quartiles = ", ".join(rough_duration(max(age, 0)) for age in self.quartiles)
        return f"youngest {_age(self.youngest)}, quartiles {quartiles}, oldest {_age(self.oldest)}"


@dataclass(frozen=True, slots=True)
class FoundAges:
    """What a snapshot found at its run's `now`."""

    now: int
    keeps_expired: bool
    states: tuple[StateAges, ...]

    def to_facts(self) -> dict[str, Any]:
        return {**asdict(self), _STATES: [asdict(state) for state in self.states]}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any] | None) -> FoundAges | None:
        """From the facts of a snapshot; None if it didn't look at ages."""
        found = (facts or {}).get(AGES)
        if found is None:
            return None
        # A later version may say more.
        known = [field.name for field in fields(StateAges)]
        states = tuple(
            StateAges(**{name: one.get(name) for name in known} | {"quartiles": tuple(one["quartiles"])})
            for one in found[_STATES]
        )
        return cls(found["now"], found["keeps_expired"], states)

    def lines(self) -> Iterator[str]:
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
