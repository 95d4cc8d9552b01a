"""Reads the tables without SQL: the current rows, chunk by chunk, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.types import Scalar
from flinkstate.ttl import expired_array
from stateferry.changes.rules import Rules
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.key_index import lanes_of_parts
from stateferry.tables.iceberg.ledger import Ledger

_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """The data files of one chunk in one version of the tables; it can be pickled."""

    number: int
    entries: tuple[str, ...]
    ledger: tuple[str, ...]


def read_current(files: ChunkFiles, rules: Rules, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the chunk's current entries that are alive by the rules; `columns` must include those that decide this."""
    ledger = read_ledger(files.ledger, rules.legacy)
    for name in files.entries:
        with Location.of(name).open() as file, pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=columns):
                runs = batch.column(names.RUN).to_numpy()
                keep = ledger.are_current(_lanes(batch, rules.legacy), runs)
                if rules.ttl is not None and rules.drops_expired:
                    keep &= ~expired_array(batch.column(names.TIMESTAMP).to_numpy(), rules.ttl, rules.now)
                if keep.any():
                    yield batch.filter(pa.array(keep))


def _lanes(batch: pa.RecordBatch, state: KeyedState) -> tuple[np.ndarray, np.ndarray]:
    namespaces = batch.column(names.NAMESPACE_RAW) if names.NAMESPACE_RAW in batch.schema.names else None
    return lanes_of_parts(state, batch.column(names.KEY_RAW), namespaces)


def read_ledger(files: Sequence[str], state: KeyedState) -> Ledger:
    """Reads the ledger of a chunk."""
    return Ledger.of(read_columns(files, ledger_columns(state)), state, names.TOMBSTONE)


def ledger_columns(state: KeyedState) -> pa.Schema:
    """Returns the columns that tell which rows are current and which keys have changed."""
    namespace = [] if state.namespace is Scalar.VOID_NAMESPACE else [(names.NAMESPACE_RAW, pa.binary())]
    return pa.schema(
        [
            (names.KEY_RAW, pa.binary()),
            *namespace,
            (names.FINGERPRINT, pa.binary(16)),
            (names.RUN, pa.int64()),
            (names.ORIGIN, pa.string()),
            (names.IS_MIGRATED, pa.bool_()),
        ]
    )


def read_columns(files: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Reads some columns of some files, one file after another."""
    tables = []
    for name in files:
        # `pq.read_table` would import the code that reads whole folders.
        try:
            with Location.of(name).open() as file, pq.ParquetFile(file, pre_buffer=True) as parquet:
                if missing := set(schema.names).difference(parquet.schema_arrow.names):
                    raise DamagedError(f"the columns {', '.join(schema.names)}", f"no {', '.join(missing)}", file=name)
                # Files of other tools may have other types for the same columns.
                tables.append(parquet.read(schema.names).select(schema.names).cast(schema))
        except pa.ArrowInvalid as error:
            raise DamagedError("rows of a table", f"{error}", file=name) from error
    return pa.concat_tables(tables) if tables else schema.empty_table()
