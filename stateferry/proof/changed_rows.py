"""What the validation itself knows of the rows that may have changed between two snapshots of a RocksDB database.

It shares nothing with the list by which the changes were converted but the reading of single files. It opens each file
that the MANIFEST has, and lists every key of each that came or went. It says whether all of their entries were looked
at, as their properties count them. If these files are a large part of the state, it lists none: then all rows count.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.files.storage import Location
from flinkstate.keyed.keyed_file import WINDOW
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.row_sum import RowSum
from flinkstate.keyed.stored_files import stored_by_itself, stored_files
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.prefixes import EVERY_KEY, Prefixes
from flinkstate.rocksdb.scan import entries_of
from flinkstate.rocksdb.sst_file import SstFile
from flinkstate.serializers.types import FlinkType
from flinkstate.serializers.walker import skip_runs
from stateferry.changes.operator_changes import OperatorChanges

_EVERY = 1 << 16
# If a larger share of the bytes came or went, to read all rows of one snapshot takes no longer.
_MOST_LISTED = 0.25
# Of each state, or of those that count together: the files, the blocks of each, and the keys.
_FILES_OF_SAMPLE, _BLOCKS_OF_SAMPLE, _MOST_OF_SAMPLE = 8, 8, 200
_FileOf = tuple[str, int, int, bytes, bytes, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A subtask's database in a snapshot; with `identities`, its files must be those, by their names."""

    folder: Location
    handle: NativeHandle
    identities: Mapping[str, str] | None = None


@dataclass(slots=True)
class ChangedRows:
    """The keys by state, or None for all, how many files came or went, and what is wrong with what these say."""

    keys: dict[str, Prefixes] | None = field(default_factory=dict)
    files: int = 0
    problems: list[str] = field(default_factory=list)


def changed_rows(new: Snapshot, old: Snapshot, conversion: OperatorChanges, width: int, subtask: int) -> ChangedRows:
    """Lists the keys whose entries came or went; of a migrated state with those of its flag and of its new state."""
    found = ChangedRows()
    with (
        NativeFile(new.folder, new.handle, width, subtask) as now,
        NativeFile(old.folder, old.handle, width, subtask) as before,
    ):
        names = [meta.name for meta in now.header.states]
        if names != [meta.name for meta in before.header.states]:
            found.problems.append(f"{now.name}: its states aren't those of {before.name}")
            return found
        size, differing = 0, dict[str, list[SstFile]]()
        on_heap = [name for name in names if name not in now.database.families]
        for name in (name for name in names if name in now.database.families):
            ours, theirs = (dict(_files(one, file, name, found)) for one, file in ((new, now), (old, before)))
            size += sum(table.live.size for table in ours.values())
            differing[name] = [ours.get(place) or theirs[place] for place in ours.keys() ^ theirs.keys()]
        tables = [table for of_state in differing.values() for table in of_state]
        found.files = len(tables)
        if sum(table.live.size for table in tables) > _MOST_LISTED * size:
            found.keys = None
        else:
            # Timers on the heap are in no file of RocksDB, so all of them are read.
            found.keys = _listed(differing, now, conversion, found) | dict.fromkeys(on_heap, EVERY_KEY)
    return found


def some_keys(
    source: Snapshot, conversion: OperatorChanges, width: int, subtask: int, seed: int
) -> dict[str, Prefixes]:
    """Keys by state, from blocks here and there; of a migrated state with those of its flag and of its new state."""
    chosen, keys = random.Random(seed + subtask), dict[str, Prefixes]()
    with NativeFile(source.folder, source.handle, width, subtask) as file:
        there = {meta.name: number for number, meta in enumerate(file.header.states[: file.stored_states])}
        for group in together(conversion, there.keys() & file.database.families.keys()):
            key = file.header.key_serializer.type if len(group) > 1 else None
            tables = [table for name in sorted(group) for table in file.tables(there[name])]
            found: set[bytes] = set()
            for table in chosen.sample(tables, min(len(tables), _FILES_OF_SAMPLE)):
                with table:
                    parts = [one for one in table.indexes(b"", b"\xff" * (file.prefix + 1)) if len(one)]
                if parts:
                    index = chosen.choice(parts)
                    blocks = chosen.sample(range(len(index)), min(len(index), _BLOCKS_OF_SAMPLE))
                    near = Prefixes.of(index.key(block) for block in blocks)
                    for entries in entries_of(table, file.prefix, 0, _EVERY, near):
                        found.update(_keys_in(*entries, file, key))
            keys |= dict.fromkeys(group, Prefixes.of(chosen.sample(sorted(found), min(len(found), _MOST_OF_SAMPLE))))
    return keys


