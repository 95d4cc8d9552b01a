"""The migrate step of one chunk: reads its key groups and writes new and changed entries as rows of the tables.

It takes a few key groups at a time (a unit) and reads them twice: once for the fingerprints of the keys and, if a key
is new or changed, once for the rows. Tables never expire rows: expired entries are written too, and readers leave them
out.

A chunk that is folded is written as a whole, and its new files replace all its files. Keys that haven't changed keep
the run that they have, so that the runs still tell when a key changed last.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from stateferry.migration.key_hashes import key_lanes
from stateferry.migration.rules import null_under_ttl
from stateferry.migration.sections import is_live, parse_blobs, parse_rows
from stateferry.migration.who_wins import NO_KEYS, KeySets, kept_entries, kept_rows, key_sets, refuse_or_drop
from stateferry.savepoint.chunks import Chunk
from stateferry.savepoint.key_group_file import Section
from stateferry.savepoint.storage import Location
from stateferry.serializers.walker import Flags, Positions
from stateferry.tables import schemas as names
from stateferry.tables.content import KeyContents, key_contents
from stateferry.tables.files import DataFile, NullsAfterAllError
from stateferry.tables.ledger import BLOB, NO_TIMESTAMP, ROWS, KeyStates, Source, fingerprint_array, survey_keys
from stateferry.tables.ledger_rows import LedgerRows
from stateferry.tables.reads import read_ledger
from stateferry.tables.rows import Piece, UserKeys, blob_piece, entry_table, key_columns, row_piece
from stateferry.tables.units import Unit, units
from stateferry.ttl import MAX_LONG

_ROWS_IN_GROUP = 1 << 19
_BYTES_IN_GROUP = 256 << 20

_NEVER = MAX_LONG

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """All that the task of a chunk needs; it can be pickled. `chunk` is None if its key groups have no data now.

    The names of the files begin with `file_stem`. Each attempt of the task adds a part of its own, so that no two
    attempts write the same file.
    """

    number: int
    folder: Location
    chunk: Chunk | None
    source: Source
    run: int
    ledger_files: tuple[str, ...]
    file_stem: str
    entry_folder: str
    entry_schema: pa.Schema
    ledger_folder: str
    ledger_schema: pa.Schema
    folds: bool = False


def migrate_chunk(spec: ChunkSpec) -> Facts:
    """Writes the chunk's new rows into files of this attempt, and returns facts about them.

    The files become visible when they are committed. Files of other attempts of the task are never committed;
    `stateferry clean` removes them.
    """
    began = time.monotonic()
    try:
        facts = _migrate(spec, infer_required=True)
    except NullsAfterAllError:
        facts = _migrate(spec, infer_required=False)
    return {**facts, "seconds": time.monotonic() - began}


def _migrate(spec: ChunkSpec, *, infer_required: bool) -> Facts:
    name = f"{spec.file_stem}-{uuid.uuid4().hex[:12]}.parquet"
    with (
        DataFile(f"{spec.entry_folder}/{name}", infer_required=infer_required) as entries,
        DataFile(f"{spec.ledger_folder}/{name}", [names.ORIGIN]) as ledger,
    ):
        work = _ChunkWork(spec, entries, ledger)
        known = work.known.keys
        for sections in units(spec.folder, spec.chunk) if spec.chunk else ():
            work.migrate(sections)
        work.bury()
        work.flush()
        entries.close()
        ledger.note_entries(entries)
    counts = {name: count for name, count in work.counts.items() if count}
    return {
        "chunk": spec.number,
        "entries": entries.facts(),
        "ledger": ledger.facts(),
        "known": known,
        "counts": counts,
    }


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


@dataclass(slots=True)
class _Unit:
    """The keys of a unit that are written.

    `wanted` says which these are, `runs` with which run, `entries` how many entries each has, `listed` which are among
    the `rows` for the ledger. `counts` counts what happens.
    """

    keys: KeyStates
    sets: KeySets
    wanted: Flags
    runs: Positions
    counts: Counter[str]
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
    def __init__(self, spec: ChunkSpec, entries: DataFile, ledger: DataFile) -> None:
        self.spec, self._entries = spec, entries
        self._ledger = LedgerRows(ledger, spec.ledger_schema, spec.number)
        self.rules = spec.source.rules
        # No entry is left out because it has expired. But who wins is decided by the entries that are alive.
        self._lasting = replace(self.rules, keep_expired=True)
        self.counts: Counter[str] = Counter()
        self._user_keys = UserKeys(self.rules.map_type.key)
        self._pieces: list[Piece] = []
        self._piece_rows = self._piece_bytes = 0
        self._null = null_under_ttl(self.rules.map_type.value) if self.rules.legacy.ttl else b""
        self.known = read_ledger(spec.ledger_files, self.rules.legacy)
        self.counts["ledger rows read"] = self.known.read

    def migrate(self, sections: Unit) -> None:
        """Writes the new and changed keys of a unit; if the chunk is folded, the others too."""
        keys = survey_keys(sections, self.spec.source)
        new, changed = self.known.compare(keys)
        wanted = new | changed
        self.counts["keys walked"] += len(wanted)
        self.counts["keys new"] += int(new.sum())
        self.counts["keys changed"] += int(changed.sum())
        self.counts["keys unchanged"] += int((~wanted).sum())
        self._write(sections, keys, wanted, np.full(len(wanted), self.spec.run), self.counts)
        if self.spec.folds:
            again: Counter[str] = Counter()
            self._write(sections, keys, ~wanted, self.known.runs(keys), again)
            self.counts["rows read"] += again["rows read"]
            self.counts["rows folded"] += again["rows written"]
            self.counts["keys folded"] += again["ledger rows written"]

    def _write(self, sections: Unit, keys: KeyStates, wanted: Flags, runs: Positions, counts: Counter[str]) -> None:
        if not wanted.any():
            return
        mixed = bool((keys.kinds[wanted] & BLOB).any() and (keys.kinds[wanted] & ~np.uint8(BLOB | 8) != 0).any())
        sets = key_sets(sections, self.rules, self.spec.source.flag) if mixed else NO_KEYS
        zeros = np.zeros(len(wanted), np.int64)
        contents = _Contents(len(wanted))
        unit = _Unit(keys, sets, wanted, runs, counts, zeros, np.zeros(len(wanted), np.bool_), [], contents)
        for state, section in sections:
            if kind := self.spec.source.kind(state):
                self._section(section, kind, unit)
        self._list_keys(unit)

    def _section(self, section: Section, kind: int, unit: _Unit) -> None:
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

    def _blobs(self, section: Section, numbers: Positions, unit: _Unit) -> None:
        blobs = parse_blobs(section, self.rules)
        counts: Counter[str] = Counter()
        keep = kept_entries(blobs, self._lasting, unit.sets, counts)
        if self._null is None and (nulls := keep & blobs.nulls()).any():
            live = blobs.per_entry(is_live(blobs.timestamps, self.rules, len(blobs.counts)))
            refuse_or_drop(int((nulls & live).sum()), self.rules, counts)
            if self.rules.drop_unrepresentable_nulls:
                keep = keep & ~nulls
        for name in ("empty maps", "contradictions", "blob entries superseded", "unrepresentable nulls dropped"):
            unit.counts[name] += counts[name]
        unit.counts["rows read"] += len(blobs.entries)
        if keep.any():
            piece = blob_piece(self.rules, blobs, keep, self._user_keys)
            np.add.at(unit.entries, numbers, piece.counts)
            self._add(piece, numbers, unit)

    def _rows(self, section: Section, numbers: Positions, unit: _Unit) -> None:
        rows = parse_rows(section, self._lasting)
        kept = kept_rows(rows, self._lasting, unit.sets, Counter())
        unit.counts["rows read"] += len(section)
        np.add.at(unit.entries, numbers[kept], 1)
        if len(kept):
            piece = row_piece(self.rules, rows, kept, self._user_keys)
            self._add(piece, numbers[kept][np.cumsum(piece.counts) - 1], unit)

    def _add(self, piece: Piece, numbers: Positions, unit: _Unit) -> None:
        unit.contents.add(numbers, key_contents(piece, self.rules))
        unit.counts["rows written"] += len(piece)
        if self.spec.folds:
            piece = replace(piece, keys={**piece.keys, names.RUN: pa.array(unit.runs[numbers])})
        self._pieces.append(piece)
        self._piece_rows += len(piece)
        self._piece_bytes += sum(array.nbytes for array in piece.entries.values())
        if self._piece_rows >= _ROWS_IN_GROUP or self._piece_bytes >= _BYTES_IN_GROUP:
            self._write_pieces()

    def _write_pieces(self) -> None:
        if self._pieces:
            constants = {names.CHUNK: self.spec.number}
            if not self.spec.folds:
                constants[names.RUN] = self.spec.run
            self._entries.write(entry_table(self._pieces, constants, self.spec.entry_schema))
            self._pieces, self._piece_rows, self._piece_bytes = [], 0, 0

    def _list_keys(self, unit: _Unit) -> None:
        """Adds the ledger's rows for the keys that were written."""
        numbers = np.concatenate([rows.numbers for rows in unit.rows])
        ferried = unit.keys.is_ferried(self.rules.on_contradiction)[numbers]
        groups = np.repeat([rows.key_group for rows in unit.rows], [len(rows.numbers) for rows in unit.rows])
        timestamps = unit.keys.timestamps[numbers]
        oldest, newest = unit.contents.oldest[numbers], unit.contents.newest[numbers]
        first, second = unit.keys.fingerprints
        found: dict[str, Any] = {
            names.KEY_GROUP: groups,
            names.ORIGIN: pa.array([names.JOB, names.FERRY]).take(pa.array(ferried.astype(np.int8))),
            names.IS_MIGRATED: np.ones(len(numbers), np.bool_),
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
        unit.counts["keys of the job"] += int((~ferried).sum())
        unit.counts["keys of the ferry"] += int(ferried.sum())
        unit.counts["ledger rows written"] += len(numbers)
        self._ledger.add(found, len(numbers))

    def bury(self) -> None:
        """Adds a tombstone for each key that the ledger has and the savepoint no longer has."""
        gone = self.known.vanished()
        self.counts["keys vanished"] = len(gone)
        if len(gone):
            self.counts["ledger rows written"] += len(gone)
            self._ledger.add_tombstones(self.spec.ledger_files, gone, self.spec.run)

    def flush(self) -> None:
        self._write_pieces()
        self._ledger.flush()


def _some(section: Section, chosen: Positions) -> Section:
    return replace(section, starts=section.starts[chosen], key_ends=section.key_ends[chosen], ends=section.ends[chosen])
