"""Finds the engine that does the work of real runs.

The library doesn't import the engine. It is found by its name when a command asks for workers, so that a command
without workers doesn't wait for it.
"""

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
    """Workers on this machine, as a context manager; the call imports the engine, and entering the context starts it.

    The engine may begin the snapshot of the plan `comes_first` while it starts.
    """
    opened: AbstractContextManager[Workers] = pkgutil.resolve_name(_LOCAL_WORKERS)(application, watch, comes_first)
    return opened
