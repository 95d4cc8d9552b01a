"""Finds the keys by which two snapshots of a RocksDB database may differ, from the SST files that only one of them has.

RocksDB never changes a file. What a reader finds of a row follows from the row's entries in all files; so if the files
that went and the files that came show the same of it, it is as it was (`rocksdb/difference.py`). A file is the same if
it says the same of itself (`SstFile.identity`), whatever its name is. A change inside of a block that leaves the index
of such a file as it is isn't seen here: the validation reads every block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flinkstate.errors import RefusedError
from flinkstate.files.storage import Location
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.key_group_check import key_offset
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.stored_files import stored_by_itself
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.difference import differing_rows
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.prefixes import EVERY_KEY, Prefixes
from flinkstate.rocksdb.sst_file import SstFile
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.walker import Positions, skip_runs

# If a larger share of the bytes came or went, to read everything takes no longer.
_MOST_CHANGED = 0.25


@dataclass(frozen=True, slots=True)
class EarlierPart:
    """A subtask's database in an earlier snapshot; `identities` are those of its SST files when they were read."""

    folder: Location
    handle: NativeHandle
    identities: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The files of each state (by its id) that only one of two snapshots has, and those that both have."""

    new: NativeFile
    old: NativeFile
    added: Mapping[int, Sequence[SstFile]]
    removed: Mapping[int, Sequence[SstFile]]
    both: Mapping[int, Sequence[LiveFile]]

    def changed(self, groups: Iterable[frozenset[int]]) -> dict[int, Prefixes] | None:
        """Returns the keys of rows that aren't the same, by state: those of a group of states for each of the group.

        A group of one state has the whole keys of its rows. None if the keys of another group can't be told.
        """
        found: dict[int, Prefixes] = {}
        for group in groups:
            if min(group) >= self.new.stored_states:
                # Timers on the heap are in no file of RocksDB.
                changed: Prefixes | None = EVERY_KEY
            else:
                changed = self._rows(*group) if len(group) == 1 else self.keys_of(group)
            if changed is None:
                return None
            found |= dict.fromkeys(group, changed)
        return found

    def keys_of(self, states: Iterable[int]) -> Prefixes | None:
        """Returns the keys of rows of these states that aren't the same: key group and key, without what is behind.

        None if that isn't known.
        """
        key, prefix = self.new.header.key_serializer.type, self.new.prefix
        if opaque_parts(key):
            return None
        found: set[bytes] = set()
        for state in states:
            if key_offset(self.new.header, state, prefix) != 4 + prefix:
                return None
            for data, starts, ends in self._differing(state):
                firsts, key_ends = skip_runs(key, data, starts + 4 + prefix, ends)
                pairs = zip((firsts - prefix).tolist(), key_ends.tolist(), strict=True)
                found |= {data[start:end].tobytes() for start, end in pairs}
        return Prefixes.of(found)

    def _rows(self, state: int) -> Prefixes:
        return Prefixes.of(
            data[start:end].tobytes()
            for data, starts, ends in self._differing(state)
            for start, end in zip((starts + 4).tolist(), ends.tolist(), strict=True)
        )

    def _differing(self, state: int) -> Iterator[tuple[Buffer, Positions, Positions]]:
        return differing_rows(
            self.added[state], self.removed[state], self.both[state], self.new.prefix, *self.new.wanted_range
        )


def difference(new: NativeFile, old: NativeFile, identities: Mapping[str, str]) -> ChangedFiles | None:
    """Returns by which files two snapshots differ, in the key groups that both are opened for.

    None if it takes everything to find that out, or no less: see `whole_difference`.
    """
    try:
        found = whole_difference(new, old, identities)
    except RefusedError:
        return None
    tables = [table for state in range(new.stored_states) for table in new.tables(state)]
    differing = [table for of in (found.added, found.removed) for tables_ in of.values() for table in tables_]
    size, changed = (sum(table.live.size for table in of) for of in (tables, differing))
    return found if changed <= _MOST_CHANGED * size else None


def whole_difference(new: NativeFile, old: NativeFile, identities: Mapping[str, str]) -> ChangedFiles:
    """Returns by which files two snapshots differ, however much that is.

    Refuses snapshots whose files don't tell that: if the states aren't the same, if a file isn't the one that was read
    then, or if whole ranges of the subtask's keys were deleted.
    """
    if new.header != old.header or new.handle.range != old.handle.range:
        raise RefusedError(f"{new.name}: its states, or their types, or its key groups are others than in {old.name}")
    streams = {file.name: file.stream for file in old.handle.files}
    own, width = new.handle.range, new.prefix
    low, after = own.start.to_bytes(width, "big"), (own.end + 1).to_bytes(width, "big")
    added: dict[int, list[SstFile]] = {}
    removed: dict[int, list[SstFile]] = {}
    both: dict[int, list[LiveFile]] = {}
    for state in range(new.stored_states):
        now, before = ({_what(table): table for table in file.tables(state)} for file in (new, old))
        for (identity, *_), table in before.items():
            named = stored_by_itself(streams[table.live.name])
            if named is None or identities.get(named) != identity:
                raise RefusedError(f"{table.name}: it isn't the file that was read before, or has no file of its own")
        added[state] = [table for what, table in now.items() if what not in before]
        removed[state] = [table for what, table in before.items() if what not in now]
        both[state] = [table.live for what, table in now.items() if what in before]
        for table in (*added[state], *removed[state]):
            # After a rescale Flink deletes the ranges of other subtasks, whose keys aren't in question.
            if table.deletes_within(low, after):
                raise RefusedError(f"{table.name}: whole ranges of the subtask's own keys were deleted")
    return ChangedFiles(new, old, added, removed, both)


def _what(table: SstFile) -> tuple[str, LiveFile, str]:
    """Returns what tells a file from others.

    The MANIFEST has its number, and may take some of its keys alone. A file that doesn't say which database wrote it,
    such as one of our own, is the same only in the same place.
    """
    return table.identity, replace(table.live, level=0), "" if table.names_its_database else table.name
