"""Brings tables to what a savepoint holds: plans chunks, has tasks write their rows (`write_chunk`), commits tables.

Everything is on the run's branch until `advance_main`. Planning, writing and committing can be repeated without harm;
files of attempts whose facts the driver didn't receive are never committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from flinkstate.errors import RejectedError
from flinkstate.keyed.header import NAMESPACE_SERIALIZER, VALUE_SERIALIZER, KeyedHeader
from flinkstate.keyed.native_difference import EarlierPart
from flinkstate.metadata.chunks import TARGET_BYTES, Chunk, plan_chunks
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.type_parts import kept_by_kryo, kryo_map_of
from flinkstate.serializers.types import PojoMapType
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo
from stateferry.tables.chunk import ChunkTask, WrittenChunk, write_chunk
from stateferry.tables.counts import TableCounts
from stateferry.tables.folding import chunks_to_fold
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.columns import planned_columns
from stateferry.tables.iceberg.commits import (
    COLUMNS_CHANGED,
    MAIN,
    RunMark,
    TableHome,
    TableLayout,
    advance,
    commit_run,
    committed,
    ensure_table,
    keeps_columns,
    read_mark,
    stands,
    withdraw,
)
from stateferry.tables.iceberg.doubts import doubt, is_doubted
from stateferry.tables.iceberg.ledger import LegacyState
from stateferry.tables.iceberg.live_files import NO_CHUNK, files_by_chunk, has_deletes
from stateferry.tables.iceberg.owners import note_of_owner, note_once, tables_of_state
from stateferry.tables.iceberg.types import iceberg_schema, shape, with_field_ids

__all__ = ["ChunkTask", "TableHome", "TableUpdate", "advance_main", "commit_update", "plan_update", "write_chunk"]


class VanishedKeysError(RejectedError):
    """So many keys are gone that this may be the wrong savepoint."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """One table when the run was planned; `base` is the snapshot of `main` from which the run starts.

    `columns` are those that the run writes.
    """

    identifier: tuple[str, ...]
    base: int
    columns: Schema


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """What a run does to the tables of one migrated state.

    `rebuild` is the reason why all rows are written again, or None; then single chunks may still be folded. A run that
    has made its commits has no `chunks` left to work on.
    """

    home: TableHome
    tables: names.StateTables
    mark: RunMark
    entries: TableRef
    ledger: TableRef
    rebuild: str | None
    accept_vanished: float
    chunks: tuple[ChunkTask, ...]


@dataclass(frozen=True, slots=True)
class EarlierSource:
    """What an earlier run has read: the databases of the operator's subtasks."""

    run_id: str
    parts: Mapping[int, EarlierPart]


@dataclass(frozen=True, slots=True)
class TableSnapshots:
    """The snapshots that a run made of the tables of one migrated state, by the tables' full names."""

    snapshots: dict[str, int]
    counts: TableCounts


