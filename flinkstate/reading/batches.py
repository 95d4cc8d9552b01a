"""Reads a state's entries as Arrow record batches: decoded into typed columns, or raw, with their bytes unchanged.

| column | decoded | raw |
|---|---|---|
| key_group | int32 | int32 |
| key | the key | its bytes |
| namespace (absent if it is the void namespace) | the namespace | its bytes |
| user_key (maps) | the user key | its bytes |
| value (absent for timers) | the value; of a ListState a list | its bytes, with null flag, timestamp and delimiters |
| timestamp (states with time to live, timers) | int64 milliseconds; of a ListState a list | absent for a ListState |

A null in a MapState is a null value. A null that was written under time to live has no timestamp either.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Flags, Positions
from flinkstate.columns import column_decoder
from flinkstate.columns.arrow_types import arrow_type
from flinkstate.columns.scalar_columns import blocks_array
from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.chunks import Chunk, plan_chunks
from flinkstate.reading.reader import Savepoint
from flinkstate.reading.rows import RowPortion, gather
from flinkstate.reading.state_rows import read_rows
from flinkstate.serializers import walker
from flinkstate.serializers.types import (
    FlinkType,
    NullableType,
    OpaqueType,
    PojoType,
    Scalar,
    TupleType,
    children,
    type_name,
)

ROWS_PER_BATCH = 1 << 16
BYTES_PER_BATCH = WINDOW

KEY_GROUP, KEY, NAMESPACE, USER_KEY, VALUE, TIMESTAMP = (
    "key_group",
    "key",
    "namespace",
    "user_key",
    "value",
    "timestamp",
)


def schema(state: KeyedState, *, raw: bool = False) -> pa.Schema:
    """Returns the columns of the state's batches. Refuses what has no Arrow type, and names it."""
    if state.asynchronous:
        raise RefusedError(f"state {state.name} is asynchronous (V2) state, which can't be read")
    for part, type_ in ((KEY, state.key), (NAMESPACE, state.namespace)):
        for opaque in _in_every_value(type_):
            raise RefusedError(
                f"state {state.name}: its {part} {type_name(type_)} can't be split off, "
                f"because {opaque.class_name} is {opaque.reason}"
            )
    fields = [(KEY_GROUP, pa.int32()), (KEY, _part_type(state, KEY, state.key, raw))]
    if _has_namespace(state):
        fields.append((NAMESPACE, _part_type(state, NAMESPACE, state.namespace, raw)))
    if state.user_key is not None:
        fields.append((USER_KEY, _part_type(state, USER_KEY, state.user_key, raw)))
    timestamp = pa.int64()
    if state.value is not None:
        value = _part_type(state, VALUE, state.value, raw)
        if state.kind is StateKind.LIST and not raw:
            value, timestamp = pa.list_(value), pa.list_(timestamp)
        fields.append((VALUE, value))
    if _has_timestamp(state, raw):
        fields.append((TIMESTAMP, timestamp))
    return pa.schema(fields)


def _in_every_value(type_: FlinkType) -> Iterator[OpaqueType]:
    """Yields the opaque parts of a type, without those that only values of a POJO's subclass have."""
    if isinstance(type_, OpaqueType):
        yield type_
    for part in [field.type for field in type_.fields] if isinstance(type_, PojoType) else children(type_):
        yield from _in_every_value(part)


def _part_type(state: KeyedState, part: str, type_: FlinkType, raw: bool) -> pa.DataType:
    if raw:
        return pa.binary()
    try:
        return arrow_type(type_)
    except RefusedError as error:
        raise RefusedError(f"state {state.name}: its {part.replace('_', ' ')} {type_name(type_)}: {error}") from None


def _has_namespace(state: KeyedState) -> bool:
    return state.namespace is not Scalar.VOID_NAMESPACE


def _has_timestamp(state: KeyedState, raw: bool) -> bool:
    if state.kind is StateKind.LIST and raw:
        return False
    return state.ttl or state.kind is StateKind.TIMERS


