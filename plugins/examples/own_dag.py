"""A DAG of a team: looks into a fresh savepoint of a job each Monday, and rehearses the migration on it.

Copy this file into the DAGs folder. It needs `stateferry` in Airflow's environment and the connection `flink_default`.
"""

from __future__ import annotations

from datetime import datetime

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG

from stateferry.airflow.flink.operators import FlinkSavepointOperator
from stateferry.airflow.migration_dag import migration_dags
from stateferry.airflow.rollback_dag import rollback_dag

# Stateferry's own DAGs, without copies of its files.
globals().update((dag.dag_id, dag) for dag in migration_dags())
rollback = rollback_dag()

with DAG(
    dag_id="orders_on_mondays",
    schedule="0 6 * * MON",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
) as dag:
    take_savepoint = FlinkSavepointOperator(
        task_id="take_savepoint", job="orders", savepoint_directory="/savepoints/orders"
    )
    savepoint = {"source": "path", "savepoint": "{{ ti.xcom_pull(task_ids='take_savepoint')['savepoint'] }}"}
    look = TriggerDagRunOperator(
        task_id="look",
        trigger_dag_id="state_migration",
        conf={"mode": "check only", **savepoint},
        wait_for_completion=True,
    )
    names = {"operator": "main", "legacy_state": "mainState", "new_state": "newMainState", "ttl": "30d"}
    rehearse = TriggerDagRunOperator(
        task_id="rehearse",
        trigger_dag_id="state_migration",
        conf={"mode": "rehearse", **savepoint, **names},
        wait_for_completion=True,
    )
    take_savepoint >> look >> rehearse