def plan_update(
    home: TableHome,
    job: str,
    run_id: str,
    savepoint: Savepoint,
    operator: Operator,
    rules: Rules,
    *,
    accept_vanished: float = 0.5,
    chunk_bytes: int = TARGET_BYTES,
    at_least: int = 1,
    is_published: bool = False,
    earlier: EarlierSource | None = None,
) -> TableUpdate:
    """Plans the work on one state's tables, and creates the tables if they are missing.

    It makes at least `at_least` chunks if there is enough data for them. With `is_published` the ledger says of the
    published savepoint which keys are migrated, else of the source. The tables have the entries of all keys, whatever
    keys the rules choose. If `main` is what the run of the `earlier` source has left, chunks need only read what has
    changed since.
    """
    lazy_cut, rules = rules.lazy_cut, replace(rules, lazy_cut=None)
    schemas = schemas_of(rules)
    layout, legacy = layout_of(savepoint, operator, rules, _chunk_firsts(savepoint, operator, chunk_bytes, at_least))
    catalog = home.catalog()
    tables = tables_of_state(catalog, job, savepoint, operator, rules.new_name)
    noted = note_of_owner(tables, operator)
    found = {
        name: ensure_table(catalog, tables.identifier(name), f"{home.folder}/{tables.folder}/{name}", schema, noted)
        for name, schema in schemas.items()
    }
    for table in found.values():
        note_once(table, noted)
    entries, ledger = found[names.MAP_ENTRY], found[names.KEY_LEDGER]
    before = read_mark(ledger, ledger.snapshot_by_name(MAIN))
    done = committed(ledger, run_id) is not None and committed(entries, run_id) is not None
    refs = {name: _ref(tables, name, table, schemas[name]) for name, table in found.items()}
    rebuild = _why_not_on(before, layout, found, refs)
    knows = before is not None and before.tells_ferried
    legacy = replace(legacy, is_published=is_published, lazy_cut=lazy_cut, knows_ferried=knows)
    if before and not rebuild:
        layout = before.layout
    run_number = 1 + max(_last_run(table) for table in found.values())
    tells_ferried = not is_published or lazy_cut is not None
    step = TableUpdate(
        home,
        tables,
        RunMark(run_id, run_number, savepoint.metadata.checkpoint_id, layout, tells_ferried),
        refs[names.MAP_ENTRY],
        refs[names.KEY_LEDGER],
        rebuild,
        accept_vanished,
        (),
    )
    if done:
        return step
    parts: Mapping[int, EarlierPart] = {}
    if earlier is not None and not is_published and all(_is_of(table, earlier.run_id) for table in found.values()):
        parts = earlier.parts if rebuild is None else {}
    return replace(step, chunks=_chunks(step, savepoint, operator, legacy, found, schemas, parts))


def _is_of(table: Table, run_id: str) -> bool:
    """Whether `main` is what the run has committed, and nothing else was done to it since."""
    main, made = table.snapshot_by_name(MAIN), committed(table, run_id)
    return main is not None and made is not None and main.snapshot_id == made.snapshot_id


def schemas_of(rules: Rules) -> dict[str, pa.Schema]:
    """Returns the columns of the tables of a migrated state."""
    return {names.MAP_ENTRY: names.entry_schema(rules), names.KEY_LEDGER: names.ledger_schema(rules)}


def layout_of(
    savepoint: Savepoint, operator: Operator, rules: Rules, firsts: tuple[int, ...]
) -> tuple[TableLayout, LegacyState]:
    """Returns the layout of a state's tables if their chunks begin with these key groups, and the state itself."""
    header = savepoint.keyed_header(operator)
    assert header is not None
    states = {state.name: state for state in savepoint.keyed_states(operator)}
    serializers = _serializers(header, rules)
    flag = states.get(rules.flag_name) if rules.flag_name else None
    columns = _columns(schemas_of(rules).values())
    drops_nulls = rules.leaves_out_nulls and not rules.legacy.ttl
    layout = TableLayout(operator.max_parallelism, rules.legacy.ttl, serializers, firsts, columns, drops_nulls)
    return layout, LegacyState(rules, flag, int(serializers[:16], 16))


def _last_run(table: Table) -> int:
    """Returns the number of the last run in `main`, or 0.

    A new run takes a number above those of both tables, in case only one of them was moved forward.
    """
    mark = read_mark(table, table.snapshot_by_name(MAIN))
    return mark.run_number if mark else 0


def _ref(tables: names.StateTables, name: str, table: Table, schema: pa.Schema) -> TableRef:
    main = table.snapshot_by_name(MAIN)
    assert main is not None
    return TableRef(tables.identifier(name), main.snapshot_id, planned_columns(table, schema))


def _why_not_on(
    before: RunMark | None, layout: TableLayout, found: Mapping[str, Table], refs: Mapping[str, TableRef]
) -> str | None:
    """Returns why the run can't go on from the rows in `main`; None if it can, or if there are none."""
    # The snapshot with the mark is gone if another tool has expired snapshots.
    if any(_last_run(table) == 0 and files_by_chunk(table, refs[name].base) for name, table in found.items()):
        return "nothing says which run the tables are of"
    if before is None:
        return None
    if (difference := before.layout.difference(layout)) is not None:
        return difference
    if not all(keeps_columns(table, refs[name].columns) for name, table in found.items()):
        return COLUMNS_CHANGED
    if any(NO_CHUNK in files_by_chunk(table, refs[name].base) for name, table in found.items()):
        return "another writer added rows without a chunk"
    if any(has_deletes(table, refs[name].base) for name, table in found.items()):
        return "another writer deleted rows"
    return "the tables of an earlier run failed their checks" if is_doubted(found[names.KEY_LEDGER]) else None


