"""Prefixes of keys, by which a scan reads only the blocks and rows that it is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.rocksdb import kernels


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prefixes in ascending order, none of which begins with another: number i is `keys[bounds[i] : bounds[i + 1]]`."""

    keys: Bytes
    bounds: Positions

    @classmethod
    def of(cls, prefixes: Iterable[bytes]) -> Prefixes:
        """Makes them of byte strings in any order."""
        ordered: list[bytes] = []
        for prefix in sorted(prefixes):
            if not ordered or not prefix.startswith(ordered[-1]):
                ordered.append(prefix)
        joined = np.frombuffer(b"".join(ordered) or b"\0", np.uint8).copy()
        return cls(joined, np.cumsum([0, *map(len, ordered)]).astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Prefixes]) -> Prefixes:
        """Those of several parts, each of which is above the one before, unless they are of every key."""
        if any(one.has_every_key for one in parts):
            return EVERY_KEY
        ends = np.cumsum([0, *(one.bounds[-1] for one in parts)])
        bounds = [one.bounds[1:] + end for one, end in zip(parts, ends[:-1], strict=True)]
        keys = np.concatenate([one.keys[: one.bounds[-1]] for one in parts])
        return cls(keys if len(keys) else np.zeros(1, np.uint8), np.concatenate([np.zeros(1, np.int64), *bounds]))

    def and_of(self, other: Prefixes) -> Prefixes:
        """These and the other ones."""
        return self if self.has_every_key else Prefixes.of((*self.each(), *other.each()))

    def same_as(self, other: Prefixes) -> bool:
        return np.array_equal(self.bounds, other.bounds) and self.keys.tobytes() == other.keys.tobytes()

    def each(self) -> Iterator[bytes]:
        """Yields the prefixes one after another."""
        return (self.keys[start:end].tobytes() for start, end in pairwise(self.bounds.tolist()))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def has_every_key(self) -> bool:
        """Whether every key begins with one of them."""
        return len(self) > 0 and not self.bounds[-1]

    def within(self, key_groups: KeyGroupRange, width: int) -> Prefixes:
        """Those of keys in these key groups, which are so many bytes before a key."""
        if self.has_every_key:
            return self
        limits = (number.to_bytes(width, "big") for number in (key_groups.start, key_groups.end + 1))
        first, end = (bisect_left(range(len(self)), limit, key=self._at) for limit in limits)
        start, stop = self.bounds[first], self.bounds[end]
        return Prefixes(self.keys[start:stop], self.bounds[first : end + 1] - start)

    def _at(self, number: int) -> bytes:
        return self.keys[self.bounds[number] : self.bounds[number + 1]].tobytes()

    def rows_of(self, data: Bytes, starts: Positions, key_ends: Positions) -> Flags:
        """Says which rows of a scan, which are in the order of their keys, have one of the prefixes."""
        matches = np.zeros(len(starts), np.bool_)
        kernels.rows_with(data, starts, key_ends, self.keys, self.bounds, matches)
        return matches


# Every key begins with it.
EVERY_KEY = Prefixes.of([b""])
