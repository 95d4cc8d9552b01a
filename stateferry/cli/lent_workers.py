"""Workers that are open already, lent to steps or runs that would open their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from stateferry.runs.record.live_progress import LiveProgress
from stateferry.steps.workers import Watch, Workers

OpenWorkers = Callable[..., AbstractContextManager[Workers]]
"""Opens workers for an application of a name, whose progress goes to a watch."""


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
