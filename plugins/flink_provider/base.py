"""The base class of Flink's operators."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from flink_provider.hook import FlinkHook
from flink_provider.links import FlinkJobLink, job_url

if TYPE_CHECKING:
    from airflow.sdk import Context

HOUR = 3600.0
JOB_ID = "job_id"
"""The XCom that says which job it is, or may be."""
# The key in the task's own store, which outlives a try. It holds the id of the job that every try must mean.
_MEANT = "flink_job_meant"


class FlinkOperator(BaseOperator):
    """The base of Flink's operators.

    They have in common the connection, whether to wait in the triggerer, and how long and how often to look.
    """

    template_fields: Sequence[str] = ("flink_conn_id",)
    operator_extra_links = (FlinkJobLink(),)
    ui_color = "#fbe1e8"

    def __init__(
        self,
        *,
        flink_conn_id: str = FlinkHook.default_conn_name,
        deferrable: bool | None = None,
        timeout: float = 6 * HOUR,
        poll_interval: float = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.flink_conn_id = flink_conn_id
        self.deferrable = deferrable
        self.timeout = timeout
        self.poll_interval = poll_interval

    @cached_property
    def hook(self) -> FlinkHook:
        """The hook of the operator's connection."""
        return FlinkHook(self.flink_conn_id)

    def watch(self, job_id: str) -> dict[str, Any]:
        """The arguments that every trigger gets."""
        deadline = time.time() + self.timeout
        common = {"flink_conn_id": self.flink_conn_id, "job_id": job_id}
        return common | {"poll_interval": self.poll_interval, "deadline": deadline}

    def show(self, context: Context, job_id: str) -> None:
        """Publishes the job's id and address before the job is waited for, so that they exist if the wait fails."""
        context["ti"].xcom_push(key=JOB_ID, value=job_id)
        context["ti"].xcom_push(key=FlinkJobLink.xcom_key, value=job_url(self.hook.get_conn(), job_id))

    def the_job_meant(self, context: Context, job: str) -> str:
        """The job's id as the first try found it, so that a retry doesn't stop a later job of the same name."""
        store = context.get("task_state_store")
        if store is None:
            return job
        meant = store.get(_MEANT)
        if meant is None:
            meant = self.hook.job_id(job)
            store.set(_MEANT, meant)
        return str(meant)


def task_key(context: Context) -> tuple[str, ...]:
    """The identity of the task instance, which is the same in every try."""
    ti = context["ti"]
    return (ti.dag_id, ti.task_id, str(ti.map_index), ti.run_id)
