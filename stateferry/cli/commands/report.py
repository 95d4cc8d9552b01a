"""`stateferry report`: shows what a run found, as text, as JSON or as one HTML file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flinkstate.errors import UsageError
from stateferry.basics.printable import say
from stateferry.cli.named_run import named_run
from stateferry.cli.options import add_place_options, catalog_of

if TYPE_CHECKING:
    from stateferry.runs.record.runs import Run

HELP = "show the report of a run, or write it as an HTML file"
DESCRIPTION = """\
Show the report of a run: checks, facts, predictions. RUN is the run's id, the beginning of one, or the run's folder.
With --html the report is written as one file that needs nothing else: checks with expected and found, entries, bytes
and files before and after, key groups, load per subtask, ages, times, which bytes moved, samples of what differs. Every
run has such a file, report.html, in its folder; --html makes it from what the run knows now. It is made also for a run
that has no report yet. Exit code 1: the run has no report, or a red one.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN", help="the run's id, the beginning of one, or its folder")
    parser.add_argument("--job", metavar="NAME", help="of this job, if several jobs have such a run")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--html", metavar="FILE", help="write it as one HTML file; - is standard output")
    how.add_argument("--json", action="store_true", help="as JSON, for programs")
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.runs.record.run_states import ENDED
    from stateferry.runs.report.report import Report
    from stateferry.runs.report.report_text import show_report, show_tables

    found = named_run(options.run_id, options.job, lambda: catalog_of(options)[0])
    report = Report.read(found.report) if found.report.is_file() else None
    if options.html is not None:
        _write_html(found, options.html)
    elif report is None:
        state = found.changes()[-1] if found.changes() else None
        reason = f": {state.reason}" if state and state.reason else ""
        say(f"run {found.plan.run_id} of job {found.plan.job} has no report yet; it is {_state(state)}{reason}")
    elif options.json:
        sys.stdout.write(report.to_json())
    else:
        show_report(report, sys.stdout, is_over=found.state in ENDED)
        if report.tables:
            show_tables(report, sys.stdout)
    return 0 if report is not None and report.is_green else 1


def _state(change: Any) -> str:
    return "without a state" if change is None else str(change.state.value)


def _write_html(found: Run, name: str) -> None:
    from stateferry.show.run_page import run_page
    from stateferry.show.run_view import RunView

    text = run_page(RunView.of(found, nights=True))
    if name == "-":
        sys.stdout.write(text)
        return
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{name} can't be written: {error}") from None
    say(f"wrote {name}")