def _listed(
    differing: Mapping[str, list[SstFile]], file: NativeFile, conversion: OperatorChanges, found: ChangedRows
) -> dict[str, Prefixes]:
    keys: dict[str, Prefixes] = {}
    for group in together(conversion, differing.keys()):
        key = file.header.key_serializer.type if len(group) > 1 else None
        of_group = (one for name in group for table in differing[name] for one in _keys_of(table, file, key, found))
        keys |= dict.fromkeys(group, Prefixes.of(set(of_group)))
    return keys


def row_sums(
    snapshot: Snapshot, width: int, subtask: int, only: Mapping[str, Prefixes] | None, read: BytesRead | None = None
) -> dict[int, RowSum]:
    """The digests of the rows of these keys, or of all rows, by key group; of all rows it also notes what was read."""
    with NativeFile(snapshot.folder, snapshot.handle, width, subtask, read) as file:
        if only is not None:
            file.read_only(only)
        window = np.empty(WINDOW, np.uint8)
        for key_group in file.handle.range:
            for _ in file.sections(key_group, window):
                pass
        return file.sums


def together(conversion: OperatorChanges, names: Set[str]) -> list[frozenset[str]]:
    """The states in groups, in each of which what a key has counts together."""
    groups: list[frozenset[str]] = []
    for rules in conversion.rules:
        # A subtask may have none of them, if its job makes a state when its first record arrives.
        if group := frozenset(names & rules.names):
            sharing = [one for one in groups if one & group]
            groups = [one for one in groups if one not in sharing] + [group.union(*sharing)]
    return groups + [frozenset([name]) for name in names - frozenset().union(*groups)]


def _files(snapshot: Snapshot, file: NativeFile, state: str, found: ChangedRows) -> Iterator[tuple[_FileOf, SstFile]]:
    stored, family = stored_files(snapshot.folder, snapshot.handle), file.database.families[state]
    streams = {one.name: one.stream for one in snapshot.handle.files}
    own, prefix = file.handle.range, file.prefix
    for live in family.files.values():
        first, last = (int.from_bytes(key[:prefix], "big") for key in (live.smallest, live.largest))
        if first > own.end or last < own.start:
            # After a rescale a file may have keys of other subtasks alone, and nobody reads it.
            continue
        with SstFile(stored[live.name], live, family.name, family.id) as table:
            identity = table.identity
            if snapshot.identities is not None:
                named = stored_by_itself(streams[live.name])
                if named is None or snapshot.identities.get(named) != identity:
                    found.problems.append(f"{table.name}: it isn't the file that was read for the base")
            # A file of ours doesn't say which database wrote it.
            place = "" if table.names_its_database else table.name
            yield (identity, live.number, live.size, live.smallest, live.largest, place), table


def _keys_of(table: SstFile, file: NativeFile, key: FlinkType | None, found: ChangedRows) -> Iterator[bytes]:
    """Yields the keys of a file's entries: with `key` key group and key, else all of a row's key."""
    prefix, own, seen = file.prefix, file.handle.range, 0
    for data, starts, ends in entries_of(table, prefix, 0, _EVERY):
        seen += len(starts)
        yield from _keys_in(data, starts, ends, file, key)
    # RocksDB counts deleted ranges as entries, too.
    if seen + table.range_deletions != table.entries:
        found.problems.append(f"{table.name}: {seen} of {table.entries} entries were looked at")
    low, after = (number.to_bytes(prefix, "big") for number in (own.start, own.end + 1))
    if table.deletes_within(low, after):
        found.problems.append(f"{table.name}: it deletes whole ranges of the subtask's keys")


def _keys_in(
    data: Bytes, starts: Positions, ends: Positions, file: NativeFile, key: FlinkType | None
) -> Iterator[bytes]:
    """Yields the keys of entries in the file's own key groups, as `_keys_of` does."""
    prefix, own = file.prefix, file.handle.range
    groups = np.zeros(len(starts), np.int64)
    for byte in range(prefix):
        groups = groups << 8 | data[starts + 4 + byte]
    mine = (groups >= own.start) & (groups <= own.end)
    firsts, lasts = starts[mine] + 4, ends[mine]
    if key is not None and len(firsts):
        keys, lasts = skip_runs(key, data, firsts + prefix, lasts)
        firsts = keys - prefix
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        yield data[first:last].tobytes()
