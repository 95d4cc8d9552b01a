"""Measures reading a state into Arrow columns, from which each query starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.measuring import Rate, Scale, Subject, in_memory, timed
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import KeyGroupRange, key_group_prefix_bytes
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.batches import read_batches
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.writer import SavepointWriter
from stateferry.demo import MAIN_STATE, NEW_MAIN_STATE, OPERATOR, DemoState, write_demo_savepoint

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
# A savepoint and the number of its entries.
Made = tuple[Savepoint, int]

GOAL = 15e6

UID, STATE = bytes(16).hex(), "counts"
_MOST_KEY, _MOST_USER_KEY = 12, 10
_PROPERTIES = b"\xac\xed\x00\x05\x70"


def write_map_state(folder: Path, entries: int, max_parallelism: int) -> None:
    """Writes a savepoint of one operator with so many entries; keys have 8 to 12, user keys 6 to 10 characters."""
    string, long, void = (simple_snapshot(part) for part in (Scalar.STRING, Scalar.LONG, Scalar.VOID_NAMESPACE))
    serializers = ((VALUE_SERIALIZER, map_snapshot(string, long)), (NAMESPACE_SERIALIZER, void))
    meta = StateMeta(STATE, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "MAP"),), serializers)
    writer = SavepointWriter(str(folder))
    key_groups = KeyGroupRange(0, max_parallelism - 1)
    with writer.keyed_file(UID, 0, KeyedHeader(False, string, (meta,)), key_groups) as file:
        for key_group, table, kept in _entries(entries, max_parallelism):
            file.entries(key_group, 0, table[kept], int(kept[:-1].sum()))
        handle = file.close()
    operator = Operator(bytes(16), 1, max_parallelism, subtasks=(Subtask(0, managed_keyed=handle),))
    writer.commit(Metadata(6, 1, (operator,), (), _PROPERTIES))


def _entries(count: int, max_parallelism: int) -> Iterator[tuple[int, Bytes, Flags]]:
    """The entries of each key group as in a file, laid out at their largest size, and which of the bytes they have."""
    random = np.random.default_rng(1)
    prefix = key_group_prefix_bytes(max_parallelism)
    key_length = random.integers(8, _MOST_KEY + 1, count)
    user_key_length = random.integers(6, _MOST_USER_KEY + 1, count)
    width = 4 + prefix + 1 + _MOST_KEY + 1 + 1 + _MOST_USER_KEY + 4 + 1 + 8
    table = random.integers(ord("a"), ord("z") + 1, (count, width), dtype=np.uint8)
    kept = np.ones((count, width), np.bool_)
    table[:, :3] = 0
    table[:, 3] = prefix + 1 + key_length + 1 + 1 + user_key_length
    key_at = 4 + prefix
    key = slice(key_at + 1, key_at + 1 + _MOST_KEY)
    table[:, key_at] = key_length + 1
    kept[:, key] = np.arange(_MOST_KEY) < key_length[:, None]
    groups = assign_to_key_groups(_hash_codes(table[:, key], kept[:, key]), max_parallelism)
    table[:, 4:key_at] = groups.astype(">u2").view(np.uint8).reshape(count, 2)[:, 2 - prefix :]
    at = key.stop
    table[:, at] = 0
    table[:, at + 1] = user_key_length + 1
    kept[:, at + 2 : at + 2 + _MOST_USER_KEY] = np.arange(_MOST_USER_KEY) < user_key_length[:, None]
    at += 2 + _MOST_USER_KEY
    # The length, the null flag, and a number that is small enough for sums.
    table[:, at : at + 9] = (0, 0, 0, 9, 0, 0, 0, 0, 0)
    order = np.argsort(groups, kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(max_parallelism + 1))
    for key_group, (first, last) in enumerate(pairwise(bounds.tolist())):
        if first < last:
            yield key_group, table[order[first:last]], kept[order[first:last]]


def _hash_codes(characters: Bytes, kept: Flags) -> npt.NDArray[np.int32]:
    codes = np.zeros(len(characters), np.int32)
    for column in range(characters.shape[1]):
        codes = np.where(kept[:, column], codes * np.int32(31) + characters[:, column], codes)
    return codes


def read(savepoint: Savepoint, operator: str, state: str) -> int:
    """Reads the state into Arrow columns and returns the number of entries."""
    return sum(_entries_in(batch) for batch in read_batches(savepoint, operator, state))


def _entries_in(batch: pa.RecordBatch) -> int:
    values = batch.column("value")
    return len(values.keys) if isinstance(values, pa.MapArray) else batch.num_rows


def plain_read(savepoint: Savepoint, name: str, state: str) -> int:
    """Reads the state in plain Python and returns the number of entries."""
    operator = savepoint.operator(name)
    entries = read_entries(savepoint, operator, savepoint.state(operator, state))
    return sum(len(entry.value) if isinstance(entry.value, list) else 1 for entry in entries)


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for each kind of state."""
    for max_parallelism in (128, 32768):
        large, small = (_map_state(scale, entries, max_parallelism) for entries in (scale.entries, scale.twin_entries))
        what = f"MapState<String,Long>, 1 row a key, max parallelism {max_parallelism}"
        yield _rate(what, scale, (large, small), (UID, STATE))
    keys = (max(scale.entries // 100, 1), max(scale.twin_entries // 100, 1))
    for what, state, migrated in (
        ("MapState<String,Long>, 100 rows a key", NEW_MAIN_STATE, 1.0),
        ("ValueState<Map<String,Long>>, 100 entries each", MAIN_STATE, 0.0),
    ):
        large, small = (_demo_state(scale, count, migrated) for count in keys)
        yield _rate(what, scale, (large, small), (OPERATOR, state))


def _rate(what: str, scale: Scale, savepoints: tuple[Made, Made], names: tuple[str, str]) -> Rate:
    (large, count), (small, few) = savepoints
    timing = timed(count, lambda: read(large, *names), scale.rounds)
    twin = timed(few, lambda: plain_read(small, *names), 3, first=False)
    return Rate(what, "entries", timing, GOAL, twin)


def _map_state(scale: Scale, entries: int, max_parallelism: int) -> Made:
    folder = scale.folder / f"map-{entries}-{max_parallelism}"
    write_map_state(folder, entries, max_parallelism)
    return in_memory(folder), entries


def _demo_state(scale: Scale, keys: int, migrated: float) -> Made:
    folder = scale.folder / f"demo-{keys}-{migrated}"
    state = DemoState(keys, 100, migrated, None, 0, parallelism=1, max_parallelism=128, seed=1)
    write_demo_savepoint(str(folder), state)
    return in_memory(folder), keys * state.entries


SUBJECT = Subject("Reading a state into Arrow columns: key groups, keys, user keys, values", measure)
