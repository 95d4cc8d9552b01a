"""The measurement of a catch-up: it runs, and both ways have the same entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import catching_up
from benchmarks.measuring import Scale

pytestmark = [pytest.mark.flink, pytest.mark.full]


def test_both_ways_are_measured(tmp_path: Path) -> None:
    whole, since = catching_up.measure(Scale(tmp_path, keys=2_000, rounds=1))
    assert whole.what == "everything"
    assert since.what.startswith("since a base, 1 % of the keys changed: everything takes ")
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []
