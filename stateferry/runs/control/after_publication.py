"""What is left of a published run: its target is completed if a kill left that undone, and its tables follow."""

from __future__ import annotations

from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run

_WITHDRAWN = (RunState.REJECTED, RunState.ROLLED_BACK)


def tables_are_left(run: Run, control: Control) -> bool:
    """Whether the tables of a published run are pending; completes the target."""
    published = control.publication_of(run.plan.job, run.plan.run_id)
    TargetMetadata(run).roll_forward(published.record.metadata_digest)
    return control.are_tables_pending(run.plan.job, run.plan.run_id)


def needs_no_more_steps(run: Run) -> bool:
    """Whether the run is over, with its tables."""
    state, plan = run.state, run.plan
    if state is not RunState.PUBLISHED:
        return state in _WITHDRAWN or (plan.rehearse and state is RunState.VERIFIED)
    with Control(plan.catalog_uri) as control:
        return not control.are_tables_pending(plan.job, plan.run_id)
