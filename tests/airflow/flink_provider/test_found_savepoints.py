"""A savepoint that an earlier try has ordered is found, and waited for; nothing is ordered by looking for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stateferry.airflow.flink import savepoints, stopping
from stateferry.airflow.flink.checkpoints import Checkpoint
from stateferry.airflow.flink.errors import FlinkError, FlinkSavepointError, FlinkTimeoutError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.savepoints import (
    Pending,
    SavepointOrder,
    TakenSavepoint,
    find,
    found_in_the_end,
    stopped_by_others,
)
from stateferry.airflow.flink.task import FlinkTask
from tests.airflow.flink_provider.tries import Try

ORDER = SavepointOrder(("dag", "take_savepoint", "-1", "run"), "orders", "/savepoints", stop=True, tries=4)
TAKEN = TakenSavepoint("a job", "/savepoints/one")


def look(monkeypatch: pytest.MonkeyPatch, found: object, *then: object, timeout: float = 60) -> TakenSavepoint | None:
    """What is found if Flink first knows of `found`, and then answers so."""
    answers = iter(then)

    async def find(*_: Any) -> object:
        return found

    async def status(*_: Any) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def trigger(*_: Any) -> None:
        raise AssertionError("a savepoint was ordered")

    for name, does in (("find", find), ("status", status), ("_trigger", trigger)):
        monkeypatch.setattr(savepoints, name, does)
    rest: Any = None
    return asyncio.run(found_in_the_end(rest, ORDER, timeout=timeout, poll_interval=0))


def test_what_is_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, TAKEN) == TAKEN
    assert look(monkeypatch, None) is None


def test_what_flink_is_still_taking_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = Pending("a job", "a trigger")
    assert look(monkeypatch, pending, pending, pending, TAKEN) == TAKEN
    with pytest.raises(FlinkTimeoutError, match="isn't complete"):
        look(monkeypatch, pending, pending, timeout=-1)


def test_one_that_fails_has_stopped_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, Pending("a job", "a trigger"), FlinkSavepointError("no room")) is None


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flink knows no job any more, and a complete savepoint is in the order's folder."""

    async def no_jobs(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(savepoints, "list_jobs", no_jobs)
    monkeypatch.setattr(savepoints, "newest_completed", lambda _: TAKEN.location)


def test_the_savepoint_of_a_job_that_flink_has_forgotten_counts_unless_a_stop_had_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten(monkeypatch)
    rest: Any = None
    assert asyncio.run(find(rest, ORDER)) == TakenSavepoint(None, TAKEN.location)
    with pytest.raises(FlinkError, match=r"one is complete, but an earlier stop had failed, and Flink has forgotten"):
        asyncio.run(find(rest, replace(ORDER, has_failed=True)))


def stopped(monkeypatch: pytest.MonkeyPatch, *looks: tuple[str | None, list[dict[str, Any]]]) -> TakenSavepoint | None:
    """What is said of a stop, if Flink says of the job and of its checkpoints first the one, then the other."""
    left = list(looks)

    async def state(*_: Any) -> str | None:
        return left.pop(0)[0] if len(left) > 1 else left[0][0]

    async def checkpoints(*_: Any) -> list[dict[str, Any]]:
        return left[0][1]

    async def jobs(*_: Any) -> list[Any]:
        return [SimpleNamespace(id="a job", name="orders")]

    async def said(*_: Any) -> Any:
        return None

    async def cached(*_: Any) -> float:
        return 0

    for name, does in (
        ("job_state", state),
        ("_history", checkpoints),
        ("list_jobs", jobs),
        ("status", said),
        ("cached_for", cached),
    ):
        monkeypatch.setattr(savepoints, name, does)
    monkeypatch.setattr(savepoints, "newest_completed", lambda _: None)
    rest: Any = None
    return asyncio.run(stopped_by_others(rest, replace(ORDER, job="a job"), timeout=60))


def test_the_stop_of_somebody_else_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    location = f"{ORDER.directory}/savepoint-1"
    checkpoint = {"is_savepoint": False, "status": "COMPLETED", "external_path": "/checkpoints/chk-1"}
    begun = {"is_savepoint": True, "status": "IN_PROGRESS", "external_path": None}
    done = begun | {"status": "COMPLETED", "external_path": location}
    taken = TakenSavepoint("a job", location)
    looks = [("RUNNING", [begun, checkpoint]), ("RUNNING", [done, checkpoint]), ("FINISHED", [done, checkpoint])]
    assert stopped(monkeypatch, *looks) == taken
    assert stopped(monkeypatch, ("RUNNING", [checkpoint])) is None
    # The job has gone on.
    assert stopped(monkeypatch, ("RUNNING", [checkpoint, done])) is None
    elsewhere = done | {"external_path": "/elsewhere/savepoint-2"}
    for history in ([checkpoint], [elsewhere, checkpoint, done]):
        with pytest.raises(FlinkError, match=r"a job is FINISHED, and its last savepoint isn't .* nobody knows where"):
            stopped(monkeypatch, ("FINISHED", history))


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_savepoint_that_others_followed_is_not_where_the_job_stopped(
    monkeypatch: pytest.MonkeyPatch, has_failed: bool
) -> None:
    """A stop has failed after its savepoint, the job went on, and somebody else has stopped it later."""
    done = {"is_savepoint": True, "status": "COMPLETED", "external_path": f"{ORDER.directory}/savepoint-1"}
    checkpoint = {"is_savepoint": False, "status": "COMPLETED", "external_path": "/checkpoints/chk-1"}
    elsewhere = done | {"external_path": "/elsewhere/savepoint-2"}
    order, rest = replace(ORDER, job="a job", has_failed=has_failed), cast(FlinkRest, None)
    assert stopped(monkeypatch, ("FINISHED", [done, checkpoint])) == asyncio.run(find(rest, order))
    for history in ([checkpoint, done], [elsewhere, checkpoint, done]):
        with pytest.raises(FlinkError, match="nobody knows where"):
            stopped(monkeypatch, ("FINISHED", history))
        with pytest.raises(FlinkError, match=r"complete, but job a job, which is FINISHED, may not have ended with it"):
            asyncio.run(find(rest, order))
    # Flink's history no longer has it, its folder does.
    with pytest.raises(FlinkError, match="nobody knows where"):
        stopped(monkeypatch, ("FINISHED", [elsewhere]))
    monkeypatch.setattr(savepoints, "newest_completed", lambda _: f"{ORDER.directory}/savepoint-a job-1")
    with pytest.raises(FlinkError, match="may not have ended with it"):
        asyncio.run(find(rest, order))


def test_a_stop_that_has_failed_is_kept_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [FlinkSavepointError("the job went on"), TAKEN]

    def run(*_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(FlinkHook, "run", run)
    monkeypatch.setattr(FlinkTask, "show", lambda *_: None)
    first = Try()

    def order(of: Try) -> SavepointOrder:
        of.store.set("flink_job_meant", "a job")
        return FlinkTask(FlinkHook(), of.context).savepoint_order("orders", "/savepoints", stop=True)

    assert not order(first).has_failed
    with pytest.raises(FlinkSavepointError):
        FlinkTask(FlinkHook(), first.context).take_savepoint(order(first), timeout=1, poll_interval=0)
    second = first.next()
    assert order(second).has_failed
    # Other tasks know of it too, though Airflow has removed what the first try had said.
    assert first.pushed["flink_stop_failed"] == second.pushed["flink_stop_failed"] == "yes"
    FlinkTask(FlinkHook(), second.context).take_savepoint(order(second), timeout=1, poll_interval=0)
    assert not order(second.next()).has_failed
    assert second.pushed["flink_stop_failed"] == "no"


def test_a_checkpoint_from_before_the_one_that_was_asked_for_is_not_where_the_job_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flink answers from a cache, and the store may list the older one."""
    known = [[7], [8, 7]]

    async def completed(*_: Any) -> list[Checkpoint]:
        numbers = known.pop(0) if len(known) > 1 else known[0]
        return [Checkpoint(number, f"s3://b/chk-{number}", 0) for number in numbers]

    async def cached(*_: Any) -> float:
        return 0

    monkeypatch.setattr(stopping, "completed_checkpoints", completed)
    monkeypatch.setattr(stopping, "cached_for", cached)
    monkeypatch.setattr(stopping, "newest_completed", lambda _: "s3://b/chk-7")
    rest: Any = None
    assert asyncio.run(stopping.newest_of_ended(rest, "a job", 8)).location == "s3://b/chk-8"
    with pytest.raises(FlinkError, match="has ended after checkpoint 9, and the newest that Flink knows is"):
        asyncio.run(stopping.newest_of_ended(rest, "a job", 9))
