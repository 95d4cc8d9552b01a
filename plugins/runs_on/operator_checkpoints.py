"""Stops with a checkpoint under the Flink Kubernetes Operator, which cancels the job itself.

It starts a job again that anybody else has cancelled. Suspended with `upgradeMode: last-state` it cancels the job, by
an option if that is highly available, and leaves Flink's cluster until it starts the next one (1.10 to 1.15). So Flink
is asked for the newest checkpoint: the path that the operator tells may be older, as Flink answers it from a cache, and
it looks after the job only once in a while.
"""

from __future__ import annotations

import logging

from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import TERMINAL
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.savepoints import SavepointOrder
from stateferry.airflow.flink.stopping import newest_of_ended, take_checkpoint, why_not_with_checkpoint
from stateferry.airflow.kubernetes.errors import OperatorError
from stateferry.airflow.kubernetes.resource import FlinkResource, Resource
from stateferry.airflow.runs_on.port import POLL_SECONDS

_SOON = 2.0
_SECONDS_BEFORE_START = 30.0
_ENDED = ("CANCELED", "FAILED")
_BY_HAND = "start the old job from there, by initialSavepointPath and a new savepointRedeployNonce"

_log = logging.getLogger(__name__)


async def checkpoint_before_stop(rest: FlinkRest, order: SavepointOrder, job_id: str, *, timeout: float) -> int:
    """Has the job, which runs on, take a checkpoint; returns its number."""
    if why := await why_not_with_checkpoint(rest, job_id):
        raise FlinkError(why)
    return await take_checkpoint(rest, order, job_id, timeout=timeout, poll_interval=POLL_SECONDS)


def where_cancelled(resource: Resource, now: FlinkResource, hook: FlinkHook, job_id: str, number: int) -> str | None:
    """The newest checkpoint of a job that the operator has cancelled after the checkpoint `number`; None if it hasn't.

    Raises an `OperatorError` if it can't, or has suspended the job in another way: then only it knows the last state.
    """
    job = now.reconciled.get("job") or {}
    is_suspended, mode = job.get("state") == "suspended", job.get("upgradeMode")
    if is_suspended and mode != "savepoint":
        raise OperatorError(f"{resource} is suspended, but its job wasn't cancelled: upgradeMode is {mode}")
    if (other := _other(now, job_id)) is not None:
        raise refusal(
            f"the job of {resource} is {other}, not {job_id}, which this run has stopped: the operator has started it "
            f"again meanwhile, so no checkpoint of {job_id} is where it stopped. Look where job {other} has ended: "
            f"{_BY_HAND}"
        )
    try:
        state = FlinkHook(hook.flink_conn_id, patience=_SOON).job_state(job_id)
    except FlinkError:
        if is_suspended:
            raise
        return None
    if state in _ENDED:
        return hook.run(lambda rest: newest_of_ended(rest, job_id, number)).location
    if is_suspended or state == "FINISHED":
        raise refusal(
            f"{resource} is {now.in_words}, and job {job_id} is {state or 'unknown to Flink'}, not cancelled, so no "
            f"checkpoint is where it stopped. Look where it has ended: {_BY_HAND}"
        )
    if now.error is not None and state != "CANCELLING":
        raise OperatorError(f"the operator could not stop {resource}, which is {now.in_words}")
    return None


def _other(now: FlinkResource, job_id: str) -> str | None:
    """The id of another job that the operator has started there; it may forget that of one that it has cancelled."""
    found = now.job_status.get("jobId")
    return None if found in (None, "", job_id) else str(found)


def check_nobody_goes_on(resource: Resource, now: FlinkResource, hook: FlinkHook, job_id: str) -> None:
    """Fails for good if a job runs where one was cancelled, whose newest checkpoint is then out of date.

    Kubernetes may have replaced the JobManager, which starts its job anew if it isn't highly available, and the
    operator looks after no suspended job. Raises a `FlinkError` if Flink can't be asked.
    """
    if (other := _other(now, job_id)) is not None:
        raise refusal(
            f"the job of {resource} is {other}, not {job_id}, which this run has stopped, so no job is started: it "
            f"would process again what that one has processed. Stop job {other} with a savepoint if it runs, and look "
            f"where it has ended: {_BY_HAND}"
        )
    is_gone = now.status.get("jobManagerDeploymentStatus") == "MISSING"
    asked = FlinkHook(hook.flink_conn_id, patience=_SOON if is_gone else _SECONDS_BEFORE_START)
    try:
        states = {job_id: asked.job_state(job_id)}
        # The list may be older than what Flink says of one job.
        states |= {job.id: asked.job_state(job.id) for job in asked.jobs() if not job.is_over and job.id != job_id}
    except FlinkError:
        if not is_gone:
            raise
        _log.info("%s has no JobManager any more, so no job runs there", resource)
        return
    for found, state in states.items():
        if state not in (None, *(_ENDED if found == job_id else TERMINAL)):
            raise refusal(
                f"job {job_id} of {resource} was cancelled, and now job {found} is {state} there: Kubernetes may have "
                "replaced the JobManager, which then starts its job anew. No job is started, as it would process again "
                "what that one has processed. If that doesn't matter, cancel it in Flink, and clear this task; else "
                f"stop it in Flink with a savepoint, and {_BY_HAND}"
            )
