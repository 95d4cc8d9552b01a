"""Parses sections of a legacy state (blobs), of a new state (rows) and of a flag state."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from flinkstate.errors import DamagedError
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.keyed.stored_keys import expect_whole_keys, split_stored_keys
from flinkstate.keyed.stored_maps import whole_maps
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.types import Scalar
from flinkstate.serializers.walker import Bytes, Flags, Positions
from flinkstate.ttl import expired_array
from stateferry.changes import kernels
from stateferry.changes.key_hashes import Hashes, as_keys, hash_each, hashed_keys, key_lanes
from stateferry.changes.rules import Rules

STAMP = 8
_TO_WIDEN = "; with the wider type in --as, --widen makes all of them that: --as 'Map<String, Long>' --widen"


@dataclass(frozen=True, slots=True)
class Blobs:
    """A parsed section of the legacy state: keys without their key group, timestamps if it has any, entries.

    Keys, stamps and maps are positions in the section's bytes, entries are positions in `data`.
    """

    section: Section
    data: Bytes
    key_starts: Positions
    key_ends: Positions
    stamps: Positions
    maps: Positions
    timestamps: Positions
    counts: Positions
    firsts: Positions
    entries: Positions
    flags: Positions
    ends: Positions

    def per_entry(self, of_blobs: Flags) -> Flags:
        """Returns for each entry the value that its blob has in `of_blobs`."""
        return np.repeat(of_blobs, self.counts)

    def keys(self) -> pa.Array:
        return hashed_keys(self.section.data, self.key_starts, self.key_ends)

    def pairs(self) -> pa.Array:
        """Returns 16 bytes for key and user key of each entry."""
        first, second = key_lanes(self.section.data, self.key_starts, self.key_ends)
        return as_keys((self._spread(first), self._spread(second)))

    def may_have_equal_keys(self, keep: Flags) -> bool:
        """Whether two of these entries have the same hash of key and user key, of 64 bits."""
        first, _ = key_lanes(self.section.data, self.key_starts, self.key_ends)
        hashes = np.sort(self._spread(first)[keep])
        return bool((hashes[1:] == hashes[:-1]).any())

    def _spread(self, seeds: Hashes) -> Hashes:
        out = np.empty(len(self.entries), np.uint64)
        kernels.spread_hash(self.data, self.entries, self.flags, self.counts, seeds, out)
        return out

    def nulls(self) -> Flags:
        """Whether each entry's value is null."""
        found: Flags = self.data[self.flags] == 1
        return found


def parse_blobs(section: Section, rules: Rules) -> Blobs:
    """Parses a section of the legacy state."""
    data, starts = section.data, section.value_starts
    stamped = rules.legacy.ttl
    places = starts + (STAMP if stamped else 0)
    with section.locating():
        expect_whole_keys(rules.legacy, data, section.key_starts + section.file.prefix, section.key_ends)
        timestamps = read_timestamps(data, starts, section.ends) if stamped else np.empty(0, np.int64)
        try:
            maps = whole_maps(rules.legacy.value, data, places, section.ends)
        except RefusedValueError as error:
            raise error.because(_TO_WIDEN) if error.mixes_numbers else error from None
    found = maps.entries
    firsts = np.cumsum(found.counts) - found.counts
    return Blobs(
        section,
        maps.data,
        section.key_starts + section.file.prefix,
        section.key_ends,
        starts,
        places,
        timestamps,
        found.counts,
        firsts,
        found.starts,
        found.key_ends,
        found.ends,
    )


def live_blobs(section: Section, rules: Rules) -> Flags:
    """Whether each blob hasn't expired."""
    if not rules.legacy.ttl:
        return np.ones(len(section), np.bool_)
    with section.locating():
        return is_live(read_timestamps(section.data, section.value_starts, section.ends), rules, len(section))


def live_blob_keys(section: Section, rules: Rules) -> pa.Array:
    """Returns the keys of the blobs that haven't expired."""
    return keys_of(section, live_blobs(section, rules))


def keys_of(section: Section, chosen: Flags) -> pa.Array:
    """Returns the keys of the chosen entries of a section without user keys."""
    starts = section.key_starts + section.file.prefix
    return hashed_keys(section.data, starts[chosen], section.key_ends[chosen])


def moved_blobs(section: Section, rules: Rules) -> Flags:
    """Whether each blob is of a key that the run moves."""
    if rules.lazy_cut is None:
        return np.ones(len(section), np.bool_)
    starts = section.key_starts + section.file.prefix
    return rules.lazy_cut.among(section.data, starts, section.key_ends, section.ends - section.value_starts)


