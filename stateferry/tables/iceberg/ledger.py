"""Finds the keys that are new, changed or gone since the last run, by a fingerprint of all that a key's rows depend on.

A fingerprint is 128 bits over the serializers, the key's blob with its timestamp, its flag and its rows in the new
state (as a sum, so that their order makes no difference). If a key has a blob and the job has begun to move it too, who
wins may depend on the time. Then the fingerprint also has what is alive, and the plan's rule if flag and blob
contradict each other. In all other cases the time makes no difference, because tables never expire rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.ttl import MIN_LONG
from stateferry.changes.key_hashes import Lanes, hash_lanes, key_lanes
from stateferry.changes.lazy_cut import LazyCut
from stateferry.changes.rules import Contradiction, Rules
from stateferry.changes.sections import is_live, parse_rows, read_timestamps, set_flags
from stateferry.tables.iceberg.key_index import KeyIndex, join_lanes, lanes_of_parts

BLOB, ROWS, FLAG, LIVE_BLOB, LIVE_FLAG, LEFT = 1, 2, 4, 8, 16, 32
FINGERPRINT_BYTES = 16
NO_TIMESTAMP = MIN_LONG

_SEEDS = (0x2545F4914F6CDD1D, 0x9E6C63D0876A9A47)
_LIVE = np.uint64(0xC2B2AE3D27D4EB4F)
_RULES = {
    Contradiction.STOP: np.uint64(0),
    Contradiction.BLOB: np.uint64(0x165667B19E3779F9),
    Contradiction.ROWS: np.uint64(0x85EBCA77C2B2AE63),
}

Sections = Iterable[tuple[KeyedState, Section]]


@dataclass(frozen=True, slots=True)
class LegacyState:
    """One legacy state, its rules and its flag; `serializers` is a hash of its serializers' snapshots.

    With `is_published` the ledger says which keys are migrated in the savepoint that the run has published, of which a
    lazy run has moved the keys of the `lazy_cut`; otherwise it says that of the run's source. `knows_ferried` says
    that the ledger before knows which keys lazy runs have moved.
    """

    rules: Rules
    flag: KeyedState | None
    serializers: int
    is_published: bool = False
    lazy_cut: LazyCut | None = None
    knows_ferried: bool = False

    def kind(self, state: KeyedState) -> int:
        """Returns what the state is in the migration (BLOB, ROWS or FLAG), or 0."""
        if state.name == self.rules.legacy.name:
            return BLOB
        if state.name == self.rules.new_name:
            return ROWS
        return FLAG if self.flag is not None and state.name == self.flag.name else 0


@dataclass(frozen=True, slots=True)
class KeyStates:
    """What a savepoint has for some keys, by their numbers in `index`."""

    index: KeyIndex
    fingerprints: Lanes
    kinds: Bytes
    timestamps: Positions

    def is_ferried(self, rule: Contradiction) -> Flags:
        """Whether each key's rows come from a blob, at least some of them; the other keys were moved by the job."""
        contradictory = (self.kinds & LIVE_BLOB != 0) & (rule is Contradiction.BLOB)
        ferried: Flags = (self.kinds & BLOB != 0) & ((self.kinds & LIVE_FLAG == 0) | contradictory)
        return ferried

    def are_migrated(self, legacy: LegacyState) -> Flags:
        """Whether each key's truth is in the new state, and not in a blob."""
        in_blobs = self.is_ferried(legacy.rules.on_contradiction)
        if legacy.is_published:
            in_blobs &= (self.kinds & (LEFT | LIVE_FLAG)) == LEFT
        return ~in_blobs


def survey_keys(sections: Sections, legacy: LegacyState) -> KeyStates:
    """Returns every key of the sections, in whichever of the states it occurs."""
    parts = _Parts()
    for state, section in sections:
        if kind := legacy.kind(state):
            _PARTS[kind](parts, section, legacy)
    return parts.together(legacy)


