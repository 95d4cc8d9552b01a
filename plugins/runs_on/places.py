"""Which place the jobs of a request live in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.task_names import OWN_STOP
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import HOUR, FlinkTask
from stateferry.airflow.kubernetes.api import KubernetesApi
from stateferry.airflow.kubernetes.connection import api_server
from stateferry.airflow.kubernetes.errors import KubernetesError
from stateferry.airflow.kubernetes.resource import Resource
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.operator import Operator
from stateferry.airflow.runs_on.operator_session_jobs import SessionJobOperator
from stateferry.airflow.runs_on.operator_snapshots import taken_by_operator
from stateferry.airflow.runs_on.own_tasks import OwnTasks
from stateferry.airflow.runs_on.port import POLL_SECONDS, RunsOn
from stateferry.airflow.runs_on.session import Session

if TYPE_CHECKING:
    from airflow.sdk import Context


def place_of(request: MigrationRequest, context: Context) -> RunsOn:
    """The place where the jobs of this DAG run live."""
    if request.runs_on == "own tasks" and request.stops_job:
        return OwnTasks(context)
    flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
    if request.runs_on == "kubernetes" and request.stops_job:
        resource = resource_of(request)
        kind = Operator if resource.kind == "flinkdeployment" else SessionJobOperator
        return kind(flink, resource, request)
    return Session(flink, request)


def savepoint_of_running_job(request: MigrationRequest, context: Context, order: SavepointOrder) -> TakenSavepoint:
    """A savepoint of a job that goes on running, taken once however often the task is tried."""
    flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
    if request.runs_on != "kubernetes" or request.resource is None:
        return flink.take_savepoint(order, timeout=6 * HOUR, poll_interval=POLL_SECONDS)
    resource = resource_of(request)
    job_id = str(resource.read().job_status.get("jobId") or "") or None
    if job_id is not None:
        flink.show(job_id)
    return TakenSavepoint(job_id, taken_by_operator(resource, order, timeout=6 * HOUR))


def check_place(request: MigrationRequest, context: Context) -> None:
    """Fails for good if the DAG or the place can't do what the request wants."""
    has_own = OWN_STOP in getattr(context.get("dag"), "task_group_dict", {})
    if request.stops_job and has_own != (request.runs_on == "own tasks"):
        raise refusal(
            f"runs_on: '{request.runs_on}', but this DAG has {'' if has_own else 'no '}own tasks by which jobs are "
            "stopped and started: trigger the DAG of the configured job that names them in own_tasks, and only that one"
        )
    place_of(request, context).check()


def resource_of(request: MigrationRequest) -> Resource:
    """The resource that the request names."""
    try:
        server = api_server(request.kubernetes_conn_id)
    except KubernetesError as error:
        raise refusal(str(error)) from None
    kind, name = request.resource_parts
    return Resource(KubernetesApi(server), kind, request.namespace or server.namespace or "default", name)
