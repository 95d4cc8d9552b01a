"""Which keys a lazy run moves: those whose rank is at most `last`.

A key's rank is a number of 64 bits. By `hash` it is the first hash of the key with its namespace. By `largest` the
upper 12 bits say how large the key's blob is (the largest come first, sizes within 1.6 % count as equal), the others
are the upper bits of that hash. So a run keeps the order and one number, and every task finds the same keys by itself.

The snapshot counts keys and bytes in bins of ranks, which gives `last`. A bin is chosen as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.walker import Flags, Positions
from stateferry.changes.key_hashes import Hashes, key_lanes

_RANK_BITS, _SIZE_BITS = 64, 12
_MANTISSA_BITS, _KEPT_OF_MANTISSA, _EXPONENT_OF_1 = 52, 6, 1023


class Order(Enum):
    """The order in which lazy runs move keys."""

    HASH = "hash"
    LARGEST = "largest"

    @property
    def bin_bits(self) -> int:
        """The number of upper bits of a rank that make its bin."""
        return 12 if self is Order.HASH else _SIZE_BITS + 10

    def ranks(self, data: Buffer, key_starts: Positions, key_ends: Positions, sizes: Positions) -> Hashes:
        """Returns the rank of each key; `sizes` are the bytes of the keys' blobs."""
        hashes, _ = key_lanes(data, key_starts, key_ends)
        if self is Order.HASH:
            return hashes
        bits = np.maximum(sizes, 1).astype(np.float64).view(np.int64)
        places = (bits >> (_MANTISSA_BITS - _KEPT_OF_MANTISSA)) - (_EXPONENT_OF_1 << _KEPT_OF_MANTISSA)
        smallness = ((1 << _SIZE_BITS) - 1 - places).astype(np.uint64)
        return smallness << np.uint64(_RANK_BITS - _SIZE_BITS) | hashes >> np.uint64(_SIZE_BITS)


@dataclass(frozen=True, slots=True)
class LazyCut:
    """The keys that a run moves; `flag` is the flag state, which a lazy run sets for each of them."""

    order: Order
    last: int
    flag: KeyedState

    def among(self, data: Buffer, key_starts: Positions, key_ends: Positions, sizes: Positions) -> Flags:
        """Whether each key is moved; `sizes` are the bytes of the keys' blobs."""
        moved: Flags = self.order.ranks(data, key_starts, key_ends, sizes) <= np.uint64(self.last)
        return moved


_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class RankCounts:
    """The keys that are left to be moved, and the bytes of their blobs, by bins of ranks in ascending order.

    `migrated` are the keys of which no blob is left.
    """

    bins: Positions = field(default_factory=_NONE.copy)
    keys: Positions = field(default_factory=_NONE.copy)
    sizes: Positions = field(default_factory=_NONE.copy)
    migrated: int = 0

    def count(self, order: Order, ranks: Hashes, sizes: Positions) -> None:
        """Counts keys by their ranks."""
        bins = (ranks >> np.uint64(_RANK_BITS - order.bin_bits)).astype(np.int64)
        self._take(bins, np.ones(len(bins), np.int64), sizes)

    def add(self, other: RankCounts) -> None:
        """Adds what was counted elsewhere, in the same order."""
        self._take(other.bins, other.keys, other.sizes)
        self.migrated += other.migrated

    def take_off(self, other: RankCounts) -> None:
        """Takes off what was counted in the same order, which may be more than there is."""
        self._take(other.bins, -other.keys, -other.sizes)
        self.migrated -= other.migrated

    def _take(self, bins: Positions, keys: Positions, sizes: Positions) -> None:
        all_bins = np.concatenate((self.bins, bins))
        self.bins, places = np.unique(all_bins, return_inverse=True)
        all_keys, all_sizes = np.concatenate((self.keys, keys)), np.concatenate((self.sizes, sizes))
        self.keys, self.sizes = np.zeros(len(self.bins), np.int64), np.zeros(len(self.bins), np.int64)
        np.add.at(self.keys, places, all_keys)
        np.add.at(self.sizes, places, all_sizes)

    def first(self, most: int, weights: Positions) -> int:
        """Returns how many bins weigh at most `most` together, at least one if there is any."""
        return min(max(int(np.searchsorted(np.cumsum(weights), most, side="right")), 1), len(self.bins))

    def up_to(self, order: Order, last: int | None) -> int:
        """Returns how many bins have ranks of at most `last`; all if it is None."""
        place = _RANK_BITS - order.bin_bits
        return len(self.bins) if last is None else int(np.searchsorted(self.bins, last >> place, side="right"))

    def last_rank(self, order: Order, bins: int) -> int:
        """Returns the last rank in the first so many bins, which are not all."""
        return (int(self.bins[bins - 1]) + 1 << _RANK_BITS - order.bin_bits) - 1
