"""The rows of one chunk: reads its key groups and writes new and changed entries as rows of the tables.

It takes a few key groups at a time (a unit) and reads them twice: once for the fingerprints of the keys and, if a key
is new or changed, once for the rows. Of RocksDB's own files it reads only keys whose rows differ in the files that came
or went since the ledger was written, if that is possible (`changed_keys`).

Tables never expire rows: expired entries are written too, and readers leave them out.

A chunk that is folded is written as a whole, and its new files replace all its files. Keys that haven't changed keep
the run that they have, so that the runs still tell when a key changed last.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Flags, Positions
from flinkstate.files.storage import Location
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.native_difference import EarlierPart
from flinkstate.metadata.chunks import Chunk
from flinkstate.ttl import MAX_LONG
from stateferry.changes.counts import StateCounts
from stateferry.changes.key_hashes import Lanes, key_lanes
from stateferry.changes.rules import Nulls
from stateferry.changes.sections import is_live, parse_blobs, parse_rows
from stateferry.changes.who_wins import NO_KEYS, KeySets, dropped_nulls, entries_that_stay, key_sets, rows_that_stay
from stateferry.tables.changed_keys import changed_keys
from stateferry.tables.content import KeyContents, key_contents
from stateferry.tables.counts import TableCounts
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.files import DataFile, NullsAfterAllError
from stateferry.tables.iceberg.ledger import (
    BLOB,
    LEFT,
    LIVE_BLOB,
    NO_TIMESTAMP,
    ROWS,
    KeyStates,
    LegacyState,
    fingerprint_array,
    survey_keys,
)
from stateferry.tables.iceberg.reads import read_ledger
from stateferry.tables.ledger_rows import LedgerRows
from stateferry.tables.rows import EntryColumns, UserKeys, columns_of_blobs, columns_of_rows, entry_table, key_columns
from stateferry.tables.units import Unit, units

_ROWS_IN_GROUP = 1 << 19
_BYTES_IN_GROUP = 256 << 20

_NEVER = MAX_LONG


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Writes one chunk of the tables. `chunk` is None if its key groups have no data now.

    The names of the files begin with `file_stem`. Each attempt of the task adds a part of its own, so that no two
    attempts write the same file.
    """

    number: int
    folder: Location
    chunk: Chunk | None
    state: LegacyState
    run_number: int
    ledger_files: tuple[str, ...]
    file_stem: str
    entry_folder: str
    entry_schema: pa.Schema
    ledger_folder: str
    ledger_schema: pa.Schema
    folds: bool = False
    # What the subtasks had when the ledger was written, if keys that haven't changed since needn't be read.
    earlier: Mapping[int, EarlierPart] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """The names of the files that a task has written for a chunk; `known` keys were in the ledger before."""

    entries: str | None
    ledger: str | None
    known: int
    counts: TableCounts


def write_chunk(task: ChunkTask) -> WrittenChunk:
    """Writes the chunk's new rows into files of this attempt.

    The files become visible when they are committed. Files of other attempts of the task are never committed;
    `stateferry clean` removes them.
    """
    try:
        return _write(task, infer_required=True)
    except NullsAfterAllError:
        return _write(task, infer_required=False)


def _write(task: ChunkTask, *, infer_required: bool) -> WrittenChunk:
    name = f"{task.file_stem}-{uuid.uuid4().hex[:12]}.parquet"
    with (
        DataFile(f"{task.entry_folder}/{name}", infer_required=infer_required) as entries,
        DataFile(f"{task.ledger_folder}/{name}", [names.ORIGIN]) as ledger,
    ):
        work = _ChunkWork(task, entries, ledger)
        known = work.known.keys
        changed = changed_keys(task.folder, task.chunk, task.state, task.earlier) if task.chunk else None
        if changed is not None:
            work.leave_all_but(changed.keys)
        only = changed.of_subtasks if changed is not None else None
        by_kryo = task.state.rules.by_kryo
        for sections in units(task.folder, task.chunk, only, by_kryo) if task.chunk else ():
            work.write(sections)
        work.add_tombstones()
        work.flush()
        entries.close()
        ledger.note_entries(entries)
    return WrittenChunk(entries.written(), ledger.written(), known, work.counts)


