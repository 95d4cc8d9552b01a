"""Takes savepoints exactly once: looks for a savepoint that was requested before it requests one.

The client chooses the id of a trigger, so Flink recognizes a repeated request. Flink keeps the ids in the memory of its
JobManager, and those of finished savepoints only for some minutes. After that, the savepoint is found in its directory,
which no other request shares, or in the job's history of checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stateferry.airflow.flink.errors import (
    FlinkError,
    FlinkRefusedError,
    FlinkSavepointError,
    FlinkTimeoutError,
    FlinkUnreachableError,
    root_cause,
)
from stateferry.airflow.flink.identity import flink_id, folder_name
from stateferry.airflow.flink.jobs import TERMINAL, JobOverview, cached_for, find_job, job_state, list_jobs
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.storage import newest_completed

_HISTORY_FACTS = ("id", "end_to_end_duration", "state_size")
_LOOK_AGAIN_SECONDS = 2.0

CANONICAL, NATIVE, CHECKPOINT = "CANONICAL", "NATIVE", "CHECKPOINT"
"""Formats of an order; one for a checkpoint is carried out by `stopping.py`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavepointOrder:
    """The savepoint that a task asks for. Every try of the task makes the same order."""

    key: tuple[str, ...]
    """Identifies the order: the same parts in every try, different ones for every other savepoint."""
    job: str
    """The job's name or id."""
    root: str
    """The directory of savepoints; this one gets a folder of its own in it."""
    stop: bool = False
    format: str = "CANONICAL"
    tries: int = 1
    """How often the savepoint may have been triggered by now. After a failure it is triggered again, by another id."""
    has_failed: bool = field(default=False, compare=False)
    """Whether an earlier stop has failed: then the job may have gone on after a savepoint that is complete."""
    on_failure: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    """Called when a stop has failed, so that an order that is made later says so."""

    @property
    def directory(self) -> str:
        """The savepoint's own directory."""
        return f"{self.root.rstrip('/')}/{folder_name(*self.key)}"

    def trigger(self, number: int) -> str:
        """The id of the trigger with this number."""
        return flink_id("savepoint", self.root, *self.key, number)


@dataclass(frozen=True)
class Pending:
    """A savepoint that Flink is taking."""

    job_id: str
    trigger: str


@dataclass(frozen=True)
class TakenSavepoint:
    """A completed savepoint."""

    job_id: str | None
    """None if Flink has forgotten the job."""
    location: str


async def find_or_trigger(rest: FlinkRest, order: SavepointOrder) -> TakenSavepoint | Pending:
    """The savepoint, or its trigger, if an earlier try has left one; else a new trigger."""
    end = time.monotonic() + rest.endpoint.patience
    while True:
        candidates = [job for job in await list_jobs(rest) if order.job in (job.id, job.name)]
        found, number = await _known(rest, order, candidates)
        if found is not None:
            return found
        if (taken := await _taken(rest, order, candidates)) is not None:
            return taken
        job = await find_job(rest, order.job)
        if job.is_over:
            raise FlinkError(
                f"job '{job.name}' ({job.id}) is {job.state}, and no savepoint of it is in {order.directory}: Flink "
                "can take a savepoint of a running job only. Start the job, or name the job that runs"
            )
        if not job.is_up and time.monotonic() < end:
            _log.info("job %s is %s, and not all of its tasks run yet: waiting for them", job.id, job.state)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            continue
        pending = Pending(job.id, order.trigger(number))
        try:
            await _trigger(rest, order, pending)
        except FlinkUnreachableError as lost:
            if time.monotonic() > end:
                raise
            _log.warning("%s; looking whether the savepoint was triggered", lost)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        else:
            return pending


async def find(rest: FlinkRest, order: SavepointOrder) -> TakenSavepoint | Pending | None:
    """The savepoint, or its trigger, if an earlier try has left one; triggers nothing."""
    candidates = [job for job in await list_jobs(rest) if order.job in (job.id, job.name)]
    found, _ = await _known(rest, order, candidates)
    return found if found is not None else await _taken(rest, order, candidates)


async def found_in_the_end(
    rest: FlinkRest, order: SavepointOrder, *, timeout: float, poll_interval: float
) -> TakenSavepoint | None:
    """The savepoint of the order, waited for if Flink is still taking it; None if there is none and none is coming.

    Nothing is triggered, and nothing is tried again.
    """
    end = time.monotonic() + timeout
    found = await find(rest, order)
    while isinstance(found, Pending):
        if time.monotonic() > end:
            raise FlinkTimeoutError(f"the savepoint of job {found.job_id} (trigger {found.trigger}) isn't complete")
        await asyncio.sleep(poll_interval)
        try:
            found = await status(rest, found)
        except FlinkSavepointError as failed:
            _log.info("%s", failed)
            return None
    return found


