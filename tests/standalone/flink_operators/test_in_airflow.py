"""Flink's operators in a real Airflow: connection from its database, tasks in workers, waiting in its triggerer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from local_airflow.server import Server, running
from local_airflow.settings import REPOSITORY, Settings, free_port
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import RemoteJob

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.flink, pytest.mark.timeout(900)]

DAG = "every_operator"
DAGS = REPOSITORY / "tests" / "airflow" / "flink_provider" / "dags"
RUN_SECONDS = 300
TOKEN = "a-secret-that-flink-does-not-ask-for"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("2.3.0", tmp_path_factory.mktemp("flink"), slots=4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, cluster: FlinkCluster) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("airflow")
    extra = {"AIRFLOW__CORE__DAGS_FOLDER": str(DAGS)}
    with running(Settings(home / "airflow", home / "stateferry", free_port(), extra=extra)) as server:
        connection = {"connection_id": "a_real_flink", "conn_type": "flink", "host": "127.0.0.1", "port": cluster.port}
        server.api.call("POST", "/connections", connection | {"extra": json.dumps({"token": TOKEN, "patience": 20})})
        yield server


@pytest.fixture
def conf(cluster: FlinkCluster, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sink").mkdir()
    places = {"sink": str(tmp_path / "sink"), "savepoints": str(tmp_path / "savepoints")}
    return {"jar": cluster.upload_jobs(), "job": "totals"} | places


def test_every_operator(server: Server, cluster: FlinkCluster, conf: dict[str, str]) -> None:
    api = server.api
    run = api.trigger(DAG, conf)
    assert api.wait_for_end(DAG, run, RUN_SECONDS) == "success"
    assert {task["state"] for task in api.tasks(DAG, run).values()} == {"success"}

    first, second = RemoteJob(cluster, _job(server, run, "start")), RemoteJob(cluster, _job(server, run, "resume"))
    assert (first.status, second.status) == ("FINISHED", "CANCELED")
    taken, stopped = (api.xcom(DAG, run, task)["savepoint"] for task in ("take", "stop"))
    restored = cluster.get(f"/jobs/{second.id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"] == stopped != taken
    assert len(list(Path(conf["savepoints"]).glob("*/*/_metadata"))) == 2

    url = f"{cluster.rest_url}/#/job/running"
    of_job = {"start": first, "take": first, "stop": first, "resume": second, "cancel": second}
    for task, job in of_job.items():
        assert _links(server, run, task) == {"Flink job": f"{url}/{job.id}/overview"}

    # A person has a task run again: the savepoint is found, not taken once more.
    cleared = {"dry_run": False, "dag_run_id": run, "task_ids": ["stop"], "only_failed": False}
    api.call("POST", f"/dags/{DAG}/clearTaskInstances", cleared | {"reset_dag_runs": True})
    assert api.wait_for_end(DAG, run, RUN_SECONDS) == "success"
    assert api.tasks(DAG, run)["stop"]["try_number"] == 2
    assert api.xcom(DAG, run, "stop")["savepoint"] == stopped
    assert len(list(Path(conf["savepoints"]).glob("*/*/_metadata"))) == 2
    # Secrets of the connection stay out of what people read.
    assert TOKEN not in "".join(api.log(DAG, run, task) for task in api.tasks(DAG, run))


def _job(server: Server, run: str, task: str) -> str:
    return str(server.api.xcom(DAG, run, task, "job_id"))


def _links(server: Server, run: str, task: str) -> dict[str, str]:
    answer = server.api.get(f"/dags/{DAG}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/links")
    links: dict[str, str] = answer["extra_links"]
    return links
