"""What a newer version of Stateferry has written is refused, before anything is changed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flinkstate.errors import StateferryError
from stateferry.basics import formats
from stateferry.basics.formats import NewerFormatError
from stateferry.cli import main
from stateferry.runs.catalog import control_tables
from stateferry.runs.catalog.publications import Control
from stateferry.runs.plan import plan
from stateferry.runs.plan.plan_json import plan_of, plan_of_json
from stateferry.runs.record import runs
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run

REFUSED = 3
NEWER = formats.FORMAT + 1
STATE = ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a run and a catalog of this version."""
    home = tmp_path / "home"
    monkeypatch.setenv("STATEFERRY_HOME", str(home))
    Run.create(of_job("orders"), 1)
    Control(catalog(home))
    return home


def of_job(job: str) -> plan.MigrationPlan:
    operators = [{"operator": "main", "states": [{"legacy": "mainState", "new": "newMainState"}]}]
    return plan_of({"job": job, "source": "/in", "target": "/out", "now": 5, "run_id": "one", "operators": operators})


def catalog(home: Path) -> str:
    return f"sqlite:///{home}/catalog.db"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def in_version(version: int, monkeypatch: pytest.MonkeyPatch, home: Path, *parts: str) -> None:
    """Another version opens the home, as far as these parts of it."""
    with monkeypatch.context() as patch:
        for module in (formats, plan, runs, control_tables):
            patch.setattr(module, "FORMAT", version)
        if "catalog" in parts:
            Control(catalog(home))
        if "home" in parts:
            Run.create(of_job(f"of version {version}"), 1)


def test_a_home_without_a_version_is_of_the_first_and_gets_that_of_a_later_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(home)
    assert "format.json" not in before
    assert main(["status"]) == main(["runs"]) == 0
    assert content(home) == before, "a question has changed something"
    for version in (2, 3):
        in_version(version, monkeypatch, home, "catalog", "home")
        in_version(version, monkeypatch, home, "catalog")
        assert json.loads((home / "format.json").read_text()) == {"format": version}
    with closing(sqlite3.connect(home / "catalog.db")) as database:
        assert list(database.execute("SELECT format FROM stateferry_format")) == [(2,), (3,)]


@pytest.mark.parametrize("part", ["home", "catalog"])
@pytest.mark.parametrize(
    "asked",
    [
        ["run", "--job", "new", "--savepoint", "in", "--target", "out", *STATE],
        ["rollback", "--job", "orders"],
        ["clean"],
        ["clean", "--dry-run"],
        ["status"],
    ],
    ids=lambda asked: " ".join(asked[:3]),
)
def test_a_newer_home_is_refused_before_anything_is_written(
    home: Path, part: str, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home.parent)
    in_version(NEWER, monkeypatch, home, part)
    before = content(home.parent)
    assert main(asked) == REFUSED
    place = f"the home {home}" if part == "home" else f"the catalog {catalog(home)}"
    assert f"{place} has format {NEWER}, which a newer version of Stateferry has written" in capsys.readouterr().err
    assert content(home.parent) == before


def test_runs_of_a_newer_home_are_neither_opened_nor_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Run.create(of_job("orders"), 1).folder
    in_version(NEWER, monkeypatch, home, "home")
    before = content(home)
    for asked in (
        lambda: Run.open(folder),
        lambda: Run.create(of_job("new"), 1),
        lambda: runs_of(str(home)),
    ):
        with pytest.raises(NewerFormatError, match=f"format {NEWER}"):
            asked()
    assert content(home) == before
    (home / "format.json").write_text("[]")
    with pytest.raises(StateferryError, match="expected the version of a format"):
        Run.open(folder)


def test_a_plan_of_a_newer_version_is_refused_and_one_that_names_this_one_is_as_without(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_today = of_job("orders")
    with monkeypatch.context() as patch:
        patch.setattr(plan, "FORMAT", NEWER)
        newer = of_today.to_json()
    with pytest.raises(NewerFormatError, match=rf"^plan\.json has format {NEWER}"):
        plan_of_json(newer, "plan.json")
    assert plan_of_json(json.dumps({"format": 1, **json.loads(of_today.to_json())})) == of_today
    assert "format" not in json.loads(of_today.to_json())
