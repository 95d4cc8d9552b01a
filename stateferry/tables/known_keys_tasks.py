"""Plans which keys of the last run are looked for in a savepoint, by what the catalog says of the tables."""

from __future__ import annotations

from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from stateferry.changes.rules import Rules
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.commits import MAIN, TableHome, read_mark
from stateferry.tables.iceberg.live_files import files_by_chunk
from stateferry.tables.iceberg.reads import ledger_columns
from stateferry.tables.known_keys import KnownKeysTask
from stateferry.tables.update import layout_of, one_chunk


def known_keys_tasks(
    home: TableHome, tables: names.StateTables, savepoint: Savepoint, operator: Operator, rules: Rules
) -> list[KnownKeysTask]:
    """Returns the tasks for one state; none if there is no run before, or if the ledger lacks a part of the keys.

    With another max parallelism the keys are in other chunks, and with other serializers they may have other bytes. So
    only their numbers are compared then.
    """
    catalog, identifier = home.catalog_if_there(), tables.identifier(names.KEY_LEDGER)
    if catalog is None or not catalog.table_exists(identifier):
        return []
    ledger = catalog.load_table(identifier)
    main = ledger.snapshot_by_name(MAIN)
    mark = read_mark(ledger, main)
    if main is None or mark is None:
        return []
    before, firsts = mark.layout, mark.layout.chunks
    layout, state = layout_of(savepoint, operator, rules, firsts)
    columns = {field.name for field in ledger.schema().fields}
    if not columns.issuperset(ledger_columns(rules.legacy).names):
        return []
    files = files_by_chunk(ledger, main.snapshot_id)
    by_number = (before.max_parallelism, before.serializers) != (layout.max_parallelism, layout.serializers)
    firsts = tuple(first * layout.max_parallelism // before.max_parallelism for first in firsts)
    return [
        KnownKeysTask(
            savepoint.folder,
            one_chunk(savepoint, operator, range(first, after)),
            state,
            tuple(file.file_path for file in files.get(number, ())),
            by_number,
        )
        for number, (first, after) in enumerate(zip(firsts, (*firsts[1:], operator.max_parallelism), strict=True))
        if number in files or by_number
    ]
