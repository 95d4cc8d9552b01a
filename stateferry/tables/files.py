"""A table's data file as a task writes it: Parquet in row groups, of a bounded number of rows in memory.

A ledger's file says in its footer what the file of entries written with it was, to the byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
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
# zstd's level is 1 elsewhere; what it finds at that in single bytes of numbers isn't worth its time.
_LEVEL_OF_NUMBERS = -1
_ENTRIES = b"stateferry.entries"
_WRITE = 1 << 20


class NullsAfterAllError(Exception):
    """A column in whose first rows nothing was null has nulls later on."""


class DataFile:
    """Created with its first rows: a chunk in which nothing has changed has no file. Columns named as dictionaries, and
    those that come as such, have values that come again and again; for one number of many rows a dictionary would only
    take time. Only those that rows are found by have their bounds kept.

    Whether something is null takes Parquet as long to say for each row as to write a number. With `infer_required` that
    is left out for columns that have no nulls in the first row group; nulls that come later can't be written then."""

    def __init__(self, name: str, dictionaries: Sequence[str] = (), *, infer_required: bool = False) -> None:
        self.name, self._dictionaries, self._infers_required = name, dictionaries, infer_required
        self._writer: Any = None
        self._stream: Any = None
        self._buffered: Any = None
        self.rows = 0

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        kept = False
        try:
            if kind is None:
                self.close()
                kept = True
        finally:
            # A failed attempt removes its own file, which nobody else writes, if it lives long enough for that.
            if not kept:
                self._discard()

    def _discard(self) -> None:
        if self._writer is not None:
            for stream in (self._writer, self._buffered, self._stream):
                with contextlib.suppress(OSError, pa.ArrowException):
                    stream.close()
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
        if self._infers_required:
            table = self._required(table)
        if self._writer is None:
            location = Location.of(self.name)
            location.parent.make_folder()
            self._stream = _Digested(location.create())
            # Parquet's many small pieces stay on Arrow's side of Python.
            self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._stream, "w"), _WRITE)
            dictionaries = [field.name for field in table.schema if self._in_dictionary(field)]
            numbers = [field.name for field in table.schema if field.name not in dictionaries and _is_number(field)]
            self._writer = pq.ParquetWriter(
                self._buffered,
                table.schema,
                compression="zstd",
                compression_level=dict.fromkeys(numbers, _LEVEL_OF_NUMBERS),
                use_dictionary=dictionaries,
                write_statistics=list(BOUNDED),
                # Byte by byte they are packed in a third of the time, and smaller too.
                column_encoding=dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
                store_schema=False,
                write_batch_size=_BATCH_ROWS,
            )
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows

    def _required(self, table: pa.Table) -> pa.Table:
        if self._writer is None:
            fields = [
                field.with_nullable(field.nullable and _has_nulls(column))
                for field, column in zip(table.schema, table.columns, strict=True)
            ]
            return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
        for field, column in zip(self._writer.schema, table.columns, strict=True):
            if not field.nullable and _has_nulls(column):
                raise NullsAfterAllError(field.name)
        return pa.Table.from_arrays(table.columns, schema=self._writer.schema)

    def _in_dictionary(self, field: pa.Field) -> bool:
        return field.name in self._dictionaries or bool(pa.types.is_dictionary(field.type))

    def facts(self) -> dict[str, object] | None:
        if self.rows == 0:
            return None
        return {"path": self.name, "rows": self.rows, "bytes": Location.of(self.name).size()}


def _has_nulls(column: pa.ChunkedArray) -> bool:
    return column.null_count > 0 or any(
        pa.types.is_dictionary(chunk.type) and chunk.dictionary.null_count for chunk in column.chunks
    )


def _is_number(field: pa.Field) -> bool:
    """Whether it is as wide in all rows."""
    return field.type in _NUMBERS or bool(pa.types.is_fixed_size_binary(field.type))


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