@dataclass(slots=True)
class _KeyRows:
    """Columns of keys for the ledger, from one section, with the keys' numbers in the unit."""

    key_group: int
    columns: dict[str, pa.Array]
    numbers: Positions


class _Contents:
    """What the entries of each key of a unit amount to, by the key's number: sum of hashes, bounds of timestamps."""

    def __init__(self, count: int) -> None:
        self.sums = np.zeros(count, np.uint64)
        self.oldest = np.full(count, _NEVER)
        self.newest = np.full(count, NO_TIMESTAMP)

    def add(self, numbers: Positions, found: KeyContents) -> None:
        keys = numbers[found.places]
        np.add.at(self.sums, keys, found.sums)
        if len(found.oldest):
            np.minimum.at(self.oldest, keys, found.oldest)
            np.maximum.at(self.newest, keys, found.newest)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit and its keys: which of them are migrated, and which come from blobs."""

    sections: Unit
    keys: KeyStates
    migrated: Flags
    by_ferry: Flags


@dataclass(slots=True)
class _UnitKeys:
    """The keys of a unit that are written.

    `wanted` says which these are, `runs` with which run, `entries` how many entries each has, `listed` which are among
    the `rows` for the ledger. `counts` are those of the chunk.
    """

    keys: KeyStates
    sets: KeySets
    wanted: Flags
    runs: Positions
    counts: TableCounts
    entries: Positions
    listed: Flags
    rows: list[_KeyRows]
    contents: _Contents

    def take_new(self, numbers: Positions) -> Positions:
        """Returns the indices of keys that occur for the first time."""
        fresh = np.flatnonzero(~self.listed[numbers])
        different, first = np.unique(numbers[fresh], return_index=True)
        self.listed[different] = True
        new: Positions = fresh[np.sort(first)]
        return new


class _ChunkWork:
    def __init__(self, task: ChunkTask, entries: DataFile, ledger: DataFile) -> None:
        self.task, self._entries = task, entries
        self._ledger = LedgerRows(ledger, task.ledger_schema, task.number)
        self.rules = task.state.rules
        # No entry is left out because it has expired. But who wins is decided by the entries that are alive.
        self._lasting = replace(self.rules, keep_expired=True)
        self.counts = TableCounts()
        self._user_keys = UserKeys(self.rules.map_type.key)
        self._waiting: list[EntryColumns] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._leaves_out_nulls = self.rules.leaves_out_nulls
        self.known = read_ledger(task.ledger_files, self.rules.legacy)
        self.counts.ledger_rows_read = self.known.read

    def write(self, sections: Unit) -> None:
        """Writes the new and changed keys of a unit; if the chunk is folded, the others too."""
        keys = survey_keys(sections, self.task.state)
        new, changed = self.known.compare(keys)
        migrated = keys.are_migrated(self.task.state)
        moved, returned = self.known.moves(keys, migrated)
        changed |= returned
        wanted = new | changed
        moved &= ~wanted
        by_ferry = self._count_migrated(keys, migrated, wanted)
        self.counts.keys_walked += len(wanted)
        self.counts.keys_new += int(new.sum())
        self.counts.keys_changed += int(changed.sum())
        self.counts.keys_unchanged += int((~wanted).sum())
        unit = _Unit(sections, keys, migrated, by_ferry)
        self._write(unit, wanted, np.full(len(wanted), self.task.run_number), self.counts)
        self.counts.keys_moved += int(moved.sum())
        if moved.any() and not self.task.folds:
            self.counts.ledger_rows_written += int(moved.sum())
            self._ledger.add_moved(self.task.ledger_files, self.known.rows_of(keys, moved))
        if self.task.folds:
            again = TableCounts()
            self._write(unit, ~wanted, self.known.runs(keys), again)
            self.counts.rows_read += again.rows_read
            self.counts.rows_folded += again.rows_written
            self.counts.keys_folded += again.ledger_rows_written

    def leave_all_but(self, changed: Lanes) -> None:
        """Counts the known keys that aren't among the changed ones as they are in the ledger; they aren't read."""
        left = self.known.leave_all_but(changed)
        self.counts.keys_unchanged += len(left.runs)
        by_ferry = int(left.ferried.sum()) if self.task.state.knows_ferried else 0
        self.counts.keys_migrated_by_ferry += by_ferry
        self.counts.keys_migrated_by_job += int(left.migrated.sum()) - by_ferry
        self.counts.keys_left += int((~left.migrated).sum())
        self._count_untouched(left.runs[~left.migrated])

    def _count_untouched(self, runs: Positions) -> None:
        ages = self.task.run_number - runs
        self.counts.keys_left_untouched += len(ages)
        self.counts.keys_left_untouched_for_7_runs += int((ages >= 7).sum())
        self.counts.keys_left_untouched_for_30_runs += int((ages >= 30).sum())

    def _count_migrated(self, keys: KeyStates, migrated: Flags, wanted: Flags) -> Flags:
        """Counts the keys that are migrated and those that are left; returns which of them come from blobs.

        A key that was moved by a run that was published stays so. In the next savepoint it has rows alone.
        """
        by_ferry = keys.is_ferried(self.rules.on_contradiction)
        if self.task.state.knows_ferried:
            by_ferry |= self.known.moved_by_ferry(keys) & migrated
        self.counts.keys_migrated_by_ferry += int((migrated & by_ferry).sum())
        self.counts.keys_migrated_by_job += int((migrated & ~by_ferry).sum())
        self.counts.keys_left += int((~migrated).sum())
        self._count_untouched(self.known.runs(keys)[~migrated & ~wanted])
        return by_ferry

    def _write(self, found: _Unit, wanted: Flags, runs: Positions, counts: TableCounts) -> None:
        if not wanted.any():
            return
        sections, keys = found.sections, found.keys
        others = ~np.uint8(BLOB | LIVE_BLOB | LEFT)
        mixed = bool((keys.kinds[wanted] & BLOB).any() and (keys.kinds[wanted] & others != 0).any())
        sets = key_sets(sections, self.rules, self.task.state.flag) if mixed else NO_KEYS
        zeros = np.zeros(len(wanted), np.int64)
        contents = _Contents(len(wanted))
        unit = _UnitKeys(keys, sets, wanted, runs, counts, zeros, np.zeros(len(wanted), np.bool_), [], contents)
        for state, section in sections:
            if kind := self.task.state.kind(state):
                self._section(section, kind, unit)
        self._list_keys(unit, found)

    def _section(self, section: Section, kind: int, unit: _UnitKeys) -> None:
        starts = section.key_starts + section.file.prefix
        ends = parse_rows(section, self._lasting).key_ends if kind == ROWS else section.key_ends
        numbers = unit.keys.index.find(key_lanes(section.data, starts, ends))
        wanted = unit.wanted[numbers]
        if not wanted.any():
            return
        if not wanted.all():
            chosen = np.flatnonzero(wanted)
            numbers, starts, ends, section = numbers[chosen], starts[chosen], ends[chosen], _some(section, chosen)
        new = unit.take_new(numbers)
        if len(new):
            columns = key_columns(self.rules, section, starts[new], ends[new])
            unit.rows.append(_KeyRows(section.key_group, columns, numbers[new]))
        if kind == BLOB:
            self._blobs(section, numbers, unit)
        elif kind == ROWS:
            self._rows(section, numbers, unit)

    def _blobs(self, section: Section, numbers: Positions, unit: _UnitKeys) -> None:
        blobs = parse_blobs(section, self.rules)
        counts = StateCounts()
        keep = entries_that_stay(blobs, self._lasting, unit.sets, counts)
        if self._leaves_out_nulls and (nulls := keep & blobs.nulls()).any():
            live = blobs.per_entry(is_live(blobs.timestamps, self.rules, len(blobs.counts)))
            unit.counts.nulls_dropped += dropped_nulls(int((nulls & live).sum()), self.rules)
            if self.rules.nulls is Nulls.DROP:
                keep = keep & ~nulls
        unit.counts.empty_maps += counts.empty_maps
        unit.counts.contradictions += counts.contradictions
        unit.counts.blob_entries_superseded += counts.blob_entries_superseded
        unit.counts.rows_read += len(blobs.entries)
        if keep.any():
            columns = columns_of_blobs(self.rules, blobs, keep, self._user_keys)
            np.add.at(unit.entries, numbers, columns.counts)
            self._add(columns, numbers, unit)

    def _rows(self, section: Section, numbers: Positions, unit: _UnitKeys) -> None:
        rows = parse_rows(section, self._lasting)
        kept = rows_that_stay(rows, self._lasting, unit.sets, StateCounts())
        unit.counts.rows_read += len(section)
        np.add.at(unit.entries, numbers[kept], 1)
        if len(kept):
            columns = columns_of_rows(self.rules, rows, kept, self._user_keys)
            self._add(columns, numbers[kept][np.cumsum(columns.counts) - 1], unit)

    def _add(self, columns: EntryColumns, numbers: Positions, unit: _UnitKeys) -> None:
        unit.contents.add(numbers, key_contents(columns, self.rules))
        unit.counts.rows_written += len(columns)
        if self.task.folds:
            columns = replace(columns, keys={**columns.keys, names.RUN: pa.array(unit.runs[numbers])})
        self._waiting.append(columns)
        self._waiting_rows += len(columns)
        self._waiting_bytes += sum(array.nbytes for array in columns.entries.values())
        if self._waiting_rows >= _ROWS_IN_GROUP or self._waiting_bytes >= _BYTES_IN_GROUP:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting:
            constants = {names.CHUNK: self.task.number}
            if not self.task.folds:
                constants[names.RUN] = self.task.run_number
            self._entries.write(entry_table(self._waiting, constants, self.task.entry_schema))
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _list_keys(self, unit: _UnitKeys, found_in: _Unit) -> None:
        """Adds the ledger's rows for the keys that were written."""
        numbers = np.concatenate([rows.numbers for rows in unit.rows])
        ferried = found_in.by_ferry[numbers]
        groups = np.repeat([rows.key_group for rows in unit.rows], [len(rows.numbers) for rows in unit.rows])
        timestamps = unit.keys.timestamps[numbers]
        oldest, newest = unit.contents.oldest[numbers], unit.contents.newest[numbers]
        first, second = unit.keys.fingerprints
        found: dict[str, Any] = {
            names.KEY_GROUP: groups,
            names.ORIGIN: pa.array([names.JOB, names.FERRY]).take(pa.array(ferried.astype(np.int8))),
            names.IS_MIGRATED: found_in.migrated[numbers],
            names.FINGERPRINT: fingerprint_array((first[numbers], second[numbers])),
            names.ENTRIES: unit.entries[numbers],
            names.CONTENT: unit.contents.sums[numbers].view(np.int64),
            names.OLDEST: pa.array(oldest, mask=oldest == _NEVER),
            names.NEWEST: pa.array(newest, mask=newest == NO_TIMESTAMP),
            names.TIMESTAMP: pa.array(timestamps, mask=timestamps == NO_TIMESTAMP),
            names.RUN: unit.runs[numbers],
        }
        for name in unit.rows[0].columns:
            found[name] = pa.chunked_array([rows.columns[name] for rows in unit.rows])
        unit.counts.keys_of_the_job += int((~ferried).sum())
        unit.counts.keys_of_the_ferry += int(ferried.sum())
        unit.counts.ledger_rows_written += len(numbers)
        self._ledger.add(found, len(numbers))

    def add_tombstones(self) -> None:
        """Adds a tombstone for each key that the ledger has and the savepoint no longer has."""
        gone = self.known.vanished()
        self.counts.keys_vanished = len(gone)
        if len(gone):
            self.counts.ledger_rows_written += len(gone)
            self._ledger.add_tombstones(self.task.ledger_files, gone, self.task.run_number)

    def flush(self) -> None:
        self._write_waiting()
        self._ledger.flush()


def _some(section: Section, chosen: Positions) -> Section:
    return replace(section, starts=section.starts[chosen], key_ends=section.key_ends[chosen], ends=section.ends[chosen])