def read_batches(
    savepoint: Savepoint,
    operator: str,
    state: str,
    key_groups: KeyGroupRange | None = None,
    *,
    raw: bool = False,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Reads all entries of a state, or those in some key groups. `operator` is an operator's id, uid or name."""
    found = savepoint.operator(operator)
    described = savepoint.state(found, state)
    schema(described, raw=raw)
    for chunk in plan_chunks(found, savepoint.placed(found), key_groups):
        yield from read_chunk(savepoint.folder, chunk, described, raw=raw, rows_per_batch=rows_per_batch)


def read_chunk(
    folder: Location, chunk: Chunk, state: KeyedState, *, raw: bool = False, rows_per_batch: int = ROWS_PER_BATCH
) -> Iterator[pa.RecordBatch]:
    """Reads the state's entries in the chunk's key groups, in bounded memory."""
    if rows_per_batch < 1:
        raise UsageError(f"expected at least one row in a batch, found {rows_per_batch}")
    schema(state, raw=raw)
    for rows in gather(_rows(folder, chunk, state), rows_per_batch, BYTES_PER_BATCH):
        with rows.locating():
            batch = record_batch(state, rows, raw=raw)
        yield batch


def _rows(folder: Location, chunk: Chunk, state: KeyedState) -> Iterator[RowPortion]:
    window = np.empty(WINDOW, np.uint8)
    for part in chunk.parts:
        with open_keyed(folder, part.handle, chunk.max_parallelism, part.subtask, wanted=part.key_groups) as file:
            if ids := _ids(file, state):
                yield from read_rows(file, part.key_groups, ids, window)


def _ids(file: KeyedFile, state: KeyedState) -> set[int]:
    """Returns the state's ids in this file; none if the subtask has not used the state."""
    ids = set()
    for number, found in enumerate(keyed_states(file.header, file.name)):
        if found.name == state.name:
            ids.add(number)
            # Subtasks may know different subclasses of a POJO; the whole savepoint's description knows all of them.
            if (found.kind, found.ttl, found.type_name) != (state.kind, state.ttl, state.type_name):
                raise RefusedError(
                    f"{file.name}: state {state.name} is {found.kind.value} {found.type_name} in this file, but "
                    f"{state.kind.value} {state.type_name} in that of another subtask"
                )
    return ids


def record_batch(state: KeyedState, rows: RowPortion, *, raw: bool = False) -> pa.RecordBatch:
    """Returns the entries as one batch, which copies their bytes. A `DamagedError` has a position in `rows.data`."""
    batch_columns = _raw_columns(state, rows) if raw else _columns(state, rows)
    return pa.RecordBatch.from_arrays(batch_columns, schema=schema(state, raw=raw))


def _columns(state: KeyedState, rows: RowPortion) -> list[pa.Array]:
    # This comes first: it finds keys that are too short for the timestamp that a timer begins with.
    values = [_timer_timestamps(rows)] if state.kind is StateKind.TIMERS else []
    arrays = _key_columns(state, rows)
    if state.stored_value is not None:
        decode_values = _list_columns if state.kind is StateKind.LIST else _value_columns
        values = decode_values(state, state.stored_value, rows)
    return [pa.array(rows.key_groups), *arrays, *values]


def _key_columns(state: KeyedState, rows: RowPortion) -> list[pa.Array]:
    data, position, limits = rows.data, _key_starts(state, rows), rows.key_ends
    if state.has_suffixes:
        split = walker.split_keys(state.key, state.namespace, True, data, position, limits)
        key, _ = column_decoder.decode(state.key, data, position, split.key_ends)
        namespace, _ = column_decoder.decode(state.namespace, data, split.namespace_starts, split.namespace_ends)
        position = split.rests
        arrays = [key, namespace]
        if state.user_key is not None:
            user_key, position = column_decoder.decode(state.user_key, data, position, limits)
            arrays.append(user_key)
    else:
        parts = (state.key, state.namespace) if state.user_key is None else (state.key, state.namespace, state.user_key)
        together, position = column_decoder.decode(TupleType(parts, "a key"), data, position, limits)
        arrays = together.flatten()
    _check_ends("the key", position, limits)
    if not _has_namespace(state):
        del arrays[1]
    return arrays


def _key_starts(state: KeyedState, rows: RowPortion) -> Positions:
    return rows.key_starts + 8 if state.kind is StateKind.TIMERS else rows.key_starts


def _timer_timestamps(rows: RowPortion) -> pa.Array:
    # Flink flips the sign bit of a timer's timestamp, so that timers are sorted like their bytes.
    flipped, _ = column_decoder.decode(Scalar.LONG, rows.data, rows.key_starts, rows.key_ends)
    return pa.array(flipped.to_numpy() ^ np.int64(-(2**63)))


def _value_columns(state: KeyedState, stored: FlinkType, rows: RowPortion) -> list[pa.Array]:
    in_map = state.kind is StateKind.MAP
    type_ = NullableType(stored, 0) if in_map else stored
    values, stops = column_decoder.decode(type_, rows.data, rows.value_starts, rows.ends)
    wrong = stops != rows.ends
    if in_map and wrong.any():
        # Flink 1.20 writes the bytes of a null value behind its null flag. Flink doesn't read them.
        wrong &= rows.data[rows.value_starts] == 0
    _check_ends("the value", stops, rows.ends, wrong)
    return _value_and_timestamp(values) if state.ttl else [values]


def _value_and_timestamp(values: pa.StructArray) -> list[pa.Array]:
    timestamps, inner = values.flatten()
    return [inner, timestamps]


def _list_columns(state: KeyedState, stored: FlinkType, rows: RowPortion) -> list[pa.Array]:
    # A ListState without bytes is an empty list.
    filled = rows.value_starts < rows.ends
    lists = column_decoder.decode_list_state(stored, rows.data, rows.value_starts[filled], rows.ends[filled])
    counts = np.zeros(len(rows) + 1, np.int64)
    counts[1:][filled] = np.diff(lists.offsets.to_numpy())
    offsets = pa.array(np.cumsum(counts).astype(np.int32))
    elements = _value_and_timestamp(lists.values) if state.ttl else [lists.values]
    return [pa.ListArray.from_arrays(offsets, part) for part in elements]


def _raw_columns(state: KeyedState, rows: RowPortion) -> list[pa.Array]:
    timestamps = _raw_timestamps(state, rows)
    position, limits = _key_starts(state, rows), rows.key_ends
    split = walker.split_keys(state.key, state.namespace, state.has_suffixes, rows.data, position, limits)
    arrays = [blocks_array(rows.data, position, split.key_ends)]
    if _has_namespace(state):
        arrays.append(blocks_array(rows.data, split.namespace_starts, split.namespace_ends))
    if state.kind is StateKind.MAP:
        arrays.append(blocks_array(rows.data, split.rests, limits))
    else:
        _check_ends("the key", split.rests, limits)
    if state.value is not None:
        arrays.append(blocks_array(rows.data, rows.value_starts, rows.ends))
    return [pa.array(rows.key_groups), *arrays, *timestamps]


def _raw_timestamps(state: KeyedState, rows: RowPortion) -> list[pa.Array]:
    if state.kind is StateKind.TIMERS:
        return [_timer_timestamps(rows)]
    if not _has_timestamp(state, raw=True):
        return []
    type_ = NullableType(Scalar.LONG, 0) if state.kind is StateKind.MAP else Scalar.LONG
    return [column_decoder.decode(type_, rows.data, rows.value_starts, rows.ends)[0]]


def _check_ends(what: str, stops: Positions, ends: Positions, wrong: Flags | None = None) -> None:
    wrong = stops != ends if wrong is None else wrong
    if wrong.any():
        row = int(wrong.argmax())
        raise DamagedError(f"the end of {what}", f"{ends[row] - stops[row]} more bytes", offset=int(stops[row]))
