"""Notes in a table that files of its `main` may be damaged, as a run that started from them has failed its checks."""

from __future__ import annotations

from pyiceberg.table import Table

from stateferry.tables.iceberg.commits import MAIN

_DOUBTED = "stateferry.doubted-main"


def doubt(table: Table) -> None:
    """Notes it of what `main` is now."""
    with table.transaction() as transaction:
        transaction.set_properties({_DOUBTED: _main(table)})


def is_doubted(table: Table) -> bool:
    """Whether it was noted of what `main` is now."""
    return table.properties.get(_DOUBTED) == _main(table)


def _main(table: Table) -> str:
    main = table.snapshot_by_name(MAIN)
    return "" if main is None else str(main.snapshot_id)
