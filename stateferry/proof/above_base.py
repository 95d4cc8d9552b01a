"""What a catch-up has written: the files of its base as they were, and above them rows of listed keys alone.

So no row of any other key differs from the base's, which was validated: RocksDB shows the newest entry of a row, and
finds entries of other keys in the base's files alone.

If newer files of the base aren't there any more, another one has taken their place. Then all rows that they or the new
one have are read in both results, and those of keys that aren't listed must be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange, key_group_prefix_bytes
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.stored_files import stored_files
from flinkstate.rocksdb.live_files import ColumnFamily
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.read_once import reading_once
from flinkstate.rocksdb.scan import entries_of
from flinkstate.rocksdb.sst_file import SstFile
from stateferry.changes.changed_keys import in_result, joined
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.proof.changed_layout import Databases

_KEY = 40


@dataclass(frozen=True, slots=True)
class AboveBase:
    """What lies above the base in one subtask's database of the result, and what is wrong with it.

    So many newer files of the base were `joined`.
    """

    operator: str
    subtask: int
    files: int
    rows: int
    problems: tuple[str, ...]
    joined: int = 0

    read: ClassVar[None] = None

    @property
    def size(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class AboveBaseTask:
    """Looks at one subtask's database of the result; `listed` are the keys of its key groups, by state."""

    operator: str
    subtask: int
    max_parallelism: int
    staged: Databases
    base: Databases
    listed: Mapping[str, Prefixes]

    def do(self) -> AboveBase:
        """Compares the live files, and reads each row of those that the base hasn't."""
        try:
            with reading_once():
                return self._look()
        except (DamagedError, RefusedError) as error:
            return AboveBase(self.operator, self.subtask, 0, 0, (str(error),))

    def _look(self) -> AboveBase:
        problems: list[str] = []
        files = rows = joined = 0
        with self._opened(self.base) as before, self._opened(self.staged) as now:
            for name, family in now.database.families.items():
                there = before.database.families[name].files
                for number in sorted(there.keys() & family.files.keys()):
                    if there[number] != family.files[number]:
                        problems.append(f"{now.name}: {there[number].name} of state {name} isn't as the base has it")
                gone = [there[number] for number in sorted(there.keys() - family.files.keys())]
                new = _tables(self.staged, self.subtask, family, sorted(family.files.keys() - there.keys()))
                listed = self.listed.get(name, Prefixes.of(()))
                if deep := [one for one in gone if one.level]:
                    problems.append(f"{now.name}: state {name} has no file {deep[0].name} any more")
                elif gone:
                    numbers = [one.number for one in gone]
                    old = _tables(self.base, self.subtask, before.database.families[name], numbers)
                    problems += _not_as_before(before, now, name, [*old, *new], listed)
                else:
                    problems += [found for table in new for found in _strange(table, now.prefix, listed)]
                files, rows = files + len(new), rows + sum(table.entries for table in new)
                joined += len(gone)
        return AboveBase(self.operator, self.subtask, files, rows, tuple(problems), joined)

    def _opened(self, of: Databases) -> NativeFile:
        # No key group is wanted ahead, as each may be read with other keys.
        return NativeFile(of.folder, of.handles[self.subtask], self.max_parallelism, self.subtask, wanted=[])


def _tables(of: Databases, subtask: int, family: ColumnFamily, numbers: Iterable[int]) -> list[SstFile]:
    stored, live = stored_files(of.folder, of.handles[subtask]), [family.files[number] for number in numbers]
    tables = [SstFile(stored[one.name], one, family.name, family.id) for one in live]
    for table in tables:
        table.close()
    return tables


def _strange(table: SstFile, prefix: int, keys: Prefixes) -> Iterator[str]:
    """What is strange about one of a file's entries, if anything is."""
    seen = 0
    for data, starts, ends in entries_of(table, prefix, 0, 1 << 16):
        seen += len(starts)
        for key in _others(data, starts, ends, keys):
            yield f"{table.name}: a row of a key that isn't listed: {key[:_KEY].hex()}"
            return
    yield from _unseen(table, seen)


def _unseen(table: SstFile, seen: int) -> Iterator[str]:
    if seen != table.entries or table.range_deletions:
        of = f"{seen} of {table.entries} entries were looked at, {table.range_deletions} delete ranges"
        yield f"{table.name}: {of}"


def _others(data: Bytes, starts: Positions, ends: Positions, listed: Prefixes) -> Iterator[bytes]:
    """The keys that aren't listed."""
    for row in np.flatnonzero(~listed.rows_of(data, starts, ends)).tolist():
        yield data[starts[row] + 4 : ends[row]].tobytes()


def _not_as_before(
    before: NativeFile, now: NativeFile, state: str, tables: Sequence[SstFile], listed: Prefixes
) -> Iterator[str]:
    """Where rows that the files have are other ones than in the base, though their keys aren't listed."""
    seen = Counter[str]()
    for key_group in now.handle.range:
        own, keys = listed.within(KeyGroupRange(key_group, key_group), now.prefix), set[bytes]()
        for table in tables:
            for data, starts, ends in entries_of(table, now.prefix, key_group, key_group + 1):
                seen[table.name] += len(starts)
                keys.update(_others(data, starts, ends, own))
        only = Prefixes.of(keys)
        for file in (before, now):
            file.read_only({state: only})
            for _ in file.sections(key_group):
                pass
        if before.sums[key_group] != now.sums[key_group]:
            what = f"state {state}: rows of keys that aren't listed aren't as the base has them"
            yield f"{now.name}, key group {key_group}: {what}"
    for table in tables:
        yield from _unseen(table, seen[table.name])


def above_base_tasks(
    operator: str,
    conversion: OperatorChanges,
    staged: Databases,
    base: Databases,
    changed: Mapping[int, Mapping[str, Prefixes]],
) -> Iterator[AboveBaseTask]:
    """A task for each subtask of the result; `changed` are the listed keys of the source's subtasks."""
    every, width = in_result(joined(changed), conversion), key_group_prefix_bytes(conversion.new_max)
    for subtask, handle in base.handles.items():
        listed = {state: keys.within(handle.range, width) for state, keys in every.items()}
        now, before = (Databases(one.folder, {subtask: one.handles[subtask]}) for one in (staged, base))
        yield AboveBaseTask(operator, subtask, conversion.new_max, now, before, listed)
