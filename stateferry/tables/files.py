"""A table's data file as a task writes it: Parquet in row groups, of a bounded number of rows in memory."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stateferry.savepoint.storage import Location
from stateferry.tables.schemas import BOUNDED

_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
# Values of one column next to each other compress well already; what zstd finds at higher levels isn't worth its time.
_COMPRESSION, _LEVEL = "zstd", 1


class DataFile:
    """Created with its first rows: a chunk in which nothing has changed has no file. Columns with few different values
    are kept as dictionaries; only those that rows are found by have their bounds kept."""

    def __init__(self, name: str, dictionaries: list[str]) -> None:
        self.name, self._dictionaries = name, dictionaries
        self._writer: Any = None
        self._stream: Any = None
        self.rows = 0

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._writer is None:
            return
        if kind is not None:
            # A failed attempt leaves nothing behind, if it lives long enough to see to it.
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._stream.close()
            Location.of(self.name).remove()
            return
        self._writer.close()
        self._stream.close()
        Location.of(self.name).sync_file()

    def write(self, table: pa.Table) -> None:
        """One row group."""
        if self._writer is None:
            location = Location.of(self.name)
            location.parent.make_folder()
            self._stream = location.create()
            self._writer = pq.ParquetWriter(
                self._stream,
                table.schema,
                compression=_COMPRESSION,
                compression_level=_LEVEL,
                use_dictionary=self._dictionaries,
                write_statistics=list(BOUNDED),
                column_encoding=self._encodings(table.schema),
                store_schema=False,
            )
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows

    def _encodings(self, schema: pa.Schema) -> dict[str, str]:
        """Numbers byte by byte: a third of the time, and smaller too."""
        numbers = [field.name for field in schema if field.type in _NUMBERS and field.name not in self._dictionaries]
        return dict.fromkeys(numbers, "BYTE_STREAM_SPLIT")

    def facts(self) -> dict[str, object] | None:
        if self.rows == 0:
            return None
        return {"path": self.name, "rows": self.rows, "bytes": Location.of(self.name).size()}
