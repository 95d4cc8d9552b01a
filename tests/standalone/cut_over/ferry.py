"""One job, its cluster and its sink, and the DAG that is to ferry it to its successor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local_airflow.server import Server
from stateferry.runs.catalog.publications import Control, Publication
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.purchases import check_each_once, entries, expected_entries, shown

DAG, ROLLBACK = "state_migration", "state_rollback"
LIVE = (pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800))
# On a busy machine a step of Spark takes a minute.
PATIENCE = 1500.0


@dataclass(slots=True)
class Ferry:
    airflow: Server
    cluster: FlinkCluster
    jar: str
    job: str
    """The name of runs and publications, and of Airflow's connection."""
    sink: Path
    arguments: str
    """Of the old and the new job."""
    dag: str = DAG

    @classmethod
    def ready(
        cls, airflow: Server, cluster: FlinkCluster, job: str, folder: Path, *arguments: object, port: int | None = None
    ) -> Ferry:
        """With a connection for the DAG to the cluster, or to what stands before it at `port`."""
        sink = folder / "sink"
        sink.mkdir()
        connect(airflow, job, port or cluster.port)
        words = ["--sink", sink, *arguments]
        return cls(airflow, cluster, cluster.upload_jobs(), job, sink, " ".join(map(str, words)))

    def start_old_job(self) -> RemoteJob:
        old = RemoteJob.start(self.cluster, self.jar, LEGACY_JOB, *self.arguments.split())
        old.wait_for_checkpoints()
        return old

    def trigger(self, old: RemoteJob, **params: object) -> str:
        return self.airflow.api.trigger(self.dag, self.conf(old, **params))

    def conf(self, old: RemoteJob, **params: object) -> dict[str, object]:
        """The fields of the form for a run that reads a savepoint of the job."""
        conf: dict[str, object] = {
            "source": "flink",
            "flink_conn_id": self.job,
            "flink_job": old.id,
            "savepoint_directory": self.cluster.savepoints_uri,
            "job": self.job,
            "operator": "main",
            "legacy_state": "mainState",
            "new_state": "newMainState",
            "approval": False,
        }
        return conf | params

    def cut_over(self, old: RemoteJob, **params: object) -> str:
        """Triggers a run that starts the new job, and on failure the old one."""
        return self.airflow.api.trigger(self.dag, self.conf_of_cut_over(old, **params))

    def conf_of_cut_over(self, old: RemoteJob, **params: object) -> dict[str, object]:
        """The fields of the form for such a run."""
        start: dict[str, object] = {
            "mode": "cut over",
            "start_job": True,
            "jar": self.jar,
            "entry_class": NEW_JOB,
            "program_args": self.arguments,
            "job_parallelism": 2,
            "start_timeout": "1m",
        }
        return self.conf(old, **(start | self._old_program() | params))

    def roll_back(self, **params: object) -> str:
        """Triggers a run of the DAG that goes back, and starts the old job."""
        conf: dict[str, object] = {"job": self.job, "flink_conn_id": self.job, "restart_job": True}
        return self.airflow.api.trigger(ROLLBACK, conf | self._old_program() | params)

    def _old_program(self) -> dict[str, object]:
        return {
            "old_jar": self.jar,
            "old_entry_class": LEGACY_JOB,
            "old_program_args": self.arguments,
            "old_job_parallelism": 2,
        }

    def end_of(self, run: str) -> str:
        return self.airflow.api.wait_for_end(self.dag, run, PATIENCE)

    def xcom(self, run: str, task: str, key: str = "return_value") -> Any:
        return self.airflow.api.xcom(self.dag, run, task, key)

    def logs(self, run: str) -> str:
        """Of every task that was tried."""
        api = self.airflow.api
        tries = {name: task["try_number"] for name, task in api.tasks(self.dag, run).items()}
        return "\n".join(
            f"--- {name}, try {number}\n{api.log(self.dag, run, name, number)}"
            for name, last in tries.items()
            for number in range(1, last + 1)
        )

    def published(self) -> Publication | None:
        with Control(f"sqlite:///{self.airflow.settings.stateferry_home}/catalog.db") as control:
            return control.standing(self.job)

    def running(self) -> RemoteJob:
        """The one job that runs."""
        (found,) = self.running_ids()
        return RemoteJob(self.cluster, found)

    def running_ids(self) -> list[str]:
        return [job for job, status in self._jobs().items() if status == "RUNNING"]

    def _jobs(self) -> dict[str, str]:
        return {job["id"]: job["status"] for job in self.cluster.get("/jobs")["jobs"]}

    def check_that_nothing_was_lost(self, state: str) -> str:
        """Ends the running job and judges all that it and those before it have shown, and what it holds at the end:
        in the savepoint whose URI is returned."""
        last = self.running()
        last.wait_for_checkpoints()
        end = last.stop_with_savepoint_at()
        lines = shown(self.sink)
        check_each_once(lines)
        assert entries(end, state) == expected_entries(lines)
        return end


def connect(airflow: Server, connection: str, port: int) -> None:
    """Makes a connection of Airflow to a Flink on this machine."""
    values = {"connection_id": connection, "conn_type": "flink", "host": "127.0.0.1", "port": port}
    airflow.api.call("POST", "/connections", {**values, "extra": json.dumps({"patience": 120})})
