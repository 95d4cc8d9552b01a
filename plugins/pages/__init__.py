"""Stateferry's pages in Airflow, and the notes of its DAG runs."""
