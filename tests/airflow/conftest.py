"""These tests run where Airflow is: `.venv-airflow/bin/pytest tests/airflow`, from `make test`."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("airflow") else ["*"]
