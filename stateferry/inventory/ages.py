"""Ages of the entries of a state under time to live: exact counts and a histogram, made by chunk and added up.

| bin | holds |
|---|---|
| 0 | ages of less than 2 ms, and timestamps in the future |
| 64 e + f | ages from (1 + f / 64) * 2^e ms up to the beginning of the next bin |

So a bin is at most 1/64 as wide as its ages, and an age from the histogram (a quartile) is correct to 1.6 %. Counts,
the oldest and the youngest age are exact. Each entry of a blob counts, with the blob's timestamp.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stateferry.basics.durations import MILLISECONDS_PER_UNIT
from stateferry.changes import kernels

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_PER_OCTAVE = 64
_BINS = 63 * _PER_OCTAVE
# Where each bin begins, and where the last one ends.
_EDGES: Floats = np.outer(2.0 ** np.arange(64), 1 + np.arange(_PER_OCTAVE) / _PER_OCTAVE).ravel()[: _BINS + 1]
_EDGES[0] = 0
_MAX_LONG = 2**63 - 1
# So many timestamps at a sharp end are no accident. Where ages become rare, only a few are 90 % as old as the oldest.
_MANY = 20
# This share of the entries just younger than a sharp end may be older than it: the clean-up hasn't removed them yet.
_STRAGGLERS = 0.01
_DAY, _HOUR, _MINUTE, _SECOND = (MILLISECONDS_PER_UNIT[unit] for unit in "dhms")
_USUAL = [
    *(_DAY * days for days in (1, 2, 3, 5, 7, 10, 14, 15, 20, 21, 28, 30, 45, 60, 90, 100, 120, 180, 365, 730)),
    *(_HOUR * hours for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18, 36, 60)),
    *(_MINUTE * minutes for minutes in (1, 2, 3, 5, 10, 15, 20, 30, 45, 90)),
    *(_SECOND * seconds for seconds in (1, 2, 5, 10, 15, 20, 30, 45)),
]


@dataclass(slots=True, eq=False)
class Ages:
    """Counts of entries by age. `bins` counts entries and, in its second row, timestamps (a blob has only one).

    When it is pickled the bins are compressed, and they stay compressed until they are read, because a driver gets the
    ages of thousands of chunks.
    """

    totals: Integers = field(default_factory=lambda: np.array([0, 0, 0, _MAX_LONG, -_MAX_LONG - 1], np.int64))
    _bins: Integers | bytes = field(default_factory=lambda: np.zeros((2, _BINS), np.int64))

    @property
    def bins(self) -> Integers:
        if isinstance(self._bins, bytes):
            self._bins = np.frombuffer(bytearray(zlib.decompress(self._bins)), np.int64).reshape(2, _BINS)
        return self._bins

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self._bins if isinstance(self._bins, bytes) else zlib.compress(self._bins.tobytes(), 1)
        return Ages, (self.totals, packed)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ages):
            return NotImplemented
        return np.array_equal(self.totals, other.totals) and np.array_equal(self.bins, other.bins)

    __hash__ = None  # type: ignore[assignment]

    @property
    def entries(self) -> int:
        """The number of entries that were counted."""
        return int(self.totals[0])

    @property
    def expired(self) -> int:
        """The number of entries that have expired."""
        return int(self.totals[1])

    @property
    def future(self) -> int:
        """The number of timestamps (not entries) that are later than now."""
        return int(self.totals[2])

    @property
    def youngest(self) -> int:
        """The least age in milliseconds; negative if its timestamp is in the future."""
        return int(self.totals[3])

    @property
    def oldest(self) -> int:
        """The greatest age in milliseconds."""
        return int(self.totals[4])

    def count(self, timestamps: Integers, weights: Integers, ttl: int, now: int) -> None:
        """Counts timestamps; `weights` are the numbers of entries that have them."""
        kernels.tally_ages(timestamps, weights, np.int64(ttl), np.int64(now), self.bins, self.totals)

    def add(self, other: Ages) -> None:
        """Adds the counts of another."""
        bins = self.bins
        # A copy is unpacked, so that the other one's bins stay compressed.
        bins += replace(other).bins
        self.totals[:3] += other.totals[:3]
        self.totals[3] = min(self.totals[3], other.totals[3])
        self.totals[4] = max(self.totals[4], other.totals[4])

    def without(self, gone: Self) -> Self | None:
        """Returns the ages that are left without others; None if some of these aren't there.

        The oldest and the youngest may have gone: then the bins say about how old these are.
        """
        bins, totals = self.bins - replace(gone).bins, self.totals.copy()
        totals[:3] -= gone.totals[:3]
        if (bins < 0).any() or (totals[:3] < 0).any():
            return None
        there = np.flatnonzero(bins[0] | bins[1])
        if not len(there):
            return type(self)()
        # Nothing is known of how far timestamps in the future are.
        if there[0]:
            totals[3] = max(totals[3], int(_EDGES[there[0]]))
        totals[4] = min(totals[4], int(np.ceil(_EDGES[there[-1] + 1])))
        return type(self)(totals, bins)

    @property
    def text(self) -> str:
        """The ages as a short text."""
        return b64encode(zlib.compress(self.totals.tobytes() + self.bins.tobytes())).decode()

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The ages of such a text."""
        numbers = np.frombuffer(bytearray(zlib.decompress(b64decode(text))), np.int64)
        return cls(numbers[:5].copy(), numbers[5:].reshape(2, _BINS))

    def quantile(self, share: float) -> int:
        """Returns the age such that this share of the entries is younger."""
        sums = np.cumsum(self.bins[0])
        wanted = share * self.entries
        place = min(int(np.searchsorted(sums, wanted)), _BINS - 1)
        inside = (wanted - (sums[place] - self.bins[0, place])) / max(self.bins[0, place], 1)
        age = _EDGES[place] + inside * (_EDGES[place + 1] - _EDGES[place])
        return max(self.youngest, min(self.oldest, int(age)))

    def older_than(self, age: int) -> int:
        """Returns about how many entries are at least as old as this age (in milliseconds, above 0)."""
        if not self.entries or age > self.oldest:
            return 0
        if age <= self.youngest:
            return self.entries
        edges = _EDGES.copy()
        last = int(np.flatnonzero(self.bins[0])[-1])
        # The last bin reaches to the oldest entry.
        edges[last + 1] = self.oldest + 1
        younger = np.interp(age, edges[: last + 2], np.append(0, np.cumsum(self.bins[0][: last + 1])))
        return max(self.entries - round(float(younger)), 1)

    def sharp_end(self) -> int | None:
        """Returns the age at which the entries suddenly end, or None.

        Many are a little younger than this age, about as many as a little younger still, and hardly any are older. Ages
        that become rare gradually have no sharp end, nor have entries that were all written at once.
        """
        counts = self.bins[1]
        there = np.flatnonzero(counts)
        if not len(there):
            return None
        edges, sums = _EDGES.copy(), np.append(0, np.cumsum(counts))
        edges[there[-1] + 1] = self.oldest + 1

        def between(younger: Floats, older: Floats) -> Floats:
            count: Floats = np.interp(older, edges, sums) - np.interp(younger, edges, sums)
            return count

        ends = edges[there + 1]
        just_younger, still_younger = between(0.9 * ends, ends), between(0.8 * ends, 0.9 * ends)
        ending = (
            (ends >= _SECOND) & (just_younger >= _MANY) & (sums[-1] - sums[there + 1] <= _STRAGGLERS * just_younger)
        )
        for place in np.flatnonzero(ending)[:1].tolist():
            if still_younger[place] <= 2 * just_younger[place] <= 6 * still_younger[place]:
                return min(self.oldest, int(ends[place]))
        return None

    def suggested_ttl(self) -> int | None:
        """Returns the time to live that would cause such a sharp end, as a round number."""
        end = self.sharp_end()
        return None if end is None else _round_ttl(end)


def _round_ttl(end: int) -> int:
    unit = next((unit for unit in (_DAY, _HOUR, _MINUTE, _SECOND) if end >= 0.99 * unit), 1)
    whole = max(round(end / unit), 1) * unit
    if abs(whole - end) <= 0.01 * end:
        return whole
    # Expired entries may stay for a while, so the end is at the time to live or somewhat later.
    usual = [one for one in _USUAL if 0.94 * end <= one <= 1.01 * end]
    if usual:
        return max(usual)
    finer = {_DAY: _HOUR, _HOUR: _MINUTE, _MINUTE: _SECOND, _SECOND: 1}.get(unit, 1)
    return -(-end // finer) * finer
