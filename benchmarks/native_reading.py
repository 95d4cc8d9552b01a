"""Measures reading a state from RocksDB's own files, as the real RocksDB wrote them for us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measuring import Rate, Scale, Subject, load, timed
from benchmarks.state_processor import run_java
from flinkstate.keyed.keyed_file import MOST_ENTRIES, WINDOW
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.files import StoredFile

_STATE = "newMainState"
_ENTRIES_PER_KEY = 100
_KEY_GROUPS, _PREFIX = 128, 1


@dataclass(frozen=True, slots=True)
class Runs:
    """A database of so many runs; `together` neighbouring rows are in the same run, and the next ones in the next."""

    what: str
    runs: int
    together: int
    goal: float


VARIANTS = (
    Runs("one compacted run", 1, 1, 10e6),
    Runs("six overlapping runs, each with all entries of its keys", 6, _ENTRIES_PER_KEY, 5e6),
    Runs("six overlapping runs, each with every sixth entry", 6, 1, 5e6),
)


def write(folder: Path, runs: Runs, entries: int) -> tuple[Database, int]:
    """Writes a database and opens a checkpoint of it, whose files are in the page cache; says how many rows it has."""
    keys = max(entries // _ENTRIES_PER_KEY, 1)
    places, shape = (folder / "database", folder / "checkpoint"), (runs.runs, runs.together)
    folder.mkdir()
    run_java("WriteRuns", *places, _STATE, keys, _ENTRIES_PER_KEY, *shape)
    load(folder / "checkpoint")
    files = {
        path.name: StoredFile(path.name, path.stat().st_size, partial(open, path, "rb"))
        for path in (folder / "checkpoint").iterdir()
    }
    return Database(files, "the database"), keys * _ENTRIES_PER_KEY


def read(database: Database) -> int:
    """Reads all rows of the state and returns their number."""
    window = np.empty(WINDOW, np.uint8)
    starts, key_ends, ends = np.empty((3, MOST_ENTRIES), np.int64)
    rows = 0
    with database.scan(_STATE, _PREFIX, 0, _KEY_GROUPS) as scan:
        needed = 1
        while needed:
            found = scan.read(_KEY_GROUPS, window, 0, (starts, key_ends, ends))
            rows, needed = rows + found.rows, found.needed
    return rows


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for each variant."""
    for number, runs in enumerate(VARIANTS):
        database, rows = write(scale.folder / f"runs-{number}", runs, scale.entries)
        yield Rate(runs.what, "entries", timed(rows, partial(read, database), scale.rounds), runs.goal)


SUBJECT = Subject("Rows of a MapState<String,Long> in RocksDB's own files, 100 entries a key, snappy", measure)
