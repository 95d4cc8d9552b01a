"""Library tasks on Spark: each piece of work is one Spark task and answers with one small object."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator

from spark_jobs.watching import Watch, watched
from stateferry.errors import PassingError, StateferryError
from stateferry.private_files import private_files, wanted_umask
from stateferry.savepoint.stores import reaching

Work = TypeVar("Work")
Fact = TypeVar("Fact")

__all__ = ["WAITS", "Done", "Measure", "run_tasks"]

# Seconds before a task tries again what may pass, once for each.
WAITS = (1.0, 4.0)


@dataclass(frozen=True, slots=True)
class Measure(Generic[Fact]):
    """How much work a fact stands for, in `unit`."""

    unit: str
    of: Callable[[Fact], int]


@dataclass(frozen=True, slots=True)
class Done(Generic[Fact]):
    """What was done of some work before Spark was there: facts by the numbers of the pieces, and how long that took."""

    facts: Mapping[int, Fact]
    seconds: float


def run_tasks(
    spark: SparkContext,
    step: str,
    work: Sequence[Work],
    do: Callable[[Work], Fact],
    watch: Watch = lambda _: None,
    measure: Measure[Fact] | None = None,
    done: Done[Fact] | None = None,
) -> list[Fact]:
    """Does all the work but what is done already, a task for each piece; returns the facts in the order of the work.
    What the library has to say against it is raised here as it was raised there, not as a failure of Spark's."""
    if not work:
        return []
    done = done or Done({}, 0.0)
    rest = [(number, piece) for number, piece in enumerate(work) if number not in done.facts]
    amount = spark.accumulator(sum(map(measure.of, done.facts.values())) if measure else 0)
    task = _Task(do, measure, amount, _attempts(spark), wanted_umask())

    def job() -> list[tuple[int, Fact | _Failure]]:
        return spark.parallelize(rest, len(rest)).map(task).collect() if rest else []

    unit = measure.unit if measure else ""
    of_spark = watched(
        spark, step, len(work), job, watch, lambda: int(amount.value), unit, len(done.facts), done.seconds
    )
    facts: dict[int, Fact | _Failure] = {**done.facts, **dict(of_spark)}
    return [_without_failure(facts[number]) for number in range(len(work))]


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error on its way to the driver: not every one can be pickled."""

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
            # What this machine can't reach another one may, as long as Spark gives the task to another.
            if _attempt() < self.attempts:
                raise
            return number, _Failure.of(error)
        except StateferryError as error:
            return number, _Failure.of(error)
        if self.measure is not None:
            self.amount.add(self.measure.of(fact))
        return number, fact

    def _done(self, work: Work) -> Fact:
        """Tries again by itself what may pass: an answer takes seconds, another task of Spark's a machine."""
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


def _attempts(spark: SparkContext) -> int:
    """How often Spark gives a task that fails to a machine: a local session has one machine, which has tried enough."""
    if re.fullmatch(r"local(\[[^]]*\])?", spark.master or ""):
        return 1
    return int(spark.getConf().get("spark.task.maxFailures", "4") or 4)
