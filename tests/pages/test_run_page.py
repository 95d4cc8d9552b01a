"""The page of a run: whatever its facts, it is whole, small, and holds nothing but its own content."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest

from stateferry.basics.durations import moment
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.record.facts import Returned, TablesProblem
from stateferry.runs.record.key_group_sizes import SourceSizes
from stateferry.runs.record.run_states import RunState, StateChange
from stateferry.runs.record.step_facts import NewerRows
from stateferry.show.charts import heat_map, level
from stateferry.show.outcome import outcome_line
from stateferry.show.run_page import run_page
from stateferry.show.run_view import RunView
from tests.pages.views import EVIL, FAILED, NOW, PASSED, Page, bare, movement, report, sizes, whole

IN_RUN = {field.name for field in fields(RunView)} - {"plan", "folder"}


def page_of(view: RunView) -> Page:
    html = run_page(view)
    html.encode()
    page = Page(html)
    assert page.left_open == []
    assert not {"script", "img", "iframe", "link", "object", "form", "base"} & set(page.tags)
    assert page.addresses == []
    assert page.handlers == []
    return page


def test_all_parts_are_there() -> None:
    words = page_of(whole()).words
    for said in (
        "Published",
        "report is green",
        "120 = 100 + 20",
        "could not tell",
        "Before and after",
        "Times",
        "predicted",
        "Key groups",
        "128 key groups",
        "Load per subtask",
        "4 subtasks",
        "6 subtasks",
        "Rescale plan",
        "Ages against the time to live",
        "time to live 30d",
        "1 timestamp is in the future",
        "3 of 100 expired (3.0 %)",
        "/home/runs/orders/one",
    ):
        assert said in words, said


def test_a_catch_up_tells_entries_of_the_new_states_from_those_of_changed_keys() -> None:
    usual = whole()
    assert usual.migrate is not None
    view = replace(usual, migrate=replace(usual.migrate, newer={"main/new": NewerRows(3, 2)}), entries=5000)
    words = page_of(view).words
    assert "5,000" in words
    assert "entries of changed keys" in words
    assert "entries of migrated states" not in words
    assert outcome_line(view) == "cut over orders: published, 5,000 rows, steps 11 s"
    # Without tables they aren't kept.
    unknown = replace(view, entries=None)
    assert "entries in the new states" not in page_of(unknown).words
    assert outcome_line(unknown) == "cut over orders: published, steps 11 s"


@pytest.mark.parametrize("missing", sorted(IN_RUN))
def test_a_run_that_was_killed_lacks_facts(missing: str) -> None:
    empty: dict[str, Any] = {"changes": (), "movements": (), "seconds": {}, "problems": ()}
    left_out: dict[str, Any] = {missing: empty.get(missing)}
    page_of(replace(whole(), **left_out))
    kept: dict[str, Any] = {missing: getattr(whole(), missing)}
    page_of(bare(**kept))


def test_options_are_moments_and_durations() -> None:
    plan = whole().plan.model_copy(update={"clock_tolerance_ms": 7_200_000})
    words = page_of(replace(whole(), plan=plan)).words
    assert "clock tolerance" in words
    assert "2h" in words
    assert moment(NOW) in words
    assert str(NOW) not in words


def test_a_run_without_anything_has_a_page() -> None:
    words = page_of(bare()).words
    assert "no report yet" in words
    assert "Checks" not in words


def test_what_cannot_be_read_is_told() -> None:
    assert (
        "part of the page is missing. steps/x.json: damage" in page_of(bare(problems=("steps/x.json: damage",))).words
    )


def test_a_red_report_begins_with_what_differs() -> None:
    changes = (StateChange(RunState.FAILED, NOW, "the staged savepoint failed its checks, so nothing is published: x"),)
    view = replace(whole(), changes=changes, report=report(PASSED, FAILED))
    words = page_of(view).words
    assert "report is red" in words
    assert "key a is missing" in words
    assert "in key groups 3-4, 9" in words
    assert words.index("What differs") < words.index("Checks")
    assert words.index("main: content") < words.index("main: rows")
    assert outcome_line(view) == (
        "cut over orders: failed, the report is red (1 failed), steps 11 s, "
        "the staged savepoint failed its checks, so nothing is published"
    )


def test_names_full_of_markup_are_text() -> None:
    evil = Check(EVIL, Outcome.FAILED, EVIL, EVIL, (1,), (EVIL,) * 10)
    usual = whole()
    assert usual.before is not None
    assert usual.snapshot is not None
    assert usual.snapshot.ages is not None
    assert usual.migrate is not None
    ages = replace(usual.snapshot.ages, states=(replace(usual.snapshot.ages.states[0], operator=EVIL, state=EVIL),))
    view = replace(
        usual,
        plan=usual.plan.model_copy(update={"job": EVIL, "source": EVIL, "target": EVIL}),
        folder=EVIL,
        changes=(StateChange(RunState.REJECTED, NOW, EVIL),),
        report=report(evil, tables=(evil,)),
        snapshot=replace(usual.snapshot, ages=ages, notes=(EVIL,)),
        migrate=replace(usual.migrate, counts={EVIL: next(iter(usual.migrate.counts.values()))}),
        before=replace(usual.before, operators=(replace(usual.before.operators[0], operator=EVIL),)),
        returned=Returned(EVIL, EVIL),
        tables_problem=TablesProblem(EVIL),
        movements=({**movement(4, 6), "operator": EVIL}, {**movement(4, 6), "operator": EVIL}),
        problems=(EVIL,),
    )
    words = page_of(view).words
    assert '<script>alert("1")</script>' in words
    assert "\\ud800" in words
    assert "\\u202e" in words


@pytest.mark.parametrize(
    ("differs", "kind", "said"), [(False, "warn", "tables pending: the reason"), (True, "bad", "the reason")]
)
def test_published_files_that_differ_are_worse_than_tables_that_are_pending(
    differs: bool, kind: str, said: str
) -> None:
    pending = replace(report(), tables_pending=True)
    problem = TablesProblem("the reason", published_differs=differs)
    page = run_page(replace(whole(), report=pending, tables_problem=problem))
    assert f'<div class="notice {kind}"><p>{said}.</p>' in page


def test_32768_key_groups_and_subtasks_stay_small() -> None:
    view = whole(32_768, 20_000, 32_768)
    assert len(run_page(view)) < 400_000
    words = page_of(view).words
    assert "32,768 key groups, a cell is 32 of them" in words
    assert "a column is the largest of 20" in words
    assert "a place is 1024 neighbouring subtasks" in words


def test_facts_that_contradict_themselves_take_only_their_part_away() -> None:
    nothing = replace(sizes(128, 4), parallelism=0)
    words = page_of(replace(whole(), before=SourceSizes((nothing,)))).words
    assert "The part load can't be shown: ZeroDivisionError" in words
    assert "Ages against the time to live" in words


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"operator": "main"},
        {**movement(4, 6), "reads": [{"subtask": 9, "from_subtask": 0, "bytes": [0, 1]}]},
        {**movement(4, 6), "reads": 5},
        {**movement(4, 6), "bytes": "x"},
        {**movement(4, 6), "parallelism": [0, 0], "reads": []},
    ],
)
def test_a_rescale_plan_that_says_nothing_is_left_out(broken: dict[str, Any]) -> None:
    page_of(replace(whole(), movements=(broken,)))


def test_a_changed_max_parallelism_is_told_in_words() -> None:
    one = {**movement(4, 6), "max_parallelism": [128, 720], "reads": None, "bytes_staying": None}
    assert (
        "max parallelism 128 → 720: the key group of every key is computed anew"
        in page_of(replace(whole(), movements=(one,))).words
    )


def test_the_outage_is_told_if_it_is_known() -> None:
    assert outcome_line(replace(whole(), outage=38.2)) == "cut over orders: published, 120 rows, outage 38 s"
    assert "38.2 s" in page_of(replace(whole(), outage=38.2)).words
    assert outcome_line(whole()) == "cut over orders: published, 120 rows, steps 11 s"


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (-1, 0), (1, 1), (125, 1), (126, 2), (999, 8), (1000, 8)])
def test_levels_of_the_scale(value: int, expected: int) -> None:
    assert level(value, 1000) == expected


def test_each_key_group_has_its_cell() -> None:
    drawn = heat_map([0, 5, 10], 10, "bytes", ["a", "b", "c"])
    assert drawn.count("<rect") == 3
    assert [f'class="h{step}"' in drawn for step in (0, 4, 8)] == [True] * 3
    many = heat_map(list(range(1024)), 1023, "bytes", ["x"] * 1024)
    assert many.count("h.94v.94h-.94z") == 1024


def test_the_keys_that_are_moved_night_after_night_are_drawn() -> None:
    page = page_of(whole())
    assert "Keys moved so far" in page.words
    assert "12 moved by Stateferry, 4 by the job, 24 left" in page.words
    assert "40.0 % of 40 keys moved" in page.words
    assert "at 4 keys a night it is done in 6 nights" in page.words
    # Five nights of three parts each, which together are as high as all keys.
    section = run_page(whole()).split("Keys moved so far")[1].split("</section>")[0]
    heights = [float(height) for height in re.findall(r'<rect[^>]* height="([0-9.]+)"', section)]
    assert len(heights) == 15
    assert [sum(heights[at : at + 3]) for at in range(0, 15, 3)] == [100] * 5
    assert "Keys moved so far" not in page_of(replace(whole(), nights={})).words