@dataclass(frozen=True, slots=True)
class MapRows:
    """A parsed section of the new state: where each row's key and namespace are, its timestamp, whether it is alive."""

    section: Section
    key_starts: Positions
    key_ends: Positions
    timestamps: Positions
    live: Flags

    def keys(self) -> pa.Array:
        return hashed_keys(self.section.data, self.key_starts, self.key_ends)

    def live_keys(self) -> pa.Array:
        """Returns the keys that have a living row, each once. A key's rows are neighbours, so few are hashed."""
        starts, ends = self.key_starts[self.live], self.key_ends[self.live]
        firsts = first_of_each(self.section.data, starts, ends)
        return hashed_keys(self.section.data, starts[firsts], ends[firsts]).unique()

    def pairs(self) -> pa.Array:
        """Returns 16 bytes for key and user key of each row, as `Blobs.pairs` does."""
        first, second = key_lanes(self.section.data, self.key_starts, self.key_ends)
        data, starts, ends = self.section.data, self.key_ends, self.section.key_ends
        return as_keys((hash_each(data, starts, ends, first), hash_each(data, starts, ends, second)))


def parse_rows(section: Section, rules: Rules) -> MapRows:
    """Parses a section of the new state."""
    legacy, data = rules.legacy, section.data
    starts = section.key_starts + section.file.prefix
    key_ends = ends_of_keys(section, legacy)
    with section.locating():
        if legacy.ttl:
            # A null flag comes first. Under time to live Flink never sets it; a row with it set has no timestamp.
            timestamps = read_timestamps(data, section.value_starts + 1, section.ends)
        else:
            timestamps = np.empty(0, np.int64)
    return MapRows(section, starts, key_ends, timestamps, is_live(timestamps, rules, len(section)))


def ends_of_keys(section: Section, state: KeyedState) -> Positions:
    """Returns where key and namespace of each entry end; of a map's rows, the user key follows."""
    starts = section.key_starts + section.file.prefix
    with section.locating():
        return split_stored_keys(state, section.data, starts, section.key_ends).rests


def first_of_each(data: Bytes, starts: Positions, ends: Positions) -> Positions:
    """Returns the index of each range of bytes that differs from the one before it."""
    firsts = np.empty(len(starts), np.int64)
    return firsts[: kernels.find_first_of_each(data, starts, ends, firsts)]


def set_flag_keys(section: Section, flag: KeyedState, rules: Rules) -> pa.Array:
    """Returns the keys whose flag is set and hasn't expired."""
    return keys_of(section, set_flags(section, flag, rules))


def set_flags(section: Section, flag: KeyedState, rules: Rules) -> Flags:
    """Whether each flag is set and hasn't expired."""
    data, values = section.data, section.value_starts
    live = np.ones(len(section), np.bool_)
    if flag.ttl:
        with section.locating():
            live = is_live(read_timestamps(data, values, section.ends), rules, len(section))
        values = values + STAMP
    if flag.value is Scalar.BOOLEAN:
        live &= data[np.minimum(values, len(data) - 1)] == 1
    return live


def read_timestamps(data: Buffer, starts: Positions, ends: Positions) -> Positions:
    """Reads the timestamp at each start."""
    for short in np.flatnonzero(ends - starts < STAMP)[:1]:
        raise DamagedError("a timestamp of 8 bytes", f"{ends[short] - starts[short]} bytes", offset=int(starts[short]))
    out = np.empty(len(starts), np.int64)
    kernels.read_i64(data, starts, out)
    return out


def copied(
    section: Section,
    data: Bytes,
    starts: Positions,
    ends: Positions,
    keys: Positions,
    firsts: Positions | slice = slice(None),
) -> Section:
    """Returns the section with rows of ranges of `data`; `firsts` begin one each, whose key ends after `keys` bytes."""
    out, offsets = np.empty(int((ends - starts).sum()), np.uint8), np.empty(len(starts), np.int64)
    kernels.copy_ranges(data, starts, ends, offsets, out)
    begins = np.ascontiguousarray(offsets[firsts])
    stops = np.append(begins[1:], len(out))[: len(begins)]
    return replace(section, data=out, starts=begins, key_ends=begins + keys, ends=stops)


def put_lengths(data: Bytes, places: Positions, lengths: Positions) -> None:
    """Writes an i32 at each place."""
    for byte in range(4):
        data[places + byte] = lengths >> 8 * (3 - byte) & 0xFF


def is_live(timestamps: Positions, rules: Rules, count: int) -> Flags:
    """Whether each timestamp hasn't expired, or expired entries are kept."""
    if rules.ttl is None or not rules.drops_expired:
        return np.ones(count, np.bool_)
    live: Flags = ~expired_array(timestamps, rules.ttl, rules.now)
    return live
