"""`stateferry rollback`: bring back the publication before."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from spark_jobs.commands.places import add_place_options, catalog_of

if TYPE_CHECKING:
    from stateferry.runs.control import Control
    from stateferry.runs.publication import Publication


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
    from spark_jobs.cut_over import ToPublish, published_run
    from spark_jobs.pipeline import now_ms
    from stateferry.errors import RejectedError
    from stateferry.runs.control import Control
    from stateferry.runs.plan import new_run_id
    from stateferry.runs.run_states import RunState

    home, catalog_uri = catalog_of(options)
    with Control(catalog_uri) as control:
        undo = _left_unfinished(home, control, options.job) or control.standing(options.job)
        if undo is None:
            raise RejectedError(f"job {options.job} has no publication that stands: nothing to roll back")
        lease = control.acquire(options.job, f"rollback-{new_run_id()}")
        try:
            undone = published_run(home, undo)
            if undone is not None:
                # It may have been killed before it could say so.
                undone.enter(RunState.PUBLISHED, undo.published_at)
            rolled_back = control.rollback(lease, undo=undo.sequence)
            before = published_run(home, rolled_back.standing) if rolled_back.standing is not None else None
            if before is not None:
                ToPublish(before).roll_forward()
            if undone is not None:
                undone.enter(RunState.ROLLED_BACK, now_ms())
        finally:
            control.release(lease)
    sys.stdout.write(f"rolled back publication {undo.sequence} (run {undo.record.run_id})\n")
    sys.stdout.write(f"restore the job from {rolled_back.restore_from}\n")
    return 0


def _left_unfinished(home: str, control: Control, job: str) -> Publication | None:
    """A publication that was undone by a rollback that was killed then: to roll back again must not undo another."""
    from spark_jobs.cut_over import published_run
    from stateferry.runs.run_states import RunState

    standing = control.standing(job)
    for one in control.history(job):
        if one.rolled_back_at is not None and one.previous == (standing.sequence if standing else None):
            run = published_run(home, one)
            if run is not None and run.state is RunState.PUBLISHED:
                return one
    return None
