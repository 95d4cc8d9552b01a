"""Makes no DAG: tells what is wrong in the configuration as an import error, which Airflow's page shows."""

from __future__ import annotations

from stateferry.airflow.migration_dag import tell_problems

tell_problems()
