"""How old the entries of a state under time to live are, chunk by chunk: exact counts, and a histogram.

| bins | hold |
|---|---|
| 0 | ages of less than 2 ms, and what is of the future |
| 64 e + f | ages from (1 + f / 64) * 2^e ms on, until the next bin begins |

So a bin is at most 1/64 as wide as its ages, and what the histogram says of an age (a quartile) is right to 1.6 %.
Counts, the oldest and the youngest age are exact. An entry of a blob counts as an entry, at the blob's timestamp.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stateferry.durations import MILLISECONDS_PER_UNIT
from stateferry.migration import kernels

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_PER_OCTAVE = 64
_BINS = 63 * _PER_OCTAVE
# Where each bin begins, and where the last one ends.
_EDGES: Floats = np.outer(2.0 ** np.arange(64), 1 + np.arange(_PER_OCTAVE) / _PER_OCTAVE).ravel()[: _BINS + 1]
_EDGES[0] = 0
_MAX_LONG = 2**63 - 1
# As many timestamps are no accident: where ages thin out, a handful at most are nine tenths as old as the oldest.
_MANY = 20
# Of the entries just younger than the sharp end, so many may be older: what no clean-up has come to yet.
_STRAGGLERS = 0.01
_DAY, _HOUR, _MINUTE, _SECOND = (MILLISECONDS_PER_UNIT[unit] for unit in "dhms")
_USUAL = [
    *(_DAY * days for days in (1, 2, 3, 5, 7, 10, 14, 15, 20, 21, 28, 30, 45, 60, 90, 100, 120, 180, 365, 730)),
    *(_HOUR * hours for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18, 36, 60)),
    *(_MINUTE * minutes for minutes in (1, 2, 3, 5, 10, 15, 20, 30, 45, 90)),
    *(_SECOND * seconds for seconds in (1, 2, 5, 10, 15, 20, 30, 45)),
]


def _no_totals() -> Integers:
    return np.array([0, 0, 0, _MAX_LONG, -_MAX_LONG - 1], np.int64)


@dataclass(slots=True, eq=False)
class Ages:
    """`bins` counts entries and, in its second row, timestamps: a blob is many entries and one timestamp. Pickled, the
    bins are compressed, and they stay so until they are asked for: a driver gets the ages of thousands of chunks."""

    totals: Integers = field(default_factory=_no_totals)
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
        return int(self.totals[0])

    @property
    def expired(self) -> int:
        return int(self.totals[1])

    @property
    def future(self) -> int:
        """Timestamps, not entries."""
        return int(self.totals[2])

    @property
    def youngest(self) -> int:
        """In milliseconds; negative if its timestamp is of the future."""
        return int(self.totals[3])

    @property
    def oldest(self) -> int:
        return int(self.totals[4])

    def count(self, timestamps: Integers, weights: Integers, ttl: int, now: int) -> None:
        kernels.tally_ages(timestamps, weights, np.int64(ttl), np.int64(now), self.bins, self.totals)

    def add(self, other: Ages) -> None:
        bins = self.bins
        # Of a copy: the other one's stay compressed.
        bins += replace(other).bins
        self.totals[:3] += other.totals[:3]
        self.totals[3] = min(self.totals[3], other.totals[3])
        self.totals[4] = max(self.totals[4], other.totals[4])

    def quantile(self, share: float) -> int:
        """The age that this share of the entries is younger than."""
        sums = np.cumsum(self.bins[0])
        wanted = share * self.entries
        place = min(int(np.searchsorted(sums, wanted)), _BINS - 1)
        inside = (wanted - (sums[place] - self.bins[0, place])) / max(self.bins[0, place], 1)
        age = _EDGES[place] + inside * (_EDGES[place + 1] - _EDGES[place])
        return max(self.youngest, min(self.oldest, int(age)))

    def sharp_end(self) -> int | None:
        """The age at which the entries end all at once, if they do: there are many a little younger, about as many as a
        little younger still, and hardly any older. Ages that become rare by and by have none, nor have those of entries
        that were written all at once."""
        stamps = self.bins[1]
        there = np.flatnonzero(stamps)
        if not len(there):
            return None
        edges, sums = _EDGES.copy(), np.append(0, np.cumsum(stamps))
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
        """The time to live that would leave such a sharp end: a round one, as people choose them."""
        end = self.sharp_end()
        return None if end is None else _round_ttl(end)


def _round_ttl(end: int) -> int:
    unit = next((unit for unit in (_DAY, _HOUR, _MINUTE, _SECOND) if end >= 0.99 * unit), 1)
    whole = max(round(end / unit), 1) * unit
    if abs(whole - end) <= 0.01 * end:
        return whole
    # What has expired may lie about for a while: the end is at the time to live, or somewhat behind it.
    usual = [one for one in _USUAL if 0.94 * end <= one <= 1.01 * end]
    if usual:
        return max(usual)
    finer = {_DAY: _HOUR, _HOUR: _MINUTE, _MINUTE: _SECOND, _SECOND: 1}.get(unit, 1)
    return -(-end // finer) * finer
