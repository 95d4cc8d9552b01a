"""What `main` of the tables says while a run is at work, and what becomes of changes that others have made to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestWriterV2
from pyiceberg.table import CommitTableResponse, Table

from flinkstate.errors import TransientError
from flinkstate.serializers.types import Scalar
from stateferry.tables.iceberg.cleaning import TableCleaning
from stateferry.tables.iceberg.commits import TableConflictError
from stateferry.tables.iceberg.doubts import doubt, is_doubted
from stateferry.tables.iceberg.live_files import files_by_chunk, has_deletes
from stateferry.tables.known_keys_tasks import known_keys_tasks
from stateferry.tables.update import TableUpdate, advance_main, commit_update, withdraw_run, write_chunk
from stateferry.tables.versions import chunk_files
from tests.support.legacy_states import LegacyState
from tests.support.table_nights import Nights, table_rows

pytestmark = pytest.mark.slow
STATE = LegacyState({f"key-{number}": ({"a": number, "b": 2}, 0) for number in range(20)}, checkpoint_id=50)


def rows_of_main(nights: Nights, run: str) -> list[tuple[Any, ...]]:
    """What a query of `main` says: it reads the files by the current columns of the table."""
    table = nights.home.catalog().load_table(nights.steps[run].entries.identifier)
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return sorted((row["key"], row["user_key"], row.get("value"), row["value_raw"]) for row in rows)


def test_a_run_that_does_not_move_main_leaves_its_columns(nights: Nights) -> None:
    nights.run("new", STATE)
    before = rows_of_main(nights, "new")
    assert all(row[2] is not None for row in before)
    older = STATE.with_changes(value=Scalar.INTEGER, checkpoint_id=4)
    nights.run("old", older, to_main=False)
    assert not advance_main(nights.home, nights.steps["old"].tables, "old")
    assert rows_of_main(nights, "new") == before
    rows = table_rows(nights.home, nights.steps["old"].entries, "run-old")
    assert len(rows) == len(before)
    assert {len(row["value_raw"]) for row in rows} == {4}
    assert None not in {row["value"] for row in rows}
    assert nights.counts("newest", STATE.with_changes(checkpoint_id=51)).keys_unchanged == 20
    assert nights.steps["newest"].rebuild is None
    assert rows_of_main(nights, "newest") == before


def test_new_columns_are_those_of_main_as_it_moves(nights: Nights) -> None:
    nights.run("first", STATE)
    before = rows_of_main(nights, "first")
    other = STATE.with_changes(value=Scalar.INTEGER, checkpoint_id=51)
    nights.run("second", other, to_main=False)
    assert rows_of_main(nights, "first") == before
    assert advance_main(nights.home, nights.steps["second"].tables, "second")
    after = rows_of_main(nights, "second")
    assert [row[:3] for row in after] == [row[:3] for row in before]
    assert {len(row[3]) for row in after} == {4}
    assert nights.counts("third", other.with_changes(checkpoint_id=52)).keys_unchanged == 20


def test_another_writer_s_columns_cause_no_confusion(nights: Nights) -> None:
    nights.run("first", STATE)
    before = rows_of_main(nights, "first")
    table = nights.home.catalog().load_table(nights.steps["first"].entries.identifier)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("value")
    assert nights.counts("second", STATE.with_changes(checkpoint_id=51)).rows_written == 40
    assert nights.steps["second"].rebuild == "the tables' columns changed"
    assert rows_of_main(nights, "second") == before
    options: dict[str, Any] = {"value": Scalar.INTEGER, "checkpoint_id": 52}
    other = STATE.with_changes(**options).write(str(nights.folder / "savepoint-third"))
    step = nights.plan("third", other, nights.rules(other))
    with table.refresh().update_schema() as update:
        update.add_column("theirs", table.schema().find_field("run").field_type)
    with pytest.raises(TransientError, match="another writer has changed the columns of table"):
        committed(step)
    nights.run("third", STATE.with_changes(**options))
    assert [row[:3] for row in rows_of_main(nights, "third")] == [row[:3] for row in before]


def committed(step: TableUpdate) -> None:
    commit_update(step, [write_chunk(chunk) for chunk in step.chunks])


@pytest.mark.parametrize("content", [DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES])
@pytest.mark.parametrize("name", ["entries", "ledger"])
def test_rows_that_were_deleted_merge_on_read_are_written_again(
    nights: Nights, content: DataFileContent, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.run("first", STATE)
    before = rows_of_main(nights, "first")
    identifier = getattr(nights.steps["first"], name).identifier
    table = nights.home.catalog().load_table(identifier)
    with monkeypatch.context() as patched:
        delete_beside(table, content, patched)
    assert has_deletes(table.refresh(), table.refs()["main"].snapshot_id)
    with pytest.raises(TableConflictError, match="another writer has deleted rows"):
        chunk_files(nights.home, nights.steps["first"].tables)
    assert nights.counts("second", STATE.with_changes(checkpoint_id=51)).rows_written == 40
    assert nights.steps["second"].rebuild == "another writer deleted rows"
    assert chunk_files(nights.home, nights.steps["first"].tables)
    if content is DataFileContent.POSITION_DELETES:
        assert rows_of_main(nights, "second") == before
    assert nights.counts("third", STATE.with_changes(checkpoint_id=52)).keys_unchanged == 20
    assert nights.steps["third"].rebuild is None


def delete_beside(table: Table, content: DataFileContent, patch: pytest.MonkeyPatch) -> None:
    """Commits a file of deletes for each data file; what is in them no test reads."""
    patch.setattr(ManifestWriterV2, "content", lambda _: ManifestContent.DELETES)
    files = files_by_chunk(table, table.refs()["main"].snapshot_id)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for data in (file for chunk in files.values() for file in chunk):
            deletes = DataFile.from_args(
                content=content,
                file_path=f"{data.file_path}.deletes",
                file_format=data.file_format,
                partition=data.partition,
                record_count=1,
                file_size_in_bytes=1,
                equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
            )
            deletes.spec_id = data.spec_id
            append.append_data_file(deletes)


def losing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next commits lose a race, as they do against a REST server's own maintenance."""
    real = SqlCatalog.commit_table
    lost: list[int] = []

    def commit(self: Any, *of: Any) -> CommitTableResponse:
        if len(lost) < times:
            lost.append(1)
            raise CommitFailedException("another was first")
        return real(self, *of)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)


