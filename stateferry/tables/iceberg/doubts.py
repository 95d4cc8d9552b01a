"""Notes in a table that files of its `main` may be damaged, as a run that started from them has failed its checks."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from stateferry.tables.iceberg.commits import MAIN, committed, newest_marked

_DOUBTED = "stateferry.doubted-main"


def doubt(table: Table, run_id: str) -> None:
    """Notes it of the run that `main` shows now, unless that came after the start of the run that has failed."""
    newest, failed = newest_marked(table, table.snapshot_by_name(MAIN)), committed(table, run_id)
    if newest is not None and failed is not None:
        before = {one.snapshot_id for one in ancestors_of(failed, table.metadata)}
        if newest.snapshot_id not in before:
            return
    with table.transaction() as transaction:
        transaction.set_properties({_DOUBTED: _shown(table)})


def is_doubted(table: Table) -> bool:
    """Whether it was noted of the run that `main` shows now."""
    return table.properties.get(_DOUBTED) == _shown(table)


def _shown(table: Table) -> str:
    """The run's snapshot: others, as of maintenance, mend nothing."""
    newest = newest_marked(table, table.snapshot_by_name(MAIN))
    return "" if newest is None else str(newest.snapshot_id)
