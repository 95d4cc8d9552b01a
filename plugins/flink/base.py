"""The base class of Flink's operators."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.links import FlinkJobLink
from stateferry.airflow.flink.savepoints import TakenSavepoint
from stateferry.airflow.flink.task import HOUR, FlinkTask

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors.base import OperatorLineage
    from airflow.sdk import Context


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
        self._taken: str | None = None

    @cached_property
    def hook(self) -> FlinkHook:
        """The hook of the operator's connection."""
        return FlinkHook(self.flink_conn_id)

    def taken(self, task: FlinkTask, savepoint: TakenSavepoint, started: float) -> dict[str, Any]:
        """What the task returns of the savepoint."""
        self._taken = savepoint.location
        return task.savepoint_taken(savepoint, started)

    def get_openlineage_facets_on_complete(self, _: Any) -> OperatorLineage[Any, Any]:
        """What OpenLineage's provider asks for when the task has ended, well or not."""
        from stateferry.airflow.flink.lineage import savepoint_lineage

        return savepoint_lineage(taken=self._taken, started_from=getattr(self, "savepoint", None))

    def task(self, context: Context) -> FlinkTask:
        """The task instance with the operator's hook."""
        return FlinkTask(self.hook, context)

    def watch(self, job_id: str) -> dict[str, Any]:
        """The arguments that every trigger gets."""
        deadline = time.time() + self.timeout
        common = {"flink_conn_id": self.flink_conn_id, "job_id": job_id}
        return common | {"poll_interval": self.poll_interval, "deadline": deadline}