def _serializers(header: KeyedHeader, rules: Rules) -> str:
    """Returns a hash of the snapshots of the serializers of keys and of the legacy state, and of its map."""
    digest = hashlib.sha256()
    header = ForOtherKryo(rules.by_kryo).header(header)
    meta = next(meta for meta in header.states if meta.name == rules.legacy.name)
    parts = [header.key_serializer, meta.serializer(VALUE_SERIALIZER), meta.serializer(NAMESPACE_SERIALIZER)]
    if kryo_map_of(rules.in_source.value) is not None:
        # What Kryo's own says nothing of, such as the constants of enums, comes from the plan and the job's classes.
        parts.append(snapshot_of(rules.map_type))
    for snapshot in parts:
        data = snapshot.raw if snapshot is not None else b""
        digest.update(len(data).to_bytes(8, "big") + data)
    if isinstance(rules.legacy.value, PojoMapType):
        digest.update(rules.legacy.value.field.encode())
    # The headers of both Kryos are alike.
    if any(one.five is not None for one in kept_by_kryo(rules.map_type)):
        digest.update(b"written for another Kryo")
    return digest.hexdigest()


def _columns(schemas: Iterable[pa.Schema]) -> str:
    shapes = [[(field.name, shape(field.field_type)) for field in iceberg_schema(one).fields] for one in schemas]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]


def _chunk_firsts(savepoint: Savepoint, operator: Operator, chunk_bytes: int, at_least: int) -> tuple[int, ...]:
    chunks = plan_chunks(operator, savepoint.placed(operator), target_bytes=chunk_bytes, at_least=at_least)
    return (0, *(min(chunk.key_groups) for chunk in chunks[1:]))


def _chunks(
    step: TableUpdate,
    savepoint: Savepoint,
    operator: Operator,
    legacy: LegacyState,
    found: dict[str, Table],
    schemas: dict[str, Any],
    earlier: Mapping[int, EarlierPart],
) -> tuple[ChunkTask, ...]:
    prior = {} if step.rebuild else files_by_chunk(found[names.KEY_LEDGER], step.ledger.base)
    entries = files_by_chunk(found[names.MAP_ENTRY], step.entries.base) if prior else {}
    folded = chunks_to_fold((prior, entries), len(step.mark.layout.chunks))
    folders = {name: table.location() for name, table in found.items()}
    refs = {names.MAP_ENTRY: step.entries, names.KEY_LEDGER: step.ledger}
    written = {name: with_field_ids(ref.columns, schemas[name]) for name, ref in refs.items()}
    firsts = step.mark.layout.chunks
    tasks = []
    for number, (first, after) in enumerate(zip(firsts, (*firsts[1:], operator.max_parallelism), strict=True)):
        chunk = one_chunk(savepoint, operator, range(first, after))
        if chunk is None and number not in prior:
            continue
        folder = f"data/{names.CHUNK}={number}"
        tasks.append(
            ChunkTask(
                number,
                savepoint.folder,
                chunk,
                legacy,
                step.mark.run_number,
                tuple(file.file_path for file in prior.get(number, ())),
                f"{step.mark.run_id}-{number}",
                f"{folders[names.MAP_ENTRY]}/{folder}",
                written[names.MAP_ENTRY],
                f"{folders[names.KEY_LEDGER]}/{folder}",
                written[names.KEY_LEDGER],
                number in folded,
                earlier if number not in folded and _is_whole(chunk, range(first, after)) else {},
            )
        )
    return tuple(tasks)


def _is_whole(chunk: Chunk | None, key_groups: range) -> bool:
    """Whether the chunk has all of the key groups. If not, the ledger may have keys in the others."""
    return chunk is not None and set(chunk.key_groups) == set(key_groups)


def one_chunk(savepoint: Savepoint, operator: Operator, key_groups: range) -> Chunk | None:
    """Returns the key groups as one chunk, or None if there is no data in them."""
    placed = savepoint.placed(operator)
    chunks = plan_chunks(operator, placed, key_groups, target_bytes=1 << 62)
    return chunks[0] if chunks else None


