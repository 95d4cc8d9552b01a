"""`stateferry runs`: lists all runs, the newest first."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from stateferry.basics.printable import say
from stateferry.cli.options import add_place_options, catalog_of

HELP = "list runs and how they ended"
DESCRIPTION = "List all runs, the newest first."


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="NAME", help="only of this job")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.runs.record.run_list import runs_of

    home, _ = catalog_of(options)
    found: list[dict[str, Any]] = [
        {
            "job": one.job,
            "run_id": one.run_id,
            "state": one.state.value if one.state else None,
            "reason": one.reason,
            "changed_at": one.changed_at,
            "folder": one.folder.shown,
            "source": one.plan.source if one.plan else None,
            "target": one.plan.target if one.plan else None,
        }
        for one in runs_of(home, options.job)
    ]
    if options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    if not found:
        say(f"there is no run{f' of job {options.job}' if options.job else ''} in {home}")
    else:
        _show(found)
    return 0


def _show(found: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from stateferry.basics.durations import moment
    from stateferry.basics.people_text import console_on, plain

    # Without lines between the columns, a line fits into a terminal, and is easy for programs to take apart.
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "job", "state", "since (UTC)"):
        table.add_column(heading, no_wrap=True)
    has_reasons = any(one["reason"] for one in found)
    for heading in ("target", "reason") if has_reasons else ("target",):
        table.add_column(heading, overflow="fold")
    for one in found:
        since = moment(one["changed_at"]).removesuffix(" UTC")
        shown = [
            one["run_id"],
            one["job"],
            one["state"],
            since,
            one["target"],
            *([one["reason"]] if has_reasons else []),
        ]
        table.add_row(*(plain(str(text or "")) for text in shown))
    with console_on(sys.stdout) as console:
        console.print(table)
