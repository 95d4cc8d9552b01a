"""One step of a run as an application of its own, for spark-submit: `main` of each step's module.

    spark-submit spark_jobs/snapshot.py --plan plan.json
    spark-submit spark_jobs/migrate.py --run ~/.stateferry/runs/<job>/<run id>

The run is made of the plan by whichever step comes first; each step takes the job's lease, does its work if it isn't
done yet, and lets the lease go. Exit codes are those of `stateferry`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.commands.progress_lines import ProgressLines
from spark_jobs.cut_over import ToPublish
from spark_jobs.pipeline import Pipeline, now_ms
from spark_jobs.session import submitted_session
from stateferry.errors import UsageError
from stateferry.exit_codes import exit_code_of
from stateferry.runs.control import Control
from stateferry.runs.plan import plan_of_json
from stateferry.runs.plan_check import resolve
from stateferry.runs.run_states import ENDED
from stateferry.runs.runs import Run
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.storage import Location


def main(step: str, argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _run(step, argv))


def _run(step: str, argv: Sequence[str] | None) -> int:
    run = _run_of(_parser(step).parse_args(argv))
    if run.state in ENDED:
        ToPublish(run).roll_forward()
        _say(f"nothing to do: run {run.plan.run_id} is {run.state.value}")
        return 0
    with Control(run.plan.catalog_uri) as control:
        resolved = resolve(run.plan, Savepoint.open(run.plan.source))
        if resolved.nothing_to_do:
            _say(f"nothing to do: {resolved.what_was_done_before or 'the savepoint is as wanted already'}")
            return 0
        lease = control.acquire(run.plan.job, run.plan.run_id)
        try:
            spark = submitted_session(f"stateferry {step} {run.plan.run_id}")
            try:
                Pipeline(spark, run, resolved, control, lease, ProgressLines(sys.stderr), _say).carry_out_step(step)
            finally:
                spark.stop()
        finally:
            control.release(lease)
    _say(f"{step} of run {run.plan.run_id} is done: {run.folder.shown}")
    return 0


def _parser(step: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=step, description=f"The step {step} of a run.", allow_abbrev=False)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--run", metavar="FOLDER", help="the run's folder")
    which.add_argument("--plan", metavar="FILE", help="the run's plan, which must name its run_id")
    return parser


def _run_of(options: argparse.Namespace) -> Run:
    if options.run is not None:
        return Run.open(Location.of(options.run))
    try:
        plan = plan_of_json(Path(options.plan).read_bytes(), options.plan)
    except OSError as error:
        raise UsageError(f"the plan can't be read: {error}") from None
    missing = sorted({"run_id", "now"} - plan.model_fields_set)
    if missing:
        raise UsageError(f"{options.plan}: {' and '.join(missing)} missing: all steps of a run must agree on them")
    return Run.create(plan, now_ms())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
