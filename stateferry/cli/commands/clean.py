"""`stateferry clean`: removes old runs, files and snapshots that are no longer needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stateferry.basics.durations import parse_duration
from stateferry.basics.printable import say
from stateferry.basics.quantities import noun
from stateferry.cli.options import add_place_options, catalog_of
from stateferry.cli.parser import checked

if TYPE_CHECKING:
    from stateferry.runs.control.cleaning import Cleaning, Removal

HELP = "remove old runs, what they left behind, and old snapshots of the tables"
DESCRIPTION = """\
Remove old runs: their folders, their staged savepoints, and the state files that they left in targets that never became
savepoints. Remove old snapshots of the jobs' tables too, and files that no snapshot names. --keep and --older-than say
what is old. The command keeps all that is published and all that a rollback would bring back, and for 14 days what a
cut-over in Airflow waits with or may go back by. While a run works on a job, the command removes nothing of this job
but the temporary files of killed processes.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="NAME", help="only of this job")
    parser.add_argument("--keep", type=int, default=3, metavar="N", help="keep each job's N newest runs (default 3)")
    parser.add_argument(
        "--older-than",
        default="14d",
        metavar="DURATION",
        type=checked(parse_duration),
        help="keep what has changed within this time, such as 12h or 30d (default 14d)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from flinkstate.errors import RejectedError, StateferryError, TransientError, UsageError
    from stateferry.basics.durations import now_ms
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.control.cleaning import Cleaning, Retention
    from stateferry.runs.record.run_list import runs_of

    if options.keep < 0:
        raise UsageError(f"expected --keep to be 0 or more, found {options.keep}")
    rule = Retention(options.keep, parse_duration(options.older_than))
    home, catalog_uri = catalog_of(options)
    if not runs_of(home) and Control.if_there(catalog_uri) is None:
        say(f"nothing to clean: no job is known in {home}")
        return 0
    at_work: list[str] = []
    failed: StateferryError | None = None
    with Control(catalog_uri) as control:
        known = sorted({*control.jobs(), *(one.job for one in runs_of(home))})
        if not known and options.job is None:
            say(f"nothing to clean: no job is known in {home}")
        for job in known if options.job is None else [options.job]:
            cleaning = Cleaning(home, job, control, catalog_uri, rule, now_ms(), options.dry_run)
            try:
                _clean(cleaning)
            except RejectedError as error:
                at_work.append(str(error))
            except TransientError:
                raise
            except StateferryError as error:
                # What is wrong with one job's folders keeps no other job from being cleaned.
                say(f"job {job} isn't cleaned: {error}", sys.stderr)
                failed = failed or error
    if failed is not None:
        raise failed
    if at_work:
        raise RejectedError("; ".join(at_work))
    return 0


def _clean(cleaning: Cleaning) -> None:
    from stateferry.runs.plan.run_options import new_run_id

    _say_what_stays(cleaning)
    removed = list(_show(cleaning, cleaning.remove_temporary_folders()))
    if cleaning.dry_run:
        _sum_up(cleaning, [*removed, *_show(cleaning, cleaning.clean())])
        return
    lease = cleaning.control.acquire(cleaning.job, f"clean-{new_run_id()}")
    try:
        _sum_up(cleaning, [*removed, *_show(cleaning, cleaning.clean())])
    finally:
        cleaning.control.release(lease)


def _say_what_stays(cleaning: Cleaning) -> None:
    others = {run.plan.catalog_shown: run for run in cleaning.of_other_catalogs() if run.plan}
    for catalog, run in others.items():
        say(
            f"job {cleaning.job}: runs of another catalog stay, and the tables, because only {catalog} knows what is "
            f"published: {run.run_id} is one of them",
            sys.stderr,
        )


def _show(cleaning: Cleaning, removals: Iterable[Removal]) -> Iterator[Removal]:
    for removal in removals:
        say(f"{_done(cleaning)} {removal.what} {removal.name}")
        yield removal


def _sum_up(cleaning: Cleaning, removals: Sequence[Removal]) -> None:
    size = sum(removal.size for removal in removals)
    say(f"job {cleaning.job}: {_done(cleaning)} {len(removals)} {noun(len(removals), 'thing')}, {size:,} bytes")


def _done(cleaning: Cleaning) -> str:
    return "would remove" if cleaning.dry_run else "removed"