def test_a_commit_that_loses_a_race_is_made_again_with_all_rows(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.run("first", STATE)
    more = STATE.with_changes(blobs={**STATE.blobs, "new": ({"a": 1}, 0)}, checkpoint_id=51)
    step = nights.plan("second", written := more.write(str(nights.folder / "savepoint-second")), nights.rules(written))
    losing(monkeypatch, 1)
    committed(step)
    assert len(table_rows(nights.home, step.entries, "run-second")) == 41
    assert advance_main(nights.home, step.tables, "second")
    assert len(rows_of_main(nights, "second")) == 41


def test_a_lost_race_is_no_internal_error(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.run("first", STATE)
    nights.run("second", STATE.with_changes(checkpoint_id=51), to_main=False)
    tables = nights.steps["second"].tables
    for change in (advance_main, withdraw_run):
        with monkeypatch.context() as patched:
            losing(patched, 1)
            with pytest.raises(TransientError, match=r"another writer has changed table .* meanwhile: try again"):
                change(nights.home, tables, "second")
    assert advance_main(nights.home, tables, "second")


def maintained(nights: Nights, run: str) -> Iterator[Table]:
    """Yields both tables, after another writer's commits, which name no run and change no row."""
    for ref in (nights.steps[run].entries, nights.steps[run].ledger):
        table = nights.home.catalog().load_table(ref.identifier)
        for _ in range(2):
            with table.transaction() as transaction, transaction.update_snapshot().fast_append():
                pass
        yield table.refresh()


CHANGED = STATE.with_changes(blobs={**STATE.blobs, "key-1": ({"a": 99}, 0)}, checkpoint_id=52)


def test_cleaning_leaves_the_way_from_main_to_the_run_that_it_shows(nights: Nights) -> None:
    nights.run("first", STATE)
    for table in maintained(nights, "first"):
        TableCleaning(table, ["first"], (), 2**62).remove()
    assert nights.counts("second", CHANGED).keys_unchanged == 19
    assert (nights.steps["second"].rebuild, nights.steps["second"].mark.run_number) == (None, 2)
    assert nights.current(CHANGED, "second") == CHANGED.migrated(nights.rules(CHANGED.write(str(nights.folder / "is"))))


@pytest.mark.parametrize("runs", [1, 2])
def test_all_rows_are_written_if_nothing_says_which_run_main_shows(nights: Nights, runs: int) -> None:
    for run in range(runs):
        nights.run(f"{run}", STATE.with_changes(checkpoint_id=50 + run))
    for table in maintained(nights, "0"):
        main = table.refs()["main"].snapshot_id
        others = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != main]
        with table.manage_snapshots() as snapshots:
            for name in table.refs().keys() - {"main"}:
                snapshots.remove_branch(name)
        table.refresh().maintenance.expire_snapshots().by_ids(others).commit()
    assert nights.counts("next", CHANGED).rows_written == 39
    assert nights.steps["next"].rebuild == "nothing says which run the tables are of"
    assert nights.current(CHANGED, "next") == CHANGED.migrated(nights.rules(CHANGED.write(str(nights.folder / "is"))))


def test_after_checks_that_failed_all_rows_are_written_until_main_has_moved(nights: Nights) -> None:
    nights.run("first", STATE)
    doubt(nights.home.catalog().load_table(nights.steps["first"].ledger.identifier), "first")
    assert all(maintained(nights, "first"))
    assert nights.counts("second", STATE.with_changes(checkpoint_id=51)).rows_written == 40
    assert nights.steps["second"].rebuild == "the tables of an earlier run failed their checks"
    assert nights.counts("third", STATE.with_changes(checkpoint_id=52)).keys_unchanged == 20


def test_a_run_that_failed_doubts_only_what_it_began_from(nights: Nights) -> None:
    nights.run("first", STATE)
    nights.run("second", STATE.with_changes(checkpoint_id=51), to_main=False)
    ledger = nights.home.catalog().load_table(nights.steps["first"].ledger.identifier)
    # Maintenance mends nothing.
    assert all(maintained(nights, "first"))
    doubt(ledger.refresh(), "second")
    assert is_doubted(ledger.refresh())
    nights.run("third", STATE.with_changes(checkpoint_id=52))
    doubt(ledger.refresh(), "second")
    assert not is_doubted(ledger.refresh())


@pytest.mark.parametrize("name", ["entries", "ledger"])
def test_rows_without_a_chunk_are_removed_and_all_rows_written_again(nights: Nights, name: str) -> None:
    nights.run("first", STATE)
    before = rows_of_main(nights, "first")
    table = nights.home.catalog().load_table(getattr(nights.steps["first"], name).identifier)
    table.append(pa.Table.from_pylist([{}], schema=table.schema().as_arrow()))
    source = STATE.write(str(nights.folder / "same"))
    tasks = known_keys_tasks(
        nights.home, nights.steps["first"].tables, source, source.operator("main"), nights.rules(source)
    )
    assert sum(task.count().known for task in tasks) == 20
    assert nights.counts("second", STATE.with_changes(checkpoint_id=51)).rows_written == 40
    assert nights.steps["second"].rebuild == "another writer added rows without a chunk"
    assert rows_of_main(nights, "second") == before
    assert nights.counts("third", STATE.with_changes(checkpoint_id=52)).keys_unchanged == 20


@pytest.mark.parametrize("is_doubtful", [False, True])
def test_a_base_that_another_writer_removes_while_a_run_writes(nights: Nights, is_doubtful: bool) -> None:
    nights.run("first", STATE)
    if is_doubtful:
        doubt(nights.home.catalog().load_table(nights.steps["first"].ledger.identifier), "first")
    assert all(maintained(nights, "first"))
    source = CHANGED.write(str(nights.folder / "savepoint-second"))
    step = nights.plan("second", source, nights.rules(source))
    assert (step.rebuild is not None) == is_doubtful
    for ref, table in zip((step.entries, step.ledger), maintained(nights, "first"), strict=True):
        table.maintenance.expire_snapshots().by_ids([ref.base]).commit()
    with pytest.raises(TransientError, match="another writer has removed the snapshot from which the run starts"):
        committed(step)
    nights.run("second", CHANGED)
    assert nights.current(CHANGED, "second") == CHANGED.migrated(nights.rules(source))


@pytest.mark.parametrize(
    "change", [{}, {"ttl": True}, {"max_parallelism": 300}, {"max_parallelism": 2}, {"value": Scalar.INTEGER}]
)
def test_the_keys_are_known_in_another_layout_too(nights: Nights, change: dict[str, Any]) -> None:
    nights.run("first", STATE)
    few = {key: blob for key, blob in STATE.blobs.items() if key in ("key-3", "key-4")}
    other = STATE.with_changes(blobs=few, checkpoint_id=51, **change).write(str(nights.folder / "other"))
    tables, rules = nights.steps["first"].tables, nights.rules(other)
    tasks = known_keys_tasks(nights.home, tables, other, other.operator("main"), rules)
    found = [task.count() for task in tasks]
    assert (sum(one.known for one in found), sum(one.vanished for one in found)) == (20, 18)
