"""The timestamps of a legacy state's blobs, each with the number of the blob's entries.

All that a snapshot says about the ages of blobs follows from these two, whatever the time is. So the next night needs
the timestamps of the blobs that came and went since, and no others.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from flinkstate.files.digests import digest_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.ttl import expired_array
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.rules import Rules
from stateferry.inventory.ages import Ages, Integers

# Of more blobs the timestamps aren't kept. A blob takes about ten bytes.
_MOST = 1 << 23
_AT_ONCE = 1 << 20
_DIGEST = 16
# Sums of blobs are kept below this.
SUMS = 1 << 64

_Part = tuple[Integers, npt.NDArray[Any]]


@dataclass(slots=True)
class BlobTimes:
    """The timestamps of blobs with the numbers of their entries, in any order.

    They are not `complete` if there are too many, or if a blob has what other counts depend on.
    """

    parts: list[_Part] = field(default_factory=list)
    complete: bool = True

    def __len__(self) -> int:
        return sum(len(timestamps) for timestamps, _ in self.parts)

    def note(self, timestamps: Integers, entries: Integers) -> None:
        """Adds blobs."""
        if len(timestamps):
            narrow = np.min_scalar_type(int(entries.max()))
            self.add(BlobTimes([(timestamps.copy(), entries.astype(narrow))]))

    def add(self, other: BlobTimes) -> None:
        """Adds what was found elsewhere."""
        self.parts += other.parts
        if not (self.complete and other.complete and len(self) <= _MOST):
            self.give_up()

    def give_up(self) -> None:
        """Forgets all: other counts depend on what these blobs have."""
        self.parts, self.complete = [], False

    def without(self, gone: BlobTimes) -> BlobTimes | None:
        """Returns those that are left without others; None if one of these isn't there."""
        (timestamps, entries), (old, old_entries) = self.joined(), gone.joined()
        touched = np.isin(timestamps, old)
        stamps = np.concatenate((timestamps[touched], old))
        sizes = np.concatenate((entries[touched], old_entries)).astype(np.int64)
        if not len(stamps):
            return self
        signs = np.append(np.ones(int(touched.sum()), np.int64), np.full(len(old), -1))
        order = np.lexsort((sizes, stamps))
        stamps, sizes, signs = stamps[order], sizes[order], signs[order]
        differs = (stamps[1:] != stamps[:-1]) | (sizes[1:] != sizes[:-1])
        firsts = np.append(0, np.flatnonzero(differs) + 1)
        left = np.add.reduceat(signs, firsts)
        if (left < 0).any():
            return None
        found = BlobTimes([(timestamps[~touched], entries[~touched])])
        found.note(np.repeat(stamps[firsts], left), np.repeat(sizes[firsts], left))
        return found

    def count(self, rules: Rules, met: InventoryCounts, ages: Ages) -> None:
        """Counts what the rules leave out and what stays, and the ages, as if the blobs were read."""
        assert rules.ttl is not None  # Else nobody asks.
        for timestamps, entries in self._portions():
            expired = expired_array(timestamps, rules.ttl, rules.now)
            met.blobs += len(timestamps)
            met.blob_entries += int(entries.sum())
            met.blobs_expired += int(expired.sum())
            met.blob_entries_expired += int(entries[expired].sum())
            met.empty_maps += int((~expired & (entries == 0)).sum())
            met.timestamps_in_the_future += int((timestamps > rules.now).sum())
            ages.count(timestamps, entries, rules.ttl, rules.now)

    def sum(self) -> int:
        """Returns a sum over the blobs that binds each timestamp to the number of entries."""
        return sum(blob_sum(timestamps, entries) for timestamps, entries in self._portions()) % SUMS

    def _portions(self) -> Iterator[tuple[Integers, Integers]]:
        for timestamps, entries in self.parts:
            for first in range(0, len(timestamps), _AT_ONCE):
                portion = slice(first, first + _AT_ONCE)
                yield timestamps[portion], entries[portion].astype(np.int64)

    def joined(self) -> _Part:
        """Returns all timestamps and all numbers of entries."""
        timestamps = np.concatenate([np.empty(0, np.int64), *(part for part, _ in self.parts)])
        return timestamps, np.concatenate([np.empty(0, np.uint8), *(part for _, part in self.parts)])


def blob_sum(timestamps: Integers, entries: Integers) -> int:
    """Returns the part of some blobs in `BlobTimes.sum`."""
    bound = timestamps.astype(np.uint64) * (2 * entries.astype(np.uint64) + np.uint64(1))
    total: np.uint64 = bound.sum()
    return int(total)


def write_blob_times(file: Location, times: Mapping[StateRef, BlobTimes]) -> None:
    """Writes the timestamps of several states."""
    content, states = io.BytesIO(), sorted(times)
    names = np.array([state.text for state in states], np.str_)
    for array in (names, *(array for state in states for array in times[state].joined())):
        np.save(content, array, allow_pickle=False)
    data = content.getvalue()
    file.write_atomically(_digest(data) + data)


def read_blob_times(file: Location) -> dict[StateRef, BlobTimes] | None:
    """Reads what was written; None if the file is missing or damaged."""
    data = file.read_if_there()
    if data is None or _digest(data[_DIGEST:]) != data[:_DIGEST]:
        return None
    content = io.BytesIO(data[_DIGEST:])
    names = np.load(content, allow_pickle=False)
    return {StateRef.of_text(f"{name}"): BlobTimes([(np.load(content), np.load(content))]) for name in names}


def _digest(data: bytes) -> bytes:
    hasher = new_hasher()
    hasher.update(data)
    return digest_of(hasher).encode()
