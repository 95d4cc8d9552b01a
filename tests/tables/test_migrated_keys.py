"""What the ledger says of keys: who migrated them, and whether a blob is still their truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.tables.counts import TableCounts
from tests.support.legacy_states import FLAG, LegacyState
from tests.support.table_nights import Nights, folding_everything, ledger_rows

KEYS = [f"key-{number}" for number in range(20)]
BLOBS = LegacyState({key: ({"a": 1, "b": 2}, 0) for key in KEYS})
HALF = 1 << 63


def told(nights: Nights, run: str) -> dict[str, tuple[str, bool]]:
    """Origin and `is_migrated` of each key, as the queries of the documentation find them."""
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(ledger_rows(nights.home, nights.steps[run]), key=lambda row: (row["run"], row["is_migrated"])):
        newest[row["key"]] = row
    return {key: (row["origin"], row["is_migrated"]) for key, row in newest.items()}


def migrated_counts(counts: TableCounts) -> tuple[int, int, int]:
    return counts.keys_migrated_by_job, counts.keys_migrated_by_ferry, counts.keys_left


def moved(state: LegacyState, keys: set[str]) -> LegacyState:
    """The state after these keys were moved, by whomever."""
    return replace(
        state,
        blobs={key: blob for key, blob in state.blobs.items() if key not in keys},
        rows={**state.rows, **{key: {"a": (1, 0), "b": (2, 0)} for key in keys}},
        flags={**state.flags, **dict.fromkeys(keys, 0)},
    )


def half_of_the_keys(nights: Nights) -> LazyCut:
    savepoint = BLOBS.write(str(nights.folder / "described"))
    flag = next(state for state in savepoint.keyed_states(savepoint.operator("main")) if state.name == FLAG)
    return LazyCut(Order.HASH, HALF, flag)


def test_a_rehearsal_says_what_its_source_is(nights: Nights) -> None:
    counts = nights.counts("first", moved(BLOBS, set(KEYS[:3])))
    assert migrated_counts(counts) == (3, 0, 17)
    assert told(nights, "first") == {key: ("job", True) if key in KEYS[:3] else ("ferry", False) for key in KEYS}
    # The job has moved more meanwhile.
    counts = nights.counts("second", moved(BLOBS, set(KEYS[:8])))
    assert migrated_counts(counts) == (8, 0, 12)
    assert (counts.keys_changed, counts.keys_left_untouched) == (5, 12)
    assert told(nights, "second") == {key: ("job", True) if key in KEYS[:8] else ("ferry", False) for key in KEYS}


@pytest.mark.parametrize("folds", [False, True])
def test_a_publication_moves_keys_without_writing_their_rows(nights: Nights, folds: bool) -> None:
    nights.run("first", BLOBS)
    cut = half_of_the_keys(nights)
    if folds:
        with folding_everything():
            counts = nights.counts("lazy", BLOBS, lazy_cut=cut, is_published=True)
    else:
        counts = nights.counts("lazy", BLOBS, lazy_cut=cut, is_published=True)
        assert counts.ledger_rows_written == counts.keys_moved
    by_job, by_ferry, left = migrated_counts(counts)
    assert (by_job, counts.rows_written, counts.keys_changed) == (0, 0, 0)
    assert 0 < by_ferry < 20
    assert counts.keys_moved == by_ferry == 20 - left
    after = told(nights, "lazy")
    assert sum(is_migrated for _, is_migrated in after.values()) == by_ferry
    assert {origin for origin, _ in after.values()} == {"ferry"}
    assert nights.current(BLOBS, "first") == BLOBS.migrated(nights.rules(BLOBS.write(str(nights.folder / "again"))))

    # The next savepoint is the new job's: what the run has moved stays its work, what the job has moved is the job's.
    ferried = {key for key, (_, is_migrated) in after.items() if is_migrated}
    by_the_job = set(sorted(after.keys() - ferried)[:2])
    counts = nights.counts("next", moved(BLOBS, ferried | by_the_job))
    assert migrated_counts(counts) == (2, by_ferry, left - 2)
    assert told(nights, "next") == {
        key: ("ferry", key in ferried) if key not in by_the_job else ("job", True) for key in KEYS
    }


def test_a_whole_run_leaves_nothing_and_a_rollback_brings_the_blobs_back(nights: Nights) -> None:
    nights.run("first", BLOBS)
    assert migrated_counts(nights.counts("whole", BLOBS, is_published=True)) == (0, 20, 0)
    assert set(told(nights, "whole").values()) == {("ferry", True)}
    # The publication was rolled back, and the old job goes on.
    assert migrated_counts(nights.counts("after", BLOBS)) == (0, 0, 20)
    assert set(told(nights, "after").values()) == {("ferry", False)}


def test_keys_that_nothing_touches_are_counted_by_their_age(nights: Nights) -> None:
    nights.run("0", BLOBS)
    touched = replace(BLOBS, blobs={**BLOBS.blobs, KEYS[0]: ({"a": 7}, 0)})
    counts = TableCounts()
    for night in range(1, 9):
        counts = nights.counts(f"{night}", touched)
    assert (counts.keys_left, counts.keys_left_untouched, counts.keys_left_untouched_for_7_runs) == (20, 20, 20)
    nights.run("9", BLOBS)
    counts = nights.counts("10", BLOBS)
    assert (counts.keys_left_untouched, counts.keys_left_untouched_for_7_runs) == (20, 19)
