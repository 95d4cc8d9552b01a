"""Stops a job as an order says: with a savepoint, or with a checkpoint after which the job is cancelled.

A checkpoint costs what changed since the one before it, if the job's are incremental. What the job processes between it
and the cancellation, it processes again: the newest checkpoint of a job that has ended is where it goes on, whoever
ended it. So a retry needs to know nothing of an earlier try.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from stateferry.airflow.flink import savepoints
from stateferry.airflow.flink.checkpoints import Checkpoint, completed_checkpoints
from stateferry.airflow.flink.errors import (
    FlinkError,
    FlinkRefusedError,
    FlinkSavepointError,
    FlinkTimeoutError,
    FlinkUnreachableError,
    root_cause,
)
from stateferry.airflow.flink.jobs import (
    TERMINAL,
    Goal,
    JobOverview,
    cached_for,
    cancel_job,
    find_job,
    job_state,
    list_jobs,
    wait_for,
)
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.savepoints import CHECKPOINT, Pending, SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.storage import checkpoint_number, newest_completed

_CANCELLING, _ENDED = "CANCELLING", ("CANCELED", "FAILED")

_log = logging.getLogger(__name__)


async def take(rest: FlinkRest, order: SavepointOrder, *, timeout: float, poll_interval: float) -> TakenSavepoint:
    """Waits for what the order wants until it is complete and, if the job is to stop with it, the job has stopped."""
    if order.format != CHECKPOINT:
        return await savepoints.take(rest, order, timeout=timeout, poll_interval=poll_interval)
    job = await find_job(rest, order.job)
    number = 0
    # A job that an earlier try has cancelled takes no checkpoint any more.
    state = await _state_in_the_end(rest, job, timeout=timeout, poll_interval=poll_interval)
    if state not in TERMINAL:
        if why := await why_not_with_checkpoint(rest, job.id):
            raise FlinkError(why)
        number = await take_checkpoint(rest, order, job.id, timeout=timeout, poll_interval=poll_interval)
        await cancel_job(rest, job.id)
        state = await wait_for(rest, job.id, Goal.over(), timeout=timeout, poll_interval=poll_interval)
    if state not in _ENDED:
        raise FlinkError(f"job '{job.name}' ({job.id}) is {state}, and no checkpoint is where it stopped")
    return await newest_of_ended(rest, job.id, number)


async def find(rest: FlinkRest, order: SavepointOrder) -> TakenSavepoint | Pending | None:
    """What an earlier try has stopped the job with, or that it is about to stop; triggers nothing."""
    if order.format != CHECKPOINT:
        return await savepoints.find(rest, order)
    job = next((one for one in await list_jobs(rest) if order.job in (one.id, one.name)), None)
    if job is None:
        return None
    state = await _state_now(rest, job)
    if state == _CANCELLING:
        return Pending(job.id, "")
    return await newest_of_ended(rest, job.id) if state in _ENDED else None


async def found_in_the_end(
    rest: FlinkRest, order: SavepointOrder, *, timeout: float, poll_interval: float
) -> TakenSavepoint | None:
    """What the job was stopped with, waited for if it is about to stop; None if it runs on. Nothing is triggered."""
    if order.format != CHECKPOINT:
        return await savepoints.found_in_the_end(rest, order, timeout=timeout, poll_interval=poll_interval)
    job = await find_job(rest, order.job)
    state = await _state_in_the_end(rest, job, timeout=timeout, poll_interval=poll_interval)
    return await newest_of_ended(rest, job.id) if state in _ENDED else None


async def _state_in_the_end(rest: FlinkRest, job: JobOverview, *, timeout: float, poll_interval: float) -> str:
    state = await _state_now(rest, job)
    if state != _CANCELLING:
        return state
    return await wait_for(rest, job.id, Goal.over(), timeout=timeout, poll_interval=poll_interval)


async def _state_now(rest: FlinkRest, job: JobOverview) -> str:
    # What Flink says of all jobs at once may be seconds old.
    return await job_state(rest, job.id) or job.state


async def why_not_with_checkpoint(rest: FlinkRest, job_id: str) -> str:
    """Why the job can't be stopped with a checkpoint; empty if it can. Nothing is asked of the job."""
    config = await rest.get(f"/jobs/{job_id}/checkpoints/config")
    kept = config["externalization"]
    if not kept["enabled"] or kept["delete_on_cancellation"]:
        why = "Flink removes its checkpoints when it is cancelled (execution.checkpointing.externalized-checkpoint-"
        why += "retention is not RETAIN_ON_CANCELLATION)"
    elif config.get("unaligned_checkpoints"):
        why = "its checkpoints may be unaligned, and then hold records on their way, which can't be converted"
    elif config.get("state_changelog_enabled"):
        why = "its checkpoints are a changelog of the state"
    else:
        return ""
    return f"job {job_id} can't be stopped with a checkpoint: {why}. It was not stopped: stop it with a savepoint"


