"""The content of keyed state, in a form that can be compared whatever the layout of its bytes.

An account has the number of entries of each key group, and the sum of their hashes. A hash depends on key group, key,
namespace, user key, null flag, value and timestamp. The entries of a blob count as the rows that they become.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import ByteFlags
from flinkstate.basics.array_types import Hashes as Hashes
from flinkstate.errors import DamagedError
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.keyed.stored_keys import split_stored_keys
from flinkstate.keyed.stored_maps import whole_maps
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.values.key_hashes import codes_of_keys, key_runs
from stateferry.proof.expected import kernels

_Number = TypeVar("_Number", np.int64, np.uint64)

_TIMESTAMP = 8
_NOTHING = np.empty(0, np.uint8)
_NO_STAMPS = np.empty(0, np.int64)


@dataclass(slots=True)
class Account:
    """Counts and sums of hashes by key group; the sums wrap around."""

    counts: Positions
    sums: Hashes

    @classmethod
    def of(cls, size: int) -> Account:
        """An empty account of `size` key groups."""
        return cls(np.zeros(size, np.int64), np.zeros(size, np.uint64))

    def add(self, groups: Positions, hashes: Hashes, chosen: Flags) -> None:
        """Adds the chosen entries' hashes to their key groups."""
        kernels.add_up(groups, hashes, chosen, self.sums, self.counts)

    def take_off(self, groups: Positions, hashes: Hashes, chosen: Flags) -> None:
        """Undoes `add`."""
        kernels.take_off(groups, hashes, chosen, self.sums, self.counts)

    def differences(self, other: Account) -> Positions:
        """The key groups in which the two accounts differ."""
        found: Positions = np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))
        return found

    def resized(self, size: int) -> Account:
        """The same account with a larger number of key groups."""
        other = Account.of(size)
        other.take(self)
        return other

    def take(self, other: Account) -> None:
        """Adds all of another account, which may have been made for another number of key groups."""
        self._take(*other._occupied())

    def take_away(self, other: Account) -> None:
        """Undoes `take`."""
        groups, counts, sums = other._occupied()
        self.counts[groups] -= counts
        self.sums[groups] -= sums

    def _take(self, groups: Positions, counts: Positions, sums: Hashes) -> None:
        if len(groups) and groups[-1] >= len(self.counts):
            raise ValueError(f"an account of {groups[-1] + 1} key groups where there are {len(self.counts)}")
        self.counts[groups] += counts
        self.sums[groups] += sums

    def _occupied(self) -> tuple[Positions, Positions, Hashes]:
        """The key groups that have entries, and their counts and sums."""
        groups = np.flatnonzero((self.counts != 0) | (self.sums != 0))
        return groups, self.counts[groups], self.sums[groups]

    def __reduce__(self) -> tuple[Any, ...]:
        """Key groups without entries are left out when an account is pickled."""
        return Account._of_occupied, (len(self.counts), *self._occupied())

    @classmethod
    def _of_occupied(cls, size: int, groups: Positions, counts: Positions, sums: Hashes) -> Account:
        account = cls.of(size)
        account._take(groups, counts, sums)
        return account


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a section, as positions: of keys in `key_data`, of user keys and values in `data`.

    `owners[i]` is the index of the key (with its namespace) of entry i. `keys` are hashes of keys, `pairs` are hashes
    of key and user key, `groups` are the key groups to which the entries count.
    """

    key_data: Buffer
    data: Buffer
    groups: Positions
    key_starts: Positions
    key_ends: Positions
    owners: Positions
    user_starts: Positions
    user_ends: Positions
    keys: Hashes
    pairs: Hashes
    nulls: ByteFlags
    null: Buffer
    stamps: Positions
    value_starts: Positions
    value_ends: Positions

    def __len__(self) -> int:
        return len(self.groups)

    def hashes(self) -> Hashes:
        """The hash of each entry."""
        out = np.empty(len(self), np.uint64)
        kernels.hash_values(
            self.data, self.value_starts, self.value_ends, self.nulls, self.null, self.stamps.view(np.uint64),
            self.groups, self.pairs, out,
        )  # fmt: skip
        return out


def hash_ranges(data: Buffer, starts: Positions, ends: Positions, seeds: Hashes | None = None) -> Hashes:
    """The hash of each range of bytes, based on its seed."""
    out = np.empty(len(starts), np.uint64)
    kernels.hash_ranges(data, starts, ends, np.zeros(len(starts), np.uint64) if seeds is None else seeds, out)
    return out


def plain_entries(section: Section, groups: Positions) -> Entries:
    """The entries of any state, with keys and values as they are stored."""
    starts, pairs, count = section.key_starts + section.file.prefix, hashes_of_keys(section), len(section)
    return Entries(
        section.data,
        section.data,
        groups,
        starts,
        section.key_ends,
        np.arange(count),
        section.key_ends,
        section.key_ends,
        pairs,
        pairs,
        np.zeros(count, np.uint8),
        _NOTHING,
        _NO_STAMPS,
        section.value_starts,
        section.ends,
    )


@dataclass(frozen=True, slots=True)
class KeySpans:
    """Neighbouring entries with the same key: start and end of the key, and the number of entries."""

    starts: Positions
    ends: Positions
    sizes: Positions

    @classmethod
    def of(cls, section: Section, state: KeyedState) -> KeySpans:
        """Finds the keys of a section."""
        before = section.file.prefix + (_TIMESTAMP if state.kind is StateKind.TIMERS else 0)
        all_starts = section.key_starts + before
        starts, ends = key_runs(state.key, section.data, all_starts, section.key_ends)
        firsts = np.searchsorted(all_starts, starts)
        return cls(starts, ends, np.diff(firsts, append=len(section)))

    def per_entry(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Repeats a value of each key for all its entries."""
        return np.repeat(values, self.sizes)

    def groups(self, section: Section, state: KeyedState, max_parallelism: int) -> Positions:
        """The key group to which each key belongs by its hash."""
        codes = codes_of_keys(state.key, section.data, self.starts, self.ends)
        return assign_to_key_groups(codes, max_parallelism).astype(np.int64)

    def expect_group(self, section: Section, state: KeyedState, max_parallelism: int) -> None:
        """Raises for the first key that isn't in the key group of its hash."""
        present = self.groups(section, state, max_parallelism)
        for wrong in np.flatnonzero(present != section.key_group):
            raise DamagedError(
                f"keys whose hash leads to key group {section.key_group} of {max_parallelism}",
                f"a key of {state.name} whose hash leads to {present[wrong]}",
                offset=int(self.starts[wrong]),
            )


