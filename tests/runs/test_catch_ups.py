"""When there are enough catch-ups, and what they say of the state and of the cut-over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError, UsageError
from stateferry.runs.control.catching_up import catch_ups_of, made_before
from stateferry.runs.record.catch_ups import CatchUps, OneCatchUp, base_of_cut_over
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize
from tests.runs.test_prediction import a_run


def of(*seconds: float, copy: float = 0.0, apart_ms: int = 1000) -> CatchUps:
    done = tuple(OneCatchUp(f"run-{n}", apart_ms * (n + 1), 50, one) for n, one in enumerate(seconds))
    return CatchUps(0, done, copy=copy)


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


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        (of(60.0, copy=50.0), "it took 60.0 s, longer than the copy"),
        (of(60.0, copy=61.0), ""),
        # Hours after the copy, the next one has much less to do.
        (of(60.0, copy=50.0, apart_ms=7_200_000), ""),
        (of(4.5, copy=2.0), ""),
    ],
)
def test_no_other_one_is_made_after_one_that_took_longer_than_the_copy(taken: CatchUps, why: str) -> None:
    assert taken.why_enough(1, 1000) == why


@pytest.mark.parametrize(
    ("taken", "before", "afterwards"),
    [
        (of(), "", ""),
        (of(25.0, copy=8.0), "more than the 8.0 s", "more than the 8.0 s"),
        (of(25.0, 7.5, copy=8.0), "hardly less than the 8.0 s", ""),
        (of(25.0, 6.0, copy=8.0), "", ""),
        # So short a time is chance, and of an old copy nothing is known.
        (of(4.9, copy=2.0), "", ""),
        (of(25.0), "", ""),
    ],
)
def test_the_last_one_must_be_faster_than_the_copy(taken: CatchUps, before: str, afterwards: str) -> None:
    for is_decided, why in ((False, before), (True, afterwards)):
        found = taken.why_not_faster(is_decided=is_decided)
        assert (why in found, bool(found)) == (True, bool(why))


def test_the_copy_counts_with_the_steps_of_an_outage_all_read(tmp_path: Path) -> None:
    copy = a_run(tmp_path, 1, 10, rehearse=True, snapshot=0.5, migrate=2.0, validate=4.0, tables=30.0)
    assert catch_ups_of(copy).copy == 6.5
    # Its snapshot has read only what had changed since an earlier rehearsal.
    copy.keep(SnapshotFacts(states={"main/mainState": StateSize(1, 10)}, seconds=0.5, ended_at=0, of_all=3.0))
    assert catch_ups_of(copy).copy == 9.0
    night = a_run(tmp_path, 2, 10, rehearse=True, since="run-1", output_format="native", snapshot=0.1, migrate=0.1)
    assert catch_ups_of(night).copy == 9.0
    orphan = a_run(tmp_path, 3, 10, rehearse=True, since="gone", output_format="native")
    assert catch_ups_of(orphan).copy == 0


def test_one_that_joins_newer_files_says_nothing_of_the_next_one() -> None:
    joining = OneCatchUp("run-8", 8000, 50, 150.0, joins=True)
    found = of(*[10.0] * 7, copy=100.0)
    found = replace(found, done=(*found.done, joining))
    assert found.why_enough(1, 9_000) == ""
    assert found.why_not_faster() == ""
    assert found.why_enough(1, 150_000) == "it took 150.0 s"
    slow = replace(found, done=(*found.done, OneCatchUp("run-9", 9000, 50, 160.0)))
    assert slow.why_enough(2, 9_000) == "it took 160.0 s, longer than the copy"
    assert "took 160.0 s, more than the 100.0 s" in slow.why_not_faster()


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
    rehearsal.keep(CatchUps(0, done))
    last.folder.remove()
    with pytest.raises(RefusedError, match=r"catch-up run-2 was removed .*: rehearse anew"):
        base_of_cut_over(rehearsal)


def test_another_run_of_the_same_id_is_no_catch_up(tmp_path: Path) -> None:
    rehearsal, other = a_run(tmp_path, 1, 10, rehearse=True), a_run(tmp_path, 2, 10, rehearse=True)
    made = a_run(tmp_path, 3, 10, rehearse=True, output_format="native", since=rehearsal.plan.run_id)
    with pytest.raises(UsageError, match=r"run-3 .* exists already, and is no catch-up with run run-2: rehearse anew"):
        made_before(made.folder, other)
    assert Run.if_there(made.folder) == made
    # It has no source any more, and isn't validated.
    assert made_before(made.folder, rehearsal) is None
    assert Run.if_there(made.folder) is None
