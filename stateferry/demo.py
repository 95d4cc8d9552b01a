"""Writes a demo savepoint, with generated state that waits to be migrated, without Flink.

Operator `main` keeps a map for every key. Most keys still have it as one blob in mainState. The job has moved the
others: these have rows in newMainState and a flag in isMigratedState. All strings of a kind have the same length, so a
row is an element of a structured array, whose fields are the byte layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from flinkstate.errors import UsageError
from flinkstate.hashing.java_hash import hash_codes
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import check_layout, key_group_prefix_bytes, ranges
from flinkstate.keyed.header import KeyedHeader
from flinkstate.metadata.metadata import KeyedHandle, Metadata, Operator, Subtask
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.built_snapshots import simple_snapshot, ttl_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.ttl import MAX_LONG
from flinkstate.writing.new_savepoint import NewState, meta_of
from flinkstate.writing.writer import KeyedFileWriter, SavepointWriter
from stateferry.demo_maps import LARGEST_VALUE, SMALLEST_VALUE, Declared, MapLayout

OPERATOR = "main"
MAIN_STATE, NEW_MAIN_STATE, IS_MIGRATED_STATE = "mainState", "newMainState", "isMigratedState"

# Flink reads Java's serialized null as "no properties".
_NO_PROPERTIES = b"\xac\xed\x00\x05\x70"
_KEY_PREFIX, _USER_KEY_PREFIX = "customer-", "item"
_KEYS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 4 << 20
# Ages as shares of the time to live: the oldest blobs have expired; what the job has moved was accessed lately.
_OLDEST_BLOB, _OLDEST_ROW = 1.05, 0.1
_MOST = 2**31 - 1

Rows = npt.NDArray[np.void]
Keys = npt.NDArray[np.int64]
BytesWritten = Callable[[int], None]


@dataclass(frozen=True)
class DemoState:
    """What to generate: `migrated` is the share of keys that the job has moved; ages under `ttl` count from `now`."""

    keys: int
    entries: int
    migrated: float
    ttl: int | None
    now: int
    parallelism: int
    max_parallelism: int
    seed: int
    compressed: bool = False
    metadata_version: int = 6
    declared: Declared = Declared.MAP

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("keys", self.keys, 0, _MOST),
            ("entries for each key", self.entries, 0, 10**7),
            ("share of migrated keys", self.migrated, 0, 1),
            ("time to live (ms)", 1 if self.ttl is None else self.ttl, 1, MAX_LONG),
            ("time (ms)", self.now, 0, MAX_LONG),
            ("seed", self.seed, 0, MAX_LONG),
        ):
            if not least <= value <= most:
                raise UsageError(f"expected {name} of {least} to {most}, found {value}")
        check_layout(self.max_parallelism, self.parallelism)

    @property
    def migrated_keys(self) -> int:
        return round(self.keys * self.migrated)

    @property
    def size(self) -> int:
        """The bytes of all rows."""
        migrated = self.migrated_keys
        row_bytes = self.entries * self.new_row.itemsize + self.flag_row.itemsize
        return (self.keys - migrated) * self.main_row.itemsize + migrated * row_bytes

    @property
    def key_digits(self) -> int:
        return max(6, len(str(self.keys - 1)))

    @property
    def user_key_digits(self) -> int:
        return max(4, len(str(self.entries - 1)))

    @cached_property
    def main_row(self) -> np.dtype[np.void]:
        """The layout of a key's row in mainState."""
        return self._row([], self.map_layout.fields())

    @property
    def map_layout(self) -> MapLayout:
        """The layout of a key's map in mainState."""
        return MapLayout(self.declared, self.entries, len(_USER_KEY_PREFIX) + self.user_key_digits)

    @cached_property
    def new_row(self) -> np.dtype[np.void]:
        """The layout of an entry's row in newMainState."""
        size = len(_USER_KEY_PREFIX) + self.user_key_digits
        user_key = [("user_key_length", "u1"), ("user_key", "u1", size)]
        return self._row(user_key, [("value", ">i8")], has_null_flag=True)

    @cached_property
    def flag_row(self) -> np.dtype[np.void]:
        """The layout of a key's row in isMigratedState."""
        return self._row([], [("flag", "u1")])

    def _row(
        self, user_key: Sequence[object], value: Sequence[object], *, has_null_flag: bool = False
    ) -> np.dtype[np.void]:
        """Returns the layout of a row: i32 length and key (group, key, namespace, user key), i32 length and value."""
        key = [
            ("key_group", f">u{key_group_prefix_bytes(self.max_parallelism)}"),
            ("text_length", "u1"),
            ("text", "u1", len(_KEY_PREFIX) + self.key_digits),
            ("namespace", "u1"),
            *user_key,
        ]
        stamp = [("timestamp", ">i8")] if self.ttl is not None else []
        null_flag = [("is_null", "u1")] if has_null_flag else []
        parts = [("key", np.dtype(key)), ("value", np.dtype([*null_flag, *stamp, *value]))]
        lengths = [(f"{name}_length", ">i4") for name, _ in parts]
        return np.dtype([part for pair in zip(lengths, parts, strict=True) for part in pair])


