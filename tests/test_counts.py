"""Counts are stored under the keys that earlier versions wrote."""

from __future__ import annotations

import pytest

from stateferry.basics.counts import Counts, shown_count
from stateferry.changes.counts import ConversionCounts, InventoryCounts
from stateferry.runs.record.step_facts import TablesFacts
from stateferry.tables.counts import TableCounts

BOTH = (
    "blobs|blobs expired|blobs left|blob entries|blob entries left|blob entries expired|blob entries superseded|"
    "blob entries dropped for rows|empty maps|contradictions|rows read|rows expired|rows replaced by a blob|rows kept|"
    "timestamps in the future"
)
OF_TIME = "outlived|older rows that win"
OF_FLAGS = "flagged|flagged with rows|flagged without rows|flagged for another|rows without flag|flags not set"
IN_REVERSE = "blobs written|entries written|entries that live longer|milliseconds longer"
TABLES = (
    "keys walked|keys new|keys changed|keys unchanged|keys vanished|keys folded|keys moved|"
    "keys migrated by job|keys migrated by ferry|keys left|keys left untouched|keys left untouched for 7 runs|"
    "keys left untouched for 30 runs|keys of the job|keys of the ferry|"
    "ledger rows read|ledger rows written|rows read|rows written|rows folded|empty maps|contradictions|"
    "blob entries superseded|nulls dropped"
)


@pytest.mark.parametrize(
    ("counts", "keys"),
    [
        (InventoryCounts(), f"{BOTH}|unwritable nulls|{OF_TIME}|merged keys|empty contradictions|{OF_FLAGS}"),
        (ConversionCounts(), f"{BOTH}|rows written|flags written|nulls dropped|{IN_REVERSE}"),
        (TableCounts(), TABLES),
    ],
    ids=lambda it: type(it).__name__,
)
def test_the_keys_of_stored_counts(counts: Counts, keys: str) -> None:
    assert list(counts.to_json()) == keys.split("|")


def test_stored_counts_are_read_with_some_missing_and_some_unknown() -> None:
    stored = {"counts": {"main/a": {"rows written": 5, "rows counted by a later version": 1}}}
    assert TablesFacts.of_json(stored, "tables.json").counts == {"main/a": TableCounts(rows_written=5)}


def test_counts_are_added_up_by_name() -> None:
    sum_ = TableCounts(rows_read=1, keys_new=2)
    sum_.add(TableCounts(rows_read=10, rows_written=4))
    assert sum_ == TableCounts(rows_read=11, keys_new=2, rows_written=4)


def test_a_sum_of_times_is_shown_as_a_duration() -> None:
    shown = dict(
        shown_count(name, number)
        for name, number in ConversionCounts(milliseconds_longer=345_600_000).to_json().items()
    )
    assert shown["longer in all"] == "4.0 d"
    assert shown_count("rows written", 12_345) == ("rows written", "12,345")
