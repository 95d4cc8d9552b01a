"""The benchmarks on tiny sizes: each does its work, notices when it isn't done, and says what it found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchmarks.__main__ as command
from benchmarks import hashing, moving, reading, sections, snappy, starting, walking
from benchmarks.measuring import Duration, Rate, Scale, Timing, WrongResultError, timed
from benchmarks.report import circumstances, tables
from flinkstate.keyed.keyed_file import WINDOW
from flinkstate.reading.reader import Savepoint
from stateferry.demo import NEW_MAIN_STATE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(tmp_path: Path) -> Scale:
    return Scale(tmp_path, entries=800, rounds=2)


@pytest.mark.slow
@pytest.mark.parametrize("module", [walking, sections, reading, hashing, snappy])
def test_rates_are_measured(module: object, tiny: Scale) -> None:
    lines = list(module.SUBJECT.measure(tiny))  # type: ignore[attr-defined]
    assert lines
    for line in lines:
        assert isinstance(line, Rate)
        assert len(line.timing.seconds) == len(line.timing.cpu_seconds) == tiny.rounds
        assert 0 < line.timing.rate <= line.timing.best_rate
        assert line.twin is None or line.twin.rate > 0


@pytest.mark.full
@pytest.mark.slow
def test_starting_is_measured(tmp_path: Path) -> None:
    lines = list(starting.measure(Scale(tmp_path, entries=800, rounds=1)))
    assert len(lines) == 3
    assert all(line.median > 0 and line.at_most == 2 for line in lines)


def test_all_ways_of_moving_are_measured(tiny: Scale) -> None:
    ranges, scan, index, building = moving.measure(tiny)
    assert "1.0 times" in ranges.note
    # Every new subtask reads all 4 files, or one row after another.
    assert f"{4 * moving.NEW_PARALLELISM} reads" in scan.note
    assert "8 reads" in index.note
    assert len(building.seconds) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ttl", [None, sections.TTL])
def test_rows_are_those_that_plain_python_makes_of_the_blobs(ttl: int | None, tmp_path: Path) -> None:
    state = replace(sections.demo(Scale(tmp_path, entries=30_000)), ttl=ttl)
    source = sections.made_up(Scale(tmp_path), "source", state)
    plain, migrated = tmp_path / "plain", tmp_path / "migrated"
    assert sections.plain_migrate(source, plain, ttl) == 30_000
    counts = sections.migrate(source, migrated, ttl)
    assert sections.entries_done(counts) == 30_000
    assert (counts.rows_written < 30_000) == (ttl is not None)
    assert rows_of(migrated) == plain.read_bytes()


def rows_of(folder: Path) -> bytes:
    """The bytes of all rows of the new state."""
    savepoint = Savepoint.open(str(folder))
    (operator,) = savepoint.keyed_operators()
    found, window = [], np.empty(WINDOW, np.uint8)
    for file in savepoint.open_files(operator):
        for key_group in file.handle.range:
            for section in file.sections(key_group, window):
                assert file.header.states[section.state].name == NEW_MAIN_STATE
                found.append(section.raw.tobytes())
    return b"".join(found)


def test_work_that_is_not_done_is_noticed() -> None:
    assert timed(3, lambda: 3, 2).count == 3
    with pytest.raises(WrongResultError, match="expected 3 things done, found 2"):
        timed(3, lambda: 2, 1)


def test_the_median_counts_and_the_first_round_does_not() -> None:
    clock = iter((1, 2, 3, 4))
    timing = timed(6, lambda: next(clock) and 6, 3)
    assert len(timing.seconds) == 3
    assert next(clock, None) is None
    assert Timing(6, (1.0, 2.0, 30.0), (1.0, 1.0, 2.0)).rate == 3
    assert Timing(6, (1.0, 2.0, 30.0), (1.0, 1.0, 2.0)).best_rate == 6
    assert Timing(6, (1.0, 2.0, 30.0), (1.0, 1.0, 2.0)).cpu_rate == 6


def test_tables_say_whether_goals_are_reached() -> None:
    fast, slow = Timing(8_000_000, (1.0,), (0.5,)), Timing(100, (1.0,), (0.001,))
    rates = tables([Rate("walk", "entries", fast, 5e6, slow), Rate("write", "entries", fast, 9e6)])
    header, rule, walk, write = rates.splitlines()
    assert len({len(line) for line in (header, rule, walk, write)}) == 1
    assert [cell.strip() for cell in walk.split("|")[1:-1]] == [
        "walk", "8,000,000 entries", "8.0", "8.0", "16.0", "≥ 5 reached", "0.100", "160",
    ]  # fmt: skip
    assert "≥ 9 MISSED" in write
    assert "≤ 2 reached" in tables([Duration("start", (1.0, 1.5, 9.0), 2)])
    assert "≤ 2 MISSED" in tables([Duration("start", (2.5,), 2)])


def test_circumstances_name_machine_and_command() -> None:
    text = circumstances(1, "python -m benchmarks walking")
    assert "core 1" in text
    assert "`python -m benchmarks walking`" in text
    assert f"Python {sys.version.split()[0]}" in text


def test_the_command_writes_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The tests themselves stay on all cores.
    monkeypatch.setattr(command, "stay_on_one_core", lambda: None)
    out = tmp_path / "results.md"
    assert command.main(["walking", "--entries", "400", "--rounds", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Map<String,Long>" in printed
    assert printed.strip() in out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_unknown_subject_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "flying"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "there is no subject flying" in done.stderr