def write_demo_savepoint(target: str, state: DemoState, written: BytesWritten = lambda count: None) -> None:
    """Writes the savepoint. `written` gets the number of bytes of each portion of rows."""
    writer = SavepointWriter(target)
    header = _header(state)
    id_ = operator_id(OPERATOR)
    groups = _Groups(state)
    subtasks = []
    for index, key_groups in enumerate(ranges(state.max_parallelism, state.parallelism)):
        with writer.keyed_file(id_.hex(), index, header, key_groups) as file:
            for key_group in key_groups:
                _write_group(file, state, key_group, *groups.keys(key_group), written)
            handle: KeyedHandle = file.close()
        subtasks.append(Subtask(index, managed_keyed=handle))
    operator = Operator(id_, state.parallelism, state.max_parallelism, OPERATOR, OPERATOR, subtasks=tuple(subtasks))
    writer.commit(Metadata(state.metadata_version, 1, (operator,), properties=_NO_PROPERTIES))


def _header(state: DemoState) -> KeyedHeader:
    text, number = simple_snapshot(Scalar.STRING), simple_snapshot(Scalar.LONG)
    blob, ttl = state.map_layout.snapshot(text, number), state.ttl is not None
    states = (
        meta_of(MAIN_STATE, "VALUE", ttl_snapshot(blob) if ttl else blob),
        NewState(NEW_MAIN_STATE, "MAP", Scalar.LONG, Scalar.STRING, ttl).meta(),
        NewState(IS_MIGRATED_STATE, "VALUE", Scalar.BOOLEAN, ttl=ttl).meta(),
    )
    return KeyedHeader(state.compressed, text, states)


class _Groups:
    """The key group of every key, by the hash of its text, and whether the key was migrated."""

    def __init__(self, state: DemoState) -> None:
        groups = np.empty(state.keys, np.int16)
        for first in range(0, state.keys, _KEYS_AT_ONCE):
            numbers = np.arange(first, min(first + _KEYS_AT_ONCE, state.keys))
            groups[first : first + len(numbers)] = _key_groups(numbers, state)
        # With a stable sort the keys of a key group stay in the order of their texts.
        self._order = np.argsort(groups, kind="stable")
        self._bounds = np.searchsorted(groups[self._order], np.arange(state.max_parallelism + 1))
        self._migrated = np.zeros(state.keys, np.bool_)
        self._migrated[np.random.default_rng(state.seed).permutation(state.keys)[: state.migrated_keys]] = True

    def keys(self, key_group: int) -> tuple[Keys, Keys]:
        """Returns the numbers of a key group's keys: those that still have a blob, and those that were migrated."""
        keys = self._order[self._bounds[key_group] : self._bounds[key_group + 1]]
        return keys[~self._migrated[keys]], keys[self._migrated[keys]]


def _key_groups(numbers: Keys, state: DemoState) -> npt.NDArray[np.int32]:
    size = 1 + len(_KEY_PREFIX) + state.key_digits
    texts = np.empty((len(numbers), size), np.uint8)
    # A string's written length is one more than its length, because 0 is null.
    texts[:, 0] = size
    texts[:, 1:] = _texts(_KEY_PREFIX, numbers, state.key_digits)
    starts = np.arange(len(numbers), dtype=np.int64) * size
    return assign_to_key_groups(
        hash_codes(Scalar.STRING, texts.reshape(-1), starts, starts + size), state.max_parallelism
    )


