"""Makes no DAG: tells what is wrong in the configuration as an import error, which Airflow's page shows."""

from __future__ import annotations

from stateferry.airflow.dag_runs.notices import notice_problems
from stateferry.airflow.requests.jobs import configuration

# Airflow reads files that have the words dag and airflow.
found = configuration()
problems = [*found.problems, *notice_problems(found)]
if problems:
    raise ValueError("\n".join(["the configuration of state_migration has problems:", *problems]))