def commit_update(step: TableUpdate, written: Sequence[WrittenChunk]) -> TableSnapshots:
    """Commits the chunks' files to the run's branch, unless too many keys have vanished."""
    counts = TableCounts()
    for chunk in written:
        counts.add(chunk.counts)
    check_vanished(step.tables, sum(chunk.known for chunk in written), counts.keys_vanished, step.accept_vanished)
    if len(written) != len(step.chunks):
        raise ValueError(f"{len(step.chunks)} chunks were planned, and {len(written)} were written")
    catalog = step.home.catalog()
    snapshots = {}
    for ref, files_written in (
        (step.entries, [chunk.entries for chunk in written]),
        (step.ledger, [chunk.ledger for chunk in written]),
    ):
        files = [file for file in files_written if file is not None]
        table = catalog.load_table(ref.identifier)
        replaced = _replaced(step, table, ref)
        snapshots[".".join(ref.identifier)] = commit_run(table, step.mark, ref.base, ref.columns, files, replaced)
    return TableSnapshots(snapshots, counts)


def check_vanished(tables: names.StateTables, known: int, vanished: int, threshold: float) -> None:
    """Raises an error if too many of the keys that the last run knew have vanished."""
    if vanished > threshold * known:
        raise VanishedKeysError(
            f"state {tables.state}: {vanished} of the {known} keys that the last run knew are gone, more than the "
            f"{threshold:.0%} that the plan allows. This may be the wrong savepoint. If it is the right one, say so: "
            "--accept-vanished 100%"
        )


def _replaced(step: TableUpdate, table: Table, ref: TableRef) -> list[DataFile]:
    folded = {chunk.number for chunk in step.chunks if chunk.folds}
    # Without the run's base no commit is made: one that was made before stands.
    if (not folded and step.rebuild is None) or table.snapshot_by_id(ref.base) is None:
        return []
    found = files_by_chunk(table, ref.base)
    return [file for chunk, files in found.items() if step.rebuild is not None or chunk in folded for file in files]


def advance_main(home: TableHome, tables: names.StateTables, run_id: str) -> bool:
    """Moves `main` of both tables forward to the run, in one transaction.

    One table alone would be of no use, because files of the other may have been replaced. Returns False if the run's
    source is older than that of `main`, which then stays.
    """
    with home.at_once() as catalog:
        entries, ledger = _tables_of(catalog, tables)
        return advance(entries, run_id) and advance(ledger, run_id)


def is_shown(home: TableHome, tables: names.StateTables, run_id: str) -> bool:
    """Whether `main` shows the run, and none that came later."""
    marks = (read_mark(table, table.snapshot_by_name(MAIN)) for table in _tables_of(home.catalog(), tables))
    return all(mark is not None and mark.run_id == run_id for mark in marks)


def must_repeat(home: TableHome, tables: names.StateTables, run_id: str, made: Mapping[str, int]) -> bool:
    """Whether the run's commits are of no use: `main` is doubted, or was changed since and can't move to them.

    `made` are the run's snapshots by the tables' full names.
    """
    entries, ledger = _tables_of(home.catalog(), tables)
    can_move = (stands(table, run_id, made.get(".".join(table.name()))) for table in (entries, ledger))
    return is_doubted(ledger) or not all(can_move)


def doubt_main(home: TableHome, tables: names.StateTables, run_id: str) -> None:
    """Has the run, if it is done again, and the next one write all rows anew, unless `main` moves, or has moved."""
    doubt(home.catalog().load_table(tables.identifier(names.KEY_LEDGER)), run_id)


def withdraw_run(home: TableHome, tables: names.StateTables, run_id: str) -> None:
    """Takes back the run's commits, so that its next `plan_update` begins from what `main` is now.

    Those of both tables go in one transaction, as one alone would be taken for the commit of a later try.
    """
    with home.at_once() as catalog:
        for table in _tables_of(catalog, tables):
            withdraw(table, run_id)


def _tables_of(catalog: Catalog, tables: names.StateTables) -> list[Table]:
    return [catalog.load_table(tables.identifier(name)) for name in (names.MAP_ENTRY, names.KEY_LEDGER)]
