"""How large the maps of a legacy state are, and whether it is worth migrating them.

Where state is serialized at each access (RocksDB), a job reads and writes the whole blob of a key for one entry. As
a `MapState` it reads and writes the entry, and each entry has the key in front. So what an access handles falls by the
number of entries, and what the state takes grows by the keys that are repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import Positions
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.keyed.stored_maps import map_counts

_TIMESTAMP, _COUNT = 8, 4
# A histogram has a bucket for each number below _EXACT, and _STEPS buckets for each doubling from there on.
_EXACT, _STEPS, _BITS = 128, 64, 6
_BUCKETS = _EXACT + _STEPS * 57
# So many neighbours are compared to tell by the order of the keys which backend wrote them.
_MOST_PAIRS, _PAIRS_OF_SECTION, _ENOUGH_PAIRS = 4096, 64, 16
_ROWS_AT_ONCE = 1 << 14
# What counts as small maps, and as a gain: `docs/worth-it.md` has the times that were measured.
_FEW_ENTRIES, _FEW_BYTES, _MOST, _LEAST_GAIN = 12, 1500, 2, 2


class Backend(Enum):
    """The state backend of the job, by the order of the keys: RocksDB's are sorted."""

    ROCKSDB = "RocksDB"
    HASHMAP = "HashMap"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """The distribution of a size. Percentiles above 128 are exact to 1.6 %; the largest is exact."""

    median: int
    ninety: int
    ninety_nine: int
    largest: int


@dataclass(frozen=True, slots=True)
class BlobSizes:
    """The sizes of a state's maps. Bytes of a blob are those of its value, with a timestamp if there is one.

    `key_bytes` are those of all keys (with key group and namespace), `entry_key_bytes` the same once for each entry.
    `head_bytes` are those of a blob before its entries.
    """

    backend: Backend
    ttl: bool
    blobs: int
    total_entries: int
    total_bytes: int
    entries: SizeDistribution
    bytes: SizeDistribution
    key_bytes: int
    entry_key_bytes: int
    head_bytes: int

    @property
    def access_before(self) -> float:
        """The bytes of the key and the blob that an access (de)serializes now, on average."""
        return (self.total_bytes + self.key_bytes) / self.blobs

    @property
    def entry_bytes(self) -> float:
        """The bytes of an entry without its key: user key, null flag and value, and the timestamp."""
        entries = self.total_bytes - self.blobs * self.head_bytes
        return entries / self.total_entries + (_TIMESTAMP if self.ttl else 0) if self.total_entries else 0.0

    @property
    def access_after(self) -> float:
        """The bytes of the key and one entry that an access (de)serializes as a MapState, on average."""
        return self.entry_bytes + self.entry_key_bytes / self.total_entries if self.total_entries else 0.0

    @property
    def extra_key_bytes(self) -> int:
        """The bytes of keys that the new state has more."""
        return max(self.entry_key_bytes - self.key_bytes, 0)

    @property
    def is_small(self) -> bool:
        """Whether an access takes about as long as the access to a single entry, for nearly all maps."""
        mean, most = self.total_entries / self.blobs, self.entries.ninety_nine
        is_short = self.access_before < _FEW_BYTES and self.bytes.ninety_nine < _MOST * _FEW_BYTES
        return is_short and mean < _FEW_ENTRIES and most < _MOST * _FEW_ENTRIES

    @property
    def why_not_worth_it(self) -> str | None:
        """The reason why a migration gains little, or None."""
        if self.backend is Backend.HASHMAP:
            return "the order of the keys is that of the HashMap backend, where an access (de)serializes nothing"
        if self.is_small:
            return (
                f"small maps: {self.total_entries / self.blobs:.1f} entries, {self.access_before:,.0f} bytes on average"
            )
        if self.access_before < _LEAST_GAIN * self.access_after:
            return f"little gain: {self.access_before:,.0f} bytes an access now, {self.access_after:,.0f} after"
        return None

    @property
    def condition(self) -> str | None:
        """What must be so for a migration to be worth it and can't be seen in the savepoint, or None."""
        is_open = self.backend is Backend.UNKNOWN and self.why_not_worth_it is None
        return "if the backend is RocksDB" if is_open else None

    @property
    def yes(self) -> str:
        """That a migration is worth it, and on what condition."""
        return "yes" if self.condition is None else f"yes, {self.condition}"


