"""The steps' workers on Spark: each of a step's tasks is one Spark task, which returns one small object."""

from __future__ import annotations

import pickle
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from pyspark import SparkContext, TaskContext, cloudpickle
from pyspark.accumulators import Accumulator

from flinkstate.errors import RefusedError, StateferryError, TransientError
from flinkstate.files.stores import reaching
from stateferry.basics.private_files import private_files, wanted_umask
from stateferry.spark_jobs import installed_code
from stateferry.spark_jobs.lost_processes import lost_as_transient
from stateferry.spark_jobs.startup.head_start import HeadStart
from stateferry.spark_jobs.watching import watched
from stateferry.steps.workers import Measure, Watch

Work = TypeVar("Work")
Fact = TypeVar("Fact")

# Seconds before each new try of a task whose error may pass.
WAITS = (1.0, 4.0)
# Of the tasks that Spark has at the same time, done or not: the bytes of their results, and how many they are.
_MOST_BYTES, _FIRST_TASKS, _MOST_TASKS = 64 << 20, 2_000, 20_000


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
    ) -> Iterator[Fact]:
        """Runs one Spark task for each task that the head start has not done, as many at a time as `_Portions` says.

        The library's errors are raised here as they were raised in the task, and not as a failure of Spark.
        """
        ahead = self._ahead_of(step)
        done: dict[int, Fact] = ahead.facts_of(work, fn) if ahead else {}
        seconds, began = (ahead.seconds if ahead else 0.0), time.monotonic()
        with lost_as_transient():
            amount = self._sc.accumulator(sum(map(measure.of, done.values())) if measure else 0)
        task = _Task(fn, measure, amount, _attempts(self._sc), wanted_umask())
        pickled = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
        do = partial(_do, installed_code.own_code(is_local=_is_local(self._sc)), pickled)
        portions, number = _Portions(), 0
        while number < len(work):
            end = min(number + portions.next_size(self.at_once), len(work))
            rest = [work[one] for one in range(number, end) if one not in done]

            def job(rest: Sequence[Work] = rest) -> list[bytes]:
                return self._sc.parallelize(_Pickled(rest), len(rest)).map(do).collect() if rest else []

            with lost_as_transient():
                of_spark = watched(
                    self._sc,
                    step,
                    len(work),
                    job,
                    self._watch,
                    lambda: int(amount.value),
                    measure.unit if measure else "",
                    done_before=end - len(rest),
                    tasks=len(rest),
                    seconds_before=seconds + time.monotonic() - began,
                )
            portions.note(of_spark)
            # Each is unpacked only when it is its turn, and forgotten then.
            of_spark.reverse()
            for one in range(number, end):
                yield done[one] if one in done else _without_failure(pickle.loads(of_spark.pop()))
            number = end

    def _ahead_of(self, step: str) -> HeadStart[Any, Any] | None:
        if self._head_start is None or self._head_start.step != step:
            return None
        self._head_start.end()
        return self._head_start


@dataclass(slots=True)
class _Portions:
    """How many tasks a job of Spark gets: a driver has only the tasks and results of one job in its memory."""

    tasks: int = 0
    results: int = 0

    def next_size(self, at_once: int) -> int:
        """The number of tasks whose results are expected to have `_MOST_BYTES`; not so few that workers are idle."""
        of_one = max(self.results // self.tasks, 1) if self.tasks else _MOST_BYTES // _FIRST_TASKS
        return max(min(_MOST_BYTES // of_one, _MOST_TASKS), 4 * at_once)

    def note(self, results: Sequence[bytes]) -> None:
        """Learns from the results of a job."""
        self.tasks += len(results)
        self.results += sum(map(len, results))


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
class _Pickled:
    """Tasks as bytes, each made when it is its turn, so that the driver never has all of them in its memory."""

    work: Sequence[object]

    def __len__(self) -> int:
        return len(self.work)

    def __iter__(self) -> Iterator[bytes]:
        return map(cloudpickle.dumps, self.work)


def _do(driver: installed_code.Code, task: bytes, work: bytes) -> bytes:
    """The function that Spark calls with each task; it unpickles nothing if the driver has other code."""
    if other := installed_code.difference(driver):
        return pickle.dumps(_Failure.of(RefusedError(other)))
    made: bytes = pickle.loads(task)(work)
    return made


@dataclass(frozen=True, slots=True)
class _Task(Generic[Work, Fact]):
    """What is done with each task, which is pickled."""

    do: Callable[[Work], Fact]
    measure: Measure[Fact] | None
    amount: Accumulator[int]
    attempts: int
    umask: int

    def __call__(self, work: bytes) -> bytes:
        """The fact or the failure, pickled."""
        return pickle.dumps(self._fact_or_failure(work))

    def _fact_or_failure(self, work: bytes) -> Fact | _Failure:
        try:
            with private_files(self.umask):
                fact = self._done(work)
        except TransientError as error:
            # Another machine may reach what this one can't, as long as Spark tries the task again.
            if _attempt() < self.attempts:
                raise
            return _Failure.of(error)
        except StateferryError as error:
            return _Failure.of(error)
        if self.measure is not None:
            self.amount.add(self.measure.of(fact))
        return fact

    def _done(self, work: bytes) -> Fact:
        """Does the work, and tries again after a transient error.

        A wait takes seconds; another task of Spark would need another machine.
        """
        for seconds in WAITS:
            try:
                return self._try(work)
            except TransientError:
                time.sleep(seconds)
        return self._try(work)

    def _try(self, work: bytes) -> Fact:
        """Does the work, from its pickled form: what a failed try has counted in its task isn't counted again."""
        with reaching():
            return self.do(pickle.loads(work))


def _attempt() -> int:
    context: Any = TaskContext.get()
    return 1 + (context.attemptNumber() if context is not None else 0)


def _attempts(sc: SparkContext) -> int:
    """The number of tries after which a transient error is final.

    It is Spark's setting, or 1 in a local session, because that has only one machine.
    """
    return 1 if _is_local(sc) else int(sc.getConf().get("spark.task.maxFailures", "4") or 4)


def _is_local(sc: SparkContext) -> bool:
    """Whether the session has only this machine; `local-cluster[...]` is treated as a cluster."""
    return re.fullmatch(r"local(\[[^]]*\])?", sc.master or "") is not None
