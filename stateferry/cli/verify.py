"""`stateferry verify`: validates any savepoint against its source, without a run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stateferry.cli import files_from
from stateferry.cli.options import add_plan_options, named_by_options, plan_of_options
from stateferry.errors import UsageError
from stateferry.printable import say

if TYPE_CHECKING:
    from stateferry.validation.check_result import Check

_DESCRIPTION = """\
Read both savepoints and check that DST is what SRC becomes with the given options. Exit code 1: DST is something else
or is damaged. Exit code 3: SRC is damaged. Give the options of the run that made DST.
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="validate a migrated savepoint against its source",
        usage="stateferry verify SRC DST [OPTION ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_options=_add_options,
    )
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="the savepoint from which DST was made")
    parser.add_argument("target", metavar="DST", help="the migrated savepoint")
    files_from.add_to(parser)
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")


def run(options: argparse.Namespace) -> int:
    from stateferry.cli import engine
    from stateferry.cli.progress import ProgressLines
    from stateferry.runs.lazy_choice import chosen_before
    from stateferry.runs.option_notes import option_notes
    from stateferry.runs.plan_check import open_source, resolve
    from stateferry.steps import validate
    from stateferry.validation.check_result import Check
    from stateferry.validation.checks import open_staged

    options.files_from = files_from.roots_of(options) or None
    _check_two(options)
    with named_by_options(options):
        plan = plan_of_options(options)
        resolved = resolve(plan, open_source(plan))
        if plan.lazy:
            resolved = resolved.moving(chosen_before(plan))
    # This is checked before Spark starts, because a target that can't be read needs no Spark.
    opened = open_staged(plan.target)
    if isinstance(opened, Check):
        return _answer([opened], (), as_json=options.json)
    with engine.local_workers("stateferry verify", ProgressLines(sys.stderr)) as workers:
        checks = validate.run(workers, resolved, plan.target)
    return _answer(checks, option_notes(resolved), as_json=options.json)


def _check_two(options: argparse.Namespace) -> None:
    """Refuses a savepoint beside itself, before the options of a run are missed."""
    from stateferry.runs.plan import folder_of
    from stateferry.runs.plan_fields import absolute_place

    source, target = (folder_of(str(absolute_place(place))) for place in (options.source, options.target))
    if source == target:
        raise UsageError(
            f"SRC and DST are the same savepoint, {source}: verify compares a savepoint with another one that a run "
            "has made of it. `stateferry inspect SAVEPOINT` reads all of a single one, and finds damage"
        )


def _answer(checks: Sequence[Check], notes: Sequence[str], *, as_json: bool) -> int:
    """Shows checks and notes, and returns the exit code."""
    from stateferry.runs.report_text import show_checks
    from stateferry.validation.check_result import Outcome

    green = all(check.outcome is not Outcome.FAILED for check in checks)
    if as_json:
        shown = [asdict(check) | {"outcome": check.outcome.value} for check in checks]
        answer = {"green": green, "checks": shown, "notes": list(notes)}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        show_checks(checks, sys.stdout)
        for note in notes:
            say(f"note: {note}")
    return 0 if green else 1
