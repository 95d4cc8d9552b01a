"""The benchmark of native reading: the databases have the runs that it names, and all of their rows are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import native_reading
from benchmarks.measuring import Scale

pytestmark = pytest.mark.flink


@pytest.mark.matrix
@pytest.mark.parametrize("runs", native_reading.VARIANTS, ids=lambda runs: runs.what)
def test_a_database_has_its_runs_and_all_rows(runs: native_reading.Runs, tmp_path: Path) -> None:
    database, rows = native_reading.write(tmp_path / "database", runs, 1_250)
    files = database.families["newMainState"].files.values()
    assert len(files) == runs.runs
    assert {file.level == 0 for file in files} == {runs.runs > 1}
    # Each file overlaps each other one.
    assert max(file.smallest for file in files) < min(file.largest for file in files)
    assert rows == native_reading.read(database) == 1_200


@pytest.mark.full
def test_rates_are_measured(tmp_path: Path) -> None:
    lines = list(native_reading.measure(Scale(tmp_path, entries=800, rounds=1)))
    assert len(lines) == len(native_reading.VARIANTS)
    assert all(line.timing.count == 800 for line in lines)
