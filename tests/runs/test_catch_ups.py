"""When there are enough catch-ups, and what they say of the state and of the cut-over."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateferry.runs.record.catch_ups import CatchUps, OneCatchUp, base_of_cut_over
from tests.runs.test_prediction import a_run


def of(*seconds: float) -> CatchUps:
    return CatchUps(0, tuple(OneCatchUp(f"run-{n}", 1000 * (n + 1), 50, one) for n, one in enumerate(seconds)))


@pytest.mark.parametrize(
    ("seconds", "new", "why"),
    [
        ((), 0, ""),
        ((60.0,), 1, ""),
        ((60.0, 30.0), 2, ""),
        ((60.0, 10.0), 2, "it took 10.0 s"),
        ((60.0, 56.0), 2, "it took 56.0 s, hardly less than the one before it"),
        # Those before the decision say nothing of the ones after it.
        ((8.0,), 0, ""),
        ((12.0, 60.0), 1, ""),
    ],
)
def test_there_are_enough_when_one_is_short_or_gets_hardly_shorter(
    seconds: tuple[float, ...], new: int, why: str
) -> None:
    assert of(*seconds).why_enough(new, 10_000) == why


def test_the_speed_is_that_of_the_last_one() -> None:
    assert of().speed() == 0
    assert of(3.0).speed() == 50
    assert CatchUps(0, (OneCatchUp("a", 10_000, 5, 1.0), OneCatchUp("b", 14_000, 20, 1.0))).speed() == 5


def test_a_cut_over_builds_on_the_last_one_unless_it_converts_everything(tmp_path: Path) -> None:
    rehearsal, last = a_run(tmp_path, 1, 10, rehearse=True), a_run(tmp_path, 2, 10, rehearse=True)
    assert base_of_cut_over(rehearsal) is None
    done = (OneCatchUp("run-2", 1, 2, 3.0),)
    rehearsal.keep(CatchUps(0, done))
    assert base_of_cut_over(rehearsal) == last
    rehearsal.keep(CatchUps(0, done, "the base is gone"))
    assert base_of_cut_over(rehearsal) is None