async def stopped_by_others(rest: FlinkRest, order: SavepointOrder, *, timeout: float) -> TakenSavepoint | None:
    """The savepoint of a stop that somebody else has asked Flink for, waited for; None if the job, an id, runs on.

    Raises an error if the job has ended without it: then nobody knows where.
    """
    end = time.monotonic() + timeout
    while True:
        # Flink answers from a cache, which lacks what was asked for in this moment.
        await asyncio.sleep(await cached_for(rest))
        history = await _history(rest, order.job)
        if (state := await job_state(rest, order.job)) in (None, *TERMINAL):
            break
        if not _is_stopping(history, order):
            return None
        if time.monotonic() > end:
            raise FlinkTimeoutError(f"job {order.job} is {state}, and Flink still stops it after {timeout:g} s")
    newest = _newest_completed(await _history(rest, order.job))
    # What has followed the order's savepoint says that the job had gone on after it.
    found = await find(rest, order) if newest is None or _is_of(newest, order) else None
    if not isinstance(found, TakenSavepoint):
        raise FlinkError(
            f"job {order.job} is {state or 'unknown to Flink'}, and its last savepoint isn't one in {order.directory}, "
            "so nobody knows where it has stopped"
        )
    return found


def _is_stopping(history: list[dict[str, Any]], order: SavepointOrder) -> bool:
    """Whether Flink takes a savepoint, or nothing has followed that of the order, after which the job ends."""
    return any(_is_of(entry, order) for entry in history[:1]) or any(
        entry["is_savepoint"] and entry["status"] == "IN_PROGRESS" for entry in history
    )


async def status(rest: FlinkRest, pending: Pending) -> TakenSavepoint | Pending | None:
    """The savepoint if it is complete, the trigger if it isn't; None if Flink doesn't know the trigger (any more)."""
    try:
        answer = await rest.get(f"/jobs/{pending.job_id}/savepoints/{pending.trigger}")
    except FlinkRefusedError as refused:
        if refused.status == 404:
            return None
        raise
    if answer["status"]["id"] == "IN_PROGRESS":
        return pending
    operation: dict[str, Any] = answer["operation"]
    if (location := operation.get("location")) is not None:
        return TakenSavepoint(pending.job_id, location)
    raise FlinkSavepointError(
        f"Flink has taken no savepoint of job {pending.job_id}: {root_cause(operation['failure-cause']['stack-trace'])}"
    )


async def take(rest: FlinkRest, order: SavepointOrder, *, timeout: float, poll_interval: float) -> TakenSavepoint:
    """Waits for the savepoint until it is complete and, if the job is to stop with it, the job has stopped."""
    end = time.monotonic() + timeout
    found: TakenSavepoint | Pending | None = None
    while not isinstance(found, TakenSavepoint):
        found = await (find_or_trigger(rest, order) if found is None else status(rest, found))
        if isinstance(found, Pending):
            if time.monotonic() > end:
                raise FlinkTimeoutError(
                    f"the savepoint of job {found.job_id} (trigger {found.trigger}) isn't complete after "
                    f"{timeout:g} s: Flink may still complete it; another try of the task waits for the same savepoint"
                )
            await asyncio.sleep(poll_interval)
    return found


async def facts(rest: FlinkRest, savepoint: TakenSavepoint) -> dict[str, float | int]:
    """The checkpoint id, seconds and bytes of the savepoint, if the job's history still has them."""
    if savepoint.job_id is None:
        return {}
    found = await _entry(rest, savepoint, savepoint.job_id)
    if found is None:
        # The history may be older than the savepoint, because Flink answers from a cache.
        await asyncio.sleep(await cached_for(rest))
        found = await _entry(rest, savepoint, savepoint.job_id)
    if found is None:
        return {}
    id_, milliseconds, size = (found[name] for name in _HISTORY_FACTS)
    return {"checkpoint_id": id_, "seconds": milliseconds / 1000, "bytes": size}


async def _entry(rest: FlinkRest, savepoint: TakenSavepoint, job_id: str) -> dict[str, Any] | None:
    return next((one for one in await _history(rest, job_id) if one.get("external_path") == savepoint.location), None)


