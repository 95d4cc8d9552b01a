"""A table's data file as a task writes it: Parquet in row groups, of a bounded number of rows in memory.

A ledger's file says in its footer what the file of entries written with it was, to the byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stateferry.file_hash import hasher_of, new_hasher
from stateferry.savepoint.storage import Location
from stateferry.tables.schemas import BOUNDED

_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
# What is encoded at once; much less than that costs more than the encoding.
_BATCH_ROWS = 1 << 16
# Values of one column next to each other compress well already; what zstd finds at higher levels isn't worth its time.
_COMPRESSION, _LEVEL = "zstd", 1
_ENTRIES = b"stateferry.entries"
_WRITE = 1 << 20


class DataFile:
    """Created with its first rows: a chunk in which nothing has changed has no file. Columns named as dictionaries have
    values that come again and again; for one number of many rows a dictionary would only take time. Only those that
    rows are found by have their bounds kept."""

    def __init__(self, name: str, dictionaries: list[str]) -> None:
        self.name, self._dictionaries = name, dictionaries
        self._writer: Any = None
        self._stream: Any = None
        self._buffered: Any = None
        self.rows = 0

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            # A failed attempt leaves nothing behind, if it lives long enough to see to it.
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
                self._buffered.close()
            self._stream.close()
            Location.of(self.name).remove()

    def close(self) -> None:
        if self._writer is not None and not self._stream.closed:
            self._writer.close()
            self._buffered.close()
            self._stream.close()
            Location.of(self.name).sync_file()

    def note_entries(self, entries: DataFile) -> None:
        """Says of the entries' file, which is whole, what it is; this one must have rows."""
        if entries.rows:
            digest = f"{entries.name.rpartition('/')[2]}:{entries._stream.digest()}"
            self._writer.add_key_value_metadata({_ENTRIES: digest.encode()})

    def write(self, table: pa.Table) -> None:
        """One row group."""
        if self._writer is None:
            location = Location.of(self.name)
            location.parent.make_folder()
            self._stream = _Digested(location.create())
            # Parquet's many small pieces stay on Arrow's side of Python.
            self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._stream, "w"), _WRITE)
            self._writer = pq.ParquetWriter(
                self._buffered,
                table.schema,
                compression=_COMPRESSION,
                compression_level=_LEVEL,
                use_dictionary=self._dictionaries,
                write_statistics=list(BOUNDED),
                column_encoding=self._encodings(table.schema),
                store_schema=False,
                write_batch_size=_BATCH_ROWS,
            )
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows

    def _encodings(self, schema: pa.Schema) -> dict[str, str]:
        """What has one width byte by byte: a third of the time, and smaller too."""
        return {
            field.name: "BYTE_STREAM_SPLIT"
            for field in schema
            if field.name not in self._dictionaries
            and (field.type in _NUMBERS or pa.types.is_fixed_size_binary(field.type))
        }

    def facts(self) -> dict[str, object] | None:
        if self.rows == 0:
            return None
        return {"path": self.name, "rows": self.rows, "bytes": Location.of(self.name).size()}


class _Digested:
    """A stream that knows what went through it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._hasher = new_hasher()

    def write(self, data: Any) -> int:
        self._hasher.update(data)
        self._stream.write(data)
        return len(data)

    def digest(self) -> str:
        return str(self._hasher.digest().hex())

    def flush(self) -> None:
        self._stream.flush()

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        self._stream.close()


def digest_of(name: str) -> str:
    """Of a file as it is now."""
    with Location.of(name).open() as file:
        return str(hasher_of(file).digest().hex())


def entry_digests(ledger_files: Iterable[str]) -> dict[str, str]:
    """By the base names of files of entries, what they were when they were written."""
    found = {}
    for name in ledger_files:
        with Location.of(name).open() as file, pq.ParquetFile(file) as parquet:
            said = (parquet.metadata.metadata or {}).get(_ENTRIES)
        if said:
            entries, _, digest = said.decode().rpartition(":")
            found[entries] = digest
    return found
