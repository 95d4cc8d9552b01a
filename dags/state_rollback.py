"""Roll back the publication of a job after a person has approved; can also start the old job again."""

from __future__ import annotations

from stateferry.airflow.rollback_dag import rollback_dag

dag = rollback_dag()
