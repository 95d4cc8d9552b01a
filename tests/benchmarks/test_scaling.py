"""What is computed for N cores: the work is divided, the largest task is the end, and a driver starts one at a time."""

from __future__ import annotations

import pytest

from benchmarks.scaling import SECONDS_BESIDE_THE_WORK, SECONDS_OF_A_BYTE, SECONDS_TO_START, STEPS, seconds

_OF_A_GIGABYTE = 10**9 * SECONDS_OF_A_BYTE / STEPS + SECONDS_BESIDE_THE_WORK


def test_cores_divide_the_work_until_the_largest_task_or_the_driver_is_the_limit() -> None:
    sizes = [10**9] * 100
    assert seconds(sizes, 1) == pytest.approx(100 * _OF_A_GIGABYTE)
    assert seconds(sizes, 10) == pytest.approx(10 * _OF_A_GIGABYTE, rel=0.01)
    assert seconds([10**9, 10 * 10**9], 2) > 9 * _OF_A_GIGABYTE
    assert seconds([0] * 10_000, 10_000) == pytest.approx(10_000 * SECONDS_TO_START, rel=0.01)
