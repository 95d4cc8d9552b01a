"""How a lazy migration converges: pace, nights to go, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateferry.basics.durations import moment
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.predict import convergence
from stateferry.runs.predict.convergence import Convergence, Night, convergence_of, nights_of
from stateferry.runs.record.facts import Began
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import TablesFacts
from stateferry.tables.counts import TableCounts

DAY = 86_400_000


def night(number: int, by_job: int, by_ferry: int, left: int, untouched: tuple[int, int, int] = (0, 0, 0)) -> Night:
    return Night(f"run-{number}", number * DAY, by_job, by_ferry, left, *untouched)


def test_the_pace_of_the_newest_nights_says_when_the_rest_is_done() -> None:
    nights = [night(1, 0, 0, 1000), night(2, 40, 260, 700), night(3, 90, 510, 400, (350, 200, 0))]
    found = Convergence.of("main/newMainState", nights)
    assert (found.pace, found.nights_to_go, found.done_at) == (300, 2, 5 * DAY)
    assert found.line == (
        "main/newMainState: 60.0 % of 1,000 keys migrated: 90 by the job, 510 by Stateferry; 400 left (untouched: 350 "
        f"for 1 run, 200 for 7 runs); at 300 keys a night it is done in 2 nights, about {moment(5 * DAY)}"
    )


@pytest.mark.parametrize("nights", [[night(1, 10, 0, 90)], [night(1, 10, 0, 90), night(2, 5, 0, 95)]])
def test_without_progress_there_is_no_pace(nights: list[Night]) -> None:
    found = Convergence.of("main/s", nights)
    assert (found.pace, found.nights_to_go, found.done_at) == (None, None, None)
    assert found.line.endswith("; no pace is known yet")


def test_when_nothing_is_left_it_is_done() -> None:
    found = Convergence.of("main/s", [night(1, 0, 50, 50), night(2, 0, 100, 0)])
    assert found.nights_to_go == 0
    assert found.line == "main/s: 100.0 % of 100 keys migrated: 0 by the job, 100 by Stateferry; 0 left"


def test_old_nights_do_not_count() -> None:
    nights = [night(number, 0, 0, 10_000) for number in range(1, 20)] + [night(20, 0, 0, 1000), night(21, 0, 0, 900)]
    assert len(Convergence.of("main/s", nights).nights) == 6


def kept(home: Path, number: int, left: int, **more: Any) -> Run:
    """A lazy run that has brought its tables."""
    plan = plan_of(
        {
            "source": f"{home}/a",
            "target": f"{home}/b",
            "home": str(home),
            "job": "orders",
            "run_id": f"2026010{number}T020000Z-{number}",
            "now": number * DAY,
            "lazy": True,
            "share": 0.2,
            "operators": [{"operator": "main", "states": [{"legacy": "a", "new": "b", "flag": "c"}]}],
            **more,
        }
    )
    run = Run.create(plan, plan.now)
    run.keep(TablesFacts(counts={"main/b": TableCounts(keys_migrated_by_ferry=8000 - left, keys_left=left)}))
    return run


def test_a_dag_run_is_one_night_and_what_was_rolled_back_is_none(tmp_path: Path) -> None:
    for number in range(3):
        left = 8000 - 1600 * number
        rehearsal = kept(tmp_path, 2 * number + 1, left, rehearse=True)
        cut_over = kept(tmp_path, 2 * number + 2, left - 1600)
        for one in (rehearsal, cut_over):
            one.keep(Began(one.plan.now, "orders", f"manual-{number}"))
    back = kept(tmp_path, 7, 1600)
    for state in (RunState.PUBLISHED, RunState.ROLLED_BACK):
        back.note(state, back.plan.now, "")
    (found,) = convergence_of(str(tmp_path), "orders")
    assert [night.left for night in found.nights] == [6400, 4800, 3200]
    assert (found.pace, found.nights_to_go) == (1600, 2)


def test_a_page_shows_the_nights_up_to_its_run_and_no_more_than_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        kept(tmp_path, number, 8000 - number)
    (nights,) = nights_of(str(tmp_path), "orders", "20260103T020000Z-3").values()
    assert [night.by_ferry for night in nights] == [1, 2, 3]
    monkeypatch.setattr(convergence, "MOST_NIGHTS", 2)
    (nights,) = nights_of(str(tmp_path), "orders").values()
    assert [night.by_ferry for night in nights] == [4, 5]
