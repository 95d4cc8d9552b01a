"""Airflow on this machine: `make up`, `make down`, `make demo`. Uses only processes and HTTP; imports no Airflow."""
