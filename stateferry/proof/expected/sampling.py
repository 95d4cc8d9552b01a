"""Chooses keys of a migrated state that are read a second time, and collects their rows while a chunk is read.

Each key has a seeded hash of its bytes, and the keys with the smallest hashes are kept. So source and staged savepoint
choose the same keys independently, in whatever chunks and key groups they are read. A state of up to about 20,000
entries is kept as a whole. A chunk keeps at most its share of the sample. `below` is the hash up to which the chunk has
all keys. A key with very much state is left out and listed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import Hashes as Hashes
from flinkstate.keyed.keyed_file import Section
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.reading.reader import Savepoint

# Entries of a state that is read as a whole, and of a sample. Plain Python reads about 200,000 entries in a second.
_WHOLE = 20_000
_SAMPLE = 6_000
_LEAST = 32
# This many bytes count as one entry.
_ENTRY_BYTES = 128
_MOST_OF_A_KEY = 4_000
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
EVERYTHING = 1 << 64


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How to sample a chunk; `share` is the chunk's part of everything that is read."""

    seed: int
    share: float


class Row(NamedTuple):
    """A row as it is stored in a file; the key comes without the key group before it."""

    state: str
    key_group: int
    key: bytes
    value: bytes


@dataclass(slots=True)
class _SampledRows:
    work: int = 0
    rows: list[Row] = field(default_factory=list)
    too_large: bool = False


def seed_of(source: Savepoint) -> int:
    """The seed of a source; every validation of the source uses the same."""
    return int.from_bytes(blake2b(build_metadata(source.metadata), digest_size=8).digest(), "big")


class KeySample:
    """The sample of one migrated state in one chunk.

    `blobs` is the name of the state whose values are maps. `stamped` says that these values begin with a timestamp.
    """

    def __init__(self, spec: SampleSpec, blobs: str, stamped: bool) -> None:
        self._seed = np.uint64(spec.seed)
        self._blobs, self._count_at = blobs, 8 if stamped else 0
        self._most = max(int(_WHOLE * spec.share), _LEAST)
        self._most_of_sample = max(int(_SAMPLE * spec.share), _LEAST)
        self._kept: dict[int, _SampledRows] = {}
        self._work = 0
        self.below = EVERYTHING

    @property
    def keys(self) -> dict[int, list[Row]]:
        """The rows of each chosen key, by its hash."""
        return {hash_: kept.rows for hash_, kept in self._kept.items() if not kept.too_large}

    @property
    def too_large(self) -> list[int]:
        """The hashes of keys that are left out because they have too much state."""
        return [hash_ for hash_, kept in self._kept.items() if kept.too_large]

    def see(self, state: str, section: Section, keys: Hashes) -> None:
        """Collects rows of a section; `keys` are the hashes of the rows' keys with their namespaces."""
        hashes = keys ^ self._seed
        hashes *= _FACTOR
        chosen = np.flatnonzero(hashes < np.uint64(self.below)) if self.below < EVERYTHING else np.arange(len(hashes))
        if len(chosen) > self._most:
            self._make_room(hashes[chosen])
            chosen = chosen[hashes[chosen] < np.uint64(self.below)] if self.below < EVERYTHING else chosen
        if len(chosen):
            # The smallest hashes come first, so the loop can end as soon as there are enough.
            chosen = chosen[np.argsort(hashes[chosen], kind="stable")]
            self._keep(state, section, chosen, hashes[chosen])

    def _make_room(self, hashes: Hashes) -> None:
        """Lowers `below` before more rows than can be kept are read one by one."""
        bound, lowest = int(np.partition(hashes, self._most)[self._most]), int(hashes.min())
        # One key stays, however many rows it has.
        self._lower(bound if bound > lowest or any(hash_ < bound for hash_ in self._kept) else lowest + 1)

    def _lower(self, below: int) -> None:
        self.below = min(self.below, below)
        for hash_ in [hash_ for hash_ in self._kept if hash_ >= self.below]:
            self._work -= self._kept.pop(hash_).work

    def _keep(self, state: str, section: Section, chosen: npt.NDArray[np.int64], hashes: Hashes) -> None:
        data, group, before = section.data.data, section.key_group, 4 + section.file.prefix
        key_starts, key_ends = section.starts[chosen] + before, section.key_ends[chosen]
        columns = (part.tolist() for part in (hashes, key_starts, key_ends, section.ends[chosen]))
        for hash_, start, key_end, end in zip(*columns, strict=True):
            if self._work > self._most:
                self._trim()
            if hash_ >= self.below:
                break
            kept = self._kept.get(hash_)
            if kept is None:
                kept = self._kept[hash_] = _SampledRows()
            elif kept.too_large:
                continue
            work = 1 + (end - start) // _ENTRY_BYTES
            if state == self._blobs:
                work = max(work, self._entries(data[key_end + 4 : end]))
            if kept.work + work > _MOST_OF_A_KEY:
                self._work += 1 - kept.work
                self._kept[hash_] = _SampledRows(1, [], True)
                continue
            self._work += work
            kept.work += work
            kept.rows.append(Row(state, group, bytes(data[start:key_end]), bytes(data[key_end + 4 : end])))
        if self._work > self._most:
            self._trim()

    def _entries(self, blob: memoryview) -> int:
        """The number of entries that the blob states, but no more than it has bytes."""
        if len(blob) < self._count_at + 4:
            return 1
        return min(max(int(struct.unpack_from(">i", blob, self._count_at)[0]), 1), len(blob))

    def _trim(self) -> None:
        """Cuts the collection down to a sample, and limits it to little more than that from now on."""
        self._most, work = self._most_of_sample * 5 // 4, 0
        for number, hash_ in enumerate(sorted(self._kept)):
            work += self._kept[hash_].work
            if work > self._most_of_sample and number:
                self._lower(hash_)
                return
