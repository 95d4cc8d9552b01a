"""Writes rows of the ledger into its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Positions
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.files import DataFile
from stateferry.tables.iceberg.reads import read_columns

_ROWS_IN_GROUP = 1 << 19
_KEY_COLUMNS = (names.KEY_GROUP, names.KEY, names.KEY_RAW, names.NAMESPACE, names.NAMESPACE_RAW)


class LedgerRows:
    """Gathers rows of the ledger into row groups."""

    def __init__(self, file: DataFile, schema: pa.Schema, chunk: int) -> None:
        self._file, self._schema, self._chunk = file, schema, chunk
        self._tables: list[pa.Table] = []
        self._waiting = 0

    def add(self, columns: dict[str, Any], count: int) -> None:
        """Adds rows, by column."""
        columns = {**columns, names.CHUNK: np.full(count, self._chunk)}
        arrays = [_as_column(columns[field.name], field.type) for field in self._schema]
        self._tables.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._waiting += count
        if self._waiting >= _ROWS_IN_GROUP:
            self.flush()

    def add_tombstones(self, files: Sequence[str], gone: Positions, run_number: int) -> None:
        """Adds tombstones for the keys in the rows `gone` of these files of the ledger."""
        wanted = pa.schema([field for field in self._schema if field.name in _KEY_COLUMNS])
        rows = read_columns(files, wanted).take(pa.array(gone))
        count = len(gone)
        found: dict[str, Any] = {name: rows.column(name) for name in wanted.names}
        found |= {
            names.ORIGIN: pa.repeat(names.TOMBSTONE, count),
            names.IS_MIGRATED: np.zeros(count, np.bool_),
            names.FINGERPRINT: pa.nulls(count, pa.binary(16)),
            names.ENTRIES: np.zeros(count, np.int64),
            names.CONTENT: np.zeros(count, np.int64),
            names.OLDEST: pa.nulls(count, pa.int64()),
            names.NEWEST: pa.nulls(count, pa.int64()),
            names.TIMESTAMP: pa.nulls(count, pa.int64()),
            names.RUN: np.full(count, run_number),
        }
        self.add(found, count)

    def add_moved(self, files: Sequence[str], moved: Positions) -> None:
        """Adds the rows `moved` of these files of the ledger again, for keys that are migrated now."""
        wanted = pa.schema([field for field in self._schema if field.name != names.CHUNK])
        rows = read_columns(files, wanted).take(pa.array(moved))
        found: dict[str, Any] = {name: rows.column(name) for name in wanted.names}
        self.add(found | {names.IS_MIGRATED: np.ones(len(moved), np.bool_)}, len(moved))

    def flush(self) -> None:
        """Writes the rows that are left as a row group."""
        if self._tables:
            self._file.write(pa.concat_tables(self._tables))
            self._tables, self._waiting = [], 0


def _as_column(values: Any, type_: pa.DataType) -> Any:
    array = pa.array(values) if isinstance(values, np.ndarray) else values
    return array if array.type == type_ else array.cast(type_)
