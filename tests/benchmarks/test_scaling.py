"""What is computed for N cores: the work is divided, the largest task is the end, and a driver starts one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import exchanging
from benchmarks.measuring import Scale
from benchmarks.scaling import (
    SECONDS_BESIDE_THE_WORK,
    SECONDS_OF_A_BYTE,
    SECONDS_OF_A_READ,
    SECONDS_TO_START,
    STEPS,
    Exchange,
    of_step,
    seconds,
)

_OF_A_GIGABYTE = 10**9 * SECONDS_OF_A_BYTE / STEPS + SECONDS_BESIDE_THE_WORK


def test_cores_divide_the_work_until_the_largest_task_or_the_driver_is_the_limit() -> None:
    sizes = [10**9] * 100
    assert seconds(of_step(sizes), 1) == pytest.approx(100 * _OF_A_GIGABYTE)
    assert seconds(of_step(sizes), 10) == pytest.approx(10 * _OF_A_GIGABYTE, rel=0.01)
    assert seconds(of_step([10**9, 10 * 10**9]), 2) > 9 * _OF_A_GIGABYTE
    assert seconds(of_step([0] * 10_000), 10_000) == pytest.approx(10_000 * SECONDS_TO_START, rel=0.01)


def test_a_receiver_reads_less_often_if_few_senders_have_something_for_it() -> None:
    senders = [10**7] * 1000
    doubled, other = Exchange(senders, 100, 20), Exchange(senders, 100, 1000)
    # The index of each sender, and its one portion for each of the four times that 244 MB fill a receiver's memory; of
    # many senders only once, and then the temporary file's four portions as often.
    assert (doubled.reads_of_a_receiver, other.reads_of_a_receiver) == (20 * (1 + 4), 1000 * (1 + 1) + 4 * 4)
    assert (doubled.is_relayed, other.is_relayed) == (False, True)
    assert other.seconds(1) - doubled.seconds(1) > 100 * (2016 - 100) * SECONDS_OF_A_READ


@pytest.mark.full
@pytest.mark.slow
def test_an_exchange_is_measured(tmp_path: Path) -> None:
    same, other, sent, received = exchanging.measure(Scale(tmp_path, keys=500, rounds=1), senders=3, receivers=4)
    assert same.cpu_seconds > 0
    assert other.cpu_seconds > 0
    assert sent.executions
    assert "4 receivers: 2." in received.what
