"""Triggers, which wait without a worker: each fires one event, and only reads from Flink."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from airflow.sdk.configuration import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from stateferry.airflow.flink import errors
from stateferry.airflow.flink.errors import FlinkError, FlinkRefusedError, FlinkTimeoutError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import Goal, cancel_job, look, look_for, progress_of
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.savepoints import Pending, TakenSavepoint, status

Event = dict[str, Any]


class MayDefer(Protocol):
    """A task that may wait in the triggerer."""

    deferrable: bool | None


def is_deferrable(task: MayDefer) -> bool:
    """Whether the task waits in the triggerer: as the task says, else as Airflow is configured."""
    if task.deferrable is not None:
        return task.deferrable
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


def raise_for(event: Event) -> None:
    """Raises the error of a trigger's event in the worker, if there is one."""
    if event["status"] == "error":
        raise getattr(errors, event["kind"])(event["message"])


class FlinkTrigger(BaseTrigger):
    """Looks every ``poll_interval`` seconds until there is an event, or until the ``deadline`` (Unix time)."""

    def __init__(self, *, flink_conn_id: str, job_id: str, poll_interval: float, deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flink_conn_id = flink_conn_id
        self.job_id = job_id
        self.poll_interval = poll_interval
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        common = {name: getattr(self, name) for name in ("flink_conn_id", "job_id", "poll_interval", "deadline")}
        return f"{type(self).__module__}.{type(self).__qualname__}", common | self._own()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent(await self._wait())  # type: ignore[no-untyped-call]

    async def _wait(self) -> Event:
        try:
            async with FlinkHook(self.flink_conn_id).rest() as rest:
                while (event := await self._news(rest)) is None:
                    if time.time() > self.deadline:
                        raise FlinkTimeoutError(f"{await self._progress(rest)} within the time limit")
                    await asyncio.sleep(self.poll_interval)
                return event
        except FlinkError as error:
            # A refusal can't be rebuilt from its message, so it is passed on as a plain error.
            kind = FlinkError if isinstance(error, FlinkRefusedError) else type(error)
            return {"status": "error", "kind": kind.__name__, "message": str(error)}

    @abstractmethod
    def _own(self) -> dict[str, Any]: ...

    @abstractmethod
    async def _progress(self, rest: FlinkRest) -> str: ...

    @abstractmethod
    async def _news(self, rest: FlinkRest) -> Event | None: ...


class FlinkSavepointTrigger(FlinkTrigger):
    """Fires when the savepoint is complete or has failed, or when Flink has forgotten its trigger."""

    def __init__(self, *, trigger: str, **common: Any) -> None:
        super().__init__(**common)
        self.trigger = trigger

    def _own(self) -> dict[str, Any]:
        return {"trigger": self.trigger}

    async def _progress(self, rest: FlinkRest) -> str:
        return f"the savepoint of job {self.job_id} (trigger {self.trigger}) isn't complete"

    async def _news(self, rest: FlinkRest) -> Event | None:
        found = await status(rest, Pending(self.job_id, self.trigger))
        if isinstance(found, TakenSavepoint):
            return {"status": "taken", "job_id": found.job_id, "location": found.location}
        return {"status": "forgotten"} if found is None else None


_JOB_TRIGGER = ("states", "checkpoint", "max_failures", "may_appear", "cancel_on_kill")


class FlinkJobTrigger(FlinkTrigger):
    """Fires when the job is in one of the states, with a completed checkpoint if asked, or when it can't get there.

    With ``may_appear``, ``job_id`` may be a name, and the job need not exist yet.
    """

    def __init__(
        self,
        *,
        states: Sequence[str],
        checkpoint: bool = False,
        max_failures: int | None = None,
        may_appear: bool = False,
        cancel_on_kill: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.states = sorted(states)
        self.checkpoint = checkpoint
        self.max_failures = max_failures
        self.may_appear = may_appear
        self.cancel_on_kill = cancel_on_kill

    def _own(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _JOB_TRIGGER}

    @property
    def _goal(self) -> Goal:
        return Goal(frozenset(self.states), self.checkpoint, self.max_failures)

    async def _progress(self, rest: FlinkRest) -> str:
        if self.may_appear:
            return f"job '{self.job_id}' isn't {' or '.join(self.states)}"
        return await progress_of(rest, self.job_id, self._goal)

    async def _news(self, rest: FlinkRest) -> Event | None:
        state = await (look_for if self.may_appear else look)(rest, self.job_id, self._goal)
        return None if state is None else {"status": "reached", "state": state}

    async def on_kill(self) -> None:
        if self.cancel_on_kill:
            async with FlinkHook(self.flink_conn_id).rest() as rest:
                await cancel_job(rest, self.job_id)