def hashes_of_keys(section: Section) -> Hashes:
    """The hash of each row's key, with its namespace and user key."""
    return hash_ranges(section.data, section.key_starts + section.file.prefix, section.key_ends)


def map_rows(section: Section, state: KeyedState, groups: Positions, spans: KeySpans | None = None) -> Entries:
    """The entries of a section of a map state."""
    data, starts, values = section.data, section.key_starts + section.file.prefix, section.value_starts
    least = 1 + _TIMESTAMP if state.ttl else 1
    for short in np.flatnonzero(section.ends - values < least):
        found = f"{section.ends[short] - values[short]}"
        raise DamagedError(f"a map entry's value of at least {least} bytes", found, offset=int(values[short]))
    nulls = data[values]
    for wrong in np.flatnonzero(nulls > 1):
        raise DamagedError("a map entry's null flag 0 or 1", f"{nulls[wrong]}", offset=int(values[wrong]))
    key_ends, keys = _keys_of_rows(section, state, starts, spans)
    value_ends = section.ends
    if not state.ttl and nulls.any():
        # Flink 1.20 writes bytes behind the flag of a null value. No version of Flink reads them.
        value_ends = np.where(nulls == 1, values + 1, value_ends)
    return Entries(
        data,
        data,
        groups,
        starts,
        key_ends,
        np.arange(len(section)),
        key_ends,
        section.key_ends,
        keys,
        hash_ranges(data, key_ends, section.key_ends, keys),
        nulls,
        _NOTHING,
        timestamps_at(data, values + 1, section.ends) if state.ttl else _NO_STAMPS,
        values + least,
        value_ends,
    )


