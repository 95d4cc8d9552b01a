"""The rules from `ValueState<Map>` to `MapState`: which blobs become rows if the job has migrated some itself.

Flags, blobs and rows are those of the savepoint that have not expired:

| flag | blob | rows | what the new state gets |
|---|---|---|---|
| set | - | any | the rows |
| - | there | none | the blob's entries |
| - | there | some | the rows, and those entries of the blob whose user key has no row |
| set | there | any | a contradiction: the plan's rule chooses the blob's entries (`blob`) or the rows (`rows`) |
| - | - | some | the rows |

All contradictions are counted. Every entry of a blob inherits the blob's timestamp. The functions here work on one key
group at a time. They keep 16 bytes for each key with a flag, a blob or rows, and for each row of a key that has a blob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stateferry.errors import DamagedError, RefusedError, RejectedError, StateferryError
from stateferry.migration import kernels as row_kernels
from stateferry.nouns import noun
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.grouped import GroupedEntries, GroupSections, grouped
from stateferry.savepoint.key_group_file import Section
from stateferry.savepoint.state import KeyedState
from stateferry.serializers.types import FlinkType, MapType, Scalar, type_name
from stateferry.serializers.walker import Flags, Positions, split_keys, walk_entries
from stateferry.ttl import expired_array
from stateferry.values.values import encode

Hashes = npt.NDArray[np.uint64]
_STAMP = 8


class Contradiction(Enum):
    """What to do with a key that is flagged as migrated and still has a blob."""

    STOP = "stop"
    BLOB = "blob"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Rules:
    """How one legacy state is migrated: the names of its states in the savepoint, and options of the plan."""

    legacy: KeyedState
    new_name: str
    flag_name: str | None
    ttl: int | None
    now: int
    keep_expired: bool = False
    drop_unrepresentable_nulls: bool = False
    on_contradiction: Contradiction = Contradiction.STOP
    no_flag: bool = False

    @property
    def map_type(self) -> MapType:
        """The type of the legacy state's map."""
        if not isinstance(self.legacy.value, MapType):
            raise RefusedError(f"state {self.legacy.name} can't be migrated: {self.legacy.why_not_migratable}")
        return self.legacy.value

    @property
    def drops_expired(self) -> bool:
        """Whether expired entries are left out."""
        return self.ttl is not None and not self.keep_expired


class ContradictionsError(RejectedError):
    """Keys are flagged as migrated and still have a blob, and the plan has no rule for them."""


class NullsCannotBeKeptError(RejectedError):
    """Entries have a null that the new state can't hold."""


def null_under_ttl(value: FlinkType) -> bytes | None:
    """Returns what the value's serializer writes for null, or None if it can't: a MapState under TTL needs this."""
    try:
        return encode(value, None)
    except (StateferryError, TypeError, AttributeError, ValueError):
        return None


_SEEDS = (0x5851F42D4C957F2D, 0x14057B7EF767814F)
Lanes = tuple[Hashes, Hashes]


def key_lanes(data: Buffer, starts: Positions, ends: Positions) -> Lanes:
    """Returns two 64-bit hashes for each key. Two keys for which both are equal count as the same."""
    return hash_lanes(data, starts, ends, _SEEDS)


def hash_lanes(data: Buffer, starts: Positions, ends: Positions, seeds: tuple[int, int]) -> Lanes:
    """Returns two 64-bit hashes, by two seeds, of the bytes from each start to its end."""
    first, second = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64)
    row_kernels.hash_twice(data, starts, ends, np.uint64(seeds[0]), np.uint64(seeds[1]), first, second)
    return first, second


def _hash_each(data: Buffer, starts: Positions, ends: Positions, seeds: Hashes) -> Hashes:
    out = np.empty(len(starts), np.uint64)
    row_kernels.hash_each(data, starts, ends, seeds, out)
    return out


def as_keys(lanes: Lanes) -> pa.Array:
    """Returns the two hashes of each key together, as 16 bytes."""
    together = np.stack(lanes, axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(together), [None, pa.py_buffer(together)])


def key_hashes(data: Buffer, starts: Positions, ends: Positions) -> pa.Array:
    """Returns 16 bytes for each key, which are equal for equal keys."""
    return as_keys(key_lanes(data, starts, ends))


def members(keys: pa.Array, of: pa.Array) -> Flags:
    """Whether each of the keys is in `of`."""
    if len(of) == 0:
        return np.zeros(len(keys), np.bool_)
    found: Flags = pc.is_in(keys, value_set=of).to_numpy(zero_copy_only=False)
    return found


