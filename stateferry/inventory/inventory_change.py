"""The inventory of a native snapshot by what has changed since an earlier one: only rows of changed keys are read.

They are read in both snapshots: what the new one has of them is added to the earlier inventory, what the earlier one
had is taken off. The digest of a key group follows in the same way (`RowSum`), so that the validation, which reads all
rows, compares the result with what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.keyed.native_difference import EarlierPart, difference, whole_difference
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.row_sum import RowSum
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.metadata.chunks import FilePart
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.read_once import reading_once
from stateferry.basics.state_ref import StateRef
from stateferry.changes.changed_keys import in_both_forms
from stateferry.changes.counts import InventoryCounts, StateSigns
from stateferry.changes.lazy_cut import RankCounts
from stateferry.inventory.ages import Ages
from stateferry.inventory.blob_times import BlobTimes
from stateferry.inventory.inventory import CopiedFilesTask, Inventory, InventoryTask, earliest
from stateferry.inventory.wrong_name_signs import watched


@dataclass(slots=True)
class InventoryChange:
    """What a snapshot has of the changed keys, and what the earlier one had of them.

    `sums` are the digests of the rows that came, without those of the rows that went, by file and key group, and
    `lists` the changed keys by state, for each operator, subtask and first key group.
    """

    found: Inventory = field(default_factory=Inventory)
    gone: Inventory = field(default_factory=Inventory)
    sums: dict[tuple[str, int], RowSum] = field(default_factory=dict)
    lists: dict[tuple[str, int, int], dict[str, Prefixes]] = field(default_factory=dict)

    def add(self, other: InventoryChange) -> None:
        """Adds what was found elsewhere."""
        self.found.add(other.found)
        self.gone.add(other.gone)
        self.sums |= other.sums
        self.lists |= other.lists


@dataclass(frozen=True, slots=True)
class ChangedKeysTask:
    """The changes in one chunk, whose subtasks had the `earlier` parts.

    If they `must` be found, it takes no matter how much was changed, and it is an error if they can't be.
    """

    all: InventoryTask
    earlier: Mapping[int, EarlierPart]
    must: bool = False

    def take(self) -> InventoryChange | None:
        """Reads the changed keys; returns None if that isn't possible, or would take no less than to read all."""
        change = InventoryChange()
        try:
            with reading_once():
                return change if all(self._take(part, change) for part in self.all.chunk.parts) else None
        except StateferryError:
            if self.must:
                raise
            # The earlier snapshot may be gone. What is wrong with the later one is said by whoever reads all of it.
            return None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Whatever is in the way of telling what has changed isn't in the way of converting everything."""
        try:
            yield
        except (DamagedError, RefusedError) as error:
            raise RefusedError(
                f"{error}: so what has changed can't be told. Leave --since out, which converts everything"
            ) from None

    def _take(self, part: FilePart, change: InventoryChange) -> bool:
        earlier, groups, width = self.earlier.get(part.subtask), part.key_groups, self.all.chunk.max_parallelism
        if earlier is None or not isinstance(part.handle, NativeHandle):
            return False
        with ExitStack() as opened:
            with self._telling():
                new, old = (
                    opened.enter_context(NativeFile(folder, handle, width, part.subtask, read, groups))
                    for folder, handle, read in (
                        (self.all.folder, part.handle, change.found.read),
                        (earlier.folder, earlier.handle, None),
                    )
                )
                find = whole_difference if self.must else difference
                differing = find(new, old, earlier.identities)
                if differing is None or (changed := differing.changed(self._groups(new))) is None:
                    return False
            for number, meta in enumerate(new.header.states):
                if (known := self.all.changes.by_kryo.get(meta.name)) is not None:
                    changed[number] = in_both_forms(changed[number], known, new.prefix)
            new.only = old.only = changed
            named = {meta.name: changed[number] for number, meta in enumerate(new.header.states)}
            change.lists[self.all.operator, part.subtask, min(groups, default=0)] = named
            self.all.count(new, groups, change.found)
            with self._telling():
                self.all.count(old, groups, change.gone)
            for key_group in groups:
                change.sums[part.handle.meta.name, key_group] = new.sums[key_group] - old.sums[key_group]
        return True

    def _groups(self, file: NativeFile) -> list[frozenset[int]]:
        """Returns the states whose rows of one key count together, and each other state by itself."""
        ids = {state.name: number for number, state in enumerate(file.header.states)}
        groups: list[frozenset[int]] = []
        for rules in self.all.changes.rules:
            named = {rules.legacy.name, *watched(rules, self.all.changes.states)}
            together = {ids[name] for name in named if name in ids}
            # Two legacy states may share a flag, or a rival.
            for other in [group for group in groups if group & together]:
                groups.remove(other)
                together |= other
            if together:
                groups.append(frozenset(together))
        taken = frozenset().union(*groups)
        return groups + [frozenset([state]) for state in ids.values() if state not in taken]


def take_changes(task: ChangedKeysTask | CopiedFilesTask) -> InventoryChange | None:
    """Does a task. Files that are copied are read as a whole."""
    return InventoryChange(task.take()) if isinstance(task, CopiedFilesTask) else task.take()


def follows_from_times(inventory: Inventory, tasks: Iterable[InventoryTask]) -> bool:
    """Whether all that depends on the time follows from the timestamps of the blobs, which the inventory has.

    It doesn't if another state has entries with timestamps, or if the flag has any entry, or a state that could be
    meant. So it doesn't as soon as the job has begun to move keys: then who wins between blob, flag and rows depends on
    the time, too. Nor does it if what has expired is kept.
    """
    entries: Counter[StateRef] = Counter()
    for (operator, state, _), count in inventory.entries.items():
        entries[StateRef(operator, state)] += count
    aging = {task.changes.ref(name) for task in tasks for name, state in task.changes.states.items() if state.ttl}
    deciding = {
        task.changes.ref(name)
        for task in tasks
        for rules in task.changes.rules
        if rules.legacy.ttl
        for name in watched(rules, task.changes.states)
    }
    if any(entries[state] for state in deciding):
        return False
    if any(rules.legacy.ttl and not rules.drops_expired for task in tasks for rules in task.changes.rules):
        return False
    found = {state: inventory.blob_times.get(state, BlobTimes()) for state in aging}
    return all(times.complete and len(times) == entries[state] for state, times in found.items())


