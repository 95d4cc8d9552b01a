"""Runs leave their report as a page, the command makes it anew, and a page that fails stops no migration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateferry.cli import main
from stateferry.runs.record.key_group_sizes import MOST_BINS, bins
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.show import run_view
from stateferry.show.run_rows import row_of
from stateferry.show.run_view import RunView
from stateferry.steps import new_files, pipeline
from tests.pages.views import Page
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

STATE = LegacyState(blobs={f"key {number}": ({"a": 1, "b": 2}, 0) for number in range(50)})


@pytest.fixture
def arguments(tmp_path: Path, home: Path) -> list[str]:
    STATE.write(str(tmp_path / "source"))
    states = ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG, "--now", "0"]
    places = ["--savepoint", str(tmp_path / "source"), "--target", str(tmp_path / "target"), "--job", "orders"]
    return ["run", *places, *states, "--parallelism", "3"]


def the_run(folder: Path) -> Run:
    (one,) = runs_of(str(folder / "home"))
    return Run.open(one.folder)


def test_a_run_in_a_list_is_read_without_all_other_runs(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(arguments) == 0
    run = the_run(tmp_path)
    monkeypatch.setattr(run_view, "nights_of", lambda *_: pytest.fail("a list of a thousand runs would take minutes"))
    row = row_of(run)
    assert row.run_id == run.plan.run_id
    # Twenty of the rows were there before.
    assert row.rows == 100


def test_a_run_leaves_its_page(tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    run = the_run(tmp_path)
    page = Path(run.report_page.path)
    assert page.stat().st_mode & 0o077 == 0
    words = Page(page.read_text()).words
    assert "cut over orders: published, 100 rows" in words
    assert "1 → 3 subtasks" in words
    assert "main/newMainState: as the tables say" in words
    view = RunView.of(run)
    assert view.problems == ()
    assert view.before is not None
    assert view.after is not None
    before, after = view.before.operators[0], view.after.operators[0]
    assert sum(before.entries) == 50
    assert (len(before.by_subtask), len(after.by_subtask)) == (1, 3)
    assert sum(after.by_subtask) == after.total
    # The command makes the same page, as all is done.
    capsys.readouterr()
    made = tmp_path / "page.html"
    assert main(["report", run.plan.run_id[:10], "--html", str(made)]) == 0
    assert made.read_text() == page.read_text()
    assert main(["report", run.folder.path, "--html", "-"]) == 0
    assert capsys.readouterr().out.endswith(page.read_text())
    assert main(["report", run.plan.run_id, "--json", "--job", "orders"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == run.plan.run_id
    assert main(["report", run.plan.run_id]) == 0
    assert "green: " in capsys.readouterr().out


def test_a_page_that_fails_stops_nothing(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: object) -> str:
        raise ZeroDivisionError("no ages")

    monkeypatch.setattr(pipeline, "run_page", fails)
    assert main(arguments) == 0
    assert "report.html could not be written: no ages" in capsys.readouterr().out
    assert not the_run(tmp_path).report_page.exists()


def test_a_run_without_a_report_has_a_page_too(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(new_files, "begin", lambda _: 1 / 0)
        assert main(arguments) == 70
    run = the_run(tmp_path)
    Path(run.file_of(SnapshotFacts).path).write_text('{"plan": "' + run.plan.fingerprint + '", "facts": {"states": 5}}')
    capsys.readouterr()
    assert main(["report", run.plan.run_id]) == 1
    assert "has no report yet; it is running" in capsys.readouterr().out
    assert main(["report", run.plan.run_id, "--html", str(tmp_path / "page.html")]) == 1
    words = Page((tmp_path / "page.html").read_text()).words
    assert "no report yet" in words
    assert "steps/snapshot.json" in words


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (["nothing"], "has no run 'nothing': `stateferry runs` lists all"),
        (["./nowhere"], "./nowhere is not the folder of a run: it has no plan.json"),
        (["nothing", "--job", "orders"], "job orders has no run 'nothing'"),
    ],
)
def test_a_run_that_is_not_there(
    named: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["report", *named]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("number", [0, 1, 7, MOST_BINS, MOST_BINS + 1, 32_768])
def test_bins_hold_all_values_in_their_order(number: int) -> None:
    made = list(bins(range(number)))
    assert [value for one in made for value in one] == list(range(number))
    assert len(made) <= MOST_BINS
    assert len({len(one) for one in made[:-1]}) <= 1
