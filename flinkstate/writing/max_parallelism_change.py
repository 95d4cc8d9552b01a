"""Hashes keys anew for another max parallelism or another type, and groups entries by the key groups they go to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flinkstate.basics.array_types import Positions
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed import kernels
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.key_group_check import TIMER_TIMESTAMP, expect_key_group
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.values.key_hashes import codes_of_rows


@dataclass(frozen=True, slots=True)
class GroupedEntries:
    """Entries as in a section, ordered by key group: those of `key_groups[i]` are `data[bounds[i]:bounds[i + 1]]`.

    The last entry of `key_groups[i]` begins at `last_starts[i]`.
    """

    state: int
    data: Buffer
    key_groups: Positions
    bounds: Positions
    last_starts: Positions


@dataclass(frozen=True, slots=True)
class Destination:
    """Determines where entries go: to other key groups, or to the key groups they are in.

    They go to others at another max parallelism, or if keys have become others (`rehashes`). The hash of the keys that
    they were isn't known then.
    """

    old_max: int
    new_max: int
    rehashes: bool

    @property
    def changes_key_groups(self) -> bool:
        """Whether keys get other key groups."""
        return self.rehashes or self.old_max != self.new_max

    @property
    def prefix(self) -> int:
        """The number of bytes in which the new files write the key group before a key."""
        return key_group_prefix_bytes(self.new_max)

    def key_groups(self, section: Section, state: KeyedState) -> Positions:
        """Returns each entry's new key group. Raises if the hash of a key doesn't give its present key group."""
        if not self.changes_key_groups:
            return np.full(len(section), section.key_group, np.int64)
        before_key = section.file.prefix + (TIMER_TIMESTAMP if state.kind is StateKind.TIMERS else 0)
        starts = section.key_starts + before_key
        with section.locating():
            codes = codes_of_rows(state.key, section.data, starts, section.key_ends)
            if not self.rehashes:
                expect_key_group(section.key_group, codes, self.old_max, starts)
        groups: Positions = assign_to_key_groups(codes, self.new_max).astype(np.int64)
        return groups

    def send(self, section: Section, state: KeyedState, state_id: int) -> GroupedEntries:
        """Returns all entries of a section, unchanged but for their key groups."""
        if self.changes_key_groups:
            return self.send_some(section, state, state_id, np.arange(len(section)))
        bounds = np.array([0, len(section.raw)], np.int64)
        last = np.array([section.starts[-1] - section.starts[0]], np.int64)
        return GroupedEntries(state_id, section.raw, np.array([section.key_group]), bounds, last)

    def send_some(self, section: Section, state: KeyedState, state_id: int, chosen: Positions) -> GroupedEntries:
        """Returns the chosen entries of a section, ordered by the key groups they go to."""
        targets = self.key_groups(section, state)
        order = chosen[np.argsort(targets[chosen], kind="stable")]
        old_prefix = section.file.prefix
        sizes = (section.ends - section.starts)[order] + (self.prefix - old_prefix)
        ends = np.cumsum(sizes)
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        kernels.copy_entries(
            section.data, section.starts, section.key_ends, targets, order, sizes, old_prefix, self.prefix, out
        )
        return grouped(state_id, out, targets[order], ends, ends - sizes)


def grouped(
    state_id: int, data: Buffer, key_groups: Positions, ends: Positions, last_starts: Positions
) -> GroupedEntries:
    """Groups entries, or sequences of them, by key group; they must be ordered by it already.

    A sequence without entries has a negative `last_start` and is left out.
    """
    there = last_starts >= 0
    key_groups, ends, last_starts = key_groups[there], ends[there], last_starts[there]
    first = np.flatnonzero(np.diff(key_groups, prepend=-1))
    last = np.append(first[1:], len(key_groups)) - 1 if len(first) else first
    bounds = np.append(0, ends[last])
    return GroupedEntries(state_id, data, key_groups[first], bounds, last_starts[last])