@dataclass(slots=True)
class _Parts:
    """Parts of keys' fingerprints: one for each blob, each flag, and the neighbouring rows of each key.

    A part is the key, a hash of its content, and a hash of that content that is alive.
    """

    keys: list[Lanes] = field(default_factory=list)
    contents: list[Lanes] = field(default_factory=list)
    alive: list[Lanes] = field(default_factory=list)
    kinds: list[Bytes] = field(default_factory=list)
    timestamps: list[Positions] = field(default_factory=list)

    def blobs(self, section: Section, legacy: LegacyState) -> None:
        timestamps = np.full(len(section), NO_TIMESTAMP)
        if legacy.rules.legacy.ttl:
            with section.locating():
                timestamps = read_timestamps(section.data, section.value_starts, section.ends)
        live = is_live(timestamps, legacy.rules, len(section))
        kinds = np.where(live, BLOB | LIVE_BLOB, BLOB)
        if legacy.lazy_cut is not None:
            starts = section.key_starts + section.file.prefix
            sizes = section.ends - section.value_starts
            kinds[live & ~legacy.lazy_cut.among(section.data, starts, section.key_ends, sizes)] |= LEFT
        self._add_whole(section, legacy, BLOB, kinds, live, timestamps)

    def flags(self, section: Section, legacy: LegacyState) -> None:
        assert legacy.flag is not None
        stand = set_flags(section, legacy.flag, legacy.rules)
        kinds = np.where(stand, FLAG | LIVE_FLAG, FLAG)
        self._add_whole(section, legacy, FLAG, kinds, stand, np.full(len(section), NO_TIMESTAMP))

    def _add_whole(
        self,
        section: Section,
        legacy: LegacyState,
        kind: int,
        kinds: npt.NDArray[np.integer],
        live: Flags,
        timestamps: Positions,
    ) -> None:
        starts = section.key_starts + section.file.prefix
        contents = _hashes(section, section.value_starts, section.ends, legacy, kind)
        self.keys.append(key_lanes(section.data, starts, section.key_ends))
        self.contents.append(contents)
        self.alive.append((contents[0] * live, contents[1] * live))
        self.kinds.append(kinds.astype(np.uint8))
        self.timestamps.append(timestamps)

    def rows(self, section: Section, legacy: LegacyState) -> None:
        rows = parse_rows(section, legacy.rules)
        first, second = key_lanes(section.data, rows.key_starts, rows.key_ends)
        contents = _hashes(section, rows.key_ends, section.ends, legacy, ROWS)
        timestamps = rows.timestamps if len(rows.timestamps) else np.full(len(section), NO_TIMESTAMP)
        # Rows of one key are neighbours. One part for each key takes less memory than one for each row.
        starts = first_of_each((first, second))
        self.keys.append((first[starts], second[starts]))
        self.contents.append((np.add.reduceat(contents[0], starts), np.add.reduceat(contents[1], starts)))
        alive = (np.add.reduceat(lane * rows.live, starts) for lane in contents)
        self.alive.append((next(alive), next(alive)))
        self.kinds.append(np.full(len(starts), ROWS, np.uint8))
        self.timestamps.append(np.maximum.reduceat(timestamps, starts))

    def together(self, legacy: LegacyState) -> KeyStates:
        index = KeyIndex(join_lanes(self.keys))
        kinds = np.zeros(len(index), np.uint8)
        timestamps = np.full(len(index), NO_TIMESTAMP)
        every = np.ones(len(index.numbers), np.bool_)
        contents, alive = join_lanes(self.contents), join_lanes(self.alive)
        if self.kinds:
            np.bitwise_or.at(kinds, index.numbers, np.concatenate(self.kinds))
            np.maximum.at(timestamps, index.numbers, np.concatenate(self.timestamps))
        by_time = ((kinds & BLOB != 0) & (kinds & (ROWS | FLAG) != 0)) * _LIVE
        contradictory = (kinds & (LIVE_BLOB | LIVE_FLAG)) == LIVE_BLOB | LIVE_FLAG
        by_rule = contradictory * _RULES[legacy.rules.on_contradiction]
        first, second = (
            index.sums(content, every) + index.sums(living, every) * by_time + by_rule
            for content, living in zip(contents, alive, strict=True)
        )
        return KeyStates(index, (first, second), kinds, timestamps)


_PARTS = {BLOB: _Parts.blobs, ROWS: _Parts.rows, FLAG: _Parts.flags}


def first_of_each(lanes: Lanes) -> Positions:
    """Returns the index of the first of each group of neighbours with the same key."""
    changes = np.ones(len(lanes[0]), np.bool_)
    changes[1:] = (lanes[0][1:] != lanes[0][:-1]) | (lanes[1][1:] != lanes[1][:-1])
    starts: Positions = np.flatnonzero(changes)
    return starts


def _hashes(section: Section, starts: Positions, ends: Positions, legacy: LegacyState, kind: int) -> Lanes:
    first, second = (seed ^ legacy.serializers ^ kind for seed in _SEEDS)
    return hash_lanes(section.data, starts, ends, (first, second))


@dataclass(frozen=True, slots=True)
class LeftKeys:
    """Keys of a ledger: the run that wrote each, whether it is migrated, and whether a run of ours has moved it."""

    runs: Positions
    migrated: Flags
    ferried: Flags


