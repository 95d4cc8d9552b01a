"""Finds the engine that does the work of real runs, and lends its workers to several steps or runs.

The library doesn't import the engine. It is found by its name when a command asks for workers, so that a command
without workers doesn't wait for it.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from stateferry.cli.progress import sign_of_life
from stateferry.steps.workers import Watch, Workers

if TYPE_CHECKING:
    from stateferry.runs.checks.resolved_plan import ResolvedPlan
    from stateferry.runs.record.live_progress import LiveProgress

_LOCAL_WORKERS = "stateferry.spark_jobs.engine:local_workers"
OpenWorkers = Callable[..., AbstractContextManager[Workers]]
"""Opens workers for an application of a name, whose progress goes to a watch."""


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


@contextmanager
def opened_before(open_workers: OpenWorkers) -> Iterator[OpenWorkers]:
    """Opens workers, and yields what lends them; their progress goes to the watch of the one who has them."""
    watching = _Watching()
    with open_workers("stateferry", watching) as workers:

        @contextmanager
        def lend(_: str, watch: Watch, *__: Any) -> Iterator[Workers]:
            watching.watch = watch
            yield workers

        yield lend


class _Watching:
    """Passes progress on."""

    def __init__(self) -> None:
        self.watch: Watch = lambda _: None

    def __call__(self, progress: LiveProgress) -> None:
        self.watch(progress)
