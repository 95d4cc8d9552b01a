"""A task's errors: what may pass is tried again, by the task and then by Spark, the rest is final at once."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.errors import DamagedError, StateferryError, TransientError
from stateferry.spark_jobs import workers
from stateferry.steps.workers import Measure

AWAY = OSError(errno.EIO, "Input/output error", "/data/x")


def context_of(master: str, failures: str | None = None) -> Any:
    return SimpleNamespace(master=master, getConf=lambda: {"spark.task.maxFailures": failures} if failures else {})


@pytest.mark.parametrize(
    ("master", "failures", "attempts"),
    [
        ("local", None, 1),
        ("local[8]", None, 1),
        ("local[*]", "9", 1),
        ("local[8,4]", None, 1),
        # Here the second number is of cores, of each worker.
        ("local-cluster[2,1,1024]", None, 4),
        ("local-cluster[2,1,1024]", "7", 7),
        ("spark://host:7077", None, 4),
        ("k8s://https://host:443", "2", 2),
        ("yarn", "1", 1),
    ],
)
def test_how_often_spark_gives_a_task_to_a_machine(master: str, failures: str | None, attempts: int) -> None:
    assert workers._attempts(context_of(master, failures)) == attempts


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(workers, "time", SimpleNamespace(sleep=waits.append))  # not for other threads of this process
    return waits


def task(do: Callable[[int], int], attempts: int = 1) -> workers._Task[int, int]:
    amount: Any = SimpleNamespace(add=lambda _: None)
    return workers._Task(do, Measure("B", abs), amount, attempts, 0o077)


def failing(times: int, error: Exception) -> Callable[[int], int]:
    left = [error] * times

    def do(number: int) -> int:
        if left:
            raise left.pop()
        return number

    return do


@pytest.mark.parametrize("error", [AWAY, TransientError("s3://b/x can't be reached: 503")])
def test_what_passes_while_a_task_waits_is_nobodys_business(error: Exception, waited: list[float]) -> None:
    assert pickle.loads(task(failing(len(workers.WAITS), error))(7)) == 7
    assert waited == list(workers.WAITS)
    assert 0 < sum(waited) < 15


@pytest.mark.parametrize("error", [AWAY, TransientError("s3://b/x can't be reached: 503")])
def test_what_does_not_pass_is_given_to_another_machine_as_long_as_there_is_one(
    error: Exception, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, last in enumerate((False, False, True)):
        monkeypatch.setattr(workers, "_attempt", lambda number=number: number + 1)
        again = task(failing(99, error), attempts=3)
        if not last:
            with pytest.raises(TransientError):
                again(7)
            continue
        failure = pickle.loads(again(7))
        with pytest.raises(TransientError):
            workers._without_failure(failure)


@pytest.mark.parametrize(
    "error",
    [
        DamagedError("an end", "none", file="f"),
        StateferryError("no"),
        PermissionError(errno.EACCES, "Permission denied", "/data/x"),
        OSError("AWS Error ACCESS_DENIED during GetObject operation"),
    ],
)
def test_what_no_try_betters_is_final_at_once(error: Exception, waited: list[float]) -> None:
    failure = pickle.loads(task(failing(99, error), attempts=4)(7))
    assert waited == []
    with pytest.raises(StateferryError) as caught:
        workers._without_failure(failure)
    assert not isinstance(caught.value, TransientError)
