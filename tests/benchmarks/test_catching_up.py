"""The measurement of a catch-up: it runs, and both ways have the same entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import accessing, catching_up
from benchmarks.measuring import Scale

pytestmark = [pytest.mark.flink, pytest.mark.full]


def test_both_ways_are_measured(tmp_path: Path) -> None:
    durations = list(catching_up.measure(Scale(tmp_path, keys=2_000, rounds=1)))
    for (whole, since), anew in zip((durations[:2], durations[2:]), ("", ", all files written anew"), strict=True):
        assert whole.what == f"everything{anew}"
        assert since.what.startswith(f"since a base, 1 % of the keys changed{anew}: everything takes ")
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []


def test_a_large_state_is_measured_with_as_many_changes(tmp_path: Path) -> None:
    small, large = catching_up.grow(Scale(tmp_path, keys=20_000, rounds=1))
    assert small.what == "2,000 of 200,000 entries changed"
    assert large.what.startswith("2,000 of 2,000,000 entries changed: ")
    assert large.at_most == pytest.approx(1.2 * small.median)
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []


def test_reads_over_catch_ups_are_measured(tmp_path: Path) -> None:
    lines = list(accessing.measure_layers(Scale(tmp_path, keys=10_000)))
    assert [line.by_title["newer files of the state"] for line in lines] == ["0", "1", "4", "8"]
    assert all(float(line.by_title["µs to read an entry"]) > 0 for line in lines)