class Ledger:
    """The current rows of a ledger. Keys that have vanished are not among them."""

    def __init__(
        self, keys: Lanes, fingerprints: Lanes, runs: Positions, gone: Flags, migrated: Flags, ferried: Flags
    ) -> None:
        """`ferried` are the keys that came from blobs."""
        self._index = KeyIndex(keys)
        self.read = len(runs)
        # A key that was moved without any other change has a second row of the same run, which says so.
        order = np.lexsort((migrated, runs))
        rows = np.zeros(len(self._index), np.int64)
        # Of several assignments the last one stays: that of the highest run.
        rows[self._index.numbers[order]] = order
        self.rows: Positions = rows
        self._fingerprints = (fingerprints[0][rows], fingerprints[1][rows])
        self._runs: Positions = runs[rows]
        self._there: Flags = ~gone[rows]
        self._migrated: Flags = migrated[rows] & self._there
        self._ferried: Flags = ferried[rows] & self._migrated
        self._seen = np.zeros(len(rows), np.bool_)

    @classmethod
    def empty(cls) -> Ledger:
        """Returns a ledger without keys."""
        none = np.empty(0, np.uint64)
        nobody = np.empty(0, np.bool_)
        return cls((none, none), (none, none), np.empty(0, np.int64), nobody, nobody, nobody)

    @classmethod
    def of(cls, table: pa.Table, state: KeyedState, tombstone: str) -> Ledger:
        """Makes it of the columns of `reads.ledger_columns`; `tombstone` is the origin of keys that have vanished."""
        if table.num_rows == 0:
            return cls.empty()
        columns = {name: _one_array(table.column(name)) for name in table.column_names}
        keys = lanes_of_parts(state, columns["key_raw"], columns.get("namespace_raw"))
        prints = columns["fingerprint"]
        lanes = np.frombuffer(prints.buffers()[1], np.uint64)[2 * prints.offset :][: 2 * len(prints)].reshape(-1, 2)
        origins = columns["origin"].to_numpy(zero_copy_only=False)
        migrated = columns["is_migrated"].to_numpy(zero_copy_only=False)
        prints_by_lane = (lanes[:, 0].copy(), lanes[:, 1].copy())
        return cls(keys, prints_by_lane, columns["run"].to_numpy(), origins == tombstone, migrated, origins == "ferry")

    @property
    def keys(self) -> int:
        """The number of keys."""
        return int(self._there.sum())

    def current(self) -> Positions:
        """Returns the rows of the table that are current: one for each key that hasn't vanished."""
        rows: Positions = self.rows[self._there]
        return rows

    def are_current(self, keys: Lanes, runs: Positions) -> Flags:
        """Whether what these runs wrote for these keys is still current."""
        numbers = self._index.find(keys)
        current = numbers >= 0
        current[current] = (self._runs[numbers[current]] == runs[current]) & self._there[numbers[current]]
        return current

    def compare(self, keys: KeyStates) -> tuple[Flags, Flags]:
        """Returns which of the keys are new, and which have changed. It marks all of them as seen."""
        numbers = self._index.find(keys.index.lanes)
        known = numbers >= 0
        if not known.any():
            return ~known, known
        known[known] = self._there[numbers[known]]
        self._seen[numbers[known]] = True
        changed = known.copy()
        first, second = self._fingerprints
        there = numbers[known]
        changed[known] = (first[there] != keys.fingerprints[0][known]) | (second[there] != keys.fingerprints[1][known])
        return ~known, changed

    def moves(self, keys: KeyStates, migrated: Flags) -> tuple[Flags, Flags]:
        """Returns the known keys that have been moved since the last run, and those that are blobs again."""
        numbers = self._index.find(keys.index.lanes)
        known = numbers >= 0
        known[known] = self._there[numbers[known]]
        before = known.copy()
        before[known] = self._migrated[numbers[known]]
        return known & migrated & ~before, known & ~migrated & before

    def moved_by_ferry(self, keys: KeyStates) -> Flags:
        """Whether each key came from a blob in a savepoint that was published."""
        numbers = self._index.find(keys.index.lanes)
        known = numbers >= 0
        known[known] = self._ferried[numbers[known]]
        return known

    def rows_of(self, keys: KeyStates, chosen: Flags) -> Positions:
        """Returns the rows of the table that are current for the chosen keys, which are known."""
        rows: Positions = self.rows[self._index.find(keys.index.lanes)[chosen]]
        return rows

    def runs(self, keys: KeyStates) -> Positions:
        """Returns the run that wrote each key's current rows; 0 for unknown keys."""
        numbers = self._index.find(keys.index.lanes)
        runs = np.zeros(len(numbers), np.int64)
        runs[numbers >= 0] = self._runs[numbers[numbers >= 0]]
        return runs

    def leave_all_but(self, keys: Lanes) -> LeftKeys:
        """Returns the known keys that aren't among these. It marks them as seen."""
        numbers = self._index.find(keys)
        left = self._there.copy()
        left[numbers[numbers >= 0]] = False
        self._seen |= left
        return LeftKeys(self._runs[left], self._migrated[left], self._ferried[left])

    def vanished(self) -> Positions:
        """Returns the rows of the table whose keys were not seen."""
        rows: Positions = self.rows[self._there & ~self._seen]
        return rows


def fingerprint_array(lanes: Lanes) -> pa.Array:
    """Returns the fingerprints as an Arrow array."""
    together = np.stack(lanes, axis=1)
    buffers = [None, pa.py_buffer(together)]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(FINGERPRINT_BYTES), len(together), buffers)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