async def _known(
    rest: FlinkRest, order: SavepointOrder, candidates: list[JobOverview]
) -> tuple[TakenSavepoint | Pending | None, int]:
    """What Flink knows about the order's triggers, and the number of the first trigger that hasn't failed."""
    number = 0
    for job in candidates:
        asked = 0
        while asked < max(order.tries, number + 1):
            try:
                found = await status(rest, Pending(job.id, order.trigger(asked)))
            except FlinkSavepointError as failed:
                _log.info("an earlier try failed: %s", failed)
                order.on_failure()
                number = max(number, asked + 1)
            else:
                if found is not None:
                    return found, number
            asked += 1
    return None, number


async def _trigger(rest: FlinkRest, order: SavepointOrder, pending: Pending) -> None:
    body: dict[str, Any] = {"triggerId": pending.trigger, "formatType": order.format}
    if order.stop:
        body |= {"targetDirectory": order.directory, "drain": False}
        await rest.post_once(f"/jobs/{pending.job_id}/stop", body)
    else:
        body |= {"target-directory": order.directory, "cancel-job": False}
        await rest.post_once(f"/jobs/{pending.job_id}/savepoints", body)


async def _taken(rest: FlinkRest, order: SavepointOrder, candidates: list[JobOverview]) -> TakenSavepoint | None:
    """A savepoint that an earlier try took, although Flink has forgotten its trigger."""
    for job in candidates:
        for entry in await _history(rest, job.id):
            if _is_of(entry, order):
                found = TakenSavepoint(job.id, entry["external_path"])
                return found if await _counts(rest, order, found) else None
    location = await asyncio.to_thread(newest_completed, order.directory)
    if location is None:
        return None
    found = TakenSavepoint(_job_of(location, candidates), location)
    return found if await _counts(rest, order, found) else None


def _is_of(entry: dict[str, Any], order: SavepointOrder) -> bool:
    """Whether an entry of a job's history is the order's savepoint, and complete."""
    in_its_folder = f"/{folder_name(*order.key)}/" in (entry.get("external_path") or "")
    return bool(entry["is_savepoint"]) and entry["status"] == "COMPLETED" and in_its_folder


async def _counts(rest: FlinkRest, order: SavepointOrder, found: TakenSavepoint) -> bool:
    """Whether the savepoint counts: if the job was to stop with it, the job must have stopped with it.

    If the job went on, the savepoint is out of date, even if the job has ended since.
    """
    state = None if found.job_id is None else await job_state(rest, found.job_id)
    if not order.stop or (state in (None, "FINISHED") and not await _went_on(rest, order, found.job_id)):
        if order.stop and state is None:
            _log.warning("an earlier try took savepoint %s; Flink has forgotten its job", found.location)
        else:
            _log.info("an earlier try took savepoint %s", found.location)
        return True
    order.on_failure()
    if state in (None, *TERMINAL):
        why = {
            None: "an earlier stop had failed, and Flink has forgotten the job",
            "FINISHED": f"job {found.job_id}, which is FINISHED, may not have ended with it",
        }.get(state, f"job {found.job_id} is {state}, not FINISHED")
        raise FlinkError(
            f"savepoint {found.location} is complete, but {why}: it may have processed input after the savepoint. See "
            "in Flink's log whether it has; if not, use this savepoint"
        )
    _log.warning("job %s is %s after savepoint %s: stopping it again", found.job_id, state, found.location)
    return False


async def _went_on(rest: FlinkRest, order: SavepointOrder, job_id: str | None) -> bool:
    """Whether the job, which is over, may have gone on after the order's savepoint."""
    for wait in (False, True):
        if wait:
            # The history may be older than the savepoint, because Flink answers from a cache.
            await asyncio.sleep(await cached_for(rest))
        history = [] if job_id is None else await _history(rest, job_id)
        newest = _newest_completed(history)
        if newest is None:
            return order.has_failed
        if _is_of(newest, order):
            return False
    return True


def _newest_completed(history: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((entry for entry in history if entry["status"] == "COMPLETED"), None)


async def _history(rest: FlinkRest, job_id: str) -> list[dict[str, Any]]:
    """The job's checkpoints and savepoints, the newest first.

    It includes the newest savepoint, even if many checkpoints were completed since.
    """
    try:
        answer = await rest.get(f"/jobs/{job_id}/checkpoints")
    except FlinkRefusedError as refused:
        if refused.status == 404:
            return []
        raise
    latest = [answer["latest"]["savepoint"]] if answer["latest"]["savepoint"] else []
    return sorted([*latest, *answer["history"]], key=lambda entry: int(entry["id"]), reverse=True)


def _job_of(location: str, candidates: list[JobOverview]) -> str | None:
    """The job of a savepoint: Flink names the folder after the first digits of the job's id."""
    name = location.rstrip("/").rpartition("/")[2]
    return next((job.id for job in candidates if name.startswith(f"savepoint-{job.id[:6]}-")), None)
