"""Nights of one job's tables, for tests: each run migrates a savepoint and says what the tables then hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from flinkstate.values.codecs import decode_whole
from stateferry.changes.rules import Rules
from stateferry.tables.counts import TableCounts
from stateferry.tables.iceberg.commits import committed
from stateferry.tables.iceberg.live_files import files_by_chunk
from stateferry.tables.iceberg.reads import read_current
from stateferry.tables.update import (
    TableHome,
    TableRef,
    TableSnapshots,
    TableUpdate,
    advance_main,
    commit_update,
    plan_update,
    write_chunk,
)
from stateferry.tables.versions import chunk_files
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState


@dataclass
class Nights:
    folder: Path
    chunks: int = 3
    rest: str | None = None
    steps: dict[str, TableUpdate] = field(default_factory=dict)

    @property
    def home(self) -> TableHome:
        return TableHome(f"sqlite:///{self.folder}/catalog.db", f"{self.folder}/warehouse", self.rest)

    def rules(self, savepoint: Savepoint, **rules: Any) -> Rules:
        operator = savepoint.operator("main")
        states = {state.name: state for state in savepoint.keyed_states(operator)}
        return Rules(states[LEGACY], NEW, FLAG, **{"ttl": None, "now": 0, **rules})

    def plan(self, run: str, savepoint: Savepoint, rules: Rules, **plan: Any) -> TableUpdate:
        options = {"chunk_bytes": max(_size(savepoint) // self.chunks, 1), "accept_vanished": 1.0, **plan}
        operator = savepoint.operator("main")
        step = plan_update(self.home, "orders", run, savepoint, operator, rules, **options)
        self.steps[run] = step
        return step

    def run(self, run: str, state: LegacyState, *, to_main: bool = True, **options: Any) -> TableSnapshots:
        """A whole night: plan, tasks, commit and, unless told otherwise, `main`."""
        plan = {name: options.pop(name) for name in ("accept_vanished", "is_published") if name in options}
        folder = self.folder / f"savepoint-{run}"
        savepoint = Savepoint.open(str(folder)) if folder.exists() else state.write(str(folder))
        step = self.plan(run, savepoint, self.rules(savepoint, **options), **plan)
        done = commit_update(step, [write_chunk(chunk) for chunk in step.chunks])
        if to_main:
            assert advance_main(self.home, step.tables, run)
        return done

    def counts(self, run: str, state: LegacyState, **options: Any) -> TableCounts:
        return self.run(run, state, **options).counts

    def current(self, state: LegacyState, run: str, branch: str = "main", **options: Any) -> dict[Any, Any]:
        """What the tables say, in the shape of `LegacyState.migrated`; typed columns and bytes must say the same."""
        rules = self.rules(Savepoint.open(str(self.folder / f"savepoint-{run}")), **options)
        found: dict[Any, Any] = {}
        for row in current_rows(self.home, self.steps[run], rules, branch):
            entry = (row["key"], row["user_key"])
            assert entry not in found
            assert entry == tuple(decode_whole(rules.legacy.key, row[f"{name}_raw"]) for name in ("key", "user_key"))
            if row["is_null"]:
                assert (row["value"], row["value_raw"]) == (None, None)
            else:
                assert row["value"] == decode_whole(state.value, row["value_raw"])
            found[entry] = (row["value"], row.get("timestamp"))
        return found


@contextmanager
def folding_everything() -> Iterator[None]:
    """Nights planned meanwhile fold every chunk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stateferry.tables.update.chunks_to_fold", lambda _, chunks: frozenset(range(chunks)))
        yield


def current_rows(home: TableHome, step: TableUpdate, rules: Rules, branch: str = "main") -> Iterator[dict[str, Any]]:
    for files in chunk_files(home, step.tables, branch):
        for batch in read_current(files, rules):
            yield from batch.to_pylist()


def ledger_rows(home: TableHome, step: TableUpdate) -> list[dict[str, Any]]:
    """All rows of the ledger, older ones too."""
    return table_rows(home, step.ledger)


def table_rows(home: TableHome, ref: TableRef, branch: str = "main") -> list[dict[str, Any]]:
    table = home.catalog().load_table(ref.identifier)
    head = table.snapshot_by_name(branch)
    assert head is not None
    found: pa.Table = table.scan(snapshot_id=head.snapshot_id).to_arrow()
    return list(found.to_pylist())


def remove_attempts(step: TableUpdate) -> int:
    """Removes what attempts of the run wrote that isn't part of its commits, as cleaning would one day; says how many
    files that were."""
    catalog = step.home.catalog()
    removed = 0
    for ref in (step.entries, step.ledger):
        table = catalog.load_table(ref.identifier)
        done = committed(table, step.mark.run_id)
        kept = {
            Location.of(file.file_path).path
            for files in (files_by_chunk(table, done.snapshot_id) if done else {}).values()
            for file in files
        }
        for folder in Location.of(f"{table.location()}/data").entries():
            for file in folder.entries():
                if file.name.startswith(f"{step.mark.run_id}-") and file.path not in kept:
                    file.remove()
                    removed += 1
    return removed


def _size(savepoint: Savepoint) -> int:
    return sum(entry.size() for entry in savepoint.folder.entries())
