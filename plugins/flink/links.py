"""The link from a task to its job in Flink's web interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from stateferry.airflow.flink.rest import Endpoint

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class FlinkJobLink(BaseOperatorLink):
    """Shows the address that the operator writes as soon as it knows the job, before it waits for the job."""

    name = "Flink job"
    xcom_key = "flink_job_url"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or ""


def job_url(endpoint: Endpoint, job_id: str) -> str:
    """The job's address in Flink's web interface."""
    return f"{endpoint.ui_url or endpoint.url}/#/job/running/{job_id}/overview"
