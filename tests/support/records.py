"""Records of publications, as a cut-over makes them."""

from __future__ import annotations

from typing import Any

from stateferry.runs.catalog.publications import Record
from stateferry.runs.plan.plan import MigrationPlan


def record_of(plan: MigrationPlan, **changes: Any) -> Record:
    """What the run of the plan publishes."""
    return Record(
        run_id=plan.run_id,
        plan_fingerprint=plan.fingerprint,
        source=plan.source,
        checkpoint_id=1,
        target=plan.target,
        metadata_digest="",
        tables={},
    ).model_copy(update=changes)
