"""The view of the current rows as the catalog has it; what it says, Spark is asked in tests/spark/test_queries.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from flinkstate.serializers.types import Scalar
from stateferry.tables.iceberg.cleaning import tables_of_job
from stateferry.tables.iceberg.current_view import current_entry_sql, put_current_view
from tests.support.legacy_states import LegacyState
from tests.support.table_nights import Nights

STATE = LegacyState({"k": ({"a": 1}, 5)}, ttl=True)
TTL = 86_400_000


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    nights = Nights(tmp_path)
    nights.run("first", STATE, ttl=TTL)
    return nights


def view(nights: Nights) -> dict[str, Any]:
    """Its metadata, found as another reader of the catalog finds it."""
    with nights.home.sql_catalog().engine.connect() as connection:
        asked = text("SELECT metadata_location, table_namespace FROM iceberg_tables WHERE iceberg_type = 'VIEW'")
        ((location, namespace),) = connection.execute(asked).all()
    assert namespace == "orders.main.newMainState"
    found: dict[str, Any] = json.loads(Path(location.removeprefix("file://")).read_text())
    return found


def files(nights: Nights) -> int:
    return len(list((nights.folder / "warehouse").rglob("current_entry/metadata/*.json")))


def sql_of(metadata: dict[str, Any]) -> str:
    (version,) = metadata["versions"]
    assert version["version-id"] == metadata["current-version-id"]
    (representation,) = version["representations"]
    return str(representation["sql"])


def test_it_is_written_once_and_replaced_when_it_says_something_else(nights: Nights) -> None:
    tables = nights.steps["first"].tables
    put_current_view(nights.home, tables, TTL)
    first = view(nights)
    assert sql_of(first).endswith(f"- {TTL}")
    put_current_view(nights.home, tables, TTL)
    assert (view(nights), files(nights)) == (first, 1)
    put_current_view(nights.home, tables, None)
    second = view(nights)
    assert "WHERE" not in sql_of(second)
    assert (second["view-uuid"], second["current-version-id"]) == (first["view-uuid"], 2)
    assert [field["name"] for field in second["schemas"][0]["fields"]][-1] == "run"


def test_it_follows_the_columns(nights: Nights) -> None:
    put_current_view(nights.home, nights.steps["first"].tables, TTL)
    first = view(nights)
    nights.run("second", STATE.with_changes(value=Scalar.INTEGER, checkpoint_id=2), ttl=TTL)
    put_current_view(nights.home, nights.steps["first"].tables, TTL)
    assert view(nights)["schemas"] != first["schemas"]
    assert files(nights) == 2


def test_it_is_no_table(nights: Nights) -> None:
    put_current_view(nights.home, nights.steps["first"].tables, TTL)
    assert sorted(table.name()[-1] for table in tables_of_job(nights.home, "orders")) == ["key_ledger", "map_entry"]
    assert nights.counts("second", STATE, ttl=TTL).keys_unchanged == 1


def test_keys_of_different_namespaces_are_different_keys() -> None:
    columns = ["chunk", "key_raw", "namespace_raw", "value", "run"]
    assert "GROUP BY chunk, key_raw, namespace_raw" in current_entry_sql(columns, None)
    assert "entry.namespace_raw = newest.namespace_raw" in current_entry_sql(columns, None)