@dataclass(frozen=True, slots=True)
class EarlierInventory:
    """An earlier inventory, as far as it can be brought forward: see `Inventory`."""

    entries: Mapping[tuple[str, str, int], int]
    sizes: Mapping[tuple[str, str, int], int]
    met: Mapping[StateRef, InventoryCounts]
    signs: Mapping[tuple[str, str, str], StateSigns]
    maps: Mapping[StateRef, FoundClasses]
    sums: Mapping[tuple[str, int], RowSum]
    blob_times: Mapping[StateRef, BlobTimes]
    ages: Mapping[tuple[str, str, str], Ages]
    unread: frozenset[StateRef]
    first_expiries: Mapping[StateRef, int]

    def with_changes(
        self, change: InventoryChange, files: Mapping[str, str], tasks: Sequence[InventoryTask], *, same_now: bool
    ) -> Inventory | None:
        """Returns the inventory of the later snapshot; None if the two don't fit, or if it doesn't follow.

        `files` are the names that its databases had in the earlier snapshot, `tasks` are those that would read all.
        What depends on the time is counted anew, by the timestamps of blobs. With the same now it follows from the
        counts as well, like all other things. The `ranks` are those of what came, without those of what went: a lazy
        run keeps the choice of the earlier one.
        """
        made = Inventory(read=change.found.read, named=change.found.named, unread={*self.unread, *change.found.unread})
        for counts, before, found, gone in (
            (made.entries, self.entries, change.found.entries, change.gone.entries),
            (made.sizes, self.sizes, change.found.sizes, change.gone.sizes),
        ):
            counts.update(before)
            counts.update(found)
            counts.subtract(gone)
            if min(counts.values(), default=0) < 0:
                return None
        made.entries, made.sizes = +made.entries, +made.sizes
        # Those of keys that have changed since may have gone: then a catch-up is refused too early.
        made.first_expiries = earliest(self.first_expiries, change.found.first_expiries)
        for state, counted in self.met.items():
            met = made.met.setdefault(state, InventoryCounts())
            met.add(counted)
            met.add(change.found.met.get(state, InventoryCounts()))
            met.take_off(change.gone.met.get(state, InventoryCounts()))
        for place in self.signs.keys() | change.found.signs.keys():
            signs = made.signs.setdefault(place, StateSigns())
            signs.add(self.signs.get(place, StateSigns()))
            signs.add(change.found.signs.get(place, StateSigns()))
            signs.take_off(change.gone.signs.get(place, StateSigns()))
        for state in self.maps.keys() | change.found.maps.keys():
            earlier, later, left = (
                of.get(state, FoundClasses()) for of in (self.maps, change.found.maps, change.gone.maps)
            )
            made.maps[state] = (earlier + later).without(left)
        for state, ranks in change.found.ranks.items():
            made.ranks[state] = RankCounts()
            made.ranks[state].add(ranks)
            made.ranks[state].take_off(change.gone.ranks.get(state, RankCounts()))
        if same_now and not self._subtract_ages(made, change):
            return None
        if not self._count_by_times(made, change, tasks) and not same_now:
            return None
        # Each key group that was read then must have been looked at now.
        if {(files[file], key_group) for file, key_group in change.sums} != self.sums.keys():
            return None
        for (file, key_group), sum_ in change.sums.items():
            made.read.add(file, key_group, (self.sums[files[file], key_group] + sum_).text)
        return made

    def _subtract_ages(self, made: Inventory, change: InventoryChange) -> bool:
        """Adds the ages of what came, and takes off those of what went; says whether that is possible."""
        for place in self.ages.keys() | change.found.ages.keys():
            if StateRef(place[0], place[2]) in made.unread:
                continue
            every = Ages()
            for ages in (self.ages, change.found.ages):
                every.add(ages.get(place, Ages()))
            left = every.without(change.gone.ages.get(place, Ages()))
            if left is None:
                return False
            made.ages[place] = left
        return True

    def _count_by_times(self, made: Inventory, change: InventoryChange, tasks: Sequence[InventoryTask]) -> bool:
        """Counts the blobs of states with time to live anew, by their timestamps, if all follows from these."""
        rules = {task.changes.ref(rules.legacy.name): rules for task in tasks for rules in task.changes.rules}
        aging = {state: of_state for state, of_state in rules.items() if of_state.legacy.ttl}
        for state in aging:
            found, gone = (one.blob_times.get(state, BlobTimes()) for one in (change.found, change.gone))
            times = self.blob_times.get(state, BlobTimes()).without(gone) if found.complete and gone.complete else None
            if times is not None:
                times.add(found)
                made.blob_times[state] = times
        if made.blob_times.keys() != aging.keys() or not follows_from_times(made, tasks):
            made.blob_times.clear()
            return False
        for state, of_state in aging.items():
            met, ages = InventoryCounts(), Ages()
            made.blob_times[state].count(of_state, met, ages)
            made.ages[*state, state[1]] = ages
            if len(made.blob_times[state]) or state in made.met:
                made.met[state] = met
            if (place := (*state, state[1])) in made.signs:
                # All other states in which the signs look have no entry.
                made.signs[place] = StateSigns(met.blobs - met.blobs_expired)
        return True
