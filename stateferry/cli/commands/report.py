"""`stateferry report`: shows what a run found, as text, as JSON or as one HTML file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flinkstate.errors import UsageError
from stateferry.basics.printable import say
from stateferry.cli.options import add_place_options, catalog_of, named_run

if TYPE_CHECKING:
    from stateferry.runs.record.run_states import StateChange
    from stateferry.runs.record.runs import Run

HELP = "show the report of a run, or write it as an HTML file"
DESCRIPTION = """\
Show the report of a run: checks, facts, predictions. RUN is the run's id, the beginning of one, or the run's folder.
With --html the report is written as one file that needs nothing else: checks with expected and found, entries, bytes
and files before and after, key groups, load per subtask, ages, times, which bytes moved, samples of what differs. Every
run has such a file, report.html, in its folder; --html makes it from what the run knows now. It is made also for a run
that has no report yet. Exit code 1: the run has no report, a red one, or one that no longer holds, or its published
files are not those that were validated.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN", help="the run's id, the beginning of one, or its folder")
    parser.add_argument("--job", metavar="NAME", help="of this job, if several jobs have such a run")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--html", metavar="FILE", help="write it as one HTML file; - is standard output")
    how.add_argument("--json", action="store_true", help="as JSON, for programs")
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.runs.record.facts import TablesProblem
    from stateferry.runs.record.run_states import ENDED
    from stateferry.runs.report.proven import is_proven
    from stateferry.runs.report.report import Report
    from stateferry.runs.report.report_text import show_report, show_tables

    found = named_run(options.run_id, options.job, lambda: catalog_of(options)[0])
    report = Report.read(found.report) if found.report.is_file() else None
    problem = found.facts_if_sound(TablesProblem)
    stands = report is not None and is_proven(found, report)
    differs = problem is not None and problem.published_differs
    if options.html is not None:
        _write_html(found, options.html)
    elif report is None:
        change = _change(found)
        reason = f": {change.reason}" if change and change.reason else ""
        say(f"run {found.plan.run_id} of job {found.plan.job} has no report yet; it is {_state(change)}{reason}")
    elif options.json:
        sys.stdout.write(report.to_json())
        if differs and problem is not None:
            say(problem.reason, sys.stderr)
    else:
        change = _change(found)
        show_report(report, sys.stdout, is_over=change is not None and change.state in ENDED, problem=problem)
        if report.tables:
            show_tables(report, sys.stdout, problem=problem)
    if report is not None:
        # Standard output may be for a program, or be the page.
        file = sys.stderr if options.json or options.html else sys.stdout
        _say_what_came_of_it(found, report.is_green and not stands, file)
    return 0 if report is not None and report.is_green and stands and not differs else 1


def _change(found: Run) -> StateChange | None:
    changes = found.changes()
    return changes[-1] if changes else None


def _say_what_came_of_it(found: Run, is_stale: bool, file: TextIO) -> None:
    """Says what the report doesn't: how the run ended, and that its validation no longer stands."""
    from stateferry.runs.record.run_states import RunState

    change = _change(found)
    if change is not None and change.state in (RunState.FAILED, RunState.REJECTED, RunState.ROLLED_BACK):
        reason = f": {change.reason}" if change.reason else ""
        say(f"run {found.plan.run_id} is {_state(change)}{reason}", file)
    if is_stale:
        say("the validation that wrote this report no longer stands: give the run's command again", file)


def _state(change: StateChange | None) -> str:
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
