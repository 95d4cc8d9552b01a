"""Which place the jobs of a request live in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateferry.airflow.dag_runs.dag_run import fail_if_refused
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
from stateferry.airflow.requests.rollback_request import RollbackRequest
from stateferry.airflow.runs_on.operator import Operator
from stateferry.airflow.runs_on.operator_session_jobs import SessionJobOperator
from stateferry.airflow.runs_on.operator_snapshots import taken_by_operator
from stateferry.airflow.runs_on.operator_spec import SpecBefore
from stateferry.airflow.runs_on.operator_start import OperatorStart
from stateferry.airflow.runs_on.own_tasks import OwnTasks
from stateferry.airflow.runs_on.port import POLL_SECONDS, RunsOn
from stateferry.airflow.runs_on.session import Session
from stateferry.runs.record.runs import Run

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


def operator_of(run: Run, request: RollbackRequest, context: Context) -> OperatorStart:
    """The operator of the resource whose job the run has stopped."""
    with fail_if_refused():
        kept = run.facts(SpecBefore)
    if kept is None:
        raise refusal(
            f"run {run.plan.run_id} has started no job by the operator, so it has no spec as it was: leave restart_job "
            "off, and start the old job by hand"
        )
    kind, _, place = kept.resource.partition(" ")
    namespace, _, name = place.partition("/")
    resource = Resource(_api(request.kubernetes_conn_id), kind, namespace, name)
    return OperatorStart(FlinkTask(FlinkHook(request.flink_conn_id), context), resource, request.patch, lambda: run)


def resource_of(request: MigrationRequest) -> Resource:
    """The resource that the request names."""
    kind, name = request.resource_parts
    api = _api(request.kubernetes_conn_id)
    return Resource(api, kind, request.namespace or api.server.namespace or "default", name)


def _api(conn_id: str) -> KubernetesApi:
    try:
        return KubernetesApi(api_server(conn_id))
    except KubernetesError as error:
        raise refusal(str(error)) from None
