"""What is refused before the Flink Kubernetes Operator stops a job, and which of its failures are for good."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.task import for_good
from stateferry.airflow.kubernetes.errors import KubernetesError, KubernetesUnreachableError
from stateferry.airflow.kubernetes.resource import FlinkResource, Resource
from stateferry.airflow.kubernetes.spec import Spec
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.operator_spec import RUNS
from stateferry.airflow.runs_on.programs import check_new_flink
from stateferry.runs.plan.upgrade_options import SAME_FLINK

_BLUE_GREEN = "FlinkBlueGreenDeployment"


def check_runs(resource: Resource, now: FlinkResource) -> None:
    """Refuses a resource whose job can't be stopped with a savepoint."""
    owners = now.body["metadata"].get("ownerReferences") or ()
    if any(one.get("kind") == _BLUE_GREEN for one in owners):
        raise refusal(
            f"{resource} belongs to a {_BLUE_GREEN}, which would undo each change of it. Stop the job by "
            "hand, and migrate that savepoint with source 'path'"
        )
    if not now.job:
        raise refusal(f"{resource} is a session cluster without a job of its own: choose runs_on 'session'")
    runs = now.lifecycle in RUNS and now.job_status.get("state") == "RUNNING"
    if not runs or now.error is not None:
        raise refusal(f"{resource} is {now.in_words}: only a job that runs can be stopped with a savepoint")
    if not now.is_observed:
        raise refusal(
            f"{resource} is {now.in_words}, but the operator doesn't say that it has carried out the spec as it is: "
            "see whether it is up. Operator 1.10.0 says nothing of a change of its own options alone, such as the last "
            "one of a run: take a later one, or set another restartNonce, by which it restarts the job"
        )


def check_version(before: Spec, request: MigrationRequest) -> None:
    """Of another line of Flink only the run knows which states it would read wrongly, if the plan names it."""
    if "flinkVersion" not in before:
        # A FlinkSessionJob: its new job starts on the same session cluster.
        check_new_flink(request)
        return
    old = str(before.get("flinkVersion"))
    new = str(request.new_spec_patch().get("flinkVersion") or old)
    to = str(request.given_options().get("to", SAME_FLINK))
    wanted = old if to == SAME_FLINK else f"v{to.removeprefix('flink-')}"
    if _line_of(wanted) != _line_of(new):
        raise refusal(
            f"new_spec: flinkVersion {new}, but the run makes a savepoint for {wanted} (to: {to}): name in to the "
            "line of Flink that the new job runs on"
        )


def check_connection(resource: Resource, now: FlinkResource, request: MigrationRequest, hook: FlinkHook) -> None:
    """Refuses a Flink connection that leads to another cluster."""
    found = hook.job_id(str(request.flink_job))
    if found != now.job_status.get("jobId"):
        raise refusal(
            f"flink_job {request.flink_job} is job {found} at connection {request.flink_conn_id}, but "
            f"the job of {resource} is {now.job_status.get('jobId')}: let the connection name its REST "
            f"service, {now.spec.get('deploymentName') or resource.name}-rest in namespace {resource.namespace}"
        )


def _line_of(version: str) -> str:
    """The line of an operator's `flinkVersion`, such as v1 of v1_20."""
    return re.split(r"[._]", version)[0]


@contextmanager
def for_good_there() -> Iterator[None]:
    """Fails the task without a retry after what a retry can't help."""
    try:
        with for_good():
            yield
    except KubernetesUnreachableError:
        raise
    except KubernetesError as error:
        raise refusal(str(error)) from None
