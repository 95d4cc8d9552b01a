"""Works out from the source what the key groups of the new savepoint must contain.

It works in another way than the migration, which writes the rows. First it adds all rows and all entries of blobs that
are alive, and keeps 8 bytes for each key. Only where a key with a blob also has a flag or rows, it reads the entries
again and takes back those that don't belong in the new state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from flinkstate.errors import DamagedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.types import Scalar
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.ttl import expired_array
from stateferry.basics.counts import Counts
from stateferry.changes.lazy_cut import LazyCut
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Nulls, PlannedTtl, Rules, null_under_ttl
from stateferry.inventory.blob_times import blob_sum
from stateferry.proof.expected.aging_content import AgingCounts, aging_entries
from stateferry.proof.expected.content import (
    AccountsByState,
    BlobEntries,
    Entries,
    Hashes,
    KeySpans,
    blob_entries,
    hash_ranges,
    map_rows,
    plain_entries,
    timestamps_at,
)
from stateferry.proof.expected.expected_pojos import expected_pojos
from stateferry.proof.expected.sampling import KeySample

EXPIRED, SUPERSEDED, FLAGGED, REPLACED, NULL, LEFT, MOVED, SET = (
    "expired",
    "superseded by a row",
    "the key is flagged as migrated",
    "replaced by the key's blob",
    "a null that the new state can't hold",
    "the key is not moved",
    "the key is moved",
    "the key is moved, and its flag set",
)


@dataclass(slots=True)
class SourceCounts(Counts):
    """What the source has for one new state.

    `blob_sum` is that of `blob_times.py` over the blobs of a legacy state with time to live. The entries of
    `nulls_left_out` are alive, and neither superseded nor of flagged keys. `leftover_blobs` are those that a
    source still has whose rows become blobs. The last seven are counted in a lazy run.
    """

    blob_entries: int = 0
    blob_entries_expired: int = 0
    blob_sum: int = 0
    blob_entries_superseded: int = 0
    blob_entries_of_flagged_keys: int = 0
    rows: int = 0
    rows_expired: int = 0
    rows_replaced: int = 0
    contradictions: int = 0
    nulls_left_out: int = 0
    leftover_blobs: int = 0
    blob_entries_left: int = 0
    blobs: int = 0
    blobs_moved: int = 0
    blobs_expired: int = 0
    flags: int = 0
    flags_replaced: int = 0
    flags_set: int = 0


class Sink(Protocol):
    """Receives the expected entries.

    `leave_out` gets entries that were never added, `withdraw` gets entries that were added before.
    """

    def add(self, state: str, entries: Entries, chosen: Flags) -> None: ...

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None: ...

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None: ...


@dataclass(slots=True)
class _Claims:
    """Hashes of the keys of one key group that have a flag, rows or a blob that is alive.

    `moved` are those with a living blob that a lazy run moves.
    """

    flagged: list[Hashes] = field(default_factory=list)
    rows: list[Hashes] = field(default_factory=list)
    blobs: list[Hashes] = field(default_factory=list)
    moved: list[Hashes] = field(default_factory=list)


def _joined(parts: list[Hashes]) -> Hashes:
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))


def _among(hashes: Hashes, some: Hashes) -> Flags:
    return np.isin(hashes, some)


class ExpectedEntries:
    """Reads key groups of the source, and passes on to a sink what must become of them.

    `counts` are by new state, `aging` by state that isn't migrated and loses what has expired. `blobs` accounts for the
    blobs that are made, by legacy state.
    """

    def __init__(
        self, conversion: OperatorChanges, sink: Sink, samples: Mapping[str, KeySample] | None = None, size: int = 0
    ) -> None:
        """`samples` collect rows that are read a second time, by new state; `blobs` has `size` key groups."""
        self._conversion, self._sink = conversion, sink
        self._samples, self._made, self._aging = samples or {}, conversion.made, conversion.aging
        self.counts: dict[str, SourceCounts] = {rules.made_name: SourceCounts() for rules in conversion.rules}
        self.blobs = AccountsByState(size or conversion.new_max)
        self.aging: dict[str, AgingCounts] = {name: AgingCounts() for name in self._aging}
        # The section that is read as the source has it, if it is written for another Flink first.
        self.in_source: Section | None = None

    def read(self, group: GroupSections, *, carries: bool = True) -> None:
        """Reads one key group; without `carries` only the states that are migrated."""
        conversion = self._conversion
        here = {state.name for state in group.states}
        claims = {rules.new_name: _Claims() for rules in conversion.rules}
        untouched = here - conversion.touched
        for state, section in group:
            with section.locating():
                if carries and state.name in self._aging:
                    self._age(self._aging[state.name], state, section)
                elif carries and state.name in untouched:
                    self._carry(state, section)
                for rules in conversion.rules:
                    if state.name == rules.legacy.name:
                        meets = bool(here & {rules.new_name, rules.flag_name})
                        self._blobs(rules, section, claims[rules.new_name] if meets else None)
                    elif state.name == rules.new_name:
                        self._rows(rules, section, claims[rules.new_name] if rules.legacy.name in here else None)
                    elif state.name == rules.flag_name:
                        self._flags(rules, state, section, claims[rules.new_name])
        for rules in conversion.rules:
            self._settle(rules, group, claims[rules.new_name])

    def _carry(self, state: KeyedState, section: Section) -> None:
        entries = plain_entries(section, self._groups(state, section))
        self._sink.add(state.name, entries, np.ones(len(entries), np.bool_))

    def _age(self, planned: PlannedTtl, state: KeyedState, section: Section) -> None:
        name = state.name
        found = aging_entries(section, planned, self._groups(state, section))
        if name in self._samples and name not in self._conversion.by_kryo:
            self._samples[name].see(name, section, found.keys)
        self.aging[name].entries += len(found.entries)
        self.aging[name].expired += int((~found.living).sum())
        self._sink.add(name, found.entries, found.living)
        self._sink.leave_out(name, found.entries, ~found.living, EXPIRED)

    def _groups(self, state: KeyedState, section: Section) -> Positions:
        if not self._conversion.changes_key_groups:
            return np.full(len(section), section.key_group, np.int64)
        spans = KeySpans.of(section, state)
        if not self._conversion.rehashes:
            spans.expect_group(section, state, self._conversion.old_max)
        return spans.per_entry(spans.groups(section, state, self._conversion.new_max))

    def _blobs(self, rules: Rules, section: Section, claims: _Claims | None) -> None:
        counts = self.counts[rules.new_name]
        blobs, live, kept, nulls = self._living_entries(rules, section)
        self._sample(rules, rules.legacy.name, section, blobs.keys)
        counts.blob_entries += len(blobs.entries)
        counts.blob_entries_expired += int(blobs.counts[~live].sum())
        if rules.legacy.ttl:
            counts.blob_sum += blob_sum(blobs.stamps, blobs.counts)
        counts.nulls_left_out += int(nulls.sum())
        if claims is not None:
            claims.blobs.append(blobs.keys[live])
        if rules.lazy_cut is not None:
            self._divide(rules, rules.lazy_cut, section, blobs, live, claims)
        elif rules.keeps_rest:
            rest = expected_pojos(section, rules, self._groups(rules.legacy, section))
            self._sink.add(rules.legacy.name, rest, live)
            self._sink.leave_out(rules.legacy.name, rest, ~live, EXPIRED)
        self._sink.add(rules.new_name, blobs.entries, kept)
        self._sink.leave_out(rules.new_name, blobs.entries, blobs.per_entry(~live), EXPIRED)
        self._sink.leave_out(rules.new_name, blobs.entries, nulls, NULL)

    def _divide(
        self, rules: Rules, cut: LazyCut, section: Section, blobs: BlobEntries, live: Flags, claims: _Claims | None
    ) -> None:
        """Adds the blobs that stay, and flags for the keys of the others."""
        counts, moved = self.counts[rules.new_name], _moved(cut, section)
        whole = plain_entries(section, self._groups(rules.legacy, section))
        counts.blobs += len(section)
        counts.blobs_expired += int((~live).sum())
        counts.blobs_moved += int((live & moved).sum())
        counts.blob_entries_left += int(blobs.counts[live & ~moved].sum())
        counts.flags_set += int((live & moved).sum())
        self._sink.add(rules.legacy.name, whole, live & ~moved)
        self._sink.leave_out(rules.legacy.name, whole, ~live, EXPIRED)
        self._sink.leave_out(rules.legacy.name, whole, live & moved, MOVED)
        self._sink.leave_out(rules.new_name, blobs.entries, blobs.per_entry(live & ~moved), LEFT)
        self._sink.add(cut.flag.name, _flags_to_set(rules, cut, whole, blobs.stamps), live & moved)
        if claims is not None:
            claims.moved.append(blobs.keys[live & moved])

    def _flags(self, rules: Rules, flag: KeyedState, section: Section, claims: _Claims) -> None:
        keys = hash_ranges(section.data, section.key_starts + section.file.prefix, section.key_ends)
        self._sample(rules, flag.name, section, keys)
        claims.flagged.append(keys[_set(section, flag, rules)])
        if rules.lazy_cut is not None:
            self.counts[rules.new_name].flags += len(section)
            self._sink.add(flag.name, plain_entries(section, self._groups(flag, section)), np.ones(len(keys), np.bool_))

    def _sample(self, rules: Rules, state: str, section: Section, keys: Hashes) -> None:
        if rules.made_name in self._samples:
            self._samples[rules.made_name].see(state, section if self.in_source is None else self.in_source, keys)

    def _living_entries(self, rules: Rules, section: Section) -> tuple[BlobEntries, Flags, Flags, Flags]:
        """Returns the blobs, and flags: living blobs, entries that become rows, living nulls that don't.

        Entries of blobs that a lazy run leaves are neither of the last two.
        """
        null = null_under_ttl(rules.map_type.value)
        groups = self._groups(rules.legacy, section)
        blobs = blob_entries(section, rules.legacy.value, rules.legacy.ttl, null, groups)
        live = living(blobs.stamps, rules, len(blobs.counts))
        moved = live if rules.lazy_cut is None else live & _moved(rules.lazy_cut, section)
        entries_live = blobs.per_entry(moved)
        if null is not None or not (rules.legacy.ttl or rules.nulls is Nulls.DROP):
            return blobs, live, entries_live, np.zeros(len(entries_live), np.bool_)
        return blobs, live, entries_live & ~blobs.nulls, entries_live & blobs.nulls

    def _rows(self, rules: Rules, section: Section, claims: _Claims | None) -> None:
        entries, live = self._living_rows(rules, section)
        self._sample(rules, rules.new_name, section, entries.keys)
        counts = self.counts[rules.new_name]
        counts.rows += len(entries)
        counts.rows_expired += int((~live).sum())
        if claims is not None:
            claims.rows.append(np.unique(entries.keys[live]))
        self._sink.add(rules.new_name, entries, live)
        self._sink.leave_out(rules.new_name, entries, ~live, EXPIRED)

    def _living_rows(self, rules: Rules, section: Section) -> tuple[Entries, Flags]:
        state = self._made[rules.new_name]
        entries = map_rows(section, state, self._groups(state, section))
        return entries, living(entries.stamps, rules, len(entries))

    def _settle(self, rules: Rules, group: GroupSections, claims: _Claims) -> None:
        """Takes back entries that don't belong in the new state, for keys that have a blob and also a flag or rows."""
        blobs = _joined(claims.blobs)
        contradictory = np.intersect1d(blobs, _joined(claims.flagged), assume_unique=True)
        both = np.setdiff1d(
            np.intersect1d(blobs, _joined(claims.rows), assume_unique=True), contradictory, assume_unique=True
        )
        self.counts[rules.new_name].contradictions += len(contradictory)
        if rules.lazy_cut is not None and (len(contradictory) or len(_joined(claims.moved))):
            self._settle_division(rules, rules.lazy_cut, group, contradictory, _joined(claims.moved))
        if len(contradictory) == len(both) == 0:
            return
        superseding = self._settle_rows(rules, group, contradictory, both)
        self._settle_blobs(rules, group, contradictory, superseding)

    def _settle_division(
        self, rules: Rules, cut: LazyCut, group: GroupSections, contradictory: Hashes, moved: Hashes
    ) -> None:
        """Takes back the old flags of keys whose flags are set, and divides contradictory keys anew.

        The flag of such a key stands, so it isn't set again, and its blob goes even if the key isn't chosen.
        """
        counts = self.counts[rules.new_name]
        replaced = np.setdiff1d(moved, contradictory, assume_unique=True)
        for state, section in group:
            if state.name not in (rules.legacy.name, cut.flag.name):
                continue
            with section.locating():
                whole = plain_entries(section, self._groups(state, section))
                if state.name == cut.flag.name:
                    gone = _among(whole.keys, replaced)
                    counts.flags_replaced += int(gone.sum())
                    self._sink.withdraw(state.name, whole, gone, SET)
                elif len(contradictory):
                    self._settle_contradictory(rules, cut, section, whole, contradictory)

    def _settle_contradictory(
        self, rules: Rules, cut: LazyCut, section: Section, whole: Entries, contradictory: Hashes
    ) -> None:
        counts, was_moved = self.counts[rules.new_name], _moved(cut, section)
        full = replace(rules, lazy_cut=None)
        blobs, live, kept, nulls = self._living_entries(full, section)
        flagged = live & _among(blobs.keys, contradictory)
        late = blobs.per_entry(flagged & ~was_moved)
        counts.blobs_moved += int((flagged & ~was_moved).sum())
        counts.blob_entries_left -= int(late.sum())
        counts.flags_set -= int((flagged & was_moved).sum())
        counts.nulls_left_out += int((late & nulls).sum())
        self._sink.withdraw(rules.legacy.name, whole, flagged & ~was_moved, MOVED)
        self._sink.withdraw(cut.flag.name, _flags_to_set(rules, cut, whole, blobs.stamps), flagged & was_moved, FLAGGED)
        # `_settle_blobs` takes them back if the rows count.
        self._sink.add(rules.new_name, blobs.entries, late & kept)

    def _settle_rows(self, rules: Rules, group: GroupSections, contradictory: Hashes, both: Hashes) -> Hashes:
        """Returns the hashes (key and user key) of rows that replace entries of a blob."""
        counts, pairs = self.counts[rules.new_name], []
        for state, section in group:
            if state.name == rules.new_name:
                with section.locating():
                    entries, live = self._living_rows(rules, section)
                if rules.on_contradiction is Contradiction.BLOB:
                    replaced = live & _among(entries.keys, contradictory)
                    counts.rows_replaced += int(replaced.sum())
                    self._sink.withdraw(rules.new_name, entries, replaced, REPLACED)
                pairs.append(entries.pairs[live & _among(entries.keys, both)])
        return _joined(pairs)

    def _settle_blobs(self, rules: Rules, group: GroupSections, contradictory: Hashes, pairs: Hashes) -> None:
        counts = self.counts[rules.new_name]
        for state, section in group:
            if state.name == rules.legacy.name:
                with section.locating():
                    blobs, _, kept, nulls = self._settled_entries(rules, section, contradictory)
                flagged = np.zeros(len(blobs.entries), np.bool_)
                if rules.on_contradiction is not Contradiction.BLOB:
                    flagged = blobs.per_entry(_among(blobs.keys, contradictory))
                superseded = _among(blobs.entries.pairs, pairs) & ~flagged
                counts.blob_entries_of_flagged_keys += int((flagged & (kept | nulls)).sum())
                counts.blob_entries_superseded += int((superseded & (kept | nulls)).sum())
                counts.nulls_left_out -= int(((flagged | superseded) & nulls).sum())
                self._sink.withdraw(rules.new_name, blobs.entries, flagged & kept, FLAGGED)
                self._sink.withdraw(rules.new_name, blobs.entries, superseded & kept, SUPERSEDED)

    def _settled_entries(
        self, rules: Rules, section: Section, contradictory: Hashes
    ) -> tuple[BlobEntries, Flags, Flags, Flags]:
        """As `_living_entries`, but contradictory keys are moved even if they aren't chosen."""
        blobs, live, kept, nulls = self._living_entries(replace(rules, lazy_cut=None), section)
        if rules.lazy_cut is not None:
            moved = blobs.per_entry(_moved(rules.lazy_cut, section) | _among(blobs.keys, contradictory))
            kept, nulls = kept & moved, nulls & moved
        return blobs, live, kept, nulls


def _moved(cut: LazyCut, section: Section) -> Flags:
    """Whether each blob is of a key that is chosen."""
    starts = section.key_starts + section.file.prefix
    return cut.among(section.data, starts, section.key_ends, section.ends - section.value_starts)


def _flags_to_set(rules: Rules, cut: LazyCut, blobs: Entries, timestamps: Positions) -> Entries:
    """The flag of each blob's key, as it is set if the key is moved: true, and the blob's timestamp before it."""
    values = np.ones((len(blobs), 1), np.uint8)
    if cut.flag.ttl:
        clock = timestamps if rules.legacy.ttl else np.full(len(blobs), rules.now)
        values = np.concatenate((clock.astype(">i8").view(np.uint8).reshape(len(clock), 8), values), axis=1)
    size = values.shape[1]
    starts = len(blobs.data) + size * np.arange(len(blobs))
    data = np.concatenate((blobs.data, values.ravel()))
    return replace(blobs, data=data, value_starts=starts, value_ends=starts + size)


def living(timestamps: Positions, rules: Rules, count: int) -> Flags:
    """Which entries have not expired, or all if expired ones are kept."""
    if rules.ttl is None or not rules.drops_expired or len(timestamps) == 0:
        return np.ones(count, np.bool_)
    living: Flags = ~expired_array(timestamps, rules.ttl, rules.now)
    return living


def _set(section: Section, flag: KeyedState, rules: Rules) -> Flags:
    """Which flags are set and alive."""
    data, values = section.data, section.value_starts
    live = np.ones(len(section), np.bool_)
    if flag.ttl:
        live = living(timestamps_at(data, values, section.ends), rules, len(section))
        values = values + 8
    if flag.value is Scalar.BOOLEAN:
        for short in np.flatnonzero(values >= section.ends):
            raise DamagedError("a Boolean", "its end", offset=int(values[short]))
        live &= data[values] == 1
    return live
