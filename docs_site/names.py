"""What the reference has beside `flinkstate.__all__`: what docs/ tells people to import from `stateferry`."""

from __future__ import annotations

_AIRFLOW, _FLINK = "stateferry.airflow", "stateferry.airflow.flink"

PUBLIC = {
    "airflow": (
        f"{_AIRFLOW}.migration_dag.migration_dags",
        f"{_AIRFLOW}.migration_dag.tell_problems",
        f"{_AIRFLOW}.rollback_dag.rollback_dag",
        f"{_FLINK}.hook.FlinkHook",
        f"{_FLINK}.base.FlinkOperator",
        f"{_FLINK}.operators.FlinkSavepointOperator",
        f"{_FLINK}.operators.FlinkStopWithSavepointOperator",
        f"{_FLINK}.operators.FlinkStopWithCheckpointOperator",
        f"{_FLINK}.operators.FlinkRunJarOperator",
        f"{_FLINK}.operators.FlinkCancelJobOperator",
        f"{_FLINK}.sensors.FlinkJobSensor",
        f"{_AIRFLOW}.dag_runs.notices.Webhook",
    ),
    "spark": ("stateferry.spark_jobs.session.local_session", "stateferry.spark_jobs.savepoint_source.register"),
}
