"""`stateferry catch-up`: converts what changes while the job runs, until little is left for the outage."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from flinkstate.errors import RefusedError, UsageError
from stateferry.basics.durations import parse_duration
from stateferry.basics.printable import say
from stateferry.cli.options import add_place_options, catalog_of, named_run
from stateferry.cli.parser import checked

if TYPE_CHECKING:
    from stateferry.cli.engine import OpenWorkers
    from stateferry.runs.record.runs import Run

HELP = "convert what has changed since a rehearsal while the job runs, again and again until little is left"
DESCRIPTION = """\
Catch up with RUN, a green rehearsal with native files, while the job runs: each time, convert what has changed in a
newer checkpoint of the folder. It ends when a catch-up takes no longer than --settle, hardly less than the one before
it, or longer than the rehearsal took for everything. It says how long the outage is likely to be, and since which run
the cut-over converts, or that converting everything is as fast. If it was stopped, the same command goes on. RUN is
the run's id, the beginning of one, or the run's folder.
"""
EPILOG = """\
example:
  stateferry run --rehearse --format native --savepoint /checkpoints/orders/chk-7 --target /new/orders --job orders \\
      --operator main --legacy-state mainState --new-state newMainState
  stateferry catch-up 20261127T --job orders --checkpoints /checkpoints/orders
"""
_SECONDS_BETWEEN_LOOKS = 0.5


class _EndedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN", help="the rehearsal: its id, the beginning of one, or its folder")
    parser.add_argument("--job", metavar="NAME", help="of this job, if several jobs have such a run")
    parser.add_argument(
        "--checkpoints", metavar="FOLDER", required=True, help="where the job's checkpoints chk-N are, of its id"
    )
    for name, default, what in (
        ("--settle", "10s", "enough is caught up once a catch-up takes no longer than this (default: %(default)s)"),
        ("--wait", "10m", "how long to wait for a newer checkpoint (default: %(default)s)"),
    ):
        parser.add_argument(name, metavar="DURATION", default=default, type=checked(parse_duration), help=what)
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, if_interrupted
    from stateferry.cli import engine
    from stateferry.cli.how_to_stop import how_to_stop, why_everything
    from stateferry.runs.control.catching_up import catch_up, catch_ups_of
    from stateferry.runs.predict.estimates import prediction_lines
    from stateferry.runs.predict.prediction import predicted_after, predicted_of_size, size_of
    from stateferry.runs.record.catch_ups import base_of_cut_over

    rehearsal = named_run(options.run_id, options.job, lambda: catalog_of(options)[0])
    _check(rehearsal)
    goes_on = "it goes on when the same command is given again"
    try:
        with if_interrupted(goes_on), engine.opened_before(engine.local_workers) as lent:
            why = catch_up(
                rehearsal, catch_ups_of(rehearsal), lambda base, number: _one(options, rehearsal, base, number, lent),
                settle_ms=parse_duration(options.settle), say=say,
            )  # fmt: skip
    except _EndedError as ended:
        if ended.code == DAMAGED_OR_REFUSED:
            say("if it can't be mended, rehearse anew, and catch up with that rehearsal")
        return ended.code
    last = base_of_cut_over(rehearsal) or rehearsal
    foreseen = predicted_after(last)
    say(f"enough: {why}")
    if everything := why_everything(rehearsal, last):
        plan = rehearsal.plan
        foreseen = predicted_of_size(
            plan.home, plan.job, size_of(last),
            rescales_only=plan.rescales_only, lazy=plan.lazy, reverse=plan.reverse,
        )  # fmt: skip
        say(f"{everything}. So convert everything once the job stands still")
    for line in prediction_lines(foreseen):
        say(line)
    say(how_to_stop(rehearsal, last, whole=bool(everything)))
    return 0


def _check(rehearsal: Run) -> None:
    """Refuses at once what no catch-up can go on from; the rest is said by the first one."""
    plan = rehearsal.plan
    if not plan.rehearse or plan.output_format != "native":
        raise UsageError(f"run {plan.run_id} is no rehearsal with native files: give --rehearse and --format native")


def _one(options: argparse.Namespace, rehearsal: Run, base: Run, number: int, lent: OpenWorkers) -> Run:
    """The catch-up of this number, validated."""
    from stateferry.basics.durations import now_ms
    from stateferry.cli.shared_steps import without_tables
    from stateferry.runs.control.catching_up import is_validated, made_before
    from stateferry.runs.plan.plan_json import plan_of
    from stateferry.runs.record.catch_ups import catch_up_id
    from stateferry.runs.record.held_checkpoint import hold_newest
    from stateferry.runs.record.run_folder import HELD, run_folder
    from stateferry.runs.record.runs import Run

    run_id = catch_up_id(rehearsal.plan.run_id, number)
    folder = run_folder(base.plan.home, base.plan.job, run_id)
    made = made_before(folder, base)
    if made is None:
        source = hold_newest(lambda: _newer(options, base), folder.child(HELD), say).shown
        of_this = {"run_id": run_id, "source": source, "since": base.plan.run_id, "full_every": None}
        made = Run.create(plan_of(base.plan.model_dump(mode="json") | of_this), now_ms())
    if not is_validated(made) and (code := without_tables(made, lent)):
        raise _EndedError(code)
    return made


def _newer(options: argparse.Namespace, base: Run) -> str:
    """A checkpoint of the folder that is newer than what the base has read; waits for it."""
    from stateferry.runs.predict.differences import SourceLayout
    from stateferry.runs.record.held_checkpoint import newest_checkpoint_in, number_of

    layout = base.facts(SourceLayout)
    before, end = 0 if layout is None else layout.checkpoint_id, time.monotonic() + parse_duration(options.wait) / 1000
    while True:
        with suppress(UsageError):
            newest = newest_checkpoint_in(options.checkpoints, None)
            if number_of(newest) > before:
                return newest
        if time.monotonic() > end:
            raise RefusedError(
                f"{options.checkpoints} got no checkpoint newer than {before} within {options.wait}: "
                "name the folder of the job that runs now, which ends in its id"
            )
        time.sleep(_SECONDS_BETWEEN_LOOKS)
