"""`stateferry verify`: validates any savepoint against its source, without a run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from flinkstate.errors import UsageError
from stateferry.basics.printable import say
from stateferry.cli.options import add_plan_options, named_by_options, named_run, plan_values_of_options

if TYPE_CHECKING:
    from stateferry.proof.expected.check_result import Check
    from stateferry.runs.plan.plan import MigrationPlan

HELP = "validate a migrated savepoint against its source"
USAGE = "stateferry verify SRC DST [OPTION ...]"
DESCRIPTION = """\
Read both savepoints and check that DST is what SRC becomes with the given options, or with those of a run (--run). What
has expired is judged by the run's now. The run is found by DST, if the home has it and neither --run nor --now is
given. Exit code 1: DST is something else or is damaged. Exit code 3: SRC is damaged.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="the savepoint from which DST was made")
    parser.add_argument("target", metavar="DST", help="the migrated savepoint")
    parser.add_argument(
        "--run",
        dest="run_id",
        metavar="RUN",
        help="take options and now from this run (id, beginning of one, or folder); other options override it",
    )
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")


def run(options: argparse.Namespace) -> int:
    from stateferry.cli import engine
    from stateferry.cli.progress import ProgressLines
    from stateferry.proof.checks import open_staged
    from stateferry.proof.expected.check_result import Check
    from stateferry.runs.checks.plan_check import open_source, resolve
    from stateferry.runs.guards.lazy_choice import chosen_before
    from stateferry.runs.guards.option_notes import option_notes
    from stateferry.steps import validate

    _check_two(options)
    with named_by_options(options):
        plan, since, run_id = _plan(options)
        resolved = resolve(plan, open_source(plan))
        if plan.lazy:
            resolved = resolved.moving(chosen_before(plan, run_id))
    # This is checked before Spark starts, because a target that can't be read needs no Spark.
    opened = open_staged(plan.target)
    if isinstance(opened, Check):
        return _answer([opened], (), as_json=options.json)
    with engine.local_workers("stateferry verify", ProgressLines(sys.stderr)) as workers:
        checks = validate.check(workers, resolved, plan.target)
    expires = any(one.aging for one in resolved.changes) or any(one.drops_expired for _, one in resolved.migrations)
    notes = [*([since] if since and expires else []), *option_notes(resolved)]
    return _answer(checks, notes, as_json=options.json)


def _plan(options: argparse.Namespace) -> tuple[MigrationPlan, str, str | None]:
    """The plan; whose `now` it has, which is empty if an option or a plan file says it; and the id of the run named."""
    from stateferry.basics.durations import moment
    from stateferry.runs.checks.plan_check import planned
    from stateferry.runs.plan.homes import default_home
    from stateferry.runs.plan.plan_fields import absolute_place

    run = None
    if options.run_id is not None:
        run = named_run(options.run_id, options.job, lambda: str(absolute_place(options.home or default_home())))
    of_run = run.plan.model_dump(mode="json") if run is not None else None
    values = plan_values_of_options(options, of_run)
    plan = planned(values)
    if run is not None and plan.now == run.plan.now:
        return plan, f"now is {moment(plan.now)}, as in run {run.plan.run_id}", run.plan.run_id
    run_id = run.plan.run_id if run is not None else None
    can_expire = any(state.ttl_ms is not None for one in plan.operators for state in one.states) or plan.state_ttls
    if "now" in values or not can_expire:
        return plan, "", run_id
    if (maker := _maker_of(plan)) is not None:
        now = f"now is {moment(maker.now)}, as in run {maker.run_id}, whose target this is"
        return plan.model_copy(update={"now": maker.now}), now, run_id
    since = (
        f"now is this moment, as no run under {plan.home} has the target {plan.target}: what has expired since that "
        "was made counts as kept by mistake. Name the run (--run) or its now (--now)"
    )
    return plan, since, run_id


def _maker_of(plan: MigrationPlan) -> MigrationPlan | None:
    """The plan of the run that has made the target: one that was published, else the newest."""
    from stateferry.runs.plan.plan_fields import folder_of
    from stateferry.runs.record.run_list import runs_of
    from stateferry.runs.record.run_states import RunState

    found = [
        one
        for one in runs_of(plan.home)
        if one.plan is not None and folder_of(one.plan.target) == folder_of(plan.target)
    ]
    published = [one for one in found if one.state in (RunState.PUBLISHED, RunState.ROLLED_BACK)]
    return next((one.plan for one in (*published, *found)), None)


def _check_two(options: argparse.Namespace) -> None:
    """Refuses a savepoint beside itself, before the options of a run are missed."""
    from stateferry.runs.plan.plan_fields import absolute_place, folder_of

    source, target = (folder_of(str(absolute_place(place))) for place in (options.source, options.target))
    if source == target:
        raise UsageError(
            f"SRC and DST are the same savepoint, {source}: verify compares a savepoint with another one that a run "
            "has made of it. `stateferry inspect SAVEPOINT` reads all of a single one, and finds damage"
        )


def _answer(checks: Sequence[Check], notes: Sequence[str], *, as_json: bool) -> int:
    """Shows checks and notes, and returns the exit code."""
    from stateferry.proof.expected.check_result import Outcome
    from stateferry.runs.report.report_text import show_checks

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