async def take_checkpoint(
    rest: FlinkRest, order: SavepointOrder, job_id: str, *, timeout: float, poll_interval: float
) -> int:
    """Has the job take a checkpoint, as it is configured to; returns its number. If it fails, the job runs on."""
    trigger = order.trigger(order.tries)
    path, end = f"/jobs/{job_id}/checkpoints", time.monotonic() + timeout
    try:
        await rest.post_once(path, {"triggerId": trigger})
    except FlinkUnreachableError as lost:
        _log.warning("%s; looking whether the checkpoint was triggered", lost)
    while True:
        answer = await rest.get(f"{path}/{trigger}")
        if answer["status"]["id"] != "IN_PROGRESS":
            break
        if time.monotonic() > end:
            raise FlinkTimeoutError(f"the checkpoint of job {job_id} isn't complete after {timeout:g} s")
        await asyncio.sleep(poll_interval)
    operation: dict[str, Any] = answer["operation"]
    if (failure := operation.get("failureCause") or operation.get("failure-cause")) is not None:
        raise FlinkSavepointError(
            f"Flink has taken no checkpoint of job {job_id}, which runs on: {root_cause(failure['stack-trace'])}"
        )
    number = int(operation["checkpointId"])
    _log.info("checkpoint %d of job %s is complete", number, job_id)
    return number


async def fresh_checkpoint(
    rest: FlinkRest, order: SavepointOrder, *, timeout: float, poll_interval: float
) -> Checkpoint:
    """The newest checkpoint of a running job, which has taken one now, if its Flink can be asked for one."""
    job = await find_job(rest, order.job)
    number = 0
    try:
        number = await take_checkpoint(rest, order, job.id, timeout=timeout, poll_interval=poll_interval)
    except FlinkRefusedError as refused:
        # Flink before 1.17.
        if refused.status not in (404, 405):
            raise
    end = time.monotonic() + await cached_for(rest) + poll_interval
    while True:
        found = await completed_checkpoints(rest, job.id)
        if found and (found[0].id >= number or time.monotonic() > end):
            return found[0]
        if time.monotonic() > end:
            raise FlinkError(f"job {job.id} has no completed checkpoint whose files are there")
        await asyncio.sleep(poll_interval)


async def newest_of_ended(rest: FlinkRest, job_id: str, number: int = 0) -> TakenSavepoint:
    """The newest complete checkpoint of a job that has ended, which has this number or a higher one.

    Flink answers from a cache. Where this machine sees the checkpoints, it needn't wait until that is out of date.
    """
    known = await completed_checkpoints(rest, job_id)
    seen = None
    if known:
        seen = await asyncio.to_thread(newest_completed, known[0].location.rstrip("/").rpartition("/")[0])
    if seen is not None and checkpoint_number(seen) >= max(known[0].id, number):
        return TakenSavepoint(job_id, seen)
    await asyncio.sleep(await cached_for(rest))
    known = await completed_checkpoints(rest, job_id)
    if not known:
        raise FlinkError(f"job {job_id} has ended, and Flink knows no complete checkpoint of it")
    if known[0].id < number:
        raise FlinkError(
            f"job {job_id} has ended after checkpoint {number}, and the newest that Flink knows is {known[0].location}"
        )
    return TakenSavepoint(job_id, known[0].location)
