"""Many first runs in a new home at once: the catalog appears whole or not at all."""

from __future__ import annotations

import multiprocessing
import sqlite3
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from stateferry.runs.catalog import control_tables
from stateferry.runs.catalog.publications import Control
from stateferry.tables.iceberg.commits import TableHome

AT_ONCE, HOMES = 20, 5
PROCESSES = multiprocessing.get_context("fork")


def first_run(number: int, homes: list[Path], barrier: Barrier, answers: Any) -> None:
    """Begins a run in each home as soon as all others do."""
    for home in homes:
        uri = f"sqlite:///{home}/catalog.db"
        barrier.wait()
        try:
            # A page that looks meanwhile sees a catalog that can be read, or none.
            if (seen := Control.if_there(uri)) is not None:
                seen.jobs()
            with Control(uri) as control:
                lease = control.acquire(f"job {number}", "run")
                control.release(lease)
            TableHome(uri, str(home / "warehouse")).catalog().list_namespaces()
            answers.put("")
        except BaseException as error:  # noqa: BLE001 the test tells it
            answers.put(f"{type(error).__name__}: {error}")


@pytest.mark.full
def test_twenty_first_runs_at_once(tmp_path: Path) -> None:
    homes = [tmp_path / f"{number}" / "home" for number in range(HOMES)]
    barrier, answers = PROCESSES.Barrier(AT_ONCE), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=first_run, args=(number, homes, barrier, answers)) for number in range(AT_ONCE)
    ]
    for process in processes:
        process.start()
    said = [answers.get(timeout=200) for _ in range(AT_ONCE * HOMES)]
    for process in processes:
        process.join()
    assert [one for one in said if one] == []
    for home in homes:
        assert [file.name for file in home.iterdir()] == ["catalog.db"]
        with Control(f"sqlite:///{home}/catalog.db") as control:
            assert len(control.jobs()) == AT_ONCE


def test_a_catalog_that_could_not_be_made_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen = tmp_path / "home" / "catalog.db", []

    def breaks(engine: Any) -> None:
        seen.append(file.exists())
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(control_tables, "create_tables", breaks)
        with pytest.raises(KeyboardInterrupt):
            Control(f"sqlite:///{file}")
    assert seen == [False]
    assert list(file.parent.iterdir()) == []
    with Control(f"sqlite:///{file}"), sqlite3.connect(file) as there:
        names = {name for (name,) in there.execute("select name from sqlite_master where type = 'table'")}
    assert {"stateferry_lease", "stateferry_publication", "stateferry_standing"} <= names
