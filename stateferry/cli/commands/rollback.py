"""`stateferry rollback`: withdraws the newest publication of a job, so that the one before it stands again."""

from __future__ import annotations

import argparse

from stateferry.basics.printable import say
from stateferry.cli.options import add_place_options, catalog_of

HELP = "withdraw a job's newest publication"
DESCRIPTION = (
    "Withdraw the newest publication of a job, so that the one before it stands again, and say from "
    "which savepoint to restore: the one that the run read. No file is removed."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", required=True, metavar="NAME", help="the job")
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.control.rollback import Rollback, nothing_to_roll_back

    home, catalog_uri = catalog_of(options)
    if Control.if_there(catalog_uri) is None:
        raise nothing_to_roll_back(options.job)
    with Control(catalog_uri) as control:
        rolled_back = Rollback(home, control, options.job).carry_out()
    undone = rolled_back.undone
    say(f"rolled back publication {undone.sequence} (run {undone.record.run_id})")
    if rolled_back.problem:
        say(f"note: of what stands again: {rolled_back.problem}")
    say(f"restore the job from {rolled_back.restore_from}")
    return 0
