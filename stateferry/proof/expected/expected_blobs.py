"""Works out from the source of a run in reverse what the blobs of the new savepoint must contain.

It works in another way than the conversion: it doesn't gather rows. It adds each living row as an entry, with the
newest timestamp of its key, for which it reads rows with timestamps twice. What it keeps of each key is a hash, the
number of its rows and the newest timestamp. These make a second account, in which each key counts once: so two blobs of
one key differ from what is expected, although together they have the right entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.walker import Flags, Positions
from stateferry.changes.rules import Rules
from stateferry.proof.expected import kernels
from stateferry.proof.expected.content import Entries, Hashes, map_rows
from stateferry.proof.expected.expected_entries import EXPIRED, ExpectedEntries, living

_NO_STAMPS = np.empty(0, np.int64)
_LEAST = -(2**63)


def hash_blobs(keys: Hashes, groups: Positions, counts: Positions, timestamps: Positions) -> Hashes:
    """The hash of each blob: of its key, key group, number of entries and timestamp."""
    data = counts.astype("<i8").view(np.uint8)
    starts, out = np.arange(len(keys)) * 8, np.empty(len(keys), np.uint64)
    nothing = np.zeros(len(keys), np.uint8)
    kernels.hash_values(
        data, starts, starts + 8, nothing, np.empty(0, np.uint8), timestamps.view(np.uint64), groups, keys, out
    )
    return out


@dataclass(slots=True)
class _Keys:
    """The keys of one key group that have living rows: hash, new key group, number of rows, newest timestamp."""

    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    groups: Positions = field(default_factory=lambda: np.empty(0, np.int64))
    counts: Positions = field(default_factory=lambda: np.empty(0, np.int64))
    newest: Positions = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, hashes: Hashes, groups: Positions, timestamps: Positions) -> None:
        every = np.concatenate([self.hashes, hashes])
        found, firsts, places = np.unique(every, return_index=True, return_inverse=True)
        newest, counts = np.full(len(found), _LEAST, np.int64), np.zeros(len(found), np.int64)
        np.maximum.at(newest, places, np.concatenate([self.newest, timestamps]))
        np.add.at(counts, places, np.concatenate([self.counts, np.ones(len(hashes), np.int64)]))
        self.groups = np.concatenate([self.groups, groups])[firsts]
        self.hashes, self.counts, self.newest = found, counts, newest

    def newest_of(self, hashes: Hashes, otherwise: Positions) -> Positions:
        """The newest timestamp of each key, or another one for keys that aren't there."""
        if not len(self.hashes):
            return otherwise
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.newest[places], otherwise)


class ExpectedBlobs(ExpectedEntries):
    """Reads key groups of the source whose rows become blobs, and passes on to a sink what must become of them."""

    def read(self, group: GroupSections, *, carries: bool = True) -> None:
        """Reads one key group; without `carries` only the states that are converted."""
        conversion = self._conversion
        touched = conversion.touched
        keys = {rules.made_name: _Keys() for rules in conversion.rules}
        for state, section in group:
            with section.locating():
                if carries and state.name in self._aging:
                    self._age(self._aging[state.name], state, section)
                elif carries and state.name not in touched:
                    self._carry(state, section)
                for rules in conversion.rules:
                    if state.name == rules.new_name:
                        self._meet(rules, section, keys[rules.made_name])
                    elif state.name == rules.legacy.name:
                        self.counts[rules.made_name].leftover_blobs += len(section)
        for rules in conversion.rules:
            found = keys[rules.made_name]
            if rules.legacy.ttl and len(found.hashes):
                for state, section in group:
                    if state.name == rules.new_name:
                        with section.locating():
                            entries, alive = self._rows_of(rules, section)
                        stamps = found.newest_of(entries.keys, entries.stamps)
                        self._sink.add(rules.made_name, replace(entries, stamps=stamps), alive)
            stamps = found.newest if rules.legacy.ttl else _NO_STAMPS
            hashes = hash_blobs(found.hashes, found.groups, found.counts, stamps)
            self.blobs.of(rules.made_name).add(found.groups, hashes, np.ones(len(hashes), np.bool_))

    def _meet(self, rules: Rules, section: Section, keys: _Keys) -> None:
        entries, alive = self._rows_of(rules, section)
        counts, stamped = self.counts[rules.made_name], rules.legacy.ttl
        counts.rows += len(entries)
        counts.rows_expired += int((~alive).sum())
        self._sample(rules, rules.new_name, section, entries.keys)
        stamps = entries.stamps[alive] if stamped else np.zeros(int(alive.sum()), np.int64)
        keys.add(entries.keys[alive], entries.groups[alive], stamps)
        if not stamped:
            self._sink.add(rules.made_name, entries, alive)
        self._sink.leave_out(rules.made_name, entries, ~alive, EXPIRED)

    def _rows_of(self, rules: Rules, section: Section) -> tuple[Entries, Flags]:
        entries = map_rows(section, rules.new, self._groups(rules.new, section))
        return entries, living(entries.stamps, rules, len(entries))