def _keys_of_rows(
    section: Section, state: KeyedState, starts: Positions, spans: KeySpans | None
) -> tuple[Positions, Hashes]:
    """The end of each row's key with its namespace, and the hash of both."""
    data = section.data
    if state.namespace is not Scalar.VOID_NAMESPACE or (spans is None and kept_by_kryo(state.key)):
        split = split_stored_keys(state, data, starts, section.key_ends)
        return split.rests, hash_ranges(data, starts, split.rests)
    spans = spans or KeySpans.of(section, state)
    ends = spans.ends + 1
    key_ends = starts + spans.per_entry(ends - spans.starts)
    for short in np.flatnonzero(key_ends > section.key_ends):
        raise DamagedError("a namespace behind the key", "the end", offset=int(section.key_ends[short]))
    return key_ends, spans.per_entry(hash_ranges(data, spans.starts, ends))


@dataclass(frozen=True, slots=True)
class BlobEntries:
    """A section of blobs as the rows that they become.

    Blob i has `counts[i]` entries, which follow those of blob i - 1. `keys` and `stamps` belong to blobs.
    """

    entries: Entries
    counts: Positions
    keys: Hashes
    stamps: Positions

    def per_entry(self, of_blobs: Flags) -> Flags:
        """Repeats a value of each blob for all its entries."""
        return np.repeat(of_blobs, self.counts)

    @property
    def nulls(self) -> Flags:
        """Which entries have a null value."""
        found: Flags = self.entries.nulls != kernels.VALUE
        return found


def blob_entries(
    section: Section, stored: FlinkType | None, ttl: bool, null: bytes | None, groups: Positions
) -> BlobEntries:
    """The entries of a section of blobs, whose maps are stored as the type `stored`.

    `null` are the bytes that the value's serializer writes for null, if it can. With time to live, a row has these.
    """
    starts = section.value_starts
    stamps = timestamps_at(section.data, starts, section.ends) if ttl else _NO_STAMPS
    maps = whole_maps(stored, section.data, starts + (_TIMESTAMP if ttl else 0), section.ends)
    data, found = maps.data, maps.entries
    key_starts = section.key_starts + section.file.prefix
    keys = hash_ranges(section.data, key_starts, section.key_ends)
    owners = np.repeat(np.arange(len(section)), found.counts)
    spread = keys[owners]
    nulls = data[found.key_ends]
    entries = Entries(
        section.data,
        data,
        groups[owners],
        key_starts,
        section.key_ends,
        owners,
        found.starts,
        found.key_ends,
        spread,
        hash_ranges(data, found.starts, found.key_ends, spread),
        nulls * np.uint8(kernels.NULL_BYTES) if ttl else nulls,
        np.array(bytearray(null or b""), np.uint8),
        stamps[owners] if ttl else _NO_STAMPS,
        found.key_ends + 1,
        found.ends,
    )
    return BlobEntries(entries, found.counts, keys, stamps)


def timestamps_at(data: Buffer, starts: Positions, ends: Positions) -> Positions:
    """The timestamps at these positions."""
    for short in np.flatnonzero(ends - starts < _TIMESTAMP):
        raise DamagedError("a timestamp of 8 bytes", f"{ends[short] - starts[short]} bytes", offset=int(starts[short]))
    out = np.empty(len(starts), np.int64)
    kernels.read_timestamps(data, starts, out)
    return out


@dataclass(slots=True)
class AccountsByState:
    """Accounts by state."""

    size: int
    accounts: dict[str, Account] = field(default_factory=dict)

    def of(self, state: str) -> Account:
        """The state's account; an empty one if there was none."""
        if state not in self.accounts:
            self.accounts[state] = Account.of(self.size)
        return self.accounts[state]

    def take(self, accounts: Mapping[str, Account]) -> None:
        """Adds other accounts."""
        for state, account in accounts.items():
            self.of(state).take(account)
