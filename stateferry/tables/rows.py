"""Rows of the tables out of sections of a savepoint: blobs and map rows as Arrow columns, gathered into row groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stateferry.columns import columns
from stateferry.columns.scalars import blocks_array
from stateferry.errors import DamagedError, RefusedError
from stateferry.migration.rules import Blobs, MapRows, Rules, key_lanes, null_under_ttl
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.key_group_file import Section
from stateferry.serializers.types import FlinkType, Scalar
from stateferry.serializers.walker import Flags, Positions, split_keys
from stateferry.tables.ledger import run_starts
from stateferry.tables.schemas import (
    IS_NULL,
    KEY,
    KEY_GROUP,
    KEY_RAW,
    NAMESPACE,
    NAMESPACE_RAW,
    TIMESTAMP,
    USER_KEY,
    USER_KEY_RAW,
    VALUE,
    VALUE_RAW,
    column_type,
    raw_type,
)

_STAMP = 8
_VARYING = pa.binary()


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries of one key group: key i, whose columns are in `keys`, has the next `counts[i]` of those in `entries`."""

    key_group: int
    keys: dict[str, pa.Array]
    counts: Positions
    entries: dict[str, pa.Array]

    def __len__(self) -> int:
        return int(self.counts.sum())


def key_columns(rules: Rules, section: Section, starts: Positions, ends: Positions) -> dict[str, pa.Array]:
    """Keys and namespaces from where a key begins behind its key group to where its namespace (and suffixes) end."""
    legacy, data = rules.legacy, section.data
    with section.locating():
        split = split_keys(legacy.key, legacy.namespace, legacy.has_suffixes, data, starts, ends)
        found = {KEY_RAW: _binary(data, starts, split.key_ends)}
        _add(found, KEY, _typed(legacy.key, data, starts, split.key_ends))
        if legacy.namespace is not Scalar.VOID_NAMESPACE:
            bounds = split.namespace_starts, split.namespace_ends
            found[NAMESPACE_RAW] = _binary(data, *bounds)
            _add(found, NAMESPACE, _typed(legacy.namespace, data, *bounds))
    return found


def blob_piece(rules: Rules, blobs: Blobs, keep: Flags) -> Piece:
    """The kept entries of blobs."""
    section, whole = blobs.section, bool(keep.all())
    counts = blobs.counts if whole else kept_counts(blobs, keep)
    starts, flags, ends = (
        np.ascontiguousarray(positions if whole else positions[keep])
        for positions in (blobs.entries, blobs.flags, blobs.ends)
    )
    nulls = section.data[flags] == 1
    timestamps = np.repeat(blobs.timestamps, counts) if rules.legacy.ttl else None
    entries = _entry_columns(rules, section, (starts, flags), (flags + 1, ends), nulls, timestamps)
    return Piece(section.key_group, key_columns(rules, section, blobs.key_starts, blobs.key_ends), counts, entries)


def kept_counts(blobs: Blobs, keep: Flags) -> Positions:
    """How many entries are kept of each blob."""
    before = np.append(0, np.cumsum(keep))
    counts: Positions = before[blobs.firsts + blobs.counts] - before[blobs.firsts]
    return counts


def row_piece(rules: Rules, rows: MapRows, kept: npt.NDArray[np.int64]) -> Piece:
    """Rows of the new state, those of one key behind each other."""
    section, values = rows.section, rows.section.value_starts[kept]
    key_starts, key_ends, ends = rows.key_starts[kept], rows.key_ends[kept], section.ends[kept]
    firsts = run_starts(key_lanes(section.data, key_starts, key_ends))
    counts = np.diff(np.append(firsts, len(kept)))
    nulls = section.data[values] == 1
    timestamps = rows.timestamps[kept] if rules.legacy.ttl else None
    starts = np.minimum(values + (1 + _STAMP if rules.legacy.ttl else 1), ends)
    if rules.legacy.ttl and (null := null_under_ttl(rules.map_type.value)) is not None:
        # Under TTL the flag is never set: there is the value serializer's own null.
        nulls = nulls | _equal(section.data, starts, ends, null)
    user_keys = key_ends, section.key_ends[kept]
    entries = _entry_columns(rules, section, user_keys, (starts, ends), nulls, timestamps)
    return Piece(section.key_group, key_columns(rules, section, key_starts[firsts], key_ends[firsts]), counts, entries)


def _equal(data: Buffer, starts: Positions, ends: Positions, content: bytes) -> Flags:
    same: Flags = ends - starts == len(content)
    for at, byte in enumerate(content):
        same[same] = data[starts[same] + at] == byte
    return same