# This doesn't use `pa.array`, which would import pandas; that takes longer than all other imports here.
NO_HASHES = pa.Array.from_buffers(pa.binary(16), 0, [None, pa.py_buffer(b"")])


@dataclass(frozen=True, slots=True)
class KeySets:
    """Keys of one key group: those with a flag and a blob, and the rows (key and user key) that win over a blob."""

    contradictory: pa.Array
    superseding: pa.Array


@dataclass(frozen=True, slots=True)
class Blobs:
    """A parsed section of the legacy state: keys without their key group, timestamps if it has any, entries."""

    section: Section
    key_starts: Positions
    key_ends: Positions
    stamps: Positions
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
        return key_hashes(self.section.data, self.key_starts, self.key_ends)

    def pairs(self) -> pa.Array:
        """Returns 16 bytes for key and user key of each entry."""
        first, second = key_lanes(self.section.data, self.key_starts, self.key_ends)
        return as_keys((self._spread(first), self._spread(second)))

    def _spread(self, seeds: Hashes) -> Hashes:
        out = np.empty(len(self.entries), np.uint64)
        row_kernels.spread_hash(self.section.data, self.entries, self.flags, self.counts, seeds, out)
        return out

    def nulls(self) -> Flags:
        """Whether each entry's value is null."""
        found: Flags = self.section.data[self.flags] == 1
        return found


def read_blobs(section: Section, rules: Rules) -> Blobs:
    """Parses a section of the legacy state."""
    data, starts = section.data, section.value_starts
    stamped = rules.legacy.ttl
    with section.locating():
        timestamps = read_timestamps(data, starts, section.ends) if stamped else np.empty(0, np.int64)
        found = walk_entries(rules.map_type, data, starts + (_STAMP if stamped else 0), section.ends)
        for position in np.flatnonzero(found.stops != section.ends)[:1]:
            raise DamagedError(
                "the end of the map",
                f"{section.ends[position] - found.stops[position]} more bytes",
                offset=int(found.stops[position]),
            )
    firsts = np.cumsum(found.counts) - found.counts
    return Blobs(
        section,
        section.key_starts + section.file.prefix,
        section.key_ends,
        starts,
        timestamps,
        found.counts,
        firsts,
        found.starts,
        found.key_ends,
        found.ends,
    )


def read_timestamps(data: Buffer, starts: Positions, ends: Positions) -> Positions:
    """Reads the timestamp at each start."""
    for short in np.flatnonzero(ends - starts < _STAMP)[:1]:
        raise DamagedError("a timestamp of 8 bytes", f"{ends[short] - starts[short]} bytes", offset=int(starts[short]))
    out = np.empty(len(starts), np.int64)
    row_kernels.read_i64(data, starts, out)
    return out


@dataclass(frozen=True, slots=True)
class MapRows:
    """A parsed section of the new state: where each row's key and namespace are, its timestamp, whether it is alive."""

    section: Section
    key_starts: Positions
    key_ends: Positions
    timestamps: Positions
    live: Flags

    def keys(self) -> pa.Array:
        return key_hashes(self.section.data, self.key_starts, self.key_ends)

    def live_keys(self) -> pa.Array:
        """Returns the keys that have a living row, each once. A key's rows are neighbours, so few are hashed."""
        starts, ends = self.key_starts[self.live], self.key_ends[self.live]
        runs = np.empty(len(starts), np.int64)
        runs = runs[: row_kernels.find_runs(self.section.data, starts, ends, runs)]
        return key_hashes(self.section.data, starts[runs], ends[runs]).unique()

    def pairs(self) -> pa.Array:
        """Returns 16 bytes for key and user key of each row, as `Blobs.pairs` does."""
        first, second = key_lanes(self.section.data, self.key_starts, self.key_ends)
        data, starts, ends = self.section.data, self.key_ends, self.section.key_ends
        return as_keys((_hash_each(data, starts, ends, first), _hash_each(data, starts, ends, second)))


def read_rows(section: Section, rules: Rules) -> MapRows:
    """Parses a section of the new state."""
    legacy, data = rules.legacy, section.data
    starts = section.key_starts + section.file.prefix
    with section.locating():
        split = split_keys(legacy.key, legacy.namespace, legacy.has_suffixes, data, starts, section.key_ends)
        if legacy.ttl:
            # A null flag comes first. Under time to live Flink never sets it; a row with it set has no timestamp.
            timestamps = read_timestamps(data, section.value_starts + 1, section.ends)
        else:
            timestamps = np.empty(0, np.int64)
    return MapRows(section, starts, split.rests, timestamps, is_live(timestamps, rules, len(section)))


