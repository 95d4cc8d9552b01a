"""Starts an Airflow, runs its DAG with the fields of the form, and writes down what the tasks said.

    .venv/bin/python -m tests.airflow.operator.in_airflow FOLDER

It runs in the environment that can start Airflow and Spark. `asked.json` has the fields, and Airflow's connections.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from local_airflow.server import Server, running
from local_airflow.settings import Settings, free_port

DAG = "state_migration"
_PATIENCE = 2400.0


def _main(folder: Path) -> None:
    asked = json.loads((folder / "asked.json").read_text())
    extra = {f"AIRFLOW_CONN_{name}": json.dumps(one) for name, one in asked["connections"].items()}
    # As other tests do: on a busy machine two minutes are too short.
    patient = ("CORE__DAGBAG_IMPORT_TIMEOUT", "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT")
    extra |= {f"AIRFLOW__{name}": "300" for name in patient}
    settings = Settings(folder / "airflow", folder / "stateferry", free_port(), extra=extra)
    with running(settings) as airflow:
        airflow.api.wait_for_dag(DAG, _PATIENCE)
        said = _run(airflow, asked["form"])
    (folder / "said.json").write_text(json.dumps(said))


def _run(airflow: Server, form: dict[str, Any]) -> dict[str, Any]:
    api = airflow.api
    run = api.trigger(DAG, form)
    state = api.wait_for_end(DAG, run, _PATIENCE)
    tasks = api.tasks(DAG, run)
    done = [name for name in ("take_savepoint", "start_job", "return_to_old_job") if tasks[name]["state"] == "success"]
    failed = [name for name, task in tasks.items() if task["state"] == "failed"]
    return {
        "state": state,
        "xcoms": {name: api.xcom(DAG, run, name) for name in done},
        "logs": {name: api.log(DAG, run, name, tasks[name]["try_number"]) for name in failed},
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _main(Path(sys.argv[1]))
