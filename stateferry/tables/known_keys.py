"""The keys of the savepoint held against those that the last run knew, before a publication.

The tables step compares them too, but in a cut-over it comes after the publication. Far too many keys that
have vanished mean that this may be the wrong savepoint, which must be known before. Nothing is written here.

Workers import this module while the job stands still, so it does without the library of Iceberg, whose import takes
longer than the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from flinkstate.files.storage import Location
from flinkstate.metadata.chunks import Chunk
from stateferry.tables.iceberg.ledger import LegacyState, survey_keys
from stateferry.tables.iceberg.reads import read_ledger
from stateferry.tables.units import units


@dataclass(frozen=True, slots=True)
class KnownKeysTask:
    """Looks for the keys of one chunk of the ledger; `chunk` is None if its key groups have no data now.

    With `by_number` the chunk has other keys than the ledger's files, and all tasks together say how many are fewer.
    """

    folder: Location
    chunk: Chunk | None
    state: LegacyState
    ledger_files: tuple[str, ...]
    by_number: bool = False

    def count(self) -> KnownKeys:
        """Counts them."""
        ledger = read_ledger(self.ledger_files, self.state.rules.legacy)
        found = 0
        for unit in units(self.folder, self.chunk, by_kryo=self.state.rules.by_kryo) if self.chunk else ():
            keys = survey_keys(unit, self.state)
            found += len(keys.kinds)
            ledger.compare(keys)
        return KnownKeys(ledger.keys, ledger.keys - found if self.by_number else len(ledger.vanished()))


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """How many keys the last run knew, and how many of them have vanished."""

    known: int
    vanished: int
