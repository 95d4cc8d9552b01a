"""The tables as a third account, beside source and staged savepoint: what they say, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flinkstate.errors import MissingHereError, StateferryError, TransientError
from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.state_ref import StateRef
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.rules import Rules
from stateferry.proof.checks import StagedStates, validate
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.judgement import table_check
from stateferry.tables import account
from stateferry.tables.account import AccountTask, account_of_chunk, table_accounts
from stateferry.tables.versions import plan_account
from tests.support.changes import conversion_of
from tests.support.legacy_states import NEW, LegacyState
from tests.support.rewriting import rewrite
from tests.support.table_nights import Nights

NOW, TTL = 1_700_000_000_000, 86_400_000
FRESH, OLD = NOW - 1000, NOW - 2 * TTL


def maps(count: int, timestamp: int = FRESH) -> dict[str, tuple[dict[str, object], int]]:
    return {f"key-{key}": ({f"user-{at}": key * 10 + at for at in range(3)}, timestamp) for key in range(count)}


class Judged:
    """The last night, its staged savepoint, and what the tables of it say."""

    def __init__(self, nights: Nights, run: str, *, max_parallelism: int | None = None, **options: Any) -> None:
        self.source = Savepoint.open(str(nights.folder / f"savepoint-{run}"))
        self.operator = self.source.operator("main")
        self.rules: Rules = nights.rules(self.source, **options)
        self.layout = Layout(max_parallelism=max_parallelism)
        self.staged = str(nights.folder / f"staged-{run}-{max_parallelism}")
        states = {state.name: state for state in self.source.keyed_states(self.operator)}
        transforms = {self.operator.id: BlobsToRows([self.rules], states)}
        rewrite(self.source, self.staged, self.layout, transforms=transforms)
        new_max = self.layout.of(self.operator).max_parallelism
        changes = new_max != self.operator.max_parallelism
        tables = nights.steps[run].tables
        self.tasks: list[AccountTask] = plan_account(
            nights.home, tables, run, self.operator.hex_id, self.rules, new_max, changes_key_groups=changes
        )

    def check(self) -> tuple[Check, int]:
        """What is said of the tables, and how many rows had to be read for it."""
        conversion = conversion_of(self.source, self.layout, {self.operator.id: (self.rules,)})
        accounts = table_accounts(account_of_chunk(task) for task in self.tasks)
        staged = StagedStates()
        checks = validate(self.source, Savepoint.open(self.staged), conversion, accounts=staged)
        assert all(check.outcome is Outcome.PASSED for check in checks)
        (table,) = accounts
        found = table_check("main", table, staged[StateRef(self.operator.hex_id, NEW)])
        return found, sum(one.rows_read for one in accounts)


def three_nights(nights: Nights) -> None:
    """The second has a key changed and one gone, the third another key changed."""
    state = LegacyState(maps(60))
    nights.run("first", state)
    less = {key: blob for key, blob in state.blobs.items() if key != "key-3"}
    second = state.with_changes(blobs={**less, "key-5": ({"a": None, "b": 2}, 0)}, checkpoint_id=2)
    nights.run("second", second)
    nights.run("third", second.with_changes(blobs={**second.blobs, "key-7": ({}, 0), "new": ({"a": 1}, 0)}))


@pytest.mark.slow
def test_lazy_nights_are_told_by_the_ledger_alone(nights: Nights) -> None:
    three_nights(nights)
    check, read = Judged(nights, "third").check()
    assert (check.outcome, read) == (Outcome.PASSED, 0), check
    assert check.expected.startswith("174 entries")


@pytest.mark.slow
def test_with_other_key_groups_the_rows_are_read(nights: Nights) -> None:
    three_nights(nights)
    check, read = Judged(nights, "third", max_parallelism=300).check()
    assert (check.outcome, read) == (Outcome.PASSED, 174), check


@pytest.mark.slow
def test_expiry_is_applied_by_key_or_by_row(nights: Nights) -> None:
    state = LegacyState({**maps(20), **{f"old-{key}": blob for key, blob in maps(5, OLD).items()}}, ttl=True)
    options: dict[str, Any] = {"ttl": TTL, "now": NOW}
    nights.run("first", state, **options)
    check, read = Judged(nights, "first", **options).check()
    assert (check.outcome, read) == (Outcome.PASSED, 0), check
    assert check.expected.startswith("60 entries")
    # Of the job's own rows some have expired and some have not.
    rows = {"hot": {"a": (1, FRESH), "b": (2, OLD)}}
    nights.run("second", state.with_changes(rows=rows, flags={"hot": FRESH}, checkpoint_id=2), **options)
    check, read = Judged(nights, "second", **options).check()
    assert (check.outcome, read > 0) == (Outcome.PASSED, True), check
    assert check.expected.startswith("61 entries")


@pytest.mark.parametrize("error", [MissingHereError("no libhdfs here"), TransientError("no answer")])
def test_what_cannot_be_reached_from_here_is_not_found_wrong(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, error: StateferryError
) -> None:
    nights.run("first", LegacyState(maps(20)))

    def unreachable(*_: object) -> None:
        raise error

    monkeypatch.setattr(account, "_changed_file", unreachable)
    with pytest.raises(type(error), match=str(error)):
        Judged(nights, "first").check()


def rewritten(name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """The file's rows changed, all else kept: the words in its footer too."""
    file = Location.of(name).path
    old = pq.ParquetFile(file)
    pq.write_table(change(old.read()).replace_schema_metadata(old.metadata.metadata), file)


