"""The page of a run: what came of it, and everything that led there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flinkstate.errors import StateferryError
from stateferry.basics.durations import moment
from stateferry.basics.quantities import noun, shown_amount
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.record.run_states import ENDED, RunState
from stateferry.runs.report.report_text import foreseen_lines, tables_line
from stateferry.show import convergence_section, layout_sections, run_sections
from stateferry.show.document import document, figures, notice, state
from stateferry.show.markup import Content, Markup, element, join, link
from stateferry.show.outcome import outcome_line, seconds_text
from stateferry.show.run_view import RunView

KINDS = {
    RunState.VERIFIED: "good",
    RunState.APPROVED: "good",
    RunState.PUBLISHED: "good",
    RunState.ROLLED_BACK: "warn",
    RunState.FAILED: "bad",
    RunState.REJECTED: "bad",
}


def run_page(
    view: RunView, *, top: Content = None, links: Sequence[tuple[str, str]] = (), refresh: int | None = None
) -> str:
    """The page as HTML; `top` comes first, such as the links to other pages."""
    title = f"{view.plan.job}: {view.state.value if view.state else 'run'}"
    header = element("header", top, *_header(view, links), class_="top")
    return document(title, header, element("main", *_body(view)), refresh=refresh)


def _header(view: RunView, links: Sequence[tuple[str, str]]) -> Iterator[Markup]:
    kind = "rehearsal" if view.plan.rehearse else "cut-over"
    yield element("p", f"{kind} of job {view.plan.job}, run {view.plan.run_id}", class_="eyebrow")
    yield element("div", element("h1", _title(view)), _chip(view), class_="title")
    yield element("p", outcome_line(view), class_="lead")
    if links:
        yield element("p", [join(link(name, address), " · ") for name, address in links[:-1]], link(*links[-1]))
    yield figures(*_figures(view))
    yield from _notices(view)


def _title(view: RunView) -> str:
    match view.state:
        case RunState.VERIFIED if view.plan.rehearse:
            return "Rehearsed"
        case RunState.VERIFIED:
            return "Validated, not published yet"
        case RunState.STAGED if view.report is not None and view.report.is_green:
            return "Validated, the tables follow"
        case RunState.STAGED:
            return "Staged, not validated yet"
        case None:
            return "Run without a state"
        case known:
            return str(known.value).capitalize()


def _chip(view: RunView) -> Markup | None:
    report = view.report
    if report is not None:
        return state("report is green" if report.is_green else "report is red", "good" if report.is_green else "bad")
    return state("no report yet", KINDS.get(view.state, "") if view.state is not None else "")


def _figures(view: RunView) -> Iterator[tuple[str, Content, Content]]:
    if view.report is not None:
        passed, failed, unsure = (view.report.count(outcome) for outcome in Outcome)
        note = f"{failed} failed, {unsure} could not tell" if failed or unsure else "none failed"
        yield f"{noun(passed, 'check')} passed", f"{passed}", note
    if view.rows_written is not None:
        yield "entries in the new states", f"{view.rows_written:,}", "written" if view.report is None else "compared"
    if view.bytes_written is not None and view.digests is not None:
        files = len(view.digests.files)
        yield "new savepoint", shown_amount(view.bytes_written, "B"), f"{files} keyed {noun(files, 'file')}"
    elif view.snapshot is not None:
        yield "source", shown_amount(view.snapshot.size, "B"), f"{view.snapshot.rows:,} entries"
    if view.outage is not None:
        yield "outage", seconds_text(view.outage), "until the first checkpoint"
    elif view.seconds:
        yield "steps took", seconds_text(sum(view.seconds.values())), "all together"
    if view.changes:
        yield "last change", moment(view.changes[-1].at)[11:], moment(view.changes[-1].at)[:10]


def _notices(view: RunView) -> Iterator[Markup]:
    if (back := view.returned) is not None:
        runs = "is running again" if back.ended_at is not None else "was to run again (whether it does says Airflow)"
        yield notice("bad", f"The old job {runs}, from {back.savepoint}: {back.reason}.")
    if view.state in (RunState.FAILED, RunState.REJECTED) and view.reason:
        yield notice("bad", view.reason)
    report, tables = view.report, view.tables_problem
    if report is not None and report.is_green and view.state is RunState.PUBLISHED and report.tables_pending:
        kind = "bad" if tables is not None and tables.published_differs else "warn"
        yield notice(kind, f"{tables_line(report, tables)}.")
    for note in view.snapshot.notes if view.snapshot is not None else ():
        yield notice("warn", f"Note: {note}")
    foreseen = foreseen_lines(report, is_over=view.state in ENDED) if report is not None else []
    if foreseen:
        yield notice("", *(f"{line[0].upper()}{line[1:]}." for line in foreseen))
    for problem in view.problems:
        yield notice("warn", f"A file of this run can't be read, so a part of the page is missing. {problem}")


# What differs comes first, because a red report is opened for it.
_PARTS = (
    run_sections.differences,
    run_sections.checks,
    run_sections.before_and_after,
    convergence_section.convergence,
    run_sections.times,
    layout_sections.key_groups,
    layout_sections.load,
    layout_sections.movement,
    run_sections.ages,
    run_sections.history,
    run_sections.plan,
)


def _body(view: RunView) -> Iterator[Markup]:
    for part in _PARTS:
        try:
            yield from list(part(view))
        except (ArithmeticError, LookupError, TypeError, ValueError, StateferryError) as error:
            # Facts that contradict themselves, perhaps of another version, take only their own part away.
            name = part.__name__.replace("_", " ")
            yield notice("warn", f"The part {name} can't be shown: {type(error).__name__}: {error}")
    yield element("footer", f"Source {view.plan.source} → target {view.plan.target}. Times are UTC.")