def _entry_columns(
    rules: Rules,
    section: Section,
    user_keys: tuple[Positions, Positions],
    values: tuple[Positions, Positions],
    nulls: Flags,
    timestamps: Positions | None,
) -> dict[str, pa.Array]:
    data, map_type = section.data, rules.map_type
    with section.locating():
        found = {USER_KEY_RAW: _binary(data, *user_keys, raw_type(map_type.key))}
        _add(found, USER_KEY, _typed(map_type.key, data, *user_keys))
        _add(found, VALUE, _typed_values(map_type.value, data, values, nulls))
        found[VALUE_RAW] = _values(raw_type(map_type.value), data, values, nulls)
    found[IS_NULL] = pa.array(nulls)
    if timestamps is not None:
        found[TIMESTAMP] = pa.array(timestamps)
    return found


def _add(found: dict[str, pa.Array], name: str, array: pa.Array | None) -> None:
    if array is not None:
        found[name] = array


def _typed(type_: FlinkType, data: Buffer, starts: Positions, ends: Positions) -> pa.Array | None:
    """None where the type has no columns; nulls where one of the values has no place in them."""
    wanted = column_type(type_)
    if wanted is None:
        return None
    try:
        array, stops = columns.decode(type_, data, starts, ends)
    except RefusedError:
        return pa.nulls(len(starts), wanted)
    for row in np.flatnonzero(stops != ends)[:1]:
        raise DamagedError("the end of the value", f"{ends[row] - stops[row]} more bytes", offset=int(stops[row]))
    return array if array.type == wanted else array.cast(wanted)


def _typed_values(type_: FlinkType, data: Buffer, values: tuple[Positions, Positions], nulls: Flags) -> pa.Array | None:
    starts, ends = values
    if not nulls.any():
        return _typed(type_, data, starts, ends)
    rows = np.flatnonzero(~nulls)
    array = _typed(type_, data, starts[rows], ends[rows])
    return None if array is None else _spread(array, rows, len(nulls))


def _values(type_: pa.DataType, data: Buffer, values: tuple[Positions, Positions], nulls: Flags) -> pa.Array:
    starts, ends = values
    if not nulls.any():
        return _binary(data, starts, ends, type_)
    rows = np.flatnonzero(~nulls)
    return _spread(_binary(data, starts[rows], ends[rows], type_), rows, len(nulls))


def _spread(array: pa.Array, rows: Positions, length: int) -> pa.Array:
    """The array's values at the rows, null elsewhere."""
    index, absent = np.zeros(length, np.int64), np.ones(length, np.bool_)
    index[rows] = np.arange(len(rows))
    absent[rows] = False
    return array.take(pa.array(index, mask=absent)) if len(rows) else pa.nulls(length, array.type)


def _binary(data: Buffer, starts: Positions, ends: Positions, type_: pa.DataType = _VARYING) -> pa.Array:
    readable = data.view()
    # numba compiles once more for arrays that can be written to, and for positions that lie apart.
    readable.flags.writeable = False
    return blocks_array(readable, np.ascontiguousarray(starts), np.ascontiguousarray(ends), type_)


def entry_table(pieces: Sequence[Piece], constants: dict[str, int], schema: pa.Schema) -> pa.Table:
    """The pieces as one table; what a key has is kept once for all its rows as far as Parquet can take it so."""
    counts = np.concatenate([piece.counts for piece in pieces])
    sizes = [len(piece) for piece in pieces]
    owners = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    found: list[pa.Array] = []
    for field in schema:
        name = field.name
        if name == KEY_GROUP:
            groups = np.array([piece.key_group for piece in pieces], np.int32)
            found.append(pa.array(np.repeat(groups, sizes)))
        elif name in constants:
            found.append(pa.array(np.full(sum(sizes), constants[name], field.type.to_pandas_dtype())))
        elif name in pieces[0].keys:
            found.append(_repeat(pa.concat_arrays([piece.keys[name] for piece in pieces]), owners))
        else:
            found.append(pa.chunked_array([piece.entries[name] for piece in pieces]))
    return pa.Table.from_arrays(found, schema=dictionary_schema(schema))


def _repeat(values: pa.Array, owners: pa.Array) -> pa.Array:
    if not _in_dictionary(values.type):
        return values.take(owners)
    # Parquet takes a dictionary as it is only if nothing is in it twice.
    encoded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(owners), encoded.dictionary)


def _in_dictionary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def dictionary_schema(schema: pa.Schema) -> pa.Schema:
    """As Arrow holds an entry table: texts and bytes of keys in dictionaries."""
    fields = []
    for field in schema:
        if field.name in (KEY, KEY_RAW, NAMESPACE, NAMESPACE_RAW) and _in_dictionary(field.type):
            field = field.with_type(pa.dictionary(pa.int32(), field.type))
        fields.append(field)
    return pa.schema(fields)
