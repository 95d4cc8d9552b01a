"""The port between the steps and the workers, which do the steps' work.

A step cuts its work into tasks and gives them to `Workers`. A real run has workers on Spark (`spark_jobs/workers.py`);
tests, benchmarks and the warm-up do the same work in their own process.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from stateferry.runs.record.live_progress import LiveProgress

Work = TypeVar("Work")
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Measure(Generic[Fact]):
    """How to measure the work behind a fact: `of` returns an amount in `unit`."""

    unit: str
    of: Callable[[Fact], int]


Watch = Callable[[LiveProgress], None]


class Workers(Protocol):
    """Workers do tasks at the same time, in any order, in processes of their own."""

    @property
    def at_once(self) -> int:
        """How many tasks they do at the same time."""

    @property
    def temporary_folder(self) -> str | None:
        """Where the tasks keep what doesn't fit into memory; None if that is on other machines."""

    def begin(self, step: str) -> float:
        """Tells the workers that a step begins.

        Returns when its work began, by the monotonic clock: now, or earlier if the workers have begun it already.
        """

    def do(
        self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact], measure: Measure[Fact] | None = None
    ) -> Iterable[Fact]:
        """Calls `fn` with each task and yields the results in the order of the tasks.

        Whoever asks takes all results, because the work is done while they are taken: a driver doesn't keep the results
        of a hundred thousand tasks. The library's errors are raised as `fn` raised them. Tasks, results and `fn` are
        pickled on the way.
        """


@dataclass(frozen=True, slots=True)
class InProcess:
    """Workers that are this process, and do one task after the other.

    Tasks and results are pickled, so that they share no objects with the step, as with other workers.
    """

    at_once: int = 2

    @property
    def temporary_folder(self) -> str:
        return tempfile.gettempdir()

    def begin(self, step: str) -> float:
        return time.monotonic()

    def do(
        self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact], measure: Measure[Fact] | None = None
    ) -> list[Fact]:
        return [_sent(fn(_sent(task))) for task in work]


def _sent(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))
