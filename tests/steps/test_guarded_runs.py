"""Whole runs that are told a wrong time to live, or a wrong now: stopped before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import flinkstate
from stateferry.basics.durations import now_ms
from stateferry.cli import main
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report

HOUR, DAY = 3_600_000, 86_400_000
STATES = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState")


class Said(NamedTuple):
    code: int
    out: str
    error: str


Ferry = Callable[..., Said]


@pytest.fixture
def ferry(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> Ferry:

    def run(*options: object) -> Said:
        """A run of the demo savepoint; what is told twice is as it is told last."""
        told = ("--savepoint", tmp_path / "source", "--target", tmp_path / "target", *STATES, *options)
        code = main(["run", *map(str, told)])
        return Said(code, *capsys.readouterr())

    return run


def demo(folder: Path, *, age: int = 0, ttl: int | None = 30 * DAY) -> int:
    """Writes 500 keys with 3 entries each, of which the job has moved none; returns what was now then."""
    now = now_ms() - age
    write_demo_savepoint(str(folder), DemoState(500, 3, 0, ttl, now, 2, 128, 1))
    return now


def runs(tmp_path: Path) -> list[Run]:
    return [Run.open(one.folder) for one in runs_of(str(tmp_path / "home"))]


@pytest.mark.slow
def test_a_wrong_time_to_live_stops_before_anything_is_written(ferry: Ferry, tmp_path: Path) -> None:
    demo(tmp_path / "source")
    said = ferry("--ttl", "30m")
    assert said.code == 1
    for words in (
        "entries (99.",
        "would expire under a time to live of 30m",
        "more than a quarter",
        "quartiles ",
        "oldest 31.",
        "The ages of mainState end all at once at 31.",
        "suggests a time to live of 30d",
        "--accept-expired 100%",
    ):
        assert words in said.error, words
    assert not (tmp_path / "target").exists()
    (stopped,) = runs(tmp_path)
    assert not any(map(stopped.has_done, Step))
    assert stopped.state.value == "failed"
    own = {"home", "source"}
    assert {entry.name for entry in tmp_path.iterdir()} == own
    assert {entry.name for entry in (tmp_path / "home").iterdir()} == {"runs", "catalog.db"}
    # The same again comes to the same, and the right one is green.
    assert ferry("--ttl", "30m").code == 1
    green = ferry("--ttl", "30d")
    assert green.code == 0
    assert "of 1,500 entries expired (" in green.out
    assert "under a time to live of 30d; youngest" in green.out
    report = Report.read(runs(tmp_path)[0].report)
    assert report.facts["snapshot"]["ages"]["states"][0]["counted"] == 1500


@pytest.mark.slow
def test_after_a_green_run_a_rise_stops(ferry: Ferry, tmp_path: Path) -> None:
    demo(tmp_path / "source")
    assert ferry("--ttl", "30d", "--rehearse").code == 0
    said = ferry("--ttl", "25d")
    assert said.code == 1
    assert "more than twice as many as the" in said.error
    assert runs(tmp_path)[-1].plan.run_id in said.error
    assert ferry("--ttl", "29d").code == 0


@pytest.mark.slow
def test_what_was_meant_goes_on_and_a_rehearsal_s_leave_holds_at_its_cut_over(ferry: Ferry, tmp_path: Path) -> None:
    demo(tmp_path / "source")
    assert ferry("--ttl", "12d", "--rehearse").code == 1
    assert ferry("--ttl", "12d", "--rehearse", "--accept-expired", "50%").code == 1
    assert ferry("--ttl", "12d", "--rehearse", "--accept-expired", "0.7").code == 0
    said = ferry("--ttl", "12d")
    assert said.code == 0
    assert f"published: restore the new job from {tmp_path / 'target'}" in said.out


@pytest.mark.slow
def test_with_keep_expired_nothing_goes_and_the_report_says_what_would(ferry: Ferry, tmp_path: Path) -> None:
    demo(tmp_path / "source")
    said = ferry("--ttl", "30m", "--keep-expired")
    assert said.code == 0
    assert "under a time to live of 30m, kept all the same; youngest" in said.out


@pytest.mark.slow
def test_a_clock_that_the_timestamps_contradict_stops(ferry: Ferry, tmp_path: Path) -> None:
    now = demo(tmp_path / "source")
    newest = newest_of(tmp_path / "source")
    assert newest <= now
    said = ferry("--ttl", "30d", "--now", newest - 600_001)
    assert said.code == 1
    assert "later than what counts as now" in said.error
    assert "--clock-tolerance 11m (it is 10m)" in said.error
    assert not (tmp_path / "target").exists()
    assert ferry("--ttl", "30d", "--now", newest - 600_000, "--rehearse").code == 0
    assert ferry("--ttl", "30d", "--now", newest - 2 * HOUR, "--clock-tolerance", "2h").code == 0


@pytest.mark.slow
def test_an_old_savepoint_s_own_time_is_named(ferry: Ferry, tmp_path: Path) -> None:
    demo(tmp_path / "source", age=365 * DAY)
    newest = newest_of(tmp_path / "source")
    said = ferry("--ttl", "30d")
    assert said.code == 1
    assert "1,500 of 1,500 entries (100.0 %)" in said.error
    assert f"The youngest of all is 365 d old: if the savepoint was taken then, --now {newest} counts" in said.error
    assert ferry("--ttl", "30d", "--now", newest).code == 0


def newest_of(folder: Path) -> int:
    states = flinkstate.open(str(folder)).operator("main").states
    return max(entry.timestamp for state in states for entry in state.entries() if isinstance(entry.timestamp, int))


@pytest.mark.slow
def test_a_small_state_of_which_all_expires_gets_a_note(ferry: Ferry, tmp_path: Path) -> None:
    """For fewer than a hundred entries the run doesn't stop, but it mustn't be silent either."""
    write_demo_savepoint(str(tmp_path / "source"), DemoState(30, 3, 0, 30 * DAY, now_ms() - DAY, 2, 128, 1))
    wrong = ferry("--ttl", "30m", "--rehearse")
    assert wrong.code == 0
    assert "note: all 90 entries of mainState of main expire under --ttl 30m, the youngest is " in wrong.out
    right = ferry("--ttl", "60d", "--rehearse")
    assert right.code == 0
    assert "note: all " not in right.out
