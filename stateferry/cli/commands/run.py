"""`stateferry run`: does all steps of a migration, in one session of the engine on this machine."""

from __future__ import annotations

import argparse
import importlib
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from flinkstate.errors import TransientError, UsageError
from stateferry.basics.durations import parse_duration
from stateferry.basics.printable import say
from stateferry.cli.options import add_plan_options, named_by_options, plan_of_options, plan_values_of_options
from stateferry.cli.parser import checked

if TYPE_CHECKING:
    from stateferry.cli.engine import OpenWorkers
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.checks.resolved_plan import ResolvedPlan
    from stateferry.runs.plan.plan import MigrationPlan
    from stateferry.runs.record.runs import Run
    from stateferry.steps.pipeline import Pipeline

_WAIT = "10m"
_THE_SAME = "when the same command is given again"
HELP = "migrate a savepoint's legacy maps into a new savepoint, or only rescale it, and validate it"
DESCRIPTION = """\
Migrate a legacy ValueState<Map> into a MapState, in this order:

  snapshot   read the savepoint once, count its entries, and refuse what a later step could not handle
  migrate    write the new savepoint: each map becomes rows, all other state is carried over
  rescale    at another max parallelism: put what migrate has written into the new key groups
  validate   read both savepoints, and compare every entry
  cut over   publish the new savepoint, if the validation is green: the new job may start
  tables     bring the Iceberg tables to what the new savepoint holds

With --rehearse nothing is published. If a run was stopped, the same command continues it. After success, the same
command does nothing. Runs, catalog and tables are kept in the home, unless $STATEFERRY_WAREHOUSE and
$STATEFERRY_CATALOG name other places for tables and catalog.

Without --operator, --legacy-state and --new-state no state is migrated: the whole savepoint is written with another
--parallelism, --max-parallelism or --format, for another Flink (--to), or without what has expired (--state-ttl with
drop). The step rescale does that, and there are no tables.
"""
EPILOG = """\
examples:
  stateferry run --savepoint /tmp/legacy --target /tmp/migrated --operator main \\
      --legacy-state mainState --new-state newMainState --flag-state isMigratedState --ttl 30d
  stateferry run --savepoint /tmp/legacy --target /tmp/larger --job orders --parallelism 8 --max-parallelism 512

`stateferry inspect SAVEPOINT` prints the command for a savepoint.
"""
USAGE = "stateferry run --savepoint SRC --target DST --operator NAME --legacy-state NAME --new-state NAME [OPTION ...]"


def add_options(parser: argparse.ArgumentParser) -> None:
    places = parser.add_argument_group("from where to where")
    places.add_argument(
        "--savepoint",
        dest="source",
        metavar="SRC",
        help="the savepoint, or checkpoint of RocksDB, to read",
    )
    places.add_argument("--target", metavar="DST", help="the folder that becomes the new savepoint")
    places.add_argument("--rehearse", action="store_true", default=None, help="do everything but publish")
    places.add_argument(
        "--next-in",
        metavar="FOLDER",
        help="instead of --savepoint: the savepoint with which the job is stopped next, in this folder. Give this "
        "command first, and stop the job when it says so: then Spark's start is no part of the outage",
    )
    places.add_argument(
        "--wait",
        metavar="DURATION",
        type=checked(parse_duration),
        help=f"how long --next-in waits for it (default: {_WAIT})",
    )
    add_plan_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.cli import engine

    if options.wait is not None and options.next_in is None:
        raise UsageError("--wait: only a run with --next-in waits: give it as well, or leave --wait out")
    with named_by_options(options):
        return _run(options, engine.local_workers) if options.next_in is None else _run_on_next(options)


def _run_on_next(options: argparse.Namespace) -> int:
    """Runs on the savepoint that Flink completes next in a folder, and does first what needs no savepoint."""
    from flinkstate.files.storage import Location
    from stateferry.basics.exit_codes import if_interrupted
    from stateferry.cli import engine
    from stateferry.cli.next_savepoint import NextSavepoint, check_none_has_begun
    from stateferry.runs.catalog.lease import LeaseHeldError
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.checks.separate_places import check_buckets, check_separate_places

    if options.source is not None:
        raise UsageError("--next-in takes the place of --savepoint: give one of them")
    folder = Location.of(options.next_in)
    # Its path isn't known before it is there; everything else about the plan is checked now.
    options.source = folder.child("next").shown
    if plan_values_of_options(options).get("job") is None:
        raise UsageError("--next-in needs --job: there is no savepoint yet after which the job could be named")
    plan = plan_of_options(options)
    if plan.rescales_only:
        raise UsageError("--next-in needs --operator: it tells a savepoint of the job from those of others")
    check_separate_places(plan)
    check_buckets(plan)
    check_none_has_begun(plan)
    coming = NextSavepoint(folder, plan, options.wait or _WAIT)
    coming.check_plan()
    if plan.since is not None:
        from stateferry.steps.base_run import check_base

        check_base(plan, plan.since)
    _check_target(None, plan)
    with Control(plan.catalog_uri) as control:
        if why := control.why_not_free(plan.job, ""):
            raise LeaseHeldError(why)
    with if_interrupted("no run has begun"), engine.opened_before(engine.local_workers) as lent:
        _import_ahead()
        act = "take a savepoint of the job" if plan.rehearse else "stop the job with a savepoint"
        say(f"Spark has started: now {act} in {folder.shown}")
        options.source = coming.wait()
        check_none_has_begun(plan, options.source)
        again = f"with --savepoint {options.source} instead of --next-in"
        return _run(options, lent, again)


