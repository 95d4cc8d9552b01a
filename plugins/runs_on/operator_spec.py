"""The specs of a cut-over under the Flink Kubernetes Operator: suspended, started from a savepoint, and as it was."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stateferry.airflow.flink.savepoints import CHECKPOINT, SavepointOrder
from stateferry.airflow.kubernetes.resource import FlinkResource
from stateferry.airflow.kubernetes.spec import Spec, merged, option, with_options
from stateferry.runs.record.facts import RunFacts

_FORMAT = "kubernetes.operator.savepoint.format.type"
_FALLBACK = "kubernetes.operator.job.upgrade.last-state-fallback.enabled"
# By these the operator cancels a job that it suspends with its last state, whose checkpoint may be of any age.
_BY_CANCELLATION = {
    "kubernetes.operator.job.upgrade.last-state.job-cancel.enabled": "true",
    "kubernetes.operator.job.upgrade.last-state.max.allowed.checkpoint.age": "3650 d",
}
# If this is on, the operator drains each job that it stops, not only deleted ones: all timers fire, all windows end.
_DRAIN = "kubernetes.operator.job.drain-on-savepoint-deletion"
# The operator makes a FlinkStateSnapshot of each stop, and deletes that after some days or others: if this is on, with
# the files, from which the way back starts.
_DISPOSE = "kubernetes.operator.savepoint.dispose-on-delete"
# What the operator must not do by itself as long as the run watches: go back to another spec, or start a failed job as
# another one, of which the run wouldn't know.
MEANWHILE_OFF = ("kubernetes.operator.deployment.rollback.enabled", "kubernetes.operator.job.restart.failed")
# With other values a job would drop state that it doesn't know, or delete what it was started from. A spec without them
# gets the operator's defaults. Each option has its name since Flink 1.20, which counts there, and the one before it.
_AS_PROVEN = {
    "execution.state-recovery.ignore-unclaimed-state": "false",
    "execution.savepoint.ignore-unclaimed-state": "false",
    "execution.state-recovery.claim-mode": "NO_CLAIM",
    "execution.savepoint-restore-mode": "NO_CLAIM",
}
# Flink's name since 1.20, and the one before it, which all of them know.
_FOLDERS = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
RUNS = ("STABLE", "DEPLOYED")


@dataclass(frozen=True, slots=True)
class SpecBefore(RunFacts):
    """The spec of the old job's resource as it was before this run changed it, and the id of its job.

    `started_from` is the savepoint from which this run lets the new job start, by the nonce `start_nonce`. `stop_error`
    is why this run has given the stop up, and lets the old job run on. `checkpoint` is the number of the one that the
    old job took right before a stop with a checkpoint.
    """

    name: ClassVar[str] = "kubernetes_spec"

    resource: str
    spec: Mapping[str, Any]
    job_id: str | None = None
    started_from: str = ""
    start_nonce: int = 0
    stop_error: str = ""
    checkpoint: int = 0


def suspension(before: Spec, order: SavepointOrder) -> dict[str, Any]:
    """The merge patch that stops the job with a savepoint of the order's format, or a checkpoint, and nothing else."""
    folder = next((name for name in _FOLDERS if option(before, name) is not None), _FOLDERS[-1])
    # Flink starts no job whose folder has no scheme, and somebody else may start one with this spec. The folder is only
    # this order's, so it also tells whose stop it is.
    options = {folder: with_scheme(order.directory)}
    options |= _BY_CANCELLATION if order.format == CHECKPOINT else {_FORMAT: order.format}
    options |= dict.fromkeys((_FALLBACK, _DRAIN, _DISPOSE, *MEANWHILE_OFF), "false")
    return {"job": suspended(order), **with_options(options, before)}


def suspended(order: SavepointOrder) -> dict[str, Any]:
    """The part of the patch that has the operator stop the job."""
    return {"state": "suspended", "upgradeMode": "last-state" if order.format == CHECKPOINT else "savepoint"}


def is_suspended_by(now: FlinkResource, order: SavepointOrder) -> bool:
    """Whether the resource is suspended by this order."""
    suspended = now.job.get("state") == "suspended"
    return suspended and plain(order.directory) in (plain(option(now.spec, name) or "") for name in _FOLDERS)


def runs_from(spec: Spec, savepoint: str) -> bool:
    """Whether the spec is of a job that was started from the savepoint."""
    job = spec.get("job") or {}
    return job.get("state", "running") == "running" and job.get("initialSavepointPath") == savepoint


def never_came_up(now: FlinkResource, old_job: str | None) -> bool:
    """Whether no JobManager of the new job has ever answered the operator."""
    started = now.job_status.get("jobId") not in (None, old_job)
    came_up = (
        now.job_status.get("state") not in (None, "RECONCILING")
        or now.status.get("jobManagerDeploymentStatus") == "READY"
    )
    return not started or not came_up


def with_scheme(path: str) -> str:
    """The address of a path."""
    return re.sub("^/", "file:///", path)


def plain(path: str) -> str:
    """A path as it is compared: Flink writes file:/folder and /folder for the same."""
    return re.sub(r"^file:/*", "/", path).rstrip("/")


def nonce_of(spec: Spec) -> int:
    """The last nonce by which the job was started from a savepoint; 0 if it never was."""
    return int((spec.get("job") or {}).get("savepointRedeployNonce") or 0)


def started_spec(spec: Spec, savepoint: str, nonce: int) -> dict[str, Any]:
    """The spec with which the operator starts the job from the savepoint, and doesn't roll back by itself.

    The job needs all state of the savepoint, and doesn't claim it, whatever the spec or the operator's defaults say.
    """
    nonce = max(nonce, nonce_of(spec) + 1)
    job: dict[str, Any] = {"state": "running", "initialSavepointPath": savepoint, "savepointRedeployNonce": nonce}
    job["allowNonRestoredState"] = False
    options = {name: value for name, value in _AS_PROVEN.items() if option(spec, name) != value}
    return merged(spec, {"job": job, **with_options(options | dict.fromkeys(MEANWHILE_OFF, "false"), spec)})
