"""Writes the report of a run as a page, after each step."""

from __future__ import annotations

from stateferry.show.run_page import run_page
from stateferry.show.run_view import RunView
from stateferry.steps.run_at_work import RunAtWork


def write(work: RunAtWork) -> None:
    """Writes the page. Nothing depends on it, so a run doesn't fail without it."""
    page = work.run.report_page
    try:
        if work.run.report.is_file():
            page.write_atomically(run_page(RunView.of(work.run, nights=True)).encode())
    except Exception as error:  # noqa: BLE001 whatever is wrong with the page, the migration goes on
        work.say(f"note: the page {page.shown} could not be written: {error}")
