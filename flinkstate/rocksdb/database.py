"""A RocksDB database as it lies in a snapshot: no write-ahead log, and only what is live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError
from flinkstate.rocksdb.files import (
    StoredFile,
)
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile
from flinkstate.rocksdb.manifest import manifest_name, read_manifest
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.scan import Scan
from flinkstate.rocksdb.sorted_run import PORTION
from flinkstate.rocksdb.sst_file import SstFile

_CURRENT = "CURRENT"
_SST = ".sst"
# So many files of a run are searched for rows that must not be there.
_MOST_SEARCHED = 4
# What so many files say of themselves is read once.
_MOST_OPEN = 1 << 10


class Database:
    """A database, whose files are `files` by their own names; `shown` is its name in messages."""

    def __init__(self, files: Mapping[str, StoredFile], shown: str) -> None:
        self._files, self.shown = files, shown
        self._tables: dict[tuple[int, int], SstFile] = {}
        current = self._file(_CURRENT)
        self.manifest = self._file(manifest_name(current))
        self.families = read_manifest(self.manifest)
        self._check_files()

    def _file(self, name: str) -> StoredFile:
        file = self._files.get(name)
        if file is None:
            raise DamagedError(f"a file {name}", "none", file=self.shown)
        return file

    def _check_files(self) -> None:
        """Raises unless the snapshot has exactly the SST files that are live, with their sizes."""
        live = {file.name: file for family in self.families.values() for file in family.files.values()}
        there = {name for name in self._files if name.endswith(_SST)}
        for name in sorted(live.keys() ^ there):
            found = "it isn't in the snapshot" if name in live else "one that isn't live"
            raise DamagedError(f"the live files of {self.manifest.shown}", f"{name}: {found}", file=self.shown)
        for name, file in live.items():
            if self._files[name].size != file.size:
                raise DamagedError(
                    f"{file.size} bytes of {name}, as {self.manifest.shown} says", f"{self._files[name].size}",
                    file=self._files[name].shown,
                )  # fmt: skip

    def shares(self, prefix: int, low: int, high: int) -> list[int]:
        """Returns about how many bytes of the files are of each key group from `low` up to, but without, `high`.

        `prefix` is the number of bytes of key group that keys begin with. A file's bytes count in equal parts for the
        key groups from its first to its last key.
        """
        # Where the bytes for each key group change.
        changes = np.zeros(high - low + 1)
        for family in self.families.values():
            for file in family.files.values():
                first, last = (_group(key, prefix) for key in (file.smallest, file.largest))
                begin, end = max(first, low), min(max(last, first) + 1, high)
                if begin < end:
                    each = file.size / (max(last, first) + 1 - first)
                    changes[begin - low] += each
                    changes[end - low] -= each
        return [int(share) for share in np.cumsum(changes)[:-1]]

    def content_sizes(self, most: int) -> tuple[int, int]:
        """Returns the bytes of the rows of some files, the largest ones, as in a canonical file, and of the files.

        Each version of a row counts.
        """
        files = [(file, family) for family in self.families.values() for file in family.files.values()]
        largest = sorted(files, key=lambda one: -one[0].size)[:most]
        # A row's lengths take as many bytes as the sequence number behind its key.
        return sum(self._open(*one).raw_bytes for one in largest), sum(file.size for file, _ in largest)

    def has_rows(self, family: str, prefix: int, low: int, high: int, buffer: Bytes, positions: Positions) -> bool:
        """Whether key groups from `low` up to, but without, `high` are found to have a row.

        The search ends behind some files, or some megabytes of rows that were deleted.
        """
        found = self.families.get(family)
        runs = _runs(found, prefix, low, high) if found else []
        if not runs:
            return False
        low = max(low, min(_group(run[0].smallest, prefix) for run in runs))
        for run in runs:
            if len(run) > _MOST_SEARCHED:
                high = min(high, max(_group(run[_MOST_SEARCHED].smallest, prefix), low + 1))
        with self.scan(family, prefix, low, high) as scan:
            return scan.has_rows(high, buffer, positions)

    def runs(self, prefix: int, low: int, high: int) -> int:
        """Returns the number of sorted runs of files, of all column families, with key groups from `low` to `high`."""
        return sum(len(_runs(family, prefix, low, high)) for family in self.families.values())

    def scan(
        self,
        family: str,
        prefix: int,
        low: int,
        high: int,
        portion: int = PORTION,
        *,
        keep_open: bool = True,
        only: Prefixes | None = None,
    ) -> Scan:
        """Returns the rows of a column family in key groups from `low` up to, but without, `high`.

        `prefix` is the number of bytes of key group that keys begin with. A column family that isn't there has no rows.
        With `only`, other rows than those with these prefixes count for nothing: see `Scan`.
        """
        found = self.families.get(family)
        with ExitStack() as opened:
            runs = []
            for files in _runs(found, prefix, low, high) if found else []:
                runs.append([opened.enter_context(self._open(file, found)) for file in files if found])
            return Scan(runs, opened.pop_all(), prefix, low, high, portion, keep_open=keep_open, only=only)

    def files(self, family: str, prefix: int, low: int, high: int) -> Iterator[SstFile]:
        """Yields the files of a column family that may have keys of these key groups, each open until the next one."""
        found = self.families.get(family)
        if found is None:
            return
        for run in _runs(found, prefix, low, high):
            for file in run:
                with self._open(file, found) as table:
                    yield table

    def _open(self, file: LiveFile, family: ColumnFamily) -> SstFile:
        table = self._tables.get((family.id, file.number))
        if table is None:
            table = SstFile(self._file(file.name), file, family.name, family.id)
            # A large state has more files than a process may have open.
            table.close()
            if len(self._tables) < _MOST_OPEN:
                self._tables[family.id, file.number] = table
        return table


def _group(key: bytes, prefix: int) -> int:
    """Returns the key group of an internal key."""
    return int.from_bytes(key[:-8][:prefix], "big")


def _runs(family: ColumnFamily, prefix: int, low: int, high: int) -> list[list[LiveFile]]:
    """Returns the files that may have keys of the key groups, in sorted runs, from the newest to the oldest."""
    wanted = [
        file
        for file in family.files.values()
        if file.smallest[:prefix] < high.to_bytes(prefix + 1, "big")[1:] or high >> 8 * prefix
    ]
    wanted = [file for file in wanted if file.largest[:-8][:prefix] >= low.to_bytes(prefix, "big")]
    wanted_family = ColumnFamily(family.id, family.name, {file.number: file for file in wanted})
    runs = []
    for level in sorted({file.level for file in wanted}):
        files = wanted_family.of_level(level)
        runs += [[file] for file in files] if level == 0 else [files]
    return runs
