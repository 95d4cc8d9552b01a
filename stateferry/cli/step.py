"""One step of a run as an application of its own, for spark-submit.

    spark-submit spark_jobs/snapshot.py --plan plan.json
    spark-submit spark_jobs/migrate.py --run ~/.stateferry/runs/<job>/<run id>

The first step creates the run from the plan. Each step takes the job's lease, and does its work if it isn't done yet.
Between steps, the lease stays with the run for some minutes, so that no other run comes between them. It is released
when a step fails or has nothing to do (but not while a job stands still and the step may be tried again), and where the
next step may take long to come: after the validation if people approve the run then, and after the publication. Exit
codes are those of `stateferry`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from flinkstate.errors import StateferryError, TransientError, UsageError
from flinkstate.files.storage import Location
from flinkstate.files.stores import reaching
from stateferry.basics.durations import now_ms
from stateferry.basics.exit_codes import Terminated, exit_code_of, if_interrupted, interruption_of
from stateferry.basics.printable import say
from stateferry.basics.private_files import private_files
from stateferry.cli.engine import OpenWorkers
from stateferry.cli.progress import KeptProgress
from stateferry.runs.catalog.lease import BETWEEN_STEPS_MS, Lease
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.control.after_publication import tables_are_left
from stateferry.runs.control.rejecting import check_may_continue
from stateferry.runs.guards.option_notes import nothing_to_do_lines
from stateferry.runs.plan.plan_json import plan_of, plan_values
from stateferry.runs.record.facts import NothingToDo
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.record.temporary_folders import TemporaryFolders
from stateferry.runs.report.decision import Decision


def main(step: Step, open_workers: OpenWorkers, argv: Sequence[str] | None = None) -> int:
    """Carries out the step that the arguments describe, and returns the exit code."""
    return exit_code_of(lambda: _run(step, open_workers, argv))


@private_files()
def _run(step: Step, open_workers: OpenWorkers, argv: Sequence[str] | None) -> int:
    run = _run_of(_parser(step).parse_args(argv))
    with Control(run.plan.catalog_uri) as control:
        check_may_continue(run, control)
        if step is Step.TABLES and step not in run.steps:
            say(f"nothing to do: run {run.plan.run_id} migrates no state, so it has no tables")
            return 0
        if run.state is RunState.PUBLISHED and not (tables_are_left(run, control) and step is Step.TABLES):
            say(f"nothing to do: run {run.plan.run_id} is published")
            return 0
        return _do(run, step, open_workers, control)


def _do(run: Run, step: Step, open_workers: OpenWorkers, control: Control) -> int:
    goes_on = f"run {run.plan.run_id} continues where it stopped when {step} is started again"
    with if_interrupted(goes_on), _leased(control, run, step) as lease:
        # After the validation the pipeline opens the source itself, if it needs it.
        resolved = None if run.has_done(Step.VALIDATE) else _resolved(run)
        if resolved is not None and resolved.nothing_to_do:
            with _failing(run):
                lines = nothing_to_do_lines(resolved)
            run.keep(NothingToDo(lines[0]))
            for line in lines:
                say(line)
            return 0
        TemporaryFolders(run.temporary_folders).take_over()
        # The import runs while the workers start.
        threading.Thread(target=importlib.import_module, args=("stateferry.steps.pipeline",), daemon=True).start()
        with open_workers(f"stateferry {step} {run.plan.run_id}", KeptProgress(run, sys.stderr)) as workers:
            from stateferry.steps.pipeline import Pipeline
            from stateferry.steps.run_at_work import RunAtWork

            Pipeline(RunAtWork(workers, run, resolved, control, lease, say)).carry_out(step)
    say(f"{step} of run {run.plan.run_id} is done: {run.folder.shown}")
    return 0


@contextmanager
def _leased(control: Control, run: Run, step: Step) -> Iterator[Lease]:
    lease = control.acquire(run.plan.job, run.plan.run_id)
    try:
        yield lease
    except BaseException as error:
        with suppress(TransientError):  # If this fails, the lease expires.
            # While a job stands still, no night may come between two tries of a step.
            if _may_be_tried_again(error) and _stands_still(run) and step is not Step.TABLES:
                control.leave(lease)
            else:
                control.release(lease)
        raise
    # A night may have got another plan.
    if _is_followed_at_once(run, step) and Run.open(run.folder).has_done(step):
        control.renew(lease, lease_ms=BETWEEN_STEPS_MS)
    else:
        control.release(lease)


def _may_be_tried_again(error: BaseException) -> bool:
    """Whether a scheduler will start the step again: a scheduler also ends one by SIGTERM, as when its machine goes."""
    return isinstance(error, TransientError) or isinstance(interruption_of(error), Terminated)


def _is_followed_at_once(run: Run, step: Step) -> bool:
    """Whether nobody has to think, and no job has to start, before the next step of the run begins."""
    if run.plan.rehearse:
        return step in run.steps[:-1]
    # What was decided on a rehearsal isn't asked again.
    last = Step.CUT_OVER if _stands_still(run) else Step.VALIDATE
    return step in last.earlier(rehearses=False)


def _stands_still(run: Run) -> bool:
    """Whether a job stands still while the run converts its state."""
    return not run.plan.rehearse and run.facts(Decision) is not None


def _resolved(run: Run) -> ResolvedPlan:
    with _failing(run):
        return resolve(run.plan, open_source(run.plan))


@contextmanager
def _failing(run: Run) -> Iterator[None]:
    """Has the run fail with what is refused in the context."""
    try:
        with reaching():
            yield
    except TransientError:
        raise
    except StateferryError as error:
        run.enter(RunState.FAILED, now_ms(), str(error))
        raise


def _parser(step: Step) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=step, description=f"The step {step} of a run.", allow_abbrev=False)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--run", metavar="FOLDER", help="the run's folder")
    which.add_argument("--plan", metavar="FILE", help="the run's plan, which must name its run_id")
    return parser


def _run_of(options: argparse.Namespace) -> Run:
    if options.run is not None:
        return Run.open(Location.of(options.run))
    try:
        values = plan_values(Path(options.plan).read_bytes(), options.plan)
    except OSError as error:
        raise UsageError(f"the plan can't be read: {error}") from None
    plan = plan_of(values, options.plan)
    missing = sorted({"run_id", "now"} - plan.model_fields_set)
    if missing:
        raise UsageError(f"{options.plan}: {' and '.join(missing)} missing: all steps of a run must agree on them")
    return Run.create(plan, now_ms())
