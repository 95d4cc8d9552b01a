"""The pages in a real browser: light and dark, on a phone, with as much as a page ever has, and with hostile names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.catalog.lease import Lease
from stateferry.runs.catalog.publications import Publication, Record
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.predict.estimates import Estimate
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.runs.record.run_states import RunState, StateChange
from stateferry.runs.report.decision import Answer, Decision
from stateferry.show.history_page import history_page
from stateferry.show.jobs_page import Disk, Job, RollingBack, Waiting, jobs_page
from stateferry.show.outage_view import CutOver, DagRunLook, OutagePart, Phase, TaskLook
from stateferry.show.run_page import run_page
from stateferry.show.run_rows import RunRow
from tests.pages.views import EVIL, FAILED, NOW, PASSED, Page, bare, report, whole
from tests.support.browser import Browser, browser, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=f"the pages are not looked at in a browser: there is {why_not()}"),
]

PHONE, DESK = (400, 850), (1400, 1000)
LONG = "a_name_without_any_place_to_break_it_" * 6
# What sticks out of the screen, and isn't inside something that scrolls by itself.
_STICKS_OUT = """
const inside = (one) => one && (getComputedStyle(one).overflowX !== "visible" || inside(one.parentElement));
return [...document.querySelectorAll("main *, header *")]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !inside(one.parentElement))
  .slice(0, 5).map(one => one.outerHTML.slice(0, 120));
"""
_CONTRAST = """
const shade = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const style = getComputedStyle(document.body);
const lights = [shade(style.color), shade(style.backgroundColor)].sort((a, b) => b - a);
return [shade(style.backgroundColor), (lights[0] + 0.05) / (lights[1] + 0.05)];
"""


def many(number: int, **changes: object) -> tuple[RunRow, ...]:
    row = RunRow("orders", "one", "/home/runs/orders/one", True, RunState.VERIFIED, green=True, size=7000, rows=120)
    rows = (
        replace(row, run_id=f"night-{night}", planned_at=NOW - night * 86_400_000, seconds=30.0 + night % 7, **changes)  # type: ignore[arg-type]
        for night in range(number)
    )
    return tuple(rows)


def a_job(name: str = "orders", rows: tuple[RunRow, ...] = ()) -> Job:
    record = Record(
        run_id=name,
        plan_fingerprint="x",
        source=name,
        checkpoint_id=1,
        target=f"/savepoints/{name}",
        metadata_digest="",
        tables={},
        tables_pending=True,
    )
    return Job(
        name,
        "/stateferry/jobs/orders",
        rows or many(40),
        Publication(name, 1, None, NOW, record),
        Lease(name, name, 1, name, NOW, NOW),
        LiveProgress("rescale", 3, 8, 10.0, 5_000_000, "B", at=NOW),
        (Waiting("one", f"Cut over {name}?", (name,), NOW, "/dags/x"),),
        cut_over=a_cut_over(name),
        rollbacks=(RollingBack(name, NOW, name, "/dags/x"),),
    )


def a_cut_over(name: str) -> CutOver:
    parts = tuple(OutagePart(name, 3.0, Estimate(4.0, 2.0, 9.0, 3)) for _ in range(6))
    tasks = {name: TaskLook(name, "running", NOW, 2, "/dags/x")}
    dag_run = DagRunLook("/dags/x", is_active=True, tasks=tasks, triggered_by=name, asked=(name,))
    until = (NOW, NOW, NOW)
    decision = Decision(name, Answer.APPROVED, name)
    return CutOver(Phase.RETURNS, dag_run, decision, parts, StopAsked(NOW), NOW, until, f"/{name}", why_returns=name)


def evil_run() -> str:
    check = Check(EVIL, Outcome.FAILED, EVIL, LONG, (1,), (EVIL, LONG) * 5)
    changes = (StateChange(RunState.FAILED, NOW, EVIL), StateChange(RunState.REJECTED, NOW, LONG))
    plan = whole().plan.model_copy(update={"job": LONG, "source": f"/{LONG}", "target": EVIL})
    return run_page(replace(whole(), plan=plan, changes=changes, report=report(check, PASSED, FAILED)))


PAGES: dict[str, Callable[[], str]] = {
    "run": lambda: run_page(whole(), top=None, links=[("history", "/x"), ("tasks and logs", "/y")]),
    "run with 32,768 key groups": lambda: run_page(whole(32_768, 2_000, 32_768)),
    "run full of markup": evil_run,
    "run without anything": lambda: run_page(bare()),
    "jobs": lambda: jobs_page([a_job(), a_job("carts")], [Disk("/home/of/stateferry", 10**11, 10**12)], top=None),
    "jobs full of markup": lambda: jobs_page(
        [a_job(EVIL), a_job(LONG)], [Disk(one, 1, 2) for one in (EVIL, LONG)], top=None
    ),
    "no job": lambda: jobs_page([], [], top=None),
    "history of 1,000 runs": lambda: history_page(a_job(rows=many(1000)), 1, top=None),
    "history full of markup": lambda: history_page(
        a_job(EVIL, many(60, state=RunState.FAILED, problem=LONG, reason=EVIL)), 2, top=None
    ),
}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable_everywhere_and_runs_nothing(name: str, person: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(PAGES[name]().encode("utf-8", "backslashreplace"))
    shades: list[float] = []
    for (width, height), dark in ((DESK, False), (DESK, True), (PHONE, False), (PHONE, True)):
        person.look_like(width, height, dark=dark)
        person.open(file.as_uri())
        assert person.run("return innerWidth") == width
        assert person.run("return document.documentElement.scrollWidth") <= width, person.run(_STICKS_OUT)
        assert person.run(_STICKS_OUT) == []
        shade, contrast = person.run(_CONTRAST)
        shades.append(shade)
        assert contrast > 7
        # Nothing is loaded, and no script has run.
        assert person.run("return performance.getEntriesByType('resource').length") == 0
        assert person.run("return document.querySelectorAll('script, img').length") == 0
        words = person.text()
        assert len(words) > 20
        if "markup" in name:
            assert '<script>alert("1")</script>' in words
    assert shades[0] == shades[2] > 0.5 > 0.1 > shades[1] == shades[3]


def test_an_address_of_a_page_cannot_run_a_script(person: Browser, tmp_path: Path) -> None:
    """What stands on the pages is text, and their policy forbids scripts, should some become an element after all."""
    file = tmp_path / "page.html"
    made = run_page(whole())
    assert re.search(r'http-equiv="Content-Security-Policy" content="default-src', made)
    file.write_text(made.replace("</main>", "<script>document.title = 'ran'</script></main>"))
    person.open(file.as_uri())
    assert person.run("return document.title") != "ran"


def test_the_history_tells_rows_of_the_state_from_rows_that_the_tables_got() -> None:
    rows = many(1, rows=956_300, tables_rows=2_800)
    words = " ".join(Page(str(history_page(a_job(rows=rows), 1, top=None))).words.split())
    assert "result state rows into the tables took outage" in words
    assert "7.0 kB 956,300 2,800 30 s" in words
    assert "Rows written into the tables last 2,800, most 2,800" in words
