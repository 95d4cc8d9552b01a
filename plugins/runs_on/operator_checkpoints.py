"""Stops with a checkpoint under the Flink Kubernetes Operator, which cancels the job itself.

It starts a job again that anybody else has cancelled. Suspended with `upgradeMode: last-state` it cancels the job, by
an option if that is highly available, and leaves Flink's cluster until it starts the next one (1.10 to 1.15). So Flink
is asked for the newest checkpoint: the path that the operator tells may be older, as Flink answers it from a cache, and
it looks after the job only once in a while.
"""

from __future__ import annotations

from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.savepoints import SavepointOrder
from stateferry.airflow.flink.stopping import newest_of_ended, take_checkpoint, why_not_with_checkpoint
from stateferry.airflow.kubernetes.errors import OperatorError
from stateferry.airflow.kubernetes.resource import FlinkResource, Resource
from stateferry.airflow.runs_on.port import POLL_SECONDS

_SOON = 2.0


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
    try:
        state = FlinkHook(hook.flink_conn_id, patience=_SOON).job_state(job_id)
    except FlinkError:
        if is_suspended:
            raise
        return None
    if state in ("CANCELED", "FAILED"):
        return hook.run(lambda rest: newest_of_ended(rest, job_id, number)).location
    if is_suspended or state == "FINISHED":
        raise refusal(
            f"{resource} is {now.in_words}, and job {job_id} is {state or 'unknown to Flink'}, not cancelled, so no "
            "checkpoint is where it stopped. Look where it has ended: start the old job from there, by "
            "initialSavepointPath and a new savepointRedeployNonce"
        )
    if now.error is not None and state != "CANCELLING":
        raise OperatorError(f"the operator could not stop {resource}, which is {now.in_words}")
    return None
