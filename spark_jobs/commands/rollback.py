"""`stateferry rollback`: bring back the publication before."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from spark_jobs.commands.places import add_place_options, catalog_of


def add_to(commands: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        "rollback",
        help="bring back a job's previous publication",
        description="Make the previous publication of a job the one that stands, and say what to restore from. No file "
        "is removed.",
    )
    parser.add_argument("--job", required=True, metavar="NAME", help="the job")
    add_place_options(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    from stateferry.control import Control
    from stateferry.errors import RejectedError
    from stateferry.plan import new_run_id
    from stateferry.run_states import RunState
    from stateferry.runs import Run

    home, catalog_uri = catalog_of(options)
    with Control(catalog_uri) as control:
        standing = control.standing(options.job)
        if standing is None:
            raise RejectedError(f"job {options.job} has no publication that stands: nothing to roll back")
        lease = control.acquire(options.job, f"rollback-{new_run_id()}")
        try:
            rolled_back = control.rollback(lease, undo=standing.sequence)
            undone = Run.find(home, options.job, rolled_back.undone.record.run_id)
            undone.enter(RunState.ROLLED_BACK, rolled_back.undone.published_at)
        finally:
            control.release(lease)
    sys.stdout.write(f"rolled back publication {standing.sequence} (run {standing.record.run_id})\n")
    sys.stdout.write(f"restore the job from {rolled_back.restore_from}\n")
    return 0
