"""The ages of entries in each state with time to live, as facts of a snapshot and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stateferry.basics.durations import format_duration, moment, rough_age, rough_duration
from stateferry.basics.quantities import percent


class Holds(StrEnum):
    """What a state holds: blobs of the legacy state, rows of the new state, flags, or what no migration touches."""

    BLOBS = "blobs"
    ROWS = "rows"
    FLAGS = "flags"
    OTHERS = "others"


@dataclass(frozen=True, slots=True)
class StateAges:
    """The ages of the entries in one state; times and ages are in milliseconds.

    An age is negative if its timestamp is later than `now`; `future` counts these. `legacy` is the state that is
    migrated together with this one, or itself if no migration touches it. The time to live is 0 if nobody gave one.
    `sharp_end` and `suggested_ttl` are set if the ages end abruptly. `kept` says that expired entries stay.
    """

    operator: str
    legacy: str
    state: str
    holds: Holds
    ttl: int
    counted: int
    expired: int
    future: int
    youngest: int
    quartiles: tuple[int, int, int]
    oldest: int
    sharp_end: int | None = None
    suggested_ttl: int | None = None
    kept: bool = False

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
        return f"youngest {rough_age(self.youngest)}, quartiles {quartiles}, oldest {rough_age(self.oldest)}"


@dataclass(frozen=True, slots=True)
class FoundAges:
    """The ages that a snapshot found, at the `now` of its run.

    `untold` are states with a time to live that neither a migration nor an option gives.
    """

    now: int
    keeps_expired: bool
    states: tuple[StateAges, ...]
    untold: tuple[StateAges, ...] = ()

    def lines(self) -> Iterator[str]:
        """The ages as lines of text."""
        if self.states or self.untold:
            yield f"ages at {moment(self.now)}:"
        for one in self.states:
            stays = one.kept or (self.keeps_expired and one.holds is not Holds.OTHERS)
            kept = ", kept all the same" if stays and one.expired else ""
            what = "flags" if one.holds is Holds.FLAGS else "entries"
            yield (
                f"  {one.operator}/{one.state}: {one.expired:,} of {one.counted:,} {what} expired "
                f"({percent(one.share)}) under a time to live of {format_duration(one.ttl)}{kept}; {one.ages}"
            )
        for one in self.untold:
            suggests = f"; they suggest {format_duration(one.suggested_ttl)}" if one.suggested_ttl is not None else ""
            what = f"{one.counted:,} entries of an untold time to live"
            yield f"  {one.operator}/{one.state}: {what}; {one.ages}{suggests}"
