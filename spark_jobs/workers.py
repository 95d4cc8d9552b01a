"""The steps' workers on Spark: each of a step's tasks is one Spark task, which returns one small object."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator

from spark_jobs.lost import losses_told
from spark_jobs.startup.head_start import HeadStart
from spark_jobs.watching import watched
from stateferry.errors import PassingError, StateferryError
from stateferry.private_files import private_files, wanted_umask
from stateferry.savepoint.stores import reaching
from stateferry.steps.workers import Measure, Watch

Work = TypeVar("Work")
Fact = TypeVar("Fact")

# Seconds before each new try of a task whose error may pass.
WAITS = (1.0, 4.0)


class SparkWorkers:
    """Implements `stateferry.steps.workers.Workers` on Spark; calls `watch` with the progress of each step."""

    def __init__(
        self, sc: SparkContext, watch: Watch = lambda _: None, head_start: HeadStart[Any, Any] | None = None
    ) -> None:
        self._sc, self._watch, self._head_start = sc, watch, head_start
        self.at_once: int = sc.defaultParallelism
        is_here = str(sc.master).startswith("local")
        self.temporary_folder = sc.getConf().get("spark.local.dir", tempfile.gettempdir()) if is_here else None

    def begin(self, step: str) -> float:
        """When the step's work began; ends the head start, if there is one for the step."""
        ahead = self._ahead_of(step)
        return time.monotonic() - (ahead.seconds if ahead else 0.0)

    def do(
        self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact], measure: Measure[Fact] | None = None
    ) -> list[Fact]:
        """Runs one Spark task for each task that the head start has not done.

        The library's errors are raised here as they were raised in the task, and not as a failure of Spark.
        """
        if not work:
            return []
        ahead = self._ahead_of(step)
        done: dict[int, Fact] = ahead.facts_of(work, fn) if ahead else {}
        rest = [(number, piece) for number, piece in enumerate(work) if number not in done]
        with losses_told():
            amount = self._sc.accumulator(sum(map(measure.of, done.values())) if measure else 0)
            task = _Task(fn, measure, amount, _attempts(self._sc), wanted_umask())

            def job() -> list[tuple[int, Fact | _Failure]]:
                return self._sc.parallelize(rest, len(rest)).map(task).collect() if rest else []

            of_spark = watched(
                self._sc,
                step,
                len(work),
                job,
                self._watch,
                lambda: int(amount.value),
                measure.unit if measure else "",
                done_before=len(done),
                seconds_before=ahead.seconds if ahead else 0.0,
            )
        facts: dict[int, Fact | _Failure] = {**done, **dict(of_spark)}
        return [_without_failure(facts[number]) for number in range(len(work))]

    def _ahead_of(self, step: str) -> HeadStart[Any, Any] | None:
        if self._head_start is None or self._head_start.step != step:
            return None
        self._head_start.end()
        return self._head_start


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error in a form that can be pickled, which not every error can be."""

    kind: type[Exception]
    args: tuple[object, ...]
    attributes: dict[str, object]

    @classmethod
    def of(cls, error: StateferryError) -> _Failure:
        return cls(type(error), error.args, dict(error.__dict__))

    def error(self) -> Exception:
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        error.__dict__.update(self.attributes)
        return error


def _without_failure(fact: Fact | _Failure) -> Fact:
    if isinstance(fact, _Failure):
        raise fact.error()
    return fact


@dataclass(frozen=True, slots=True)
class _Task(Generic[Work, Fact]):
    """The function that Spark calls with each task and its number."""

    do: Callable[[Work], Fact]
    measure: Measure[Fact] | None
    amount: Accumulator[int]
    attempts: int
    umask: int

    def __call__(self, numbered: tuple[int, Work]) -> tuple[int, Fact | _Failure]:
        number, work = numbered
        try:
            with private_files(self.umask):
                fact = self._done(work)
        except PassingError as error:
            # Another machine may reach what this one can't, as long as Spark tries the task again.
            if _attempt() < self.attempts:
                raise
            return number, _Failure.of(error)
        except StateferryError as error:
            return number, _Failure.of(error)
        if self.measure is not None:
            self.amount.add(self.measure.of(fact))
        return number, fact

    def _done(self, work: Work) -> Fact:
        """Does the work, and tries again after a passing error.

        A wait takes seconds; another task of Spark would need another machine.
        """
        for seconds in WAITS:
            try:
                with reaching():
                    return self.do(work)
            except PassingError:
                time.sleep(seconds)
        with reaching():
            return self.do(work)


def _attempt() -> int:
    context: Any = TaskContext.get()
    return 1 + (context.attemptNumber() if context is not None else 0)


def _attempts(sc: SparkContext) -> int:
    """The number of tries after which a passing error is final.

    It is Spark's setting, or 1 in a local session, because that has only one machine.
    """
    if re.fullmatch(r"local(\[[^]]*\])?", sc.master or ""):
        return 1
    return int(sc.getConf().get("spark.task.maxFailures", "4") or 4)
