"""Counts are stored under the keys that earlier versions wrote."""

from __future__ import annotations

import pytest

from stateferry.counts import Counts
from stateferry.migration.counts import ConversionCounts, InventoryCounts
from stateferry.runs.facts import MigrateFacts
from stateferry.tables.counts import TableCounts

BOTH = (
    "blobs|blobs expired|blob entries|blob entries expired|blob entries superseded|blob entries dropped for rows|"
    "empty maps|contradictions|rows read|rows expired|rows replaced by a blob|rows kept|timestamps in the future"
)
TABLES = (
    "keys walked|keys new|keys changed|keys unchanged|keys vanished|keys folded|keys of the job|keys of the ferry|"
    "ledger rows read|ledger rows written|rows read|rows written|rows folded|empty maps|contradictions|"
    "blob entries superseded|unrepresentable nulls dropped"
)


@pytest.mark.parametrize(
    ("counts", "keys"),
    [
        (InventoryCounts(), f"{BOTH}|unrepresentable nulls"),
        (ConversionCounts(), f"{BOTH}|rows written|unrepresentable nulls dropped"),
        (TableCounts(), TABLES),
    ],
    ids=lambda it: type(it).__name__,
)
def test_the_keys_of_stored_counts(counts: Counts, keys: str) -> None:
    assert list(counts.to_json()) == keys.split("|")


def test_stored_counts_are_read_with_some_missing_and_some_unknown() -> None:
    stored = {"counts": {"main/a": {"rows written": 5, "rows counted by a later version": 1}}}
    assert MigrateFacts.of_json(stored, "migrate.json").counts == {"main/a": TableCounts(rows_written=5)}


def test_counts_are_added_up_by_name() -> None:
    sum_ = TableCounts(rows_read=1, keys_new=2)
    sum_.add(TableCounts(rows_read=10, rows_written=4))
    assert sum_ == TableCounts(rows_read=11, keys_new=2, rows_written=4)
