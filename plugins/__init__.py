"""Stateferry in Airflow: DAGs, their tasks, and pages."""
