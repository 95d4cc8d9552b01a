"""Migrate a job's state: snapshot → migrate → rescale → validate → approve → cut over → tables.

A rehearsal does the same, but publishes nothing.

Airflow gets one DAG with a form for any job, and one for each configured job.
"""

from __future__ import annotations

from stateferry.airflow.migration_dag import migration_dags

globals().update((dag.dag_id, dag) for dag in migration_dags())
