"""The content of a state that isn't migrated and loses what has expired: what of it must be in the new savepoint.

A row of a value or of a map's entry counts as one entry. A list counts element by element, each with its place among
those that must remain, so that an element too many, too few or in another order is found. This finds timestamps and
expired entries by itself, without the code that leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import StateKind
from flinkstate.serializers.types import TtlType
from flinkstate.serializers.walker import Flags, Positions, walk_list_state
from flinkstate.ttl import expired_array
from stateferry.basics.counts import Counts
from stateferry.changes.rules import PlannedTtl
from stateferry.proof.expected.content import Entries, Hashes, plain_entries, timestamps_at

_DELIMITER = 1
_PLACE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class AgingCounts(Counts):
    """What the source has of such a state: values, map entries or list elements."""

    entries: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class AgingEntries:
    """The entries of a section, whether each is alive, the hash of each row's key, and how many lists are empty."""

    entries: Entries
    living: Flags
    keys: Hashes
    empty: int = 0


def aging_entries(section: Section, planned: PlannedTtl, groups: Positions) -> AgingEntries:
    """The entries of a section; `groups` are the key groups to which its rows belong."""
    rows = plain_entries(section, groups)
    if planned.state.kind is StateKind.LIST:
        return _elements(section, planned, rows)
    flag = 1 if planned.state.kind is StateKind.MAP else 0
    stamps = timestamps_at(section.data, section.value_starts + flag, section.ends)
    return AgingEntries(rows, _living(stamps, planned), rows.keys)


def _living(timestamps: Positions, planned: PlannedTtl) -> Flags:
    living: Flags = ~expired_array(timestamps, planned.config.time_to_live, planned.now)
    return living


def _elements(section: Section, planned: PlannedTtl, rows: Entries) -> AgingEntries:
    assert planned.state.value is not None
    limits = section.ends[section.ends > section.value_starts]
    owners_of_lists = np.flatnonzero(section.ends > section.value_starts)
    found = walk_list_state(TtlType(planned.state.value), section.data, section.value_starts[owners_of_lists], limits)
    owners = np.repeat(owners_of_lists, found.counts)
    firsts = np.cumsum(found.counts) - found.counts
    ends = np.roll(found.starts, -1) - _DELIMITER
    ends[firsts + found.counts - 1] = limits
    living = _living(timestamps_at(section.data, found.starts, ends), planned)
    # The place of each element among the living ones of its list.
    before: Positions = np.cumsum(living) - living
    places: Positions = before - np.repeat(before[firsts], found.counts) if len(owners) else before
    spread = rows.keys[owners]
    entries = Entries(
        section.data,
        section.data,
        rows.groups[owners],
        rows.key_starts,
        rows.key_ends,
        owners,
        rows.key_ends[owners],
        rows.key_ends[owners],
        spread,
        spread + places.astype(np.uint64) * _PLACE,
        np.zeros(len(owners), np.uint8),
        rows.null,
        rows.stamps,
        found.starts,
        ends,
    )
    return AgingEntries(entries, living, rows.keys, len(section) - len(owners_of_lists))
