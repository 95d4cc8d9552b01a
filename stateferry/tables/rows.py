"""Makes rows of the tables from sections of a savepoint: blobs and map rows become Arrow columns, then row groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkstate.basics.array_types import Flags, Positions, read_only
from flinkstate.columns import column_decoder, kernels
from flinkstate.columns.arrays import spread
from flinkstate.columns.reads import UnfitError
from flinkstate.columns.scalar_columns import blocks_array
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.stored_keys import split_stored_keys
from flinkstate.serializers.types import FlinkType, Scalar
from stateferry.changes.key_hashes import key_lanes
from stateferry.changes.rules import Rules, null_under_ttl
from stateferry.changes.sections import Blobs, MapRows
from stateferry.tables.iceberg.ledger import first_of_each
from stateferry.tables.iceberg.schemas import (
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

Numbers = npt.NDArray[np.int32]

_STAMP = 8
_VARYING = pa.binary()
# Dictionaries pay if user keys occur this often on average, and are so few that Parquet keeps them in one page.
_LEAST_REPEATED, _MOST_DIFFERENT = 4, 1 << 15


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """The entries of a section as columns.

    Key i, whose columns are in `keys`, has the next `counts[i]` of the entries in `entries`.
    """

    key_group: int
    keys: dict[str, pa.Array]
    counts: Positions
    entries: dict[str, pa.Array]

    def __len__(self) -> int:
        return int(self.counts.sum())


def key_columns(rules: Rules, section: Section, starts: Positions, ends: Positions) -> dict[str, pa.Array]:
    """Returns the columns of keys and namespaces; each key is given by where it begins and its namespace ends."""
    legacy, data = rules.legacy, section.data
    with section.locating():
        split = split_stored_keys(legacy, data, starts, ends)
        found = {KEY_RAW: blocks_array(data, starts, split.key_ends)}
        _add(found, KEY, _typed(legacy.key, data, starts, split.key_ends))
        if legacy.namespace is not Scalar.VOID_NAMESPACE:
            bounds = split.namespace_starts, split.namespace_ends
            found[NAMESPACE_RAW] = blocks_array(data, *bounds)
            _add(found, NAMESPACE, _typed(legacy.namespace, data, *bounds))
    return found


class UserKeys:
    """Makes columns of a chunk's user keys.

    If the user keys of the first section are repeated often, the columns are dictionaries: each different user key of a
    section is decoded once. In most jobs all maps have about the same user keys.
    """

    def __init__(self, type_: FlinkType) -> None:
        self._type, self._raw = type_, raw_type(type_)
        text = column_type(type_)
        self._repeat: bool | None = None if self._raw == _VARYING and (text is None or _is_varying(text)) else False

    def columns(self, data: Buffer, starts: Positions, ends: Positions) -> dict[str, pa.Array]:
        """Returns the columns of the user keys that are between these positions."""
        found = self._numbered(data, starts, ends) if self._repeat is not False else None
        if found is None:
            columns = {USER_KEY_RAW: blocks_array(data, starts, ends, self._raw)}
            _add(columns, USER_KEY, _typed(self._type, data, starts, ends))
            return columns
        firsts, numbers = found
        starts, ends, indices = starts[firsts], ends[firsts], pa.array(numbers)
        columns = {USER_KEY_RAW: pa.DictionaryArray.from_arrays(indices, blocks_array(data, starts, ends))}
        typed = _typed(self._type, data, starts, ends)
        if typed is not None and typed.null_count:
            # A null must be among the rows, not among the dictionary's values.
            columns[USER_KEY] = typed.take(indices).dictionary_encode()
        elif typed is not None:
            columns[USER_KEY] = pa.DictionaryArray.from_arrays(indices, typed)
        return columns

    def _numbered(self, data: Buffer, starts: Positions, ends: Positions) -> tuple[Positions, Numbers] | None:
        """Returns where each different user key first occurs, and for each user key which of them it is.

        Returns None if dictionaries don't pay. Once a file has dictionaries, all its columns of user keys have them.
        """
        count = len(starts)
        most = min(count // _LEAST_REPEATED, _MOST_DIFFERENT)
        slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
        firsts, numbers = np.empty(most, np.int64), np.empty(count, np.int32)
        different = kernels.number_runs(read_only(data), starts, ends, slots, firsts, numbers)
        if self._repeat is None:
            self._repeat = different >= 0
        if different >= 0:
            return firsts[:different], numbers
        return (np.arange(count), np.arange(count, dtype=np.int32)) if self._repeat else None


def columns_of_blobs(rules: Rules, blobs: Blobs, keep: Flags, user_keys: UserKeys) -> EntryColumns:
    """Returns the kept entries of blobs."""
    section, whole = blobs.section, bool(keep.all())
    counts = blobs.counts if whole else _kept_counts(blobs, keep)
    starts, flags, ends = (
        np.ascontiguousarray(positions if whole else positions[keep])
        for positions in (blobs.entries, blobs.flags, blobs.ends)
    )
    nulls = blobs.data[flags] == 1
    timestamps = np.repeat(blobs.timestamps, counts) if rules.legacy.ttl else None
    values = flags + 1, ends
    entries = _entry_columns(rules, section, blobs.data, user_keys, (starts, flags), values, nulls, timestamps)
    return EntryColumns(
        section.key_group, key_columns(rules, section, blobs.key_starts, blobs.key_ends), counts, entries
    )


def _kept_counts(blobs: Blobs, keep: Flags) -> Positions:
    """Returns how many entries of each blob are kept."""
    before = np.append(0, np.cumsum(keep))
    counts: Positions = before[blobs.firsts + blobs.counts] - before[blobs.firsts]
    return counts


def columns_of_rows(rules: Rules, rows: MapRows, kept: npt.NDArray[np.int64], user_keys: UserKeys) -> EntryColumns:
    """Returns rows of the new state, in which the rows of a key are neighbours."""
    section, values = rows.section, rows.section.value_starts[kept]
    key_starts, key_ends, ends = rows.key_starts[kept], rows.key_ends[kept], section.ends[kept]
    firsts = first_of_each(key_lanes(section.data, key_starts, key_ends))
    counts = np.diff(np.append(firsts, len(kept)))
    nulls = section.data[values] == 1
    timestamps = rows.timestamps[kept] if rules.legacy.ttl else None
    starts = np.minimum(values + (1 + _STAMP if rules.legacy.ttl else 1), ends)
    if rules.legacy.ttl and (null := null_under_ttl(rules.map_type.value)) is not None:
        # Under time to live the flag isn't set; a null is what the value's serializer writes for it.
        nulls = nulls | _equal(section.data, starts, ends, null)
    bounds = key_ends, section.key_ends[kept]
    entries = _entry_columns(rules, section, section.data, user_keys, bounds, (starts, ends), nulls, timestamps)
    return EntryColumns(
        section.key_group, key_columns(rules, section, key_starts[firsts], key_ends[firsts]), counts, entries
    )


def _equal(data: Buffer, starts: Positions, ends: Positions, content: bytes) -> Flags:
    same: Flags = ends - starts == len(content)
    for at, byte in enumerate(content):
        same[same] = data[starts[same] + at] == byte
    return same


def _entry_columns(
    rules: Rules,
    section: Section,
    data: Buffer,
    user_keys: UserKeys,
    bounds: tuple[Positions, Positions],
    values: tuple[Positions, Positions],
    nulls: Flags,
    timestamps: Positions | None,
) -> dict[str, pa.Array]:
    map_type = rules.map_type
    with section.locating():
        found = user_keys.columns(data, *map(np.ascontiguousarray, bounds))
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
    """Decodes values; those that don't fit into the type's columns become null. Returns None if it has no columns."""
    wanted = column_type(type_)
    return None if wanted is None else _fitting(type_, wanted, data, starts, ends)


def _fitting(type_: FlinkType, wanted: pa.DataType, data: Buffer, starts: Positions, ends: Positions) -> pa.Array:
    try:
        array, stops = column_decoder.decode(type_, data, starts, ends)
    except UnfitError as error:
        order = np.argsort(starts)
        unfit = order[np.searchsorted(starts, error.places, "right", order) - 1]
        rows = np.delete(np.arange(len(starts)), unfit)
        return spread(_fitting(type_, wanted, data, starts[rows], ends[rows]), [rows], len(starts))
    except RefusedError:
        # The error doesn't say which they are, so halves are tried until each is alone.
        count = len(starts)
        if count < 2:
            return pa.nulls(count, wanted)
        parts = slice(count // 2), slice(count // 2, count)
        halves = [_fitting(type_, wanted, data, starts[part], ends[part]) for part in parts]
        try:
            return pa.concat_arrays(halves)
        except pa.ArrowInvalid:
            # Together they are longer than Arrow's arrays can be.
            return pa.nulls(count, wanted)
    for row in np.flatnonzero(stops != ends)[:1]:
        raise DamagedError("the end of the value", f"{ends[row] - stops[row]} more bytes", offset=int(stops[row]))
    return array if array.type == wanted else array.cast(wanted)


def _typed_values(type_: FlinkType, data: Buffer, values: tuple[Positions, Positions], nulls: Flags) -> pa.Array | None:
    starts, ends = values
    if not nulls.any():
        return _typed(type_, data, starts, ends)
    rows = np.flatnonzero(~nulls)
    array = _typed(type_, data, starts[rows], ends[rows])
    return None if array is None else spread(array, [rows], len(nulls))


def _values(type_: pa.DataType, data: Buffer, values: tuple[Positions, Positions], nulls: Flags) -> pa.Array:
    starts, ends = values
    if not nulls.any():
        return blocks_array(data, starts, ends, type_)
    rows = np.flatnonzero(~nulls)
    return spread(blocks_array(data, starts[rows], ends[rows], type_), [rows], len(nulls))


def entry_table(sections: Sequence[EntryColumns], constants: dict[str, int], schema: pa.Schema) -> pa.Table:
    """Returns the entries of several sections as one table.

    Values of a key are stored once for all its rows if Parquet can do that.
    """
    counts = np.concatenate([one.counts for one in sections])
    sizes = [len(one) for one in sections]
    owners = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    found: list[pa.Array] = []
    for field in schema:
        name = field.name
        if name == KEY_GROUP:
            groups = np.array([one.key_group for one in sections], np.int32)
            found.append(pa.array(np.repeat(groups, sizes)))
        elif name in constants:
            found.append(pa.array(np.full(sum(sizes), constants[name], field.type.to_pandas_dtype())))
        elif name in sections[0].keys:
            found.append(_repeat(pa.concat_arrays([one.keys[name] for one in sections]), owners))
        else:
            # Parquet can only take one dictionary for all sections.
            found.append(pa.chunked_array([one.entries[name] for one in sections]).unify_dictionaries())
    fields = [
        field.with_type(column.type) if pa.types.is_dictionary(column.type) else field
        for field, column in zip(schema, found, strict=True)
    ]
    return pa.Table.from_arrays(found, schema=pa.schema(fields))


def _repeat(values: pa.Array, owners: pa.Array) -> pa.Array:
    if not _is_varying(values.type):
        return values.take(owners)
    # Parquet uses a dictionary as it is only if no value is in it twice.
    encoded = values.dictionary_encode()
    if len(encoded.dictionary) == len(values):
        return pa.DictionaryArray.from_arrays(owners, values)
    return pa.DictionaryArray.from_arrays(encoded.indices.take(owners), encoded.dictionary)


def _is_varying(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))
