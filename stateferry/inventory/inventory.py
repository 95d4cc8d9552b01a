"""The inventory of a savepoint: what it holds, counted chunk by chunk before anything is written.

To count it, every byte is read and parsed. A chunk's inventory has the numbers of entries and bytes of each state and
key group. For each legacy state it has what the migration would meet (expired blobs, contradictions, nulls that can't
be kept, signs of states that the plan doesn't name), and how old the entries are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.files.digests import hasher_of
from flinkstate.files.storage import Location
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.keyed.state import KeyedState, keyed_states
from flinkstate.kryo.class_finder import ClassFinder
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.metadata.bytes_read import WHOLE, BytesRead
from flinkstate.metadata.chunks import Chunk, plan_chunks
from flinkstate.metadata.metadata import InlineBytes, Operator, StreamHandle
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.entries import FirstRows
from flinkstate.reading.group_sections import GroupSections
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import kryo_map_of, object_field, object_of
from flinkstate.writing.max_parallelism_change import Destination
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts, LossCounts, StateSigns
from stateferry.changes.key_hashes import NO_HASHES
from stateferry.changes.lazy_cut import Order, RankCounts
from stateferry.changes.older_winners import count_older_winners
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.pojos_without_maps import without_maps
from stateferry.changes.rules import Rules
from stateferry.changes.sections import MapRows, parse_rows, read_timestamps
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo, for_other_kryo, rewrites_keys
from stateferry.changes.upgrade.restore_lost import GroupLosses
from stateferry.changes.who_wins import KeySets, key_sets_of, rows_that_stay
from stateferry.inventory.ages import Ages, Integers
from stateferry.inventory.aging_states import AgingState, aging_states
from stateferry.inventory.blob_times import BlobTimes
from stateferry.inventory.blobs_met import examine, find_classes, note_times, rank
from stateferry.inventory.equal_keys import RewrittenKeys
from stateferry.inventory.heavy_key import HeavyKey, heavier
from stateferry.inventory.heavy_keys import KeysOfGroup, heavy_groups
from stateferry.inventory.two_forms import refuse_two_forms
from stateferry.inventory.wrong_name_signs import MOST_NAMED, SignsOfGroup


@dataclass(slots=True)
class Inventory:
    """What was found, in one chunk or in all.

    `entries` and `sizes` (in bytes) are by operator id, state and key group. `met` counts by operator and legacy state
    what a migration meets; `signs` are by operator, legacy state and state, whose place may be another than the plan
    says. `maps` are the classes in all maps of legacy states by Kryo. `named` are the texts of some keys by operator,
    legacy state and what they are named for. `ages` are by operator, legacy state and state (the legacy state itself,
    the new state, the flag) under time to live; a state that isn't migrated is in the place of its legacy state.
    `blob_times` are by operator and legacy state. `promised` are
    the greatest ages of entries that a cleanup in full snapshots would have left out, had they expired;
    `first_expiries` are when, by operator and legacy state, the first of what wins over something younger expires;
    `unread` are states whose timestamps couldn't be read. `ranks` count the keys by operator and legacy state for a
    lazy run.
    `heavy_keys` are by operator id, `losses` (of an upgrade) by operator id and state. `read` has the digests of the
    bytes.
    """

    entries: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    sizes: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    met: dict[StateRef, InventoryCounts] = field(default_factory=dict)
    signs: dict[tuple[str, str, str], StateSigns] = field(default_factory=dict)
    maps: dict[StateRef, FoundClasses] = field(default_factory=dict)
    named: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    ages: dict[tuple[str, str, str], Ages] = field(default_factory=dict)
    ranks: dict[StateRef, RankCounts] = field(default_factory=dict)
    blob_times: dict[StateRef, BlobTimes] = field(default_factory=dict)
    promised: dict[StateRef, int] = field(default_factory=dict)
    first_expiries: dict[StateRef, int] = field(default_factory=dict)
    unread: set[StateRef] = field(default_factory=set)
    heavy_keys: dict[str, HeavyKey | None] = field(default_factory=dict)
    losses: dict[StateRef, LossCounts] = field(default_factory=dict)
    read: BytesRead = field(default_factory=BytesRead)

    def add(self, other: Inventory) -> None:
        """Adds what was found elsewhere."""
        self.entries.update(other.entries)
        self.sizes.update(other.sizes)
        for state, counts in other.met.items():
            self.met.setdefault(state, InventoryCounts()).add(counts)
        for place, signs in other.signs.items():
            self.signs.setdefault(place, StateSigns()).add(signs)
        for state, found in other.maps.items():
            self.maps[state] = self.maps.get(state, FoundClasses()) + found
        for what, texts in other.named.items():
            self.named[what] = [*self.named.get(what, ()), *texts][:MOST_NAMED]
        for aged, ages in other.ages.items():
            self.ages.setdefault(aged, Ages()).add(ages)
        for state, ranks in other.ranks.items():
            self.ranks.setdefault(state, RankCounts()).add(ranks)
        for state, times in other.blob_times.items():
            self.blob_times.setdefault(state, BlobTimes()).add(times)
        for state, oldest in other.promised.items():
            self.promised[state] = max(oldest, self.promised.get(state, oldest))
        self.first_expiries = earliest(self.first_expiries, other.first_expiries)
        self.unread |= other.unread
        for operator, key in other.heavy_keys.items():
            self.heavy_keys[operator] = heavier(self.heavy_keys.get(operator), key)
        for state, lost in other.losses.items():
            self.losses.setdefault(state, LossCounts()).add(lost)
        self.read.take(other.read)


@dataclass(frozen=True, slots=True)
class InventoryTask:
    """The inventory of one chunk of one operator.

    With an `order`, keys are counted by their ranks in it. `aging` are the states with time to live that aren't
    migrated, by name. In `heavy_groups` the heaviest key is looked for. With `keeps_times` the timestamps of blobs are
    kept. What is to be written as another Kryo does is written, to see whether it can be. With the operator's states
    from before an upgrade, what that lost is counted.
    """

    folder: Location
    chunk: Chunk
    changes: OperatorChanges
    order: Order | None = None
    aging: Mapping[str, AgingState] = field(default_factory=dict)
    heavy_groups: frozenset[int] = frozenset()
    keeps_times: bool = False

    @property
    def operator(self) -> str:
        return self.changes.operator.hex_id

    def take(self) -> Inventory:
        """Reads the chunk and counts."""
        inventory = Inventory()
        for part in self.chunk.parts:
            width = self.chunk.max_parallelism
            with open_keyed(self.folder, part.handle, width, part.subtask, inventory.read, part.key_groups) as file:
                self.count(file, part.key_groups, inventory)
        return inventory

    def count(self, file: KeyedFile, key_groups: Iterable[int], inventory: Inventory) -> None:
        """Counts what these key groups of a file have."""
        window = np.empty(WINDOW, np.uint8)
        states = keyed_states(file.header, file.name)
        finders = {
            rules.legacy.name: ClassFinder(stored.kryo, object_field(rules.in_source.value))
            for rules in self.changes.rules
            if (stored := kryo_map_of(rules.in_source.value)) is not None
        }
        # What was lost is found by the rows of both Kryos.
        rewrite = ForOtherKryo(self.changes.by_kryo).sections if self.changes.before is None else None
        first_rows = FirstRows(file, states)
        for key_group in key_groups:
            group = GroupSections(file, key_group, states, window, first_rows.expect, rewrite)
            self._count(group, finders, inventory)
        inventory.add(Inventory(maps={self.changes.ref(name): one.found() for name, one in finders.items()}))

    def _count(self, group: GroupSections, finders: Mapping[str, ClassFinder], inventory: Inventory) -> None:
        sets = {rules.legacy.name: self._key_sets(group, rules, inventory) for rules in self.changes.rules}
        signs = SignsOfGroup.all_of(self.changes.rules, self.changes.states)
        keys = KeysOfGroup(group.file) if group.key_group in self.heavy_groups else None
        rewritten = RewrittenKeys()
        with_rows = {rules.legacy.name: [NO_HASHES] for rules in self.changes.rules}
        for state, unchanged in group.unchanged():
            if keys is not None:
                keys.meet(unchanged)
            key = (self.operator, state.name, group.key_group)
            inventory.entries[key] += len(unchanged)
            inventory.sizes[key] += int((unchanged.ends - unchanged.starts).sum())
            section = self._rewritten(state, unchanged, rewritten)
            if self.changes.keys is not None:
                self._expect_hashes(state, section)
            parsed: dict[str, MapRows] = {}
            for rules in self.changes.rules:
                met = inventory.met.setdefault(self.changes.ref(rules.legacy.name), InventoryCounts())
                aged = partial(self._count_ages, inventory, rules, state.name)
                if state.name == rules.legacy.name:
                    blobs = examine(section, rules, sets[rules.legacy.name], met, aged)
                    if state.name in finders:
                        find_classes(unchanged, rules, finders[state.name])
                    if rules.keeps_rest and object_of(rules.legacy.value) is not None:
                        # What of an object refers to its map may be refused where the object is written without it.
                        without_maps(section, rules)
                    if self.keeps_times and rules.drops_expired:
                        times = inventory.blob_times.setdefault(self.changes.ref(rules.legacy.name), BlobTimes())
                        note_times(blobs, rules, times)
                    if self.order is not None:
                        rank(section, rules, sets[rules.legacy.name], self.order, self._ranks(inventory, rules))
                elif state.name == rules.new_name:
                    rows = parsed[rules.legacy.name] = parse_rows(section, rules)
                    if self.order is not None:
                        with_rows[rules.legacy.name].append(rows.live_keys())
                    aged(rows.timestamps)
                    rows_that_stay(rows, rules, sets[rules.legacy.name], met)
                elif state.name == rules.flag_name and state.ttl:
                    with section.locating():
                        aged(read_timestamps(section.data, section.value_starts, section.ends))
            for one in signs:
                one.meet(state, section, parsed.get(one.rules.legacy.name))
            if state.name in self.aging:
                self.aging[state.name].count(unchanged, self.operator, inventory)
        if self.changes.before is not None:
            self._count_losses(self.changes.before, group, rewritten, inventory)
        rewritten.refuse_equal(self.changes.operator.label, group.key_group)
        if keys is not None:
            heaviest = keys.heaviest(group.key_group)
            inventory.heavy_keys[self.operator] = heavier(inventory.heavy_keys.get(self.operator), heaviest)
        self._count_migrated(with_rows, sets, inventory)
        for one in signs:
            self._settle(one, group, inventory)

    def _key_sets(self, group: GroupSections, rules: Rules, inventory: Inventory) -> KeySets:
        """Returns the key sets of a rule, and counts what follows from them."""
        refuse_two_forms(group, rules, self.changes.operator.label)
        sets = key_sets_of(group, rules, self.changes.states)
        met = inventory.met.setdefault(self.changes.ref(rules.legacy.name), InventoryCounts())
        met.merged_keys += len(sets.both)
        first = count_older_winners(group, rules, sets, self.changes.states, met)
        if first is not None:
            inventory.add(Inventory(first_expiries={self.changes.ref(rules.legacy.name): first}))
        return sets

    def _count_migrated(
        self, with_rows: Mapping[str, Sequence[pa.Array]], sets: Mapping[str, KeySets], inventory: Inventory
    ) -> None:
        """Counts the keys of which no blob is left, for a lazy run; the rows of one may be in several sections."""
        for rules in self.changes.rules if self.order is not None else ():
            count = pc.count_distinct(pa.concat_arrays(with_rows[rules.legacy.name])).as_py()
            self._ranks(inventory, rules).migrated += count - len(sets[rules.legacy.name].both)

    def _rewritten(self, state: KeyedState, section: Section, keys: RewrittenKeys) -> Section:
        """Returns the section as what comes after it sees it, and notes its keys if they are written anew."""
        if state.name in self.changes.by_kryo and self.changes.before is None:
            section = for_other_kryo(section, self.changes.by_kryo[state.name])
            self._note_keys(state, section, keys)
        return section

    def _note_keys(self, state: KeyedState, made: Section, rewritten: RewrittenKeys) -> None:
        if (known := self.changes.by_kryo.get(state.name)) is None or not rewrites_keys(known) or not len(made):
            return
        rewritten.meet(state.name, made)
        self._expect_hashes(state, made)

    def _expect_hashes(self, state: KeyedState, section: Section) -> None:
        """Raises for the first key that can't be hashed: the hash of a key by Kryo is known of some classes only."""
        destination = Destination(self.changes.old_max, self.changes.new_max, self.changes.rehashes)
        destination.key_groups(section, self.changes.written(state))

    def _count_losses(
        self, before: BeforeUpgrade, group: GroupSections, rewritten: RewrittenKeys, inventory: Inventory
    ) -> None:
        counts: dict[str, LossCounts] = {}
        states = self.changes.by_kryo
        losses = GroupLosses(before, group.key_group, counts)
        for state, made in losses.sections(states, group, ForOtherKryo(states).section):
            self._note_keys(state, made, rewritten)
        inventory.add(Inventory(losses={self.changes.ref(name): one for name, one in counts.items()}))

    def _settle(self, signs: SignsOfGroup, group: GroupSections, inventory: Inventory) -> None:
        of = self.changes.ref(signs.rules.legacy.name)
        found, of_interest = signs.settle(inventory.met.setdefault(of, InventoryCounts()))
        for state, counts in found.items():
            inventory.signs.setdefault((*of, state), StateSigns()).add(counts)
        wanted = {
            what: keys
            for what, keys in of_interest.items()
            if len(keys) and len(inventory.named.get((*of, what), ())) < MOST_NAMED
        }
        if wanted:
            named = signs.named(group, wanted)
            inventory.add(Inventory(named={(*of, what): texts for what, texts in named.items()}))

    def _ranks(self, inventory: Inventory, rules: Rules) -> RankCounts:
        return inventory.ranks.setdefault(self.changes.ref(rules.legacy.name), RankCounts())

    def _count_ages(
        self, inventory: Inventory, rules: Rules, state: str, timestamps: Integers, counts: Integers | None = None
    ) -> None:
        """Counts ages; `counts` are the entries of each timestamp, by default one."""
        if rules.ttl is not None and len(timestamps):
            ages = inventory.ages.setdefault((self.operator, rules.legacy.name, state), Ages())
            ages.count(timestamps, np.ones_like(timestamps) if counts is None else counts, rules.ttl, rules.now)


