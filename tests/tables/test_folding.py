"""Folding: a chunk's past goes, and nothing else of what the tables say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile

from flinkstate.files.storage import Location
from stateferry.tables.account import account_of_chunk, table_accounts
from stateferry.tables.counts import TableCounts
from stateferry.tables.folding import MOST_FILES, chunks_to_fold
from stateferry.tables.iceberg import commits
from stateferry.tables.iceberg.cleaning import TableCleaning
from stateferry.tables.iceberg.live_files import files_by_chunk
from stateferry.tables.update import advance_main, commit_update, write_chunk
from stateferry.tables.versions import chunk_files, plan_account
from tests.support.legacy_states import LegacyState
from tests.support.table_nights import Nights, ledger_rows, remove_attempts

KEYS = 60


def blobs(version: int = 0, keys: range = range(KEYS)) -> dict[str, tuple[dict[str, object], int]]:
    return {f"key-{key}": ({f"user-{at}": key * 1000 + at + version for at in range(3)}, 0) for key in keys}


def half(night: int) -> range:
    return range(night % 2, KEYS, 2)


def nights_until_a_fold(nights: Nights) -> tuple[LegacyState, dict[str, int], TableCounts]:
    """Each changes every other key. Says what the last savepoint has, which night last changed each key, and what was
    counted in the night that folded first."""
    state, changed_in = LegacyState(blobs()), dict.fromkeys(blobs(), 1)
    nights.run("1", state)
    for night in range(2, 10):
        now = blobs(night * 7, half(night))
        state = state.with_changes(blobs={**state.blobs, **now}, checkpoint_id=night)
        changed_in |= dict.fromkeys(now, night)
        counts = nights.counts(f"{night}", state)
        if folded(nights, f"{night}"):
            return state, changed_in, counts
    raise AssertionError("no night has folded")


def folded(nights: Nights, run: str) -> set[int]:
    return {chunk.number for chunk in nights.steps[run].chunks if chunk.folds}


def expected(nights: Nights, state: LegacyState) -> dict[Any, Any]:
    number = sum(1 for _ in nights.folder.glob("again-*"))
    return state.migrated(nights.rules(state.write(str(nights.folder / f"again-{number}"))))


def rows_by_table(nights: Nights, run: str, chunk: int) -> dict[str, list[dict[str, Any]]]:
    """All that is in the files of the chunk."""
    catalog, step = nights.home.catalog(), nights.steps[run]
    found = {}
    for ref in (step.entries, step.ledger):
        table = catalog.load_table(ref.identifier)
        rows = table.scan(row_filter=f"chunk == {chunk}", snapshot_id=commits.committed(table, run).snapshot_id)  # type: ignore[union-attr]
        found[ref.identifier[-1]] = rows.to_arrow().to_pylist()
    return found


@pytest.mark.slow
def test_a_fold_leaves_each_key_once_with_the_run_that_changed_it(nights: Nights) -> None:
    state, changed_in, counts = nights_until_a_fold(nights)
    run = f"{state.checkpoint_id}"
    (chunk,) = folded(nights, run)
    assert nights.current(state, run) == expected(nights, state)
    found = rows_by_table(nights, run, chunk)
    assert Counter(row["key"] for row in found["map_entry"]) == {row["key"]: 3 for row in found["key_ledger"]}
    for row in (*found["map_entry"], *found["key_ledger"]):
        assert row["run"] == changed_in[row["key"]]
    unchanged = [row for row in found["key_ledger"] if row["run"] < state.checkpoint_id]
    assert (counts.keys_folded, counts.rows_folded) == (len(unchanged), 3 * len(unchanged))
    assert len(unchanged) > 0
    # What is written because it has changed is what has changed.
    assert (counts.keys_changed, counts.rows_written, counts.ledger_rows_written) == (30, 90, 30)
    assert counts.keys_of_the_ferry == 30


@pytest.mark.slow
def test_a_folded_chunk_is_what_a_run_from_scratch_makes_of_it(nights: Nights, tmp_path: Path) -> None:
    state, _, _ = nights_until_a_fold(nights)
    run = f"{state.checkpoint_id}"
    (chunk,) = folded(nights, run)
    (tmp_path / "other").mkdir()
    scratch = Nights(tmp_path / "other")
    scratch.run(run, state)
    # The first night decides where chunks begin.
    assert scratch.steps[run].mark.layout == nights.steps[run].mark.layout

    def without_runs(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(repr({name: value for name, value in row.items() if name != "run"}) for row in rows)

    ours, theirs = rows_by_table(nights, run, chunk), rows_by_table(scratch, run, chunk)
    assert {name: without_runs(rows) for name, rows in ours.items()} == {
        name: without_runs(rows) for name, rows in theirs.items()
    }


@pytest.mark.slow
def test_after_a_fold_nights_are_lazy_and_the_ledger_is_proof_enough(nights: Nights) -> None:
    state, changed_in, _ = nights_until_a_fold(nights)
    chunks = folded(nights, f"{state.checkpoint_id}")
    for night in range(state.checkpoint_id + 1, state.checkpoint_id + 8):
        counts = nights.counts(f"{night}", state)
        # No more is folded at once than a part, so others may have had to wait.
        assert (counts.keys_unchanged, counts.rows_written, counts.ledger_rows_written) == (60, 0, 0)
        assert not folded(nights, f"{night}") & chunks
        chunks |= folded(nights, f"{night}")
    assert len(chunks) == len(nights.steps["1"].mark.layout.chunks)
    assert counts.rows_read == 0
    assert nights.current(state, f"{night}") == expected(nights, state)
    assert {row["key"]: row["run"] for row in ledger_rows(nights.home, nights.steps["1"])} == changed_in
    step, rules = nights.steps[f"{night}"], nights.rules(state.write(str(nights.folder / "once more")))
    tasks = plan_account(nights.home, step.tables, f"{night}", "main", rules, 128, changes_key_groups=False)
    (table,) = table_accounts(account_of_chunk(task) for task in tasks)
    assert (table.rows_read, table.problems) == (0, [])
    assert table.account.counts.sum() == 3 * KEYS


@pytest.mark.slow
def test_before_a_fold_its_rows_are_still_there_until_they_are_cleaned_away(nights: Nights) -> None:
    state, _, _ = nights_until_a_fold(nights)
    before = nights.steps[f"{state.checkpoint_id - 1}"]
    old = f"run-{before.mark.run_id}"
    first = LegacyState(blobs())
    assert nights.current(first, "1", "run-1") == expected(nights, first)
    (chunk,) = folded(nights, f"{state.checkpoint_id}")
    (files,) = (files for files in chunk_files(nights.home, before.tables, old) if files.number == chunk)
    assert len(files.entries) > 1
    table = nights.home.catalog().load_table(before.entries.identifier)
    TableCleaning(table, [], [], 2**62).remove()
    assert not any(Path(Location.of(name).path).exists() for name in files.entries)
    assert nights.current(state, f"{state.checkpoint_id}") == expected(nights, state)


@pytest.mark.slow
def test_vanished_keys_leave_nothing_behind_and_may_come_back(nights: Nights) -> None:
    nights.chunks = 1
    state = LegacyState(blobs())
    nights.run("first", state)
    kept = blobs(keys=range(20))
    nights.run("second", state.with_changes(blobs=kept, checkpoint_id=2))
    changed = state.with_changes(blobs={**kept, **blobs(7, range(20))}, checkpoint_id=3)
    nights.run("third", changed)
    assert not any(folded(nights, run) for run in ("first", "second", "third"))
    # Two more keys go in the very night in which all is folded.
    less = changed.with_changes(blobs={key: changed.blobs[key] for key in list(changed.blobs)[2:]}, checkpoint_id=4)
    for night in ("fourth", "fifth"):
        counts = nights.counts(night, less)
        if night == "fourth":
            assert folded(nights, night)
            assert (counts.keys_vanished, counts.keys_unchanged) == (2, 18)
        assert nights.current(less, night) == expected(nights, less)
    graves = [row["key"] for row in ledger_rows(nights.home, nights.steps["fifth"]) if row["origin"] == "tombstone"]
    assert graves == ["key-0", "key-1"]
    back = less.with_changes(blobs={**less.blobs, **blobs(9, range(50, 53))}, checkpoint_id=6)
    counts = nights.counts("sixth", back)
    assert (counts.keys_new, counts.rows_written) == (3, 9)
    assert nights.current(back, "sixth") == expected(nights, back)


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize("died_after", ["tasks", "entries", "both tables"])
def test_a_night_that_folds_and_was_cut_short_goes_on(nights: Nights, died_after: str) -> None:
    state, changed_in, _ = nights_until_a_fold(nights)
    more = state.with_changes(blobs={**state.blobs, **blobs(99, range(5))}, checkpoint_id=99)
    savepoint = more.write(str(nights.folder / "savepoint-cut"))
    rules = nights.rules(savepoint)
    step = nights.plan("cut", savepoint, rules)
    facts = [write_chunk(chunk) for chunk in step.chunks]
    chunks = folded(nights, "cut")
    assert chunks
    if died_after == "entries":
        table = nights.home.catalog().load_table(step.entries.identifier)
        replaced = [
            file
            for chunk, files in files_by_chunk(table, step.entries.base).items()
            for file in files
            if chunk in chunks
        ]
        files = [chunk.entries for chunk in facts if chunk.entries]
        commits.commit_run(table, step.mark, step.entries.base, step.entries.columns, files, replaced)
    elif died_after == "both tables":
        commit_update(step, facts)
    assert nights.current(state, f"{state.checkpoint_id}") == expected(nights, state)
    nights.run("cut", more)
    assert nights.current(more, "cut") == more.migrated(rules)
    assert (remove_attempts(nights.steps["cut"]) > 0) == (died_after != "both tables")
    assert nights.current(more, "cut") == more.migrated(rules)
    changed_in |= dict.fromkeys(blobs(99, range(5)), step.mark.run_number)
    newest = {row["key"]: row["run"] for row in sorted(_ledger(nights, "cut"), key=lambda row: int(row["run"]))}
    assert newest == changed_in


@pytest.mark.slow
def test_both_tables_move_or_neither(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    state, _, _ = nights_until_a_fold(nights)
    more = state.with_changes(blobs={**state.blobs, **blobs(99, range(KEYS))}, checkpoint_id=99)
    nights.run("more", more, to_main=False)
    assert folded(nights, "more")
    advance = commits.advance

    def only_entries(table: Any, run_id: str) -> bool:
        if table.name()[-1] == "key_ledger":
            raise OSError("the power went")
        return advance(table, run_id)

    with monkeypatch.context() as patch:
        patch.setattr("stateferry.tables.update.advance", only_entries)
        with pytest.raises(OSError, match="the power went"):
            advance_main(nights.home, nights.steps["more"].tables, "more")
    assert nights.current(state, f"{state.checkpoint_id}") == expected(nights, state)
    assert advance_main(nights.home, nights.steps["more"].tables, "more")
    assert nights.current(more, "more") == more.migrated(nights.rules(more.write(str(nights.folder / "more"))))


def _ledger(nights: Nights, run: str) -> list[dict[str, Any]]:
    return ledger_rows(nights.home, nights.steps[run])


def files(*rows: int) -> list[DataFile]:
    return [DataFile.from_args(file_path=f"{number}.parquet", record_count=count) for number, count in enumerate(rows)]


@pytest.mark.parametrize(
    ("entries", "ledger", "folds"),
    [
        (files(1000), files(10), False),
        (files(1000, 999), files(10, 9), False),
        (files(1000, 999, 1), files(10, 8), True),
        # Keys that vanished have rows in the ledger alone.
        (files(1000), files(10, 10), True),
        (files(*[1] * 3, 1000), files(10), False),
        (files(10**9, *[1] * (MOST_FILES - 1)), files(10**9), False),
        (files(10**9, *[1] * MOST_FILES), files(10**9), True),
    ],
)
def test_a_chunk_is_due_when_its_past_outweighs_it(
    entries: list[DataFile], ledger: list[DataFile], folds: bool
) -> None:
    assert chunks_to_fold(({5: ledger}, {5: entries}), 1) == ({5} if folds else set())


def test_only_a_part_of_the_chunks_is_folded_at_once_the_most_overweight_first() -> None:
    ledger = {number: files(*[10] * (2 + number % 3)) for number in range(20)}
    assert chunks_to_fold((ledger, {}), 20) == {2, 5, 8}
    assert chunks_to_fold((ledger, {}), 3) == {2}
    assert chunks_to_fold(({0: files(3)}, {}), 20) == set()
