"""Source and target as the disk has them, whatever they are called."""

from __future__ import annotations

import os

from stateferry.errors import PlanError
from stateferry.runs.plan import MigrationPlan, folder_of


def check_apart(plan: MigrationPlan) -> None:
    """Refuses a target that lies in the source's folder, or around it, by way of symbolic links. That depends on the
    disk as it is now, so it is asked again before anything is written there."""
    source, target = (_real_folder(name) for name in (plan.source, plan.target))
    if f"{target}/".startswith(f"{source}/") or f"{source}/".startswith(f"{target}/"):
        raise PlanError(
            f"target {plan.target} is {target}, and source {plan.source} is {source}: symbolic links make them lie one "
            "in the other. A run never writes into its source: give the target a folder of its own"
        )


def _real_folder(name: str) -> str:
    return folder_of(name) if "://" in name else os.path.realpath(folder_of(name))
