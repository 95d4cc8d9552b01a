"""Own tasks that stop and start the job `orders`: an example, with jobs on a session cluster.

Copy this file into the DAGs folder. Your own tasks ask what your jobs live in, with any operators. A job of the
configuration names the copy in `own_tasks`, by its import path, and has `"runs_on": "own tasks"` in its request.
docs/where-jobs-live.md says what each function gets and gives.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.operators import FlinkRunJarOperator, FlinkStopWithSavepointOperator

FLINK = "flink_default"
JAR, OLD, NEW = "orders.jar", "com.example.MapsJob", "com.example.RowsJob"
ARGUMENTS = ("--rate", "10")


def stop(asked: Any) -> None:
    """Stops the job with a savepoint. The operator returns it as `savepoint`, with `job_id`."""
    FlinkStopWithSavepointOperator(
        task_id="stop",
        flink_conn_id=FLINK,
        job=asked["flink_job"],
        savepoint_directory=asked["savepoint_directory"],
        savepoint_format=asked["format"],
        poll_interval=0.5,
    )


def start(asked: Any) -> None:
    """Starts the new job. The operator succeeds when the job has completed a checkpoint, and returns its `job_id`."""
    FlinkRunJarOperator(
        task_id="start",
        flink_conn_id=FLINK,
        jar=JAR,
        entry_class=NEW,
        arguments=ARGUMENTS,
        savepoint=asked["savepoint"],
        wait_until="checkpoint",
        max_failures=3,
        poll_interval=0.5,
    )


def go_back(asked: Any) -> None:
    """Ends the new job, unless it has completed a checkpoint, and starts the old one again."""

    @task
    def end_new_job(asked: dict[str, Any]) -> None:
        if asked["savepoint"] is None:
            raise AirflowFailException("the stop has failed: look whether the job still runs, and with which savepoint")
        if not asked["new_job_asked"]:
            return
        if asked["flink_job"] == asked["old_job"]:
            raise AirflowFailException(f"{asked['flink_job']} is the old job's id: look whether the new one runs")
        hook = FlinkHook(FLINK)
        # The old job has ended, so the newest of this name is the new one, if there is one.
        job = hook.job_id(asked["flink_job"])
        if job == asked["old_job"]:
            return
        if hook.has_checkpointed(job):
            raise AirflowFailException(f"job {job} has completed a checkpoint: a person must decide")
        hook.cancel(job, timeout=300)

    start_old_job = FlinkRunJarOperator(
        task_id="start_old_job",
        flink_conn_id=FLINK,
        jar=JAR,
        entry_class=OLD,
        arguments=ARGUMENTS,
        savepoint=asked["savepoint"],
        wait_until="checkpoint",
        poll_interval=0.5,
    )
    end_new_job(asked) >> start_old_job
