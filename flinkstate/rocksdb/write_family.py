"""Writes the rows of one column family, a key group at a time, as sorted files that don't overlap.

Rows of a key group that fit into memory are sorted there. A larger key group is written as it comes as long as it comes
in order. What doesn't is sorted by portions, which wait in files of their own; at the end of the key group these are
merged with what was written of it, and replace it. Until then what was written of it has no names that count: another
attempt to write the same files may be at work, and neither may remove what the other reads.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Bytes
from flinkstate.errors import DamagedError, KeyTwiceError
from flinkstate.files.temporary_folder import task_folder
from flinkstate.rocksdb.files import (
    StoredFile,
)
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.merge import OlderAboveError
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.scan import Scan
from flinkstate.rocksdb.sorted_run import PORTION as READ
from flinkstate.rocksdb.sst_file import SstFile
from flinkstate.rocksdb.write_kernels import SLACK
from flinkstate.rocksdb.write_sst_file import Buffers, OutputFile, SortedRows, SstWriter

# The lowest level of seven.
LEVEL = 6
# So many bytes of a key group's rows are sorted at once.
PORTION = 32 << 20
_MERGED = 4 << 20
_MERGED_ROWS = 1 << 16
# About so many bytes are read at a time of all files that are merged; of more files than `_MOST_OPEN` none stays open.
_READ_AT_ONCE = 12 << 20
_LEAST_READ = 1 << 12
_MOST_OPEN = 128


class FamilyWriter:
    """The files of a column family.

    `keep` gives a finished draft its name, and `remove` removes one that other files have replaced.
    """

    def __init__(
        self,
        id_: int,
        name: str,
        prefix: int,
        create: Callable[[bool], tuple[int, OutputFile]],
        stored: Callable[[LiveFile], StoredFile],
        keep: Callable[[LiveFile], None],
        remove: Callable[[LiveFile], None],
        buffers: Buffers,
        *,
        is_compressed: bool,
    ) -> None:
        """`create` begins the database's next file, or a draft of it, and returns its number; `stored` reads one."""
        self.id, self.name, self._prefix, self._buffers = id_, name, prefix, buffers
        self._is_compressed = is_compressed
        self._create, self._stored, self._keep, self._remove = create, stored, keep, remove
        self.files: list[LiveFile] = []
        self._open: SstWriter | None = None
        self._last: bytes | None = None
        # Of a key group that is written in portions: the first of its own files, its rows, and the portions that wait.
        self._first_own: int | None = None
        self._rows = 0
        self._waiting: list[LiveFile] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def write(self, pending: PendingRows, key_group: int, *, is_all: bool) -> None:
        """Writes the rows; with `is_all` no others of the key group follow."""
        if not is_all and self._first_own is None:
            self._finish_file()
            self._first_own, self._rows = len(self.files), 0
        rows = pending.in_order()
        self._rows += rows.count
        if rows.count and self._last is not None and rows.key(0) <= self._last:
            self._keep_waiting(rows)
        else:
            self._append(rows)
        pending.clear()
        if is_all:
            if self._waiting:
                self._merge(key_group)
            if self._first_own is not None:
                self._finish_file()
                for file in self.files[self._first_own :]:
                    self._keep(file)
            self._first_own = None

    def _append(self, rows: SortedRows) -> None:
        done = 0
        while done < rows.count:
            if self._open is None:
                number, sink = self._create(self._first_own is not None)
                self._open = SstWriter(
                    sink, number, LEVEL, self.name, self.id, self._buffers, is_compressed=self._is_compressed
                )
            done = self._open.append(rows, done)
            if self._open.is_full:
                self._finish_file()
        if rows.count:
            self._last = rows.key(rows.count - 1)

    def _finish_file(self) -> None:
        if self._open is not None:
            self.files.append(self._open.finish())
            self._open = None

    def _keep_waiting(self, rows: SortedRows) -> None:
        if self._first_own is None:
            raise DamagedError("key groups in ascending order, each key of a state once", f"{rows.key(0).hex()} again")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="stateferry-", dir=task_folder())
        number = len(self._waiting)
        table = SstWriter(_Temporary(self._path(number)), number, 0, self.name, self.id, self._buffers)
        table.append(rows, 0)
        self._waiting.append(table.finish())

    def _path(self, number: int) -> str:
        assert self._folder is not None
        return os.path.join(self._folder.name, f"{number:06}.sst")

    def _merge(self, key_group: int) -> None:
        """Replaces what was written of the key group by that and what waits, merged."""
        self._finish_file()
        assert self._first_own is not None
        own = self.files[self._first_own :]
        del self.files[self._first_own :]
        self._last = None
        with ExitStack() as opened:
            tables = [[SstFile(self._stored(file), file, self.name, self.id) for file in own]]
            for number, file in enumerate(self._waiting):
                path = self._path(number)
                stored = StoredFile(path, file.size, partial(pa.OSFile, path, "rb"))
                tables.append([SstFile(stored, file, self.name, self.id)])
            for run in tables:
                for table in run:
                    table.close()
            merged = 0
            scan = opened.enter_context(
                Scan(
                    tables, opened.pop_all(), self._prefix, key_group, key_group + 1,
                    min(max(_READ_AT_ONCE // len(tables), _LEAST_READ), READ),
                    keep_open=len(tables) <= _MOST_OPEN,
                )
            )  # fmt: skip
            try:
                for rows in _read(scan, key_group):
                    merged += rows.count
                    self._append(rows)
            except OlderAboveError as error:
                # All of them have the same sequence number.
                found = f"in state {self.name}, {error.key.hex()} of key group {key_group} again"
                raise KeyTwiceError("each key of a state once", found) from None
        if merged != self._rows:
            found = f"in state {self.name}, {self._rows - merged} keys of key group {key_group} again"
            raise KeyTwiceError("each key of a state once", found)
        for file in own:
            self._remove(file)
        self._waiting.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def finish(self) -> list[LiveFile]:
        """Completes the last file and returns all."""
        self._finish_file()
        return self.files

    def close(self) -> None:
        """Removes what isn't complete."""
        if self._open is not None:
            self._open.close()
        if self._folder is not None:
            self._folder.cleanup()


def _read(scan: Scan, key_group: int) -> Iterator[SortedRows]:
    buffer = np.zeros(_MERGED + SLACK, np.uint8)
    starts, key_ends, ends = np.zeros((3, _MERGED_ROWS), np.int64)
    order = np.arange(_MERGED_ROWS)
    needed = 1
    while needed:
        if needed + SLACK > len(buffer):
            buffer = np.zeros(2 * needed + SLACK, np.uint8)
        found = scan.read(key_group + 1, buffer, 0, (starts, key_ends, ends))
        needed = found.needed
        if found.rows:
            yield SortedRows(buffer, starts, key_ends, ends, order, found.rows)


class _Temporary:
    """A file in a temporary folder."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 it is closed by whoever writes it
        self.position = 0

    def write(self, data: Bytes | bytes) -> None:
        self._file.write(memoryview(data))  # type: ignore[arg-type]
        self.position += len(data)

    def end(self) -> None:
        self._file.close()

    def close(self) -> None:
        self._file.close()