def _texts(prefix: str, numbers: npt.NDArray[np.int64], digits: int) -> npt.NDArray[np.uint8]:
    """Returns for every number a text: the prefix and the number with leading zeros."""
    texts = np.empty((*numbers.shape, len(prefix) + digits), np.uint8)
    texts[..., : len(prefix)] = np.frombuffer(prefix.encode("ascii"), np.uint8)
    rest = numbers
    for column in range(digits - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        texts[..., len(prefix) + column] = digit + ord("0")
    return texts


def _write_group(
    file: KeyedFileWriter, state: DemoState, key_group: int, waiting: Keys, migrated: Keys, written: BytesWritten
) -> None:
    random = np.random.default_rng((state.seed, key_group))
    parts = (
        (waiting, state.main_row.itemsize, _main_rows),
        (migrated, state.new_row.itemsize * state.entries, _new_rows),
        (migrated, state.flag_row.itemsize, _flag_rows),
    )
    for id_, (keys, size, make_rows) in enumerate(parts):
        for some in _portions(keys, size):
            rows = make_rows(state, key_group, some, random)
            if rows.size:
                file.entries(key_group, id_, rows.view(np.uint8), (rows.size - 1) * rows.itemsize)
                written(rows.nbytes)


def _portions(keys: Keys, size: int) -> Iterator[Keys]:
    """Yields keys in portions of some megabytes, at `size` bytes for each key."""
    count = max(_BYTES_AT_ONCE // max(size, 1), 1)
    for first in range(0, len(keys), count):
        yield keys[first : first + count]


def _main_rows(state: DemoState, key_group: int, keys: Keys, random: np.random.Generator) -> Rows:
    rows = _rows(state.main_row, state, key_group, keys, _OLDEST_BLOB, random)
    state.map_layout.fill(rows["value"], *_entries(len(keys), state, random))
    return rows


def _new_rows(state: DemoState, key_group: int, keys: Keys, random: np.random.Generator) -> Rows:
    rows = _rows(state.new_row, state, key_group, np.repeat(keys, state.entries), _OLDEST_ROW, random)
    rows["value"]["is_null"] = 0
    of_key = rows.reshape(len(keys), state.entries)
    of_key["key"]["user_key_length"] = len(_USER_KEY_PREFIX) + state.user_key_digits + 1
    of_key["key"]["user_key"], of_key["value"]["value"] = _entries(len(keys), state, random)
    return rows


def _flag_rows(state: DemoState, key_group: int, keys: Keys, random: np.random.Generator) -> Rows:
    rows = _rows(state.flag_row, state, key_group, keys, _OLDEST_ROW, random)
    rows["value"]["flag"] = 1
    return rows


def _rows(
    type_: np.dtype[np.void], state: DemoState, key_group: int, keys: Keys, oldest: float, random: np.random.Generator
) -> Rows:
    rows = np.empty(len(keys), type_)
    rows["key_length"], rows["value_length"] = type_["key"].itemsize, type_["value"].itemsize
    key = rows["key"]
    key["key_group"], key["namespace"] = key_group, 0
    key["text_length"] = len(_KEY_PREFIX) + state.key_digits + 1
    key["text"] = _texts(_KEY_PREFIX, keys, state.key_digits)
    if state.ttl is not None:
        most = min(int(state.ttl * oldest), state.now, MAX_LONG - 1)
        rows["value"]["timestamp"] = state.now - random.integers(0, most + 1, len(keys))
    return rows


def _entries(keys: int, state: DemoState, random: np.random.Generator) -> tuple[npt.NDArray[np.uint8], Keys]:
    """Returns user keys and values, those of one key in each row; user keys are consecutive, so none is repeated."""
    first = random.integers(0, 10**state.user_key_digits - state.entries + 1, (keys, 1))
    texts = _texts(_USER_KEY_PREFIX, first + np.arange(state.entries), state.user_key_digits)
    return texts, random.integers(SMALLEST_VALUE, LARGEST_VALUE, (keys, state.entries))