def is_live(timestamps: Positions, rules: Rules, count: int) -> Flags:
    """Whether each timestamp hasn't expired, or expired entries are kept."""
    if rules.ttl is None or not rules.drops_expired:
        return np.ones(count, np.bool_)
    live: Flags = ~expired_array(timestamps, rules.ttl, rules.now)
    return live


def read_flags(section: Section, flag: KeyedState, rules: Rules) -> pa.Array:
    """Returns the keys whose flag is set and hasn't expired."""
    stand = flags_that_stand(section, flag, rules)
    starts = section.key_starts + section.file.prefix
    return key_hashes(section.data, starts[stand], section.key_ends[stand])


def flags_that_stand(section: Section, flag: KeyedState, rules: Rules) -> Flags:
    """Whether each flag is set and hasn't expired."""
    data, values = section.data, section.value_starts
    live = np.ones(len(section), np.bool_)
    if flag.ttl:
        with section.locating():
            live = is_live(read_timestamps(data, values, section.ends), rules, len(section))
        values = values + _STAMP
    if flag.value is Scalar.BOOLEAN:
        live &= data[np.minimum(values, len(data) - 1)] == 1
    return live


def key_sets(group: Iterable[tuple[KeyedState, Section]], rules: Rules, flag: KeyedState | None) -> KeySets:
    """Finds the keys that have a blob and also a flag or rows, in one key group or several.

    `flag` is the flag state if the savepoint has it. `group` may be iterated twice.
    """
    flagged, with_rows, blobs = [NO_HASHES], [NO_HASHES], [NO_HASHES]
    for state, section in group:
        if flag is not None and state.name == rules.flag_name:
            flagged.append(read_flags(section, flag, rules))
        elif state.name == rules.new_name:
            with_rows.append(read_rows(section, rules).live_keys())
        elif state.name == rules.legacy.name:
            blobs.append(live_blob_keys(section, rules))
    all_blobs = pa.concat_arrays(blobs)
    contradictory = all_blobs.filter(pa.array(members(all_blobs, pa.concat_arrays(flagged))))
    both = all_blobs.filter(pa.array(members(all_blobs, pa.concat_arrays(with_rows))))
    both = both.filter(pa.array(~members(both, contradictory)))
    superseding = [NO_HASHES]
    if len(both):
        for state, section in group:
            if state.name == rules.new_name:
                rows = read_rows(section, rules)
                superseding.append(rows.pairs().filter(pa.array(members(rows.keys(), both) & rows.live)))
    return KeySets(contradictory, pa.concat_arrays(superseding))


def live_blob_keys(section: Section, rules: Rules) -> pa.Array:
    """Returns the keys of the blobs that haven't expired."""
    live = np.ones(len(section), np.bool_)
    if rules.legacy.ttl:
        with section.locating():
            live = is_live(read_timestamps(section.data, section.value_starts, section.ends), rules, len(section))
    starts = section.key_starts + section.file.prefix
    return key_hashes(section.data, starts[live], section.key_ends[live])


NO_KEYS = KeySets(NO_HASHES, NO_HASHES)


def key_sets_of(group: GroupSections, rules: Rules, states: Mapping[str, KeyedState]) -> KeySets:
    """Returns the key sets of a key group, which will be read again; without flags and rows it isn't read for this.

    `states` are all states of the operator by name.
    """
    here = {state.name for state in group.states}
    if rules.legacy.name not in here or not here & {rules.new_name, rules.flag_name}:
        return NO_KEYS
    group.keep()
    return key_sets(group, rules, states.get(rules.flag_name) if rules.flag_name else None)


def kept_rows(section: Section, rules: Rules, sets: KeySets, counts: Counter[str]) -> npt.NDArray[np.int64]:
    """Returns the indices of the rows of the new state that stay."""
    return standing(read_rows(section, rules), rules, sets, counts)


def standing(rows: MapRows, rules: Rules, sets: KeySets, counts: Counter[str]) -> npt.NDArray[np.int64]:
    """Returns the indices of the rows that stay, and counts what happened."""
    keep = rows.live
    counts["rows read"] += len(keep)
    counts["rows expired"] += int((~keep).sum())
    _count_future(rows.timestamps, rules, counts)
    if rules.on_contradiction is Contradiction.BLOB:
        replaced = members(rows.keys(), sets.contradictory) & keep
        counts["rows replaced by a blob"] += int(replaced.sum())
        keep = keep & ~replaced
    kept: npt.NDArray[np.int64] = np.flatnonzero(keep)
    counts["rows kept"] += len(kept)
    return kept


