"""Whose tables are whose, from night to night, whatever the operators are called in the savepoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint, operator_id
from stateferry.tables.iceberg.owners import tables_of_state
from stateferry.tables.iceberg.schemas import KEY_LEDGER, MAP_ENTRY, StateTables
from stateferry.tables.known_keys_tasks import known_keys_tasks
from stateferry.tables.update import VanishedKeysError, plan_update
from tests.support.legacy_states import NEW, LegacyState
from tests.support.table_nights import Nights
from tests.tables.test_tables import maps

STATE = LegacyState(maps(20), version=4)
MAIN_ID = operator_id("main").hex()


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path, chunks=1)


def tables_of(nights: Nights, savepoint: Savepoint, operator: Operator) -> StateTables:
    return tables_of_state(nights.home.catalog_if_there(), "orders", savepoint, operator, NEW)


@pytest.mark.parametrize(("first", "second", "name"), [(4, 6, MAIN_ID), (6, 4, "main")])
def test_tables_keep_their_name_over_an_upgrade_of_flink(nights: Nights, first: int, second: int, name: str) -> None:
    nights.run("first", STATE.with_changes(version=first))
    assert nights.steps["first"].tables.operator == name
    after = STATE.with_changes(version=second, checkpoint_id=2)
    assert nights.counts("second", after).keys_unchanged == 20
    assert nights.steps["second"].tables == nights.steps["first"].tables
    assert len(nights.home.catalog().list_namespaces("orders")) == 1


def test_a_wrong_savepoint_is_told_over_an_upgrade_of_flink(nights: Nights) -> None:
    nights.run("first", STATE)
    wrong = LegacyState({f"other-{key}": ({"a": 1}, 0) for key in range(20)}, checkpoint_id=2)
    source = wrong.write(str(nights.folder / "savepoint-second"))
    operator, rules = source.operator("main"), nights.rules(source)
    tables = tables_of(nights, source, operator)
    found = [task.count() for task in known_keys_tasks(nights.home, tables, source, operator, rules)]
    assert (sum(one.known for one in found), sum(one.vanished for one in found)) == (20, 20)
    with pytest.raises(VanishedKeysError, match="wrong savepoint"):
        nights.run("second", wrong, accept_vanished=0.5)


def called(savepoint: Savepoint, uids: Mapping[str, str]) -> Savepoint:
    """The savepoint as if its operators had these uids; one without is not in it."""
    uid_of = {operator_id(one): uid for one, uid in uids.items()}
    operators = [replace(one, uid=uid_of[one.id]) for one in savepoint.metadata.operators if one.id in uid_of]
    return replace(savepoint, metadata=replace(savepoint.metadata, operators=tuple(operators)))


def test_operators_that_change_their_names_keep_their_tables_and_share_none(nights: Nights) -> None:
    both = STATE.with_changes(version=6).write(str(nights.folder / "both"), other=STATE)
    rules, id_ = nights.rules(both), operator_id("other").hex()

    def planned(uids: Mapping[str, str]) -> list[str]:
        """Makes the tables of each operator, and says what it is called in their names."""
        savepoint = called(both, uids)
        steps = (
            plan_update(nights.home, "orders", "night", savepoint, one, rules) for one in savepoint.metadata.operators
        )
        return [step.tables.operator for step in steps]

    assert planned({"main": "Map: 1"}) == ["Map: 1"]
    # The uid of the one is what the other was called.
    assert planned({"main": "main", "other": "Map: 1"}) == ["Map: 1", f"id {id_}"]
    assert planned({"main": id_, "other": "main"}) == ["Map: 1", f"id {id_}"]
    assert planned({"other": "Map: 1"}) == [f"id {id_}"]


def test_tables_of_an_operator_that_is_gone_go_on_under_their_name(nights: Nights) -> None:
    """It may be the wrong savepoint, of which their keys tell."""
    nights.run("first", STATE.with_changes(version=6))
    other = called(STATE.write(str(nights.folder / "other"), other=STATE), {"other": "main"})
    assert tables_of(nights, other, other.operator("main")) == nights.steps["first"].tables


def test_tables_that_note_the_id_go_before_others_that_note_none(nights: Nights) -> None:
    """Under the id of the operator are those of before an upgrade that has been undone since."""
    nights.run("first", STATE)
    nights.run("second", STATE.with_changes(version=6, checkpoint_id=2))
    assert nights.steps["second"].tables.operator == MAIN_ID
    shown = called(STATE.with_changes(version=6).write(str(nights.folder / "shown")), {"main": "main"})
    with_label = StateTables("orders", "main", NEW)
    catalog = nights.home.catalog()
    for name in (MAP_ENTRY, KEY_LEDGER):
        table = catalog.load_table(StateTables("orders", MAIN_ID, NEW).identifier(name))
        catalog.create_namespace_if_not_exists(with_label.namespace)
        catalog.create_table(with_label.identifier(name), table.schema())
    assert tables_of(nights, shown, shown.operator("main")).operator == MAIN_ID


@pytest.mark.parametrize("version", [4, 6])
def test_tables_that_do_not_say_whose_they_are(nights: Nights, version: int) -> None:
    nights.run("first", STATE.with_changes(version=version))
    name = nights.steps["first"].tables.operator
    ledger = nights.home.catalog().load_table(nights.steps["first"].ledger.identifier)
    with ledger.transaction() as transaction:
        transaction.remove_properties("stateferry.operator")
    nights.run("second", STATE.with_changes(version=6, checkpoint_id=2))
    assert nights.steps["second"].tables.operator == name
    assert "stateferry.operator" in ledger.refresh().properties
