"""The benchmark of native nights: RocksDB has changed what it says, and the second night reads no more than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import native_nights
from benchmarks.measuring import Scale

pytestmark = pytest.mark.flink


@pytest.mark.full
def test_the_steps_of_both_nights_are_measured(tmp_path: Path) -> None:
    lines = list(native_nights.measure(Scale(tmp_path, keys=2_000, rounds=1)))
    counts, no_goal = [False, True], [False, False]
    of_everything = [*counts, *no_goal, *no_goal, *no_goal, *counts]
    catches_up = [*counts, *no_goal, *no_goal, *no_goal, *no_goal, *no_goal]
    assert [line.at_most is not None for line in lines] == [*of_everything, *counts, *counts, *catches_up]