@dataclass(frozen=True, slots=True)
class CopiedFilesTask:
    """Digests of one operator's files that are copied: all but managed keyed state."""

    folder: Location
    streams: tuple[StreamHandle, ...]

    def take(self) -> Inventory:
        """Reads the files and notes their digests."""
        inventory = Inventory()
        for stream in self.streams:
            file, _, _ = open_stream(self.folder, stream)
            with file:
                inventory.read.note(stream, WHOLE, hasher_of(file))
        return inventory


def earliest(one: Mapping[StateRef, int], other: Mapping[StateRef, int]) -> dict[StateRef, int]:
    """Returns for each state the lesser of its times."""
    return {state: min(of[state] for of in (one, other) if state in of) for state in {**one, **other}}


def take(task: InventoryTask | CopiedFilesTask) -> Inventory:
    """Does a task."""
    return task.take()


def copied_files_tasks(source: Savepoint) -> list[CopiedFilesTask]:
    """Returns a task for each operator that has files to be copied."""
    carried = (tuple(_carried(operator)) for operator in source.metadata.operators)
    return [CopiedFilesTask(source.folder, streams) for streams in carried if streams]


def _carried(operator: Operator) -> Iterator[StreamHandle]:
    for subtask in operator.subtasks:
        for handle in (subtask.managed_operator, subtask.raw_operator, subtask.raw_keyed):
            if handle is not None and not isinstance(handle.stream, InlineBytes):
                yield handle.stream


def inventory_tasks(
    source: Savepoint,
    changes: OperatorChanges,
    *,
    target_bytes: int,
    at_least: int = 1,
    order: Order | None = None,
    now: int = 0,
    parallelism: int = 1,
) -> list[InventoryTask]:
    """Returns the tasks for the keyed state of one operator.

    Keys of more than a fair share of a subtask are looked for, at the operator's parallelism or this one if it is
    higher.
    """
    operator, before = changes.operator, changes.before
    placed = source.placed(operator)
    also = () if before is None else before.key_groups
    chunks = plan_chunks(operator, placed, target_bytes=target_bytes, at_least=at_least, also=also)
    aging = aging_states(changes, now)
    heavy = heavy_groups(placed, max(parallelism, operator.parallelism))
    return [
        InventoryTask(
            source.folder,
            chunk,
            changes.of_key_groups(chunk.range),
            order,
            aging,
            heavy.intersection(chunk.key_groups),
        )
        for chunk in chunks
    ]


def total(inventories: Iterable[Inventory]) -> Inventory:
    """Returns the sum of several inventories."""
    summed = Inventory()
    for inventory in inventories:
        summed.add(inventory)
    return summed
