"""Airflow's image as its Helm chart starts it with our values: a host for each of its pods, the login, and the probes.

There is no Kubernetes: the database is SQLite, and the executor is the image's own.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from local_airflow.api import Api
from local_airflow.settings import REPOSITORY, Settings
from tests.docker.images.conftest import AIRFLOW
from tests.docker.images.containers import Container, Image, Pod

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.timeout(2400)]

VALUES = yaml.safe_load((REPOSITORY / "docker/kubernetes/airflow-values.yaml").read_text())
# What the chart's `_helpers.yaml` calls, and for what.
_PROBE = "AIRFLOW__LOGGING__LOGGING_LEVEL=ERROR exec /entrypoint airflow jobs check --local --job-type"
_JOBS = {"scheduler": "SchedulerJob", "triggerer": "TriggererJob", "dag-processor": "DagProcessorJob"}
_API = "api-server"
_API_PROBE = "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/api/v2/monitor/health', timeout=5)"
_DATABASE = "sqlite:////database/airflow.db?timeout=60"


def test_airflows_parts_start_and_their_probes_find_them_well(images: dict[str, Image], tmp_path: Path) -> None:
    core = VALUES["config"]["core"]
    passwords = Path(core["simple_auth_manager_passwords_file"])
    seen = {"passwords": str(passwords.parent), **{name: f"/{name}" for name in ("data", "database", "settings")}}
    for name in (*seen, *_JOBS):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    lines = "".join(f"{name} = {value}\n" for name, value in core.items())
    (tmp_path / "settings/airflow.cfg").write_text(f"[core]\n{lines}[database]\nsql_alchemy_conn = {_DATABASE}\n")
    secret = {"AIRFLOW__API__SECRET_KEY": "k" * 64, "AIRFLOW__API_AUTH__JWT_SECRET": "j" * 64}
    container = Container(
        image=images[AIRFLOW],
        host=_API,
        mounts={inside: tmp_path / name for name, inside in seen.items()},
        environment=secret | {"AIRFLOW_HOME": VALUES["airflowHome"], "AIRFLOW_CONFIG": "/settings/airflow.cfg"},
    )
    # The chart gives each of these pods an empty folder for its logs, and the API server's none.
    logs = f"{VALUES['airflowHome']}/logs"
    parts = {_API: container}
    for job in _JOBS:
        parts[job] = replace(container, host=job, mounts={**container.mounts, logs: tmp_path / job})
    with Pod(tmp_path / "pod", list(parts)).running() as pod:
        made = pod.run(container, "airflow", "db", "migrate")
        assert made.returncode == 0, made.stdout[-3000:]
        for name, part in parts.items():
            pod.start(part, "bash", "-c", f"exec airflow {name}")
        _wait_until_well(pod, container, "python3", "-c", _API_PROBE)
        api = Api(Settings(tmp_path / "passwords", tmp_path / "data", 8080))
        pod.on(_API, api.wait_for_dag, "state_migration")
        for name, job in _JOBS.items():
            _wait_until_well(pod, parts[name], "sh", "-c", f"{_PROBE} {job}")


def _wait_until_well(pod: Pod, container: Container, *probe: str) -> None:
    end = time.monotonic() + 180
    while (check := pod.run(container, *probe)).returncode:
        log = pod.log(container.host).read_text(errors="replace")
        assert time.monotonic() < end, f"{check.stdout}\n{log[-3000:]}"
        time.sleep(1)
