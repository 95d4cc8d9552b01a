"""The keys of the savepoint held against those that the last run knew, before a publication.

The migrate step compares them too, but in a cut-over it writes the tables after the publication. Far too many keys that
have vanished mean that this may be the wrong savepoint, which must be known before. Nothing is written here.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateferry.migration.rules import Rules
from stateferry.savepoint.chunks import Chunk
from stateferry.savepoint.metadata import Operator
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.storage import Location
from stateferry.tables import schemas as names
from stateferry.tables.commits import MAIN, TableHome, files_by_chunk, read_mark
from stateferry.tables.ledger import LegacyState, survey_keys
from stateferry.tables.migrate import layout_of, one_chunk
from stateferry.tables.reads import read_ledger
from stateferry.tables.units import units


@dataclass(frozen=True, slots=True)
class KnownKeysTask:
    """Looks for the keys of one chunk of the ledger; `chunk` is None if its key groups have no data now."""

    folder: Location
    chunk: Chunk | None
    state: LegacyState
    ledger_files: tuple[str, ...]

    def count(self) -> KnownKeys:
        """Counts them."""
        ledger = read_ledger(self.ledger_files, self.state.rules.legacy)
        for unit in units(self.folder, self.chunk) if self.chunk else ():
            ledger.compare(survey_keys(unit, self.state))
        return KnownKeys(ledger.keys, len(ledger.vanished()))


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """How many keys the last run knew, and how many of them have vanished."""

    known: int
    vanished: int


def known_keys_tasks(
    home: TableHome, tables: names.StateTables, savepoint: Savepoint, operator: Operator, rules: Rules
) -> list[KnownKeysTask]:
    """Returns the tasks for one state; none if there is no run before, or if its tables have another layout."""
    catalog, identifier = home.catalog_if_there(), tables.identifier(names.KEY_LEDGER)
    if catalog is None or not catalog.table_exists(identifier):
        return []
    ledger = catalog.load_table(identifier)
    main = ledger.snapshot_by_name(MAIN)
    mark = read_mark(ledger, main)
    if main is None or mark is None:
        return []
    firsts = mark.layout.chunks
    layout, state = layout_of(savepoint, operator, rules, firsts)
    if mark.layout.difference(layout):
        return []
    files = files_by_chunk(ledger, main.snapshot_id)
    return [
        KnownKeysTask(
            savepoint.folder,
            one_chunk(savepoint, operator, range(first, after)),
            state,
            tuple(file.file_path for file in files[number]),
        )
        for number, (first, after) in enumerate(zip(firsts, (*firsts[1:], operator.max_parallelism), strict=True))
        if number in files
    ]
