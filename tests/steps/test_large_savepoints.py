"""Runs on savepoints of many operators or many subtasks: no function is called for each pair of them."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import operator_id
from stateferry.cli import main
from tests.support.in_process import without_spark

pytestmark = pytest.mark.slow

# Twice the size is twice the calls, and not four times; calls that are few by any measure aren't looked at.
MOST, FEW = 2.6, 3000
OPERATOR = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState")
STATES = (*OPERATOR, "--flag-state", "isMigratedState")


def with_operators(folder: Path, count: int) -> None:
    """A demo savepoint whose job has so many further operators, without state."""
    assert main(["demo-savepoint", str(folder), "--keys", "50", "--entries", "2"]) == 0
    file = folder / METADATA
    metadata = parse_metadata(file.read_bytes(), str(file))
    more = (Operator(operator_id(f"{number}"), 1, 128, f"{number}", f"{number}") for number in range(count))
    file.write_bytes(build_metadata(replace(metadata, operators=(*metadata.operators, *more))))


def with_subtasks(folder: Path, count: int) -> None:
    """A demo savepoint of so many subtasks."""
    arguments = ["--keys", "300", "--entries", "2", "--parallelism", str(count), "--max-parallelism", "512"]
    assert main(["demo-savepoint", str(folder), *arguments]) == 0


def calls_of_run(area: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, int], None], size: int) -> object:
    """How often each function was called, by its file, line and name."""
    monkeypatch.setenv("STATEFERRY_HOME", str(area / "home"))
    without_spark(monkeypatch)
    make(area / "source", size)
    profile = cProfile.Profile()
    command = ["run", "--savepoint", str(area / "source"), "--target", str(area / "target"), *STATES]
    assert profile.runcall(main, command) == 0
    return {name: one[0] for name, one in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]


@pytest.mark.full
@pytest.mark.parametrize(("make", "size"), [(with_operators, 150), (with_subtasks, 60)])
def test_no_function_is_called_for_each_pair(
    make: Callable[[Path, int], None], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for warm in ("small", "large"):
        (tmp_path / warm).mkdir()
    small = calls_of_run(tmp_path / "small", monkeypatch, make, size)
    large = calls_of_run(tmp_path / "large", monkeypatch, make, 2 * size)
    assert isinstance(small, dict)
    assert isinstance(large, dict)
    # A thread that waits calls as often as it has time for.
    found = {
        name: (small.get(name, 0), count)
        for name, count in large.items()
        if count > FEW
        and count > MOST * small.get(name, 0)
        and any(f"/{package}/" in name[0] for package in ("flinkstate", "stateferry"))
    }
    assert not found
