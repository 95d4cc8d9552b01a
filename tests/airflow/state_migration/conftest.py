"""A home of its own for each test, with a demo savepoint's `_metadata`, and the run that a form asks for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import JobOverview
from stateferry.airflow.requests.planning import Occasion
from stateferry.runs.plan.homes import CATALOG_VARIABLE, WAREHOUSE_VARIABLE
from tests.airflow.state_migration.savepoints import write_metadata

AS_OF = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("STATEFERRY_HOME", str(home))
    for name in (CATALOG_VARIABLE, WAREHOUSE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    write_metadata(home / "demo" / "legacy", completed_at=AS_OF.timestamp())
    return home


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[JobOverview]:
    """Those that Flink lists, at each connection."""
    listed: list[JobOverview] = []
    monkeypatch.setattr(FlinkHook, "jobs", lambda _: listed)
    return listed


@pytest.fixture
def occasion() -> Occasion:
    return Occasion("manual__2026-11-20T12:00:00+00:00", AS_OF)
