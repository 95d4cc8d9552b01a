"""A savepoint that an earlier try has ordered is found, and waited for; nothing is ordered by looking for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stateferry.airflow.flink import savepoints
from stateferry.airflow.flink.errors import FlinkSavepointError, FlinkTimeoutError
from stateferry.airflow.flink.savepoints import Pending, SavepointOrder, TakenSavepoint, found_in_the_end

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
