"""The page of a job's past: size, rows written and durations over its runs, and a list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stateferry.basics.durations import moment
from stateferry.basics.quantities import noun, shown_amount
from stateferry.show import charts
from stateferry.show.document import document, section, table
from stateferry.show.jobs_page import Job, verdict
from stateferry.show.markup import Content, Markup, element, join, link
from stateferry.show.outcome import seconds_text
from stateferry.show.run_rows import RunRow

_ON_A_PAGE = 50
_MOST_DRAWN = 1000


def history_page(job: Job, page: int, *, top: Content) -> str:
    """The page as HTML; pages of the list count from 1."""
    pages = max(-(-len(job.rows) // _ON_A_PAGE), 1)
    page = min(max(page, 1), pages)
    drawn = tuple(reversed(job.rows[:_MOST_DRAWN]))
    lead = f"{len(job.rows):,} {noun(len(job.rows), 'run')}"
    if len(job.rows) > _MOST_DRAWN:
        lead += f"; the plots show the last {_MOST_DRAWN:,}"
    header = element("header", top, element("h1", job.name), element("p", f"{lead}.", class_="lead"), class_="top")
    plots = [
        _plot("Bytes of state", drawn, lambda row: row.size, lambda value: shown_amount(value, "B")),
        _plot("Rows written into the tables", drawn, lambda row: row.tables_rows, lambda value: f"{value:,.0f}"),
        _plot("Seconds of all parts", drawn, lambda row: row.seconds, seconds_text),
        _plot("Outage", drawn, lambda row: row.outage, seconds_text),
    ]
    body = [
        section("Over time", "A column is a run, the newest at the right. The dashed line is the mean.", *plots),
        section("Runs", None, _runs(job, page), _pager(job, page, pages)),
    ]
    return document(f"{job.name}: history", header, element("main", body))


def _plot(
    name: str, rows: Sequence[RunRow], of: Callable[[RunRow], float | None], shown: Callable[[float], str]
) -> Markup | None:
    found = [(row, value) for row in rows if (value := of(row)) is not None]
    if not found:
        return None
    values = [value for _, value in found]
    top, mean = max(values), sum(values) / len(values)
    labels = [f"{moment(row.planned_at)[:16]}: {shown(value)}" for row, value in found]
    drawn = charts.columns(values, top, mean, name, labels)
    ends = [element("span", moment(row.planned_at)[:10]) for row in (found[0][0], found[-1][0])]
    figure = charts.figure(
        name, f"last {shown(values[-1])}, most {shown(top)}", drawn, element("div", *ends, class_="axis")
    )
    return element("div", figure, style="margin-top:16px")


def _runs(job: Job, page: int) -> Markup:
    shown = job.rows[(page - 1) * _ON_A_PAGE : page * _ON_A_PAGE]
    rows: list[list[Content]] = []
    for row in shown:
        kind, lead = verdict(row)
        rows.append(
            [
                link(moment(row.planned_at)[:16], job.address_of(row.run_id)),
                "rehearsal" if row.rehearse else "cut-over",
                element("span", lead, class_=kind or None),
                None if row.size is None else shown_amount(row.size, "B"),
                None if row.rows is None else f"{row.rows:,}",
                None if row.tables_rows is None else f"{row.tables_rows:,}",
                None if row.seconds is None else seconds_text(row.seconds),
                None if row.outage is None else seconds_text(row.outage),
            ]
        )
    heads = (
        ("planned (UTC)", "word"),
        ("kind", "word"),
        ("result", ""),
        ("state", "number"),
        ("rows", "number"),
        ("into the tables", "number"),
        ("took", "number"),
        ("outage", "number"),
    )
    return table(heads, rows, kind="stack")


def _pager(job: Job, page: int, pages: int) -> Markup | None:
    if pages == 1:
        return None
    newer = link("newer", f"{job.address}/history?page={page - 1}") if page > 1 else None
    older = link("older", f"{job.address}/history?page={page + 1}") if page < pages else None
    return element("p", join(newer, f" page {page} of {pages} ", older), class_="hint")
