"""The engine of real runs. The library doesn't import it, and a command that needs no engine doesn't wait for it: it is
found by its name when a command asks for workers."""

from __future__ import annotations

import pkgutil
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateferry.runs.plan_check import ResolvedPlan
    from stateferry.steps.workers import Watch, Workers

_LOCAL_WORKERS = "spark_jobs.engine:local_workers"


def local_workers(
    application: str, watch: Watch, comes_first: ResolvedPlan | None = None
) -> AbstractContextManager[Workers]:
    """Workers on this machine, once the context is entered; the engine is imported before. The snapshot of the plan
    `comes_first` may be begun while the engine starts."""
    opened: AbstractContextManager[Workers] = pkgutil.resolve_name(_LOCAL_WORKERS)(application, watch, comes_first)
    return opened
