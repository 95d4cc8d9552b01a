"""Which place the jobs of a request live in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.task import FlinkTask
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.port import RunsOn
from stateferry.airflow.runs_on.session import Session

if TYPE_CHECKING:
    from airflow.sdk import Context


def place_of(request: MigrationRequest, context: Context) -> RunsOn:
    """The place where the jobs of this DAG run live."""
    return Session(FlinkTask(FlinkHook(request.flink_conn_id), context), request)