@dataclass(slots=True)
class BlobCount:
    """Counts the blobs of a legacy state, section by section."""

    state: KeyedState
    is_native: bool
    blobs: int = 0
    entries: int = 0
    bytes: int = 0
    key_bytes: int = 0
    entry_key_bytes: int = 0
    most_entries: int = 0
    most_bytes: int = 0
    least_bytes: int = _TIMESTAMP + _COUNT
    pairs: int = 0
    sorted_pairs: int = 0
    by_entries: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BUCKETS, np.int64))
    by_bytes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BUCKETS, np.int64))
    # Entries, bytes and key bytes of the rows of sections that aren't counted yet.
    _waiting: list[tuple[Positions, Positions, Positions]] = field(default_factory=list)
    _rows: int = 0

    def add(self, section: Section, entries: Positions | None = None) -> None:
        """Counts the blobs of a section; `entries` are those of each, if they are known."""
        if entries is None:
            starts = section.value_starts + (_TIMESTAMP if self.state.ttl else 0)
            with section.locating():
                entries = map_counts(self.state.value, section.data, starts, section.ends)
        self._waiting.append((entries, section.ends - section.value_starts, section.key_ends - section.key_starts))
        self._rows += len(section)
        if self._rows >= _ROWS_AT_ONCE:
            self._count()
        if not self.is_native and self.pairs < _MOST_PAIRS:
            self._compare(section)

    def _count(self) -> None:
        """Counts the sections that wait: at a large max parallelism they are small, and a call costs more than rows."""
        if not self._waiting:
            return
        entries, sizes, keys = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        self.blobs += len(entries)
        self.entries += int(entries.sum())
        self.bytes += int(sizes.sum())
        self.key_bytes += int(keys.sum())
        self.entry_key_bytes += int((keys * entries).sum())
        self.most_entries = max(self.most_entries, int(entries.max()))
        self.most_bytes = max(self.most_bytes, int(sizes.max()))
        self.least_bytes = min(self.least_bytes, int(sizes.min()))
        self.by_entries += np.bincount(_buckets(entries), minlength=_BUCKETS)
        self.by_bytes += np.bincount(_buckets(sizes), minlength=_BUCKETS)
        self._waiting, self._rows = [], 0

    def _compare(self, section: Section) -> None:
        bounds = zip(section.key_starts[:_PAIRS_OF_SECTION].tolist(), section.key_ends.tolist(), strict=False)
        keys = [section.data[start:end].tobytes() for start, end in bounds]
        self.pairs += len(keys) - 1
        self.sorted_pairs += sum(one < other for one, other in pairwise(keys))

    def sizes(self) -> BlobSizes | None:
        """Returns the sizes, or None if there are no blobs."""
        self._count()
        if not self.blobs:
            return None
        return BlobSizes(
            self._backend(),
            self.state.ttl,
            self.blobs,
            self.entries,
            self.bytes,
            _spread(self.by_entries, self.most_entries),
            _spread(self.by_bytes, self.most_bytes),
            self.key_bytes,
            self.entry_key_bytes,
            self._head_bytes(),
        )

    def _head_bytes(self) -> int:
        """The bytes before a blob's entries: those of Flink's map, but an empty map by Kryo shows that it has fewer."""
        return min(self.least_bytes, _COUNT + (_TIMESTAMP if self.state.ttl else 0))

    def _backend(self) -> Backend:
        if self.is_native:
            return Backend.ROCKSDB
        if self.sorted_pairs < self.pairs:
            return Backend.HASHMAP
        return Backend.ROCKSDB if self.pairs >= _ENOUGH_PAIRS else Backend.UNKNOWN


def _buckets(sizes: Positions) -> Positions:
    """Returns the bucket of each size."""
    # The exponent is the number of bits; of the bits behind the highest one, the first ones say the step.
    _, bits = np.frexp(sizes.astype(np.float64))
    steps = (sizes >> np.maximum(bits - 1 - _BITS, 0)) & (_STEPS - 1)
    large = _EXACT + (bits.astype(np.int64) - _BITS - 2) * _STEPS + steps
    return np.where(sizes < _EXACT, sizes, large)


def _spread(histogram: npt.NDArray[np.int64], largest: int) -> SizeDistribution:
    sums = np.cumsum(histogram)

    def percentile(percent: int) -> int:
        rank = -(-int(sums[-1]) * percent // 100)
        return min(_least_of(int(np.searchsorted(sums, max(rank, 1)))), largest)

    return SizeDistribution(percentile(50), percentile(90), percentile(99), largest)


def _least_of(bucket: int) -> int:
    if bucket < _EXACT:
        return bucket
    doubling, step = divmod(bucket - _EXACT, _STEPS)
    return (_STEPS + step) << doubling + 1
