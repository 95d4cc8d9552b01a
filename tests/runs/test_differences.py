"""What differs between the sources of two runs, and whether that is too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stateferry.runs.predict.differences import SourceLayout, beyond, differences, is_newer
from stateferry.runs.record.runs import Run
from stateferry.runs.record.state_ages import FoundAges, Holds, StateAges
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize
from tests.runs.test_prediction import a_run

LAYOUT = SourceLayout(10, {"main": (2, 128), "sink": (1, 128)})
AGES = StateAges("main", "mainState", "mainState", Holds.BLOBS, 1000, 10_000, 500, 0, 0, (1, 2, 3), 9)


def found(entries: int, expired: int = 500) -> SnapshotFacts:
    ages = FoundAges(0, keeps_expired=False, states=(replace(AGES, counted=entries, expired=expired),))
    return SnapshotFacts(states={"main/mainState": StateSize(entries, 9 * entries)}, ages=ages, seconds=1.0, ended_at=0)


@pytest.fixture
def before(tmp_path: Path) -> Run:
    run = a_run(tmp_path, 0, 1000)
    run.keep(found(10_000))
    run.keep(LAYOUT)
    return run


@pytest.fixture
def now(tmp_path: Path) -> Run:
    run = a_run(tmp_path, 1, 1000)
    run.keep(found(10_000))
    run.keep(replace(LAYOUT, checkpoint_id=11))
    return run


def test_what_is_the_same_differs_in_nothing(before: Run, now: Run) -> None:
    assert differences(before, now) == ()
    assert is_newer(before, now)
    assert not is_newer(now, before)


@pytest.mark.parametrize(("entries", "too_much"), [(10_999, False), (11_001, True), (9_001, False), (8_999, True)])
def test_entries_may_differ_by_a_share(before: Run, now: Run, entries: int, too_much: bool) -> None:
    now.keep(found(entries, entries // 20))
    (one, *_) = differences(before, now)
    assert one.text == f"entries of main/mainState: 10,000 before, {entries:,} now"
    assert bool(beyond(before, now, 0.1)) is too_much


@pytest.mark.parametrize(("expired", "too_much"), [(1_400, False), (1_600, True)])
def test_the_share_that_has_expired_may_differ_by_so_much(before: Run, now: Run, expired: int, too_much: bool) -> None:
    now.keep(found(10_000, expired))
    assert bool(beyond(before, now, 0.1)) is too_much


def test_a_few_entries_are_no_news(before: Run, now: Run) -> None:
    before.keep(found(20, 0))
    now.keep(found(90, 60))
    assert differences(before, now)
    assert beyond(before, now, 0.1) == ()


def test_another_layout_is_always_too_much(before: Run, now: Run) -> None:
    now.keep(SourceLayout(11, {"main": (3, 128), "other": (1, 128)}))
    assert [one.text for one in beyond(before, now, 1.0 - 1e-9)] == [
        "operator main: parallelism 2 of at most 128 before, parallelism 3 of at most 128 now",
        "operator sink: parallelism 1 of at most 128 before, not there now",
        "operator other: not there before, parallelism 1 of at most 128 now",
    ]


def test_a_state_that_is_not_migrated_may_come_and_go(before: Run, now: Run) -> None:
    now.keep(replace(found(10_000), states={**found(10_000).states, "windows/contents": StateSize(10**6, 1)}))
    assert differences(before, now) == ()


def test_a_state_that_is_new_or_gone_is_told(before: Run, now: Run) -> None:
    now.keep(SnapshotFacts(states={"main/newMainState": StateSize(5_000, 1)}, seconds=1.0, ended_at=0))
    assert [one.text for one in beyond(before, now, 0.1)] == [
        "entries of main/mainState: 10,000 before, 0 now",
        "entries of main/newMainState: 0 before, 5,000 now",
        "expired of main/mainState: 5.0 % before, 0.0 % now",
    ][:2]
