"""A look into a savepoint as an application of its own, for spark-submit: the answer goes into a file.

    spark-submit spark_jobs/check.py --savepoint FOLDER --into ANSWER.json --wanted PLAN --for flink-2

The answer is that of `stateferry inspect --json`. With a plan, `problems` says what in the savepoint contradicts it;
the plan lacks only the address of the catalog, which a check doesn't use. With `--for`, `verdict` is the answer of
`stateferry check --json`, which takes the same further options. Exit codes are those of `stateferry`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from flinkstate.errors import DamagedError, StateferryError, TransientError
from flinkstate.files.storage import Location
from flinkstate.files.stores import reaching
from stateferry.basics.exit_codes import exit_code_of
from stateferry.basics.printable import say
from stateferry.basics.private_files import private_files
from stateferry.cli.commands.check import add_asked, answer_of, verdict_facts
from stateferry.cli.commands.inspect import facts_of
from stateferry.cli.savepoint_options import add_files_from, classes_of, opened
from stateferry.inventory.inventory import take, total
from stateferry.look.survey import survey
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.guards.option_notes import nothing_to_do_lines
from stateferry.runs.guards.other_flink import check_other_flink
from stateferry.runs.plan.plan_json import plan_of, plan_values
from stateferry.steps import snapshot


def main(argv: Sequence[str] | None = None) -> int:
    """Looks into the savepoint that the arguments name, and returns the exit code."""
    return exit_code_of(lambda: _run(argv))


@private_files()
def _run(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="check", description="Look into a savepoint.", allow_abbrev=False)
    parser.add_argument("--savepoint", metavar="FOLDER", required=True)
    parser.add_argument("--into", metavar="FILE", required=True, help="the file for the answer")
    parser.add_argument("--wanted", metavar="PLAN", default="", help="the plan to hold it against, as JSON")
    parser.add_argument("--for", dest="target", metavar="FLINK", help="say what it does in this Flink")
    add_asked(parser)
    add_files_from(parser)
    options = parser.parse_args(argv)
    with reaching():
        savepoint = opened(options)
        answer = facts_of(savepoint, survey(savepoint, job=classes_of(options)))
        if options.wanted:
            answer["problems"] = _problems(options.wanted)
        if options.target is not None:
            answer["verdict"] = verdict_facts(options, savepoint, *answer_of(options, savepoint))
        into = Location.of(options.into)
        into.parent.make_folder()
        into.write_atomically(json.dumps(answer, indent=2).encode())
    say(f"the answer is in {into.shown}")
    return 0


def _problems(wanted: str) -> list[str]:
    """Why the savepoint can't be migrated as the plan says; empty if it can."""
    values = plan_values(wanted, "the plan")
    plan = plan_of({**values, "catalog_uri": "sqlite:////dev/null"}, "the plan")
    try:
        resolved = resolve(plan, open_source(plan))
        if resolved.nothing_to_do:
            return nothing_to_do_lines(resolved)
        check_other_flink(resolved)
        # What would stop the snapshot step of a run is a problem here, too.
        inventory = total(map(take, snapshot.inventory_work(resolved, 1)))
        return [str(error) for error in snapshot.stopping_errors(resolved, inventory)]
    except (TransientError, DamagedError):
        raise
    except StateferryError as error:
        return str(error).splitlines()