def _count_future(timestamps: Positions, rules: Rules, counts: Counter[str]) -> None:
    counts["timestamps in the future"] += int((timestamps > rules.now).sum())


def convert(
    section: Section, rules: Rules, sets: KeySets, new_id: int, targets: Positions, prefix: int, counts: Counter[str]
) -> GroupedEntries:
    """Returns the rows that a section of blobs becomes; `targets` are the key groups to which the blobs go."""
    blobs = read_blobs(section, rules)
    keep = kept_entries(blobs, rules, sets, counts)
    stamped = rules.legacy.ttl
    null = null_under_ttl(rules.map_type.value) if stamped else b""
    if stamped and null is None:
        nulls = keep & blobs.nulls()
        refuse_or_drop(int(nulls.sum()), rules, counts)
        keep = keep & ~nulls
    order = np.argsort(targets, kind="stable")
    out = np.empty(_most_bytes(blobs, prefix, len(null or b"")) + row_kernels.SLACK, np.uint8)
    piece_ends, last_rows = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    null_bytes = np.array(bytearray(null or b""), np.uint8)
    written = row_kernels.write_rows(
        section.data, blobs.key_starts, blobs.key_ends, blobs.stamps, blobs.firsts, blobs.counts, order, targets,
        prefix, blobs.entries, blobs.flags, blobs.ends, keep, stamped, null_bytes, out, piece_ends, last_rows,
    )  # fmt: skip
    counts["rows written"] += int(written)
    return grouped(new_id, out[: piece_ends[-1]], targets[order], piece_ends, last_rows)


def kept_entries(blobs: Blobs, rules: Rules, sets: KeySets, counts: Counter[str]) -> Flags:
    """Whether each entry of the blobs becomes a row; counts what happened."""
    live = is_live(blobs.timestamps, rules, len(blobs.counts))
    counts["blobs"] += len(blobs.counts)
    counts["blob entries"] += len(blobs.entries)
    counts["empty maps"] += int((live & (blobs.counts == 0)).sum())
    counts["blobs expired"] += int((~live).sum())
    counts["blob entries expired"] += int(blobs.counts[~live].sum())
    _count_future(blobs.timestamps, rules, counts)
    live = live & _against_flags(blobs, live, rules, sets, counts)
    keep = blobs.per_entry(live)
    if len(sets.superseding):
        superseded = members(blobs.pairs(), sets.superseding) & keep
        counts["blob entries superseded"] += int(superseded.sum())
        keep = keep & ~superseded
    return keep


def _against_flags(blobs: Blobs, live: Flags, rules: Rules, sets: KeySets, counts: Counter[str]) -> Flags:
    """Returns which blobs stay in spite of the flags of their keys."""
    if len(sets.contradictory) == 0:
        return live
    contradictory = members(blobs.keys(), sets.contradictory) & live
    counts["contradictions"] += int(contradictory.sum())
    if rules.on_contradiction is Contradiction.BLOB:
        return live
    if rules.on_contradiction is Contradiction.STOP and contradictory.any():
        met = int(contradictory.sum())
        raise ContradictionsError(
            f"state {rules.legacy.name}: {met} {noun(met, 'key')} of key group {blobs.section.key_group} "
            f"{noun(met, 'is', 'are')} flagged as migrated and still {noun(met, 'has', 'have')} a blob; choose a rule: "
            "on-contradiction blob or rows"
        )
    counts["blob entries dropped for rows"] += int(blobs.counts[contradictory].sum())
    return live & ~contradictory


def refuse_or_drop(nulls: int, rules: Rules, counts: Counter[str]) -> None:
    """Counts nulls that are dropped, or refuses them if the plan doesn't drop them."""
    if nulls and not rules.drop_unrepresentable_nulls:
        raise NullsCannotBeKeptError(
            f"state {rules.legacy.name}: {nulls} {noun(nulls, 'entry has', 'entries have')} a null that "
            f"{type_name(rules.map_type.value)} with TTL can't hold in a MapState; drop them "
            "(drop-unrepresentable-nulls), or make the value nullable in both jobs"
        )
    counts["unrepresentable nulls dropped"] += nulls


def _most_bytes(blobs: Blobs, prefix: int, null: int) -> int:
    """Returns the most bytes that the rows of all entries can take, without looking at the entries.

    An estimate that is too large costs nothing, because memory that isn't written to isn't used.
    """
    stamp = _STAMP + null if len(blobs.timestamps) else 0
    each = 8 + prefix + stamp + blobs.key_ends - blobs.key_starts
    return int((blobs.counts * each).sum() + (blobs.section.ends - blobs.stamps).sum())
