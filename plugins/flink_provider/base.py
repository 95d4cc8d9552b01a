"""What Flink's operators have in common."""

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
# Here the task's own store, which outlives a try, holds the id of the job that no later try may mistake.
_MEANT = "flink_job_meant"


class FlinkOperator(BaseOperator):
    """What they have in common: the connection, whether to wait in the triggerer, how long and how often to look."""

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
        return FlinkHook(self.flink_conn_id)

    def watch(self, job_id: str) -> dict[str, Any]:
        """What every trigger is told."""
        deadline = time.time() + self.timeout
        common = {"flink_conn_id": self.flink_conn_id, "job_id": job_id}
        return common | {"poll_interval": self.poll_interval, "deadline": deadline}

    def show(self, context: Context, job_id: str) -> None:
        """Before the job is waited for: others, and people, may look at it while it is, and if it fails."""
        context["ti"].xcom_push(key=JOB_ID, value=job_id)
        context["ti"].xcom_push(key=FlinkJobLink.xcom_key, value=job_url(self.hook.get_conn(), job_id))

    def the_job_meant(self, context: Context, job: str) -> str:
        """The job's id, as the first try found it: a later job of the same name is not the one to be stopped."""
        store = context.get("task_state_store")
        if store is None:
            return job
        meant = store.get(_MEANT)
        if meant is None:
            meant = self.hook.job_id(job)
            store.set(_MEANT, meant)
        return str(meant)


def task_key(context: Context) -> tuple[str, ...]:
    """The task instance, whichever try of it this is."""
    ti = context["ti"]
    return (ti.dag_id, ti.task_id, str(ti.map_index), ti.run_id)