def _run(options: argparse.Namespace, open_workers: OpenWorkers, again: str = _THE_SAME) -> int:
    from stateferry.basics.durations import now_ms
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.checks.plan_check import open_source, resolve
    from stateferry.runs.checks.separate_places import check_buckets, check_separate_places
    from stateferry.runs.control.after_publication import tables_are_left
    from stateferry.runs.control.rejecting import check_may_continue
    from stateferry.runs.guards.option_notes import nothing_to_do_lines
    from stateferry.runs.record.facts import NightChoice
    from stateferry.runs.record.run_list import asked_for_before
    from stateferry.runs.record.run_states import RunState
    from stateferry.runs.record.runs import Run

    plan = plan_of_options(options)
    check_separate_places(plan)
    before = _of_this_source(asked_for_before(plan, {RunState.PUBLISHED, RunState.REJECTED}), plan)
    with Control((before.plan if before else plan).catalog_uri) as control:
        if before is not None:
            check_may_continue(before, control)
        if before is not None and before.state is RunState.PUBLISHED and _stands(before, control):
            if tables_are_left(before, control):
                return _carry_out(before, None, control, open_workers, again)
            say(f"nothing to do: run {before.plan.run_id} has published {before.plan.target}")
            return 0
        if before is not None and before.state is RunState.PUBLISHED:
            before = None
        if before is not None and _only_publishes(before):
            _check_target(before, before.plan)
            return _carry_out(before, None, control, open_workers, again)
        resolved = resolve(before.plan if before else plan, open_source(plan))
        if resolved.nothing_to_do:
            for line in nothing_to_do_lines(resolved):
                say(line)
            return 0
        try:
            _check_target(before, resolved.plan)
        except UsageError:
            # The target may hold the result of the same work, which was published and then rolled back: then the error
            # says so.
            if before is None and (undone := asked_for_before(plan, {RunState.ROLLED_BACK})) is not None:
                check_may_continue(undone, control)
            raise
        if resolved.plan.since is not None and (before is None or before.facts(NightChoice) is None):
            from stateferry.steps.base_run import base_of

            # What it can't go on from is said before there is a run. A night converts everything then.
            base_of(resolved)
        _check_age(resolved, control)
        check_buckets(resolved.plan)
        run = before or Run.create(plan, now_ms())
        check_may_continue(run, control)
        return _carry_out(run, resolved, control, open_workers, again)


def _of_this_source(before: Run | None, plan: MigrationPlan) -> Run | None:
    """The run that the same command has begun, if its source is still the savepoint that it has read.

    A rehearsal of another savepoint at the same path is a new run. What another run writes into its target belongs to
    the savepoint that it has read, so then the command is refused.
    """
    from flinkstate.errors import RejectedError
    from stateferry.runs.report.source_check import replaced_source

    if before is None or (why := replaced_source(before)) is None:
        return before
    if before.plan.rehearse and before.plan.run_id == plan.run_id:
        raise RejectedError(f"{why}: give another run_id, or none, to rehearse the savepoint that is there now")
    if before.plan.rehearse:
        return None
    raise RejectedError(
        f"{why}: its target {before.plan.target} belongs to that one{_published_all_the_same(before)}. To migrate the "
        "savepoint that is there now, give another --target"
    )


def _published_all_the_same(run: Run) -> str:
    """Completes the target of a run whose publication stands, which doesn't need the source, and says so."""
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.control.after_publication import tables_are_left

    with Control(run.plan.catalog_uri) as control:
        if not _stands(run, control):
            return ""
        tables = ", without its tables" if tables_are_left(run, control) else ""
    return f" and is published{tables}: a job may start from there"


def _stands(run: Run, control: Control) -> bool:
    """Whether the run's publication stands: it is the newest that was not rolled back."""
    standing = control.standing(run.plan.job)
    return standing is not None and standing.record.run_id == run.plan.run_id


def _only_publishes(run: Run) -> bool:
    """Whether the publication is what is left to do, which doesn't need the source."""
    from stateferry.runs.record.steps import Step

    return not run.plan.rehearse and run.has_done(Step.VALIDATE)


def _check_target(before: Run | None, plan: MigrationPlan) -> None:
    from stateferry.runs.control.target_metadata import TargetMetadata
    from stateferry.runs.record.facts import Claim
    from stateferry.runs.record.target_claim import target_content

    if plan.rehearse:
        return
    claimed = before is not None and before.stored(Claim) is not None
    kept = TargetMetadata(before) if before is not None else None
    metadata = kept.read() if kept is not None and kept.is_kept() else None
    target_content(plan.target, claimed=claimed, published_metadata=metadata, run_id=plan.run_id)


