"""Finds the engine that does the work of real runs.

The library doesn't import the engine. It is found by its name when a command asks for workers, so that a command
without workers doesn't wait for it.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from stateferry.cli.progress import sign_of_life

if TYPE_CHECKING:
    from stateferry.runs.checks.resolved_plan import ResolvedPlan
    from stateferry.steps.workers import Watch, Workers

_LOCAL_WORKERS = "stateferry.spark_jobs.engine:local_workers"


def local_workers(
    application: str, watch: Watch, comes_first: ResolvedPlan | None = None
) -> AbstractContextManager[Workers]:
    """Workers on this machine, as a context manager; the call imports the engine, and entering the context starts it.

    The engine may begin the snapshot of the plan `comes_first` while it starts.
    """
    return _with_a_sign_of_life(pkgutil.resolve_name(_LOCAL_WORKERS)(application, watch, comes_first))


@contextmanager
def _with_a_sign_of_life(opened: AbstractContextManager[Workers]) -> Iterator[Workers]:
    """Says that the engine starts: this takes some seconds, and on a busy machine many."""
    with ExitStack() as until_the_end:
        with sign_of_life("Spark is starting", sys.stderr):
            workers = until_the_end.enter_context(opened)
        yield workers
