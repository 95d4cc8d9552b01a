"""A home that an earlier version made opens, and its runs go on; one that a newer version made is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tarfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flinkstate.files.storage import Location
from stateferry.basics import formats
from stateferry.basics.formats import NewerFormatError
from stateferry.cli import main
from stateferry.runs.catalog import control_tables
from stateferry.runs.catalog.publications import Control
from stateferry.runs.plan import plan
from stateferry.runs.plan.plan import plan_of_json
from stateferry.runs.record import runs
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.schemas import KEY_LEDGER, MAP_ENTRY, StateTables
from tests.homes.make import HERE, OPTIONS, command, night
from tests.support.in_process import without_spark

CATALOG = f"sqlite:///{HERE}/home/catalog.db"
REFUSED = 3
NEWER = formats.FORMAT + 1

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the paths in the archives are Linux's /proc/self/cwd")


@pytest.fixture(params=["version-1"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an earlier version left, unpacked in the current folder."""
    version: str = request.param
    folder = tmp_path / version
    with tarfile.open(Path(__file__).with_name(f"{version}.tar.gz")) as packed:
        packed.extractall(folder, filter="data")
    without_spark(monkeypatch)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STATEFERRY_HOME", f"{HERE}/home")
    return folder / "home"


def run_of(job: str) -> Run:
    (folder,) = Path("home/runs", job).iterdir()
    return Run.open(Location.of(f"{HERE}/{folder}"))


def rows(job: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of both tables of the job, in an order of their own."""
    catalog = TableHome(CATALOG, f"{HERE}/home/warehouse").catalog()
    tables = StateTables(job, "main", "newMainState")
    found = {name: catalog.load_table(tables.identifier(name)).scan().to_arrow() for name in (MAP_ENTRY, KEY_LEDGER)}
    return {name: sorted(table.to_pylist(), key=repr) for name, table in found.items()}


def content(folder: str | Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_status_runs_and_verify_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert f"published: {HERE}/new/finished (publication 1, run {run_of('finished').plan.run_id})" in said
    assert "took: snapshot " in said
    assert "job half-done\n  published: nothing\n  at work: no run\n" in said
    assert main(["runs", "--json"]) == 0
    states = {run["job"]: (run["state"], run["reason"]) for run in json.loads(capsys.readouterr().out)}
    assert states == {"finished": ("published", ""), "half-done": ("running", ""), "nightly": ("verified", "")}
    assert main(["verify", f"{HERE}/nights/first", f"{HERE}/new/finished", *OPTIONS]) == 0
    said = capsys.readouterr().out
    assert "│ passed  │" in said
    assert "│ failed" not in said
    assert main(["clean", "--dry-run"]) == 0


@pytest.mark.usefixtures("home")
def test_a_finished_run_has_nothing_to_do_and_can_be_undone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("finished")) == 0
    assert f"nothing to do: run {run_of('finished').plan.run_id} has published" in capsys.readouterr().out
    assert main(["rollback", "--job", "finished"]) == 0
    assert run_of("finished").state is RunState.ROLLED_BACK
    assert f"restore the job from {HERE}/nights/first" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_a_nightly_configuration_goes_on_with_its_second_night(capsys: pytest.CaptureFixture[str]) -> None:
    assert night(1).state is RunState.VERIFIED, "the first night is another run than it was"
    shutil.move("later/second", "nights/second")
    second = night(2)
    assert main(["run", "--plan", f"{second.folder.path}/plan.json"]) == 0
    assert second.state is RunState.VERIFIED
    assert "a cut-over is likely to keep the job still for " in capsys.readouterr().out
    ledger = rows("nightly")[KEY_LEDGER]
    written = Counter(row["run"] for row in ledger)
    keys = {row["key"] for row in ledger}
    # Of most keys the second savepoint says what the first one did, and the tables were not made anew.
    assert written[1] == 24
    assert 0 < written[2] < len(keys) == 27


def test_a_home_without_a_version_is_of_the_first_and_gets_that_of_a_later_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(home)
    assert "format.json" not in before
    assert main(["status"]) == main(["runs"]) == 0
    assert content(home) == before, "a question has changed something"
    run_of("half-done").enter(RunState.RUNNING, 1)
    Control(CATALOG)
    assert not (home / "format.json").exists()
    for version in (2, 3):
        with monkeypatch.context() as patch:
            for module in (formats, plan, runs, control_tables):
                patch.setattr(module, "FORMAT", version)
            night(version)
            Control(CATALOG)
            Control(CATALOG)
        assert json.loads((home / "format.json").read_text()) == {"format": version}
    assert versions(home) == [(2,), (3,)]


def versions(home: Path) -> list[tuple[int]]:
    with closing(sqlite3.connect(home / "catalog.db")) as database:
        return list(database.execute("SELECT format FROM stateferry_format"))


def made_by_a_newer_version(home: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that comes next opens the home, as far as this part of it."""
    with monkeypatch.context() as patch:
        for module in (formats, plan, runs, control_tables):
            patch.setattr(module, "FORMAT", NEWER)
        if part == "catalog":
            Control(CATALOG)
        else:
            night(2)


@pytest.mark.part
@pytest.mark.parametrize("part", ["home", "catalog"])
@pytest.mark.parametrize(
    "asked",
    [
        command("half-done"),
        command("new"),
        ["rollback", "--job", "finished"],
        ["clean"],
        ["clean", "--dry-run"],
        ["status"],
    ],
    ids=lambda asked: " ".join(asked[:3]),
)
def test_a_newer_home_is_refused_before_anything_is_written(
    home: Path, part: str, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_by_a_newer_version(home, part, monkeypatch)
    before = content(home.parent)
    assert main(asked) == REFUSED
    place = f"the home {HERE}/home" if part == "home" else f"the catalog {CATALOG}"
    assert f"{place} has format {NEWER}, which a newer version of Stateferry has written" in capsys.readouterr().err
    assert content(home.parent) == before


def test_runs_of_a_newer_home_are_neither_opened_nor_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by_a_newer_version(home, "home", monkeypatch)
    before = content(home)
    folder = Location.of(f"{HERE}/{next(Path('home/runs/half-done').iterdir())}")
    for asked in (lambda: Run.open(folder), lambda: night(3), lambda: runs.runs_of(f"{HERE}/home")):
        with pytest.raises(NewerFormatError, match=f"format {NEWER}"):
            asked()
    assert content(home) == before


def test_a_plan_of_a_newer_version_is_refused_and_one_that_names_this_one_is_as_without(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_today = run_of("half-done").plan
    with monkeypatch.context() as patch:
        patch.setattr(plan, "FORMAT", NEWER)
        newer = of_today.to_json()
    with pytest.raises(NewerFormatError, match=rf"^plan\.json has format {NEWER}"):
        plan_of_json(newer, "plan.json")
    assert plan_of_json(json.dumps({"format": 1, **json.loads(of_today.to_json())})) == of_today
    assert "format" not in json.loads(of_today.to_json())
    (home / "format.json").write_text("[]")
    with pytest.raises(Exception, match="expected the version of a format"):
        run_of("half-done")
