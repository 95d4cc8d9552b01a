"""A task's errors: what may pass is tried again, by the task and then by Spark, the rest is final at once."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.errors import DamagedError, RefusedError, StateferryError, TransientError
from stateferry.spark_jobs import installed_code, workers
from stateferry.steps.workers import Measure

AWAY = OSError(errno.EIO, "Input/output error", "/data/x")
SEVEN = pickle.dumps(7)


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
    assert pickle.loads(task(failing(len(workers.WAITS), error))(SEVEN)) == 7
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
                again(SEVEN)
            continue
        failure = pickle.loads(again(SEVEN))
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
    failure = pickle.loads(task(failing(99, error), attempts=4)(SEVEN))
    assert waited == []
    with pytest.raises(StateferryError) as caught:
        workers._without_failure(failure)
    assert not isinstance(caught.value, TransientError)


@dataclass
class Counting:
    """Work that counts in itself, as the tasks that write files do."""

    seen: list[int] = field(default_factory=list)


def test_a_failed_try_leaves_nothing_in_its_task(waited: list[float]) -> None:
    failures = [TransientError("away")] * len(workers.WAITS)

    def count(work: Counting) -> int:
        work.seen.append(1)
        if failures:
            raise failures.pop()
        return len(work.seen)

    amount: Any = None
    again = workers._Task(count, None, amount, 1, 0o077)
    assert pickle.loads(again(pickle.dumps(Counting()))) == 1
    assert waited == list(workers.WAITS)


def test_a_worker_with_other_code_does_not_even_unpickle_its_task() -> None:
    driver = ("0" * 64, ("/new/flinkstate", "/new/stateferry"), "driver-host")
    failure = pickle.loads(workers._do(driver, b"of a class", b"that isn't here"))
    (_, own), host = installed_code.folders(), installed_code.own_code(is_local=True)[2]
    with pytest.raises(RefusedError) as caught:
        workers._without_failure(failure)
    assert f"a worker has another Stateferry (in {own} on {host})" in str(caught.value)
    assert "than the driver (in /new/stateferry on driver-host)" in str(caught.value)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_worker_with_the_same_code_does_its_task(is_local: bool) -> None:
    amount: Any = None
    counting = pickle.dumps(workers._Task(abs, None, amount, 1, 0o077))
    assert pickle.loads(workers._do(installed_code.own_code(is_local=is_local), counting, pickle.dumps(-7))) == 7
