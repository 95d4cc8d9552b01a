"""Tries of a task: what an operator sees of Airflow, with a real operator, a real hook and a real Flink behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlparse
from uuid import uuid4

from stateferry.airflow.flink.operators import (
    FlinkRunJarOperator,
    FlinkSavepointOperator,
    FlinkStopWithSavepointOperator,
)
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB

if TYPE_CHECKING:
    from airflow.sdk import Context

CONNECTION = "flink_default"


@dataclass
class Store:
    """What outlives a try."""

    held: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        return self.held.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.held[key] = value


@dataclass
class Try:
    """One try of one task instance. ``next`` is another try of the same one."""

    run_id: str = field(default_factory=lambda: f"manual__{uuid4()}")
    task_id: str = "task"
    dag_id: str = "dag"
    map_index: int = -1
    try_number: int = 1
    store: Store = field(default_factory=Store)
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    @property
    def context(self) -> Context:
        return cast("Context", {"ti": self, "task_state_store": self.store})

    def next(self) -> Try:
        return Try(self.run_id, self.task_id, self.dag_id, self.map_index, self.try_number + 1, self.store)


def savepoint(job: str, folder: Path, *, stop: bool = False, **more: Any) -> FlinkSavepointOperator:
    kind = FlinkStopWithSavepointOperator if stop else FlinkSavepointOperator
    more = {"poll_interval": 0.1, "timeout": 60, **more}
    return kind(task_id="task", job=job, savepoint_directory=str(folder), **more)


def run_jar(arguments: list[str], entry_class: str = LEGACY_JOB, **more: Any) -> FlinkRunJarOperator:
    more = {"jar": "totals.jar", "parallelism": 2, "poll_interval": 0.1, "timeout": 60, **more}
    return FlinkRunJarOperator(task_id="task", entry_class=entry_class, arguments=arguments, **more)


def complete(folder: Path) -> list[Path]:
    """The savepoints in the folder, each in the one of who wanted it."""
    return [metadata.parent for metadata in folder.glob("*/*/_metadata")]


def local(location: str) -> Path:
    return Path(unquote(urlparse(location).path))


def running(cluster: FlinkCluster) -> list[str]:
    return [job["jid"] for job in cluster.get("/jobs/overview")["jobs"] if job["state"] == "RUNNING"]