def with_a_value_changed(table: pa.Table) -> pa.Table:
    values = table.column("value_raw").to_pylist()
    values[0] = values[0][:-1] + bytes([values[0][-1] ^ 1])
    return table.set_column(table.schema.get_field_index("value_raw"), "value_raw", pa.array(values, pa.binary()))


def without_its_last_row(table: pa.Table) -> pa.Table:
    return table.slice(0, table.num_rows - 1)


def with_one_entry_less_told(table: pa.Table) -> pa.Table:
    fewer = pc.subtract(table.column("entries"), 1)
    return table.set_column(table.schema.get_field_index("entries"), "entries", fewer)


# With other key groups rows are read, and how many there are isn't taken from the ledger.
SABOTAGE = [
    ("entries", with_a_value_changed, None),
    ("entries", without_its_last_row, None),
    ("ledger", without_its_last_row, None),
    ("ledger", with_one_entry_less_told, None),
    ("entries", with_a_value_changed, 300),
    ("entries", without_its_last_row, 300),
    ("ledger", without_its_last_row, 300),
]


@pytest.mark.matrix(most=3)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change", "max_parallelism"), SABOTAGE)
def test_sabotage_is_seen(
    kind: str, change: Callable[[pa.Table], pa.Table], max_parallelism: int | None, nights: Nights
) -> None:
    three_nights(nights)
    judged = Judged(nights, "third", max_parallelism=max_parallelism)
    rewritten(getattr(judged.tasks[0].files, kind)[0], change)
    check, _ = judged.check()
    assert check.outcome is Outcome.FAILED


@pytest.mark.slow
def test_files_that_nobody_vouches_for_are_read_and_judged_by_their_rows(nights: Nights) -> None:
    three_nights(nights)
    judged = Judged(nights, "third")

    def forgetting(task: AccountTask) -> AccountTask:
        for name in task.files.ledger:
            file = Location.of(name).path
            pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
        return task

    judged.tasks = [forgetting(task) for task in judged.tasks]
    check, read = judged.check()
    assert (check.outcome, read) == (Outcome.PASSED, 174)
    rewritten(judged.tasks[0].files.entries[0], without_its_last_row)
    assert judged.check()[0].outcome is Outcome.FAILED


@pytest.mark.slow
def test_a_file_that_is_gone_is_said(nights: Nights) -> None:
    three_nights(nights)
    judged = Judged(nights, "third")
    Location.of(judged.tasks[0].files.entries[0]).remove()
    check, _ = judged.check()
    assert check.outcome is Outcome.FAILED
    judged.tasks = [replace(task, files=replace(task.files, entries=())) for task in judged.tasks]
    assert judged.check()[0].outcome is Outcome.FAILED


@pytest.mark.slow
def test_a_ledger_without_one_of_its_columns_is_said(nights: Nights) -> None:
    three_nights(nights)
    judged = Judged(nights, "third")
    rewritten(judged.tasks[0].files.ledger[0], lambda table: table.drop_columns(["origin"]))
    check, _ = judged.check()
    assert check.outcome is Outcome.FAILED
    assert "found no origin" in check.actual
