"""Lists the files of one version of the tables, so that tasks need no catalog."""

from __future__ import annotations

from flinkstate.errors import UsageError
from stateferry.changes.rules import Rules
from stateferry.tables.account import AccountTask
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.commits import MAIN, TableConflictError, TableHome, branch_of
from stateferry.tables.iceberg.live_files import files_by_chunk, has_deletes
from stateferry.tables.iceberg.reads import ChunkFiles


def chunk_files(home: TableHome, tables: names.StateTables, branch: str = MAIN) -> list[ChunkFiles]:
    """Returns the files of the tables on a branch, by chunk."""
    catalog = home.catalog()
    found = []
    for name in (names.MAP_ENTRY, names.KEY_LEDGER):
        table = catalog.load_table(tables.identifier(name))
        head = table.snapshot_by_name(branch)
        if head is None:
            known = ", ".join(sorted(table.refs()))
            raise UsageError(f"table {tables.quoted(name)} has no branch {branch!r}. There are: {known}")
        if has_deletes(table, head.snapshot_id):
            raise TableConflictError(
                f"table {tables.quoted(name)}: another writer has deleted rows from the branch {branch}; give the same "
                "command again: it writes them again"
            )
        found.append(files_by_chunk(table, head.snapshot_id))
    entries, ledger = (
        {chunk: tuple(file.file_path for file in files) for chunk, files in table.items()} for table in found
    )
    numbers = sorted(entries.keys() | ledger.keys())
    return [ChunkFiles(number, entries.get(number, ()), ledger.get(number, ())) for number in numbers]


def plan_account(
    home: TableHome,
    tables: names.StateTables,
    run_id: str,
    operator: str,
    rules: Rules,
    max_parallelism: int,
    *,
    changes_key_groups: bool,
) -> list[AccountTask]:
    """Returns the tasks that account for what the run made of the tables."""
    found = chunk_files(home, tables, branch_of(run_id))
    return [AccountTask(operator, rules, files, max_parallelism, changes_key_groups) for files in found]
