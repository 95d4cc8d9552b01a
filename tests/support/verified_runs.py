"""Runs that stage and validate a result, without tables and without a publication."""

from __future__ import annotations

from pathlib import Path

from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.target_metadata import TargetMetadata, digest_of_metadata
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report
from stateferry.steps.pipeline import Pipeline
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import InProcess
from tests.support.legacy_states import FLAG, LEGACY, NEW

_OF_THE_STATE = ("new", "ttl_ms", "flag", "flag_ttl")
STAGED = (Step.SNAPSHOT, Step.MIGRATE, Step.RESCALE, Step.VALIDATE)


def plan_for(source: Path, target: Path, **options: object) -> MigrationPlan:
    """A plan for the operator `main`; options of the state are given like those of the plan."""
    of_state = {name: options.pop(name) for name in _OF_THE_STATE if name in options}
    state = {"legacy": LEGACY, "new": NEW, "flag": FLAG, **of_state}
    operators = [{"operator": "main", "states": [state]}]
    return plan_of({"source": str(source), "target": str(target), "job": "orders", "operators": operators, **options})


def verified(source: Path, target: Path, **options: object) -> Run:
    """A run whose result is green, and complete in the target."""
    plan = plan_for(source, target, **options)
    return do_steps(Run.create(plan, plan.now), STAGED)


def do_steps(run: Run, steps: tuple[Step, ...]) -> Run:
    """Does steps of a run, and completes the target as a publication does."""
    with Control(run.plan.catalog_uri) as control:
        lease = control.acquire(run.plan.job, run.plan.run_id)
        try:
            Pipeline(RunAtWork(InProcess(), run, None, control, lease)).carry_out(*steps)
        finally:
            control.release(lease)
    kept = TargetMetadata(run)
    kept.roll_forward(digest_of_metadata(kept.read()))
    return run


def carried_out(work: RunAtWork) -> Report:
    """The report of a run, after all of its steps."""
    Pipeline(work).carry_out()
    return Report.read(work.run.report)
