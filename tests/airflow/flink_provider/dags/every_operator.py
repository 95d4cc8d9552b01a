"""Every operator and the sensor, in workers and in the triggerer: start, stop, start from where it stopped, cancel."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from stateferry.airflow.flink.operators import (
    FlinkCancelJobOperator,
    FlinkRunJarOperator,
    FlinkSavepointOperator,
    FlinkStopWithSavepointOperator,
)
from stateferry.airflow.flink.sensors import FlinkJobSensor

with DAG(
    dag_id="every_operator",
    params={name: Param("", type="string") for name in ("jar", "job", "sink", "savepoints")},
    default_args={"flink_conn_id": "a_real_flink", "poll_interval": 0.5, "poke_interval": 0.5},
):
    arguments = ["--sink", "{{ params.sink }}"]
    start = FlinkRunJarOperator(
        task_id="start",
        jar="{{ params.jar }}",
        entry_class="stateferry.totals.LegacyJob",
        arguments=arguments,
        parallelism="{{ 1 + 1 }}",
        wait_until="checkpoint",
        deferrable=True,
    )
    started = "{{ ti.xcom_pull(task_ids='start', key='job_id') }}"
    take = FlinkSavepointOperator(task_id="take", job=started, savepoint_directory="{{ params.savepoints }}")
    stop = FlinkStopWithSavepointOperator(
        task_id="stop", job="{{ params.job }}", savepoint_directory="{{ params.savepoints }}", deferrable=True
    )
    ended = FlinkJobSensor(task_id="ended", job=started, states=["FINISHED"], deferrable=True)
    resume = FlinkRunJarOperator(
        task_id="resume",
        jar="{{ params.jar }}",
        entry_class="stateferry.totals.LegacyJob",
        arguments=arguments,
        savepoint="{{ ti.xcom_pull(task_ids='stop')['savepoint'] }}",
        wait_until="checkpoint",
    )
    cancel = FlinkCancelJobOperator(task_id="cancel", job="{{ ti.xcom_pull(task_ids='resume')['job_id'] }}")
    start >> take >> stop >> resume >> cancel
    start >> ended
