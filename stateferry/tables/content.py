"""Hashes of entries in the tables. They equal the validation's hashes of the same entries in a savepoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Positions
from flinkstate.columns.arrays import running_sum
from flinkstate.keyed.state import KeyedState
from stateferry.changes.key_hashes import Hashes
from stateferry.changes.rules import Rules, null_under_ttl
from stateferry.proof.expected import kernels
from stateferry.proof.expected.content import hash_ranges
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.key_index import ranges_of_binary, whole_keys
from stateferry.tables.rows import EntryColumns

_NO_STAMPS = np.empty(0, np.int64)


def key_hashes(state: KeyedState, keys: pa.Array, namespaces: pa.Array | None) -> Hashes:
    """Returns the hash of each key with its namespace."""
    return hash_ranges(*ranges_of_binary(whole_keys(state, keys, namespaces)))


def entry_hashes(rules: Rules, keys: Hashes, groups: Positions, columns: dict[str, pa.Array]) -> Hashes:
    """Returns the hash of each entry, from the hash of its key and the key group in which it counts."""
    pairs = hash_ranges(*ranges_of_binary(columns[names.USER_KEY_RAW]), keys)
    values, starts, ends = ranges_of_binary(columns[names.VALUE_RAW])
    nulls = columns[names.IS_NULL].cast(pa.uint8()).to_numpy(zero_copy_only=False)
    null, stamps = b"", _NO_STAMPS
    if rules.legacy.ttl:
        # Under time to live a null is the bytes that the value's serializer writes for it.
        nulls = nulls * np.uint8(kernels.NULL_BYTES)
        null = null_under_ttl(rules.map_type.value) or b""
        stamps = np.ascontiguousarray(columns[names.TIMESTAMP].to_numpy())
    out = np.empty(len(pairs), np.uint64)
    own = np.array(bytearray(null), np.uint8)
    kernels.hash_values(values, starts, ends, nulls, own, stamps.view(np.uint64), groups, pairs, out)
    return out


@dataclass(frozen=True, slots=True)
class KeyContents:
    """The sum of hashes and the bounds of timestamps of each key with entries; `places` are its keys among all."""

    places: Positions
    sums: Hashes
    oldest: Positions
    newest: Positions


def key_contents(columns: EntryColumns, rules: Rules) -> KeyContents:
    """Sums up the entries of each key of a section."""
    keys = key_hashes(rules.legacy, columns.keys[names.KEY_RAW], columns.keys.get(names.NAMESPACE_RAW))
    hashes = entry_hashes(
        rules, np.repeat(keys, columns.counts), np.full(len(columns), columns.key_group), columns.entries
    )
    places = np.flatnonzero(columns.counts)
    firsts = running_sum(columns.counts)[places]
    bounds = (_NO_STAMPS, _NO_STAMPS)
    if rules.legacy.ttl:
        stamps = columns.entries[names.TIMESTAMP].to_numpy()
        bounds = np.minimum.reduceat(stamps, firsts), np.maximum.reduceat(stamps, firsts)
    return KeyContents(places, np.add.reduceat(hashes, firsts), *bounds)
