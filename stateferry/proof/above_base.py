"""What a catch-up has written: the files of its base as they were, and above them rows of listed keys alone.

So no row of any other key differs from the base's, which was validated: RocksDB shows the newest entry of a row, and
finds entries of other keys in the base's files alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.stored_files import stored_files
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.scan import entries_of
from flinkstate.rocksdb.sst_file import SstFile
from stateferry.changes.changed_keys import in_result, joined
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.proof.changed_layout import Databases

_KEY = 40


@dataclass(frozen=True, slots=True)
class AboveBase:
    """What lies above the base in one subtask's database of the result, and what is wrong with it."""

    operator: str
    subtask: int
    files: int
    rows: int
    problems: tuple[str, ...]

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
            return self._look()
        except (DamagedError, RefusedError) as error:
            return AboveBase(self.operator, self.subtask, 0, 0, (str(error),))

    def _look(self) -> AboveBase:
        before = self._families()
        problems: list[str] = []
        files = rows = 0
        with self._opened(self.staged) as now:
            stored = stored_files(self.staged.folder, self.staged.handles[self.subtask])
            for name, family in now.database.families.items():
                there = before.get(name, {})
                for gone in there.keys() - family.files.keys():
                    problems.append(f"{now.name}: state {name} has no file {there[gone].name} any more")
                for number, live in family.files.items():
                    if (same := there.get(number)) is not None:
                        if live != same:
                            problems.append(f"{now.name}: {live.name} of state {name} isn't as the base has it")
                        continue
                    files += 1
                    with SstFile(stored[live.name], live, name, family.id) as table:
                        count, strange = _rows(table, now.prefix, self.listed.get(name, Prefixes.of(())))
                    rows += count
                    if strange:
                        problems.append(f"{table.name}: state {name}: {strange}")
        return AboveBase(self.operator, self.subtask, files, rows, tuple(problems))

    def _opened(self, of: Databases) -> NativeFile:
        return NativeFile(of.folder, of.handles[self.subtask], self.max_parallelism, self.subtask)

    def _families(self) -> dict[str, dict[int, LiveFile]]:
        with self._opened(self.base) as file:
            return {name: dict(family.files) for name, family in file.database.families.items()}


def _rows(table: SstFile, prefix: int, keys: Prefixes) -> tuple[int, str]:
    """The number of a file's entries, and what is strange about one of them, if anything is."""
    seen, strange = 0, ""
    for data, starts, ends in entries_of(table, prefix, 0, 1 << 16):
        seen += len(starts)
        others = np.flatnonzero(~keys.rows_of(data, starts, ends))
        if len(others) and not strange:
            first = int(others[0])
            key = data[starts[first] + 4 : ends[first]].tobytes()
            strange = f"a row of a key that isn't listed: {key[:_KEY].hex()}"
    if seen != table.entries or table.range_deletions:
        strange = strange or f"{seen} of {table.entries} entries were looked at, {table.range_deletions} delete ranges"
    return seen, strange


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