def _check_age(resolved: ResolvedPlan, control: Control) -> None:
    """Refuses work that couldn't be published in the end; a rehearsal may be of an older savepoint."""
    from stateferry.runs.catalog.publications import check_age

    standing = control.standing(resolved.plan.job)
    if not resolved.plan.rehearse and standing is not None:
        check_age(resolved.plan.job, resolved.plan.source, resolved.source.metadata.checkpoint_id, standing)


def _carry_out(
    run: Run,
    resolved: ResolvedPlan | None,
    control: Control,
    open_workers: OpenWorkers,
    again: str,
) -> int:
    from stateferry.basics.exit_codes import if_interrupted
    from stateferry.cli.progress import KeptProgress
    from stateferry.runs.catalog.lease import LeaseHeldError
    from stateferry.runs.record.facts import NightChoice
    from stateferry.runs.record.steps import Step
    from stateferry.runs.record.temporary_folders import TemporaryFolders

    goes_on = f"run {run.plan.run_id} continues where it stopped {again}"
    try:
        # The run is there before: if the answer is lost, the same command finds the run that has the lease.
        lease = control.acquire(run.plan.job, run.plan.run_id)
    except LeaseHeldError:
        # The same command given twice at once leaves nothing of the second one. With a plan file they may have made
        # the same folder at once, in which the other one is at work.
        held = control.lease_of(run.plan.job)
        if run.is_new and not (held is not None and held.run_id == run.plan.run_id):
            run.folder.remove()
        raise
    try:
        only = ", without a migration" if run.plan.rescales_only else ""
        say(f"run {run.plan.run_id} of job {run.plan.job}{only}: {run.plan.source} -> {run.plan.target}")
        # A night that was killed may have lost its base since.
        comes_first = None if run.has_done(Step.SNAPSHOT) or run.facts(NightChoice) is not None else resolved
        opened = open_workers(f"stateferry {run.plan.run_id}", KeptProgress(run, sys.stderr), comes_first)
        _import_ahead()
        TemporaryFolders(run.temporary_folders).take_over()
        with if_interrupted(goes_on), opened as workers:
            from stateferry.steps.pipeline import Pipeline
            from stateferry.steps.run_at_work import RunAtWork

            _do_steps(Pipeline(RunAtWork(workers, run, resolved, control, lease, say)))
    finally:
        with suppress(TransientError):  # If this fails, the lease expires.
            control.release(lease)
    # A night may have got another plan.
    _say_times(run.open(run.folder))
    return 0


def _import_ahead() -> None:
    """Imports while the engine starts; the second module is for the tables."""
    modules = ("stateferry.steps.pipeline", "stateferry.steps.tables")
    threading.Thread(target=lambda: list(map(importlib.import_module, modules)), daemon=True).start()


def _do_steps(pipeline: Pipeline) -> None:
    """Does the steps. As soon as the new job may start, it says so; the tables follow after that."""
    from stateferry.runs.record.run_states import ENDED, RunState
    from stateferry.runs.record.steps import Step
    from stateferry.runs.report.report import Report
    from stateferry.runs.report.report_text import show_report, show_tables

    run = pipeline.work.run
    if run.state is not RunState.PUBLISHED:
        try:
            pipeline.carry_out(*(step for step in run.steps if step is not Step.TABLES))
        finally:
            _show_failed_report(run)
        run = pipeline.work.run
        show_report(Report.read(run.report), sys.stdout, is_over=run.state in ENDED)
        if not run.plan.rehearse:
            _say_result(run)
    if Step.TABLES in run.steps:
        try:
            pipeline.carry_out(Step.TABLES)
        finally:
            report = Report.read(run.report)
            # Of a try that failed before its checks the error says all.
            if report.tables or not report.tables_pending:
                show_tables(report, sys.stdout)
    if run.plan.rehearse:
        _say_result(run)


def _show_failed_report(run: Run) -> None:
    from stateferry.runs.report.report import Report
    from stateferry.runs.report.report_text import show_report

    content = run.report.read_if_there()
    if content is not None:
        report = Report.of_json(content, run.report.shown)
        if not report.is_green:
            show_report(report, sys.stdout)


def _say_result(run: Run) -> None:
    from stateferry.runs.control.claimable import offered_claimable
    from stateferry.runs.record.facts import ClaimableCopies

    if run.plan.rehearse:
        copied = run.facts(ClaimableCopies) is not None
        vain = ", so --claimable had no effect" if run.plan.claimable and not copied else ""
        say(f"rehearsed: the staged savepoint is {run.staged.shown}; nothing is published{vain}")
    else:
        job = "job" if run.plan.rescales_only else "new job"
        say(f"published: restore the {job} from {run.plan.target}")
        if (claimable := offered_claimable(run)) is not None:
            say(f"or have it claim {claimable.shown}, which is then its own (claim mode CLAIM)")
        say(f"to go back: stateferry rollback --job {run.plan.job}")
    say(f"report: {run.report.shown}")


def _say_times(run: Run) -> None:
    from stateferry.runs.predict.prediction import part_times
    from stateferry.runs.report.report_text import time_line

    say(time_line(part_times(run.looked_at())))
