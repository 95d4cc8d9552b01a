"""Writes a data file of a table: Parquet in row groups, with a limited number of rows in memory.

The footer of a ledger's file has the digest of the file of entries that was written with it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flinkstate.files.digests import hasher_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.files.upload import RemoteOutput
from stateferry.tables.iceberg.schemas import BOUNDED

_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
# The number of rows that are encoded at once; smaller batches cost more than the encoding itself.
_BATCH_ROWS = 1 << 16
# Other columns have zstd's level 1. For the single bytes of numbers it finds too little to be worth its time.
_LEVEL_OF_NUMBERS = -1
_ENTRIES = b"stateferry.entries"
_WRITE = 1 << 20


class NullsAfterAllError(Exception):
    """A column without nulls in its first rows has nulls later on."""


class DataFile:
    """A data file, which is created with its first rows: a chunk in which nothing has changed has no file.

    Columns that are named in `dictionaries`, or come as dictionary arrays, have repeated values. Other columns get no
    dictionary, because making one takes time. Bounds are only kept of the columns that rows are found by.

    Parquet takes as long to write for each row whether it is null as to write a number. With `infer_required` a column
    that has no nulls in the first row group is declared required; it then can't have nulls later.
    """

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
            # A failed attempt removes its own file, unless the process is killed.
            if not kept:
                self._discard()

    def _discard(self) -> None:
        if self._writer is not None:
            self._stream.abandon()
            for stream in (self._writer, self._buffered, self._stream):
                with contextlib.suppress(OSError, pa.ArrowException):
                    stream.close()
            Location.of(self.name).remove()

    def close(self) -> None:
        """Completes the file; it is on disk then."""
        if self._writer is not None and not self._stream.closed:
            self._writer.close()
            self._buffered.close()
            self._stream.close()
            Location.of(self.name).sync_file()

    def note_entries(self, entries: DataFile) -> None:
        """Notes the digest of the complete file of entries in this file's footer; this file must have rows."""
        if entries.rows:
            digest = f"{entries.name.rpartition('/')[2]}:{entries._stream.digest()}"
            self._writer.add_key_value_metadata({_ENTRIES: digest.encode()})

    def write(self, table: pa.Table) -> None:
        """Writes one row group."""
        if self._infers_required:
            table = self._required(table)
        if self._writer is None:
            location = Location.of(self.name)
            location.parent.make_folder()
            self._stream = _Digested(location.create())
            # Arrow collects Parquet's many small writes before they reach Python.
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
                # Split by byte, numbers are compressed in a third of the time, and smaller.
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

    def written(self) -> str | None:
        """Returns the name of the complete file, or None if it has no rows."""
        return self.name if self.rows else None


def _has_nulls(column: pa.ChunkedArray) -> bool:
    return column.null_count > 0 or any(
        pa.types.is_dictionary(chunk.type) and chunk.dictionary.null_count for chunk in column.chunks
    )


def _is_number(field: pa.Field) -> bool:
    """Whether all values have the same width."""
    return field.type in _NUMBERS or bool(pa.types.is_fixed_size_binary(field.type))


class _Digested:
    """A stream that computes the digest of what is written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._hasher = new_hasher()

    def write(self, data: Any) -> int:
        self._hasher.update(data)
        self._stream.write(data)
        return len(data)

    def digest(self) -> str:
        return str(self._hasher.digest().hex())

    def abandon(self) -> None:
        """Gives the file up. On an object store it never appears; of a local disk it must be removed."""
        if isinstance(self._stream, RemoteOutput):
            self._stream.abandon()
            self._stream = io.BytesIO()

    def flush(self) -> None:
        self._stream.flush()

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        self._stream.close()


def digest_of_file(name: str) -> str:
    """Returns the digest of a file as it is now."""
    with Location.of(name).open() as file:
        return str(hasher_of(file).digest().hex())


def entry_digests(ledger_files: Iterable[str]) -> dict[str, str]:
    """Returns the digests that the ledger's files have of files of entries, by their base names."""
    found = {}
    for name in ledger_files:
        with Location.of(name).open() as file, pq.ParquetFile(file) as parquet:
            stored = (parquet.metadata.metadata or {}).get(_ENTRIES)
        if stored:
            entries, _, digest = stored.decode().rpartition(":")
            found[entries] = digest
    return found
