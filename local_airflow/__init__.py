"""Airflow on this machine: `make up`, `make down`, `make demo`. Only processes and HTTP; imports no Airflow."""
