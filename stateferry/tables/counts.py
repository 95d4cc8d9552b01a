"""What the migrate step counts while it brings the tables of one state to the savepoint's content."""

from __future__ import annotations

from dataclasses import dataclass

from stateferry.counts import Counts


@dataclass(slots=True)
class TableCounts(Counts):
    """The counts of one chunk, or of all.

    Rows are those of `map_entry`. Keys are new, changed or unchanged since the last run. `keys_folded` and
    `rows_folded` are of unchanged keys that were written again, because their chunk was folded.
    """

    keys_walked: int = 0
    keys_new: int = 0
    keys_changed: int = 0
    keys_unchanged: int = 0
    keys_vanished: int = 0
    keys_folded: int = 0
    keys_of_the_job: int = 0
    keys_of_the_ferry: int = 0
    ledger_rows_read: int = 0
    ledger_rows_written: int = 0
    rows_read: int = 0
    rows_written: int = 0
    rows_folded: int = 0
    empty_maps: int = 0
    contradictions: int = 0
    blob_entries_superseded: int = 0
    unrepresentable_nulls_dropped: int = 0
