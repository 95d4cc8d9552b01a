"""What the tables step counts while it brings the tables of one state to the savepoint's content."""

from __future__ import annotations

from dataclasses import dataclass

from stateferry.basics.counts import Counts


@dataclass(slots=True)
class TableCounts(Counts):
    """The counts of one chunk, or of all.

    Rows are those of `map_entry`. Keys are new, changed or unchanged since the last run. `keys_folded` and
    `rows_folded` are of unchanged keys that were written again, because their chunk was folded. `keys_moved` have only
    got another row in the ledger, which says that they are migrated.

    `keys_migrated_by_job`, `keys_migrated_by_ferry` and `keys_left` are all keys, changed or not: in the savepoint that
    the run has published, or in the source of a rehearsal. The others count keys that are left and have not changed
    since the run before, and for 7 and 30 runs.
    """

    keys_walked: int = 0
    keys_new: int = 0
    keys_changed: int = 0
    keys_unchanged: int = 0
    keys_vanished: int = 0
    keys_folded: int = 0
    keys_moved: int = 0
    keys_migrated_by_job: int = 0
    keys_migrated_by_ferry: int = 0
    keys_left: int = 0
    keys_left_untouched: int = 0
    keys_left_untouched_for_7_runs: int = 0
    keys_left_untouched_for_30_runs: int = 0
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
    nulls_dropped: int = 0
