"""The whole of the team's shape: Airflow on Postgres gives the real DAG's steps to a Spark cluster, whose catalog is in
Postgres too, and a worker dies in the middle."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from local_airflow.api import ENDED
from local_airflow.server import Server, running
from local_airflow.settings import Settings, free_port
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.runs import Run
from tests.standalone.topology import undisturbed
from tests.standalone.topology.processes import SparkCluster, spark_settings

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1500)]

DAG = "state_migration"
PATIENCE = 1200.0
AT_WORK = "migrate"
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over", "tables")


@pytest.fixture(scope="module")
def airflow(database: str, cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("airflow")
    conf = home / "spark-conf"
    conf.mkdir()
    lines = [f"{name} {value}\n" for name, value in spark_settings().items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    host, _, port = cluster.master.rpartition(":")
    settings = Settings(
        home / "airflow",
        home / "stateferry",
        free_port(),
        extra={
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}/airflow",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": host, "port": int(port)}),
            "SPARK_CONF_DIR": str(conf),
            "STATEFERRY_CATALOG": f"postgresql://{database}/catalog",
        },
    )
    with running(settings) as server:
        yield server


def test_the_dag_comes_to_its_end_though_a_worker_dies(
    airflow: Server, cluster: SparkCluster, database: str, savepoint: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    run = airflow.api.trigger(DAG, _params(savepoint, target))
    cluster.kill_worker(_at_work(airflow, cluster, run))
    assert airflow.api.wait_for_end(DAG, run, PATIENCE) == "success", _told(airflow, run)

    states = {name: task["state"] for name, task in airflow.api.tasks(DAG, run).items()}
    assert {step: states[step] for step in STEPS} == dict.fromkeys(STEPS, "success")
    # The application that the steps share has got over it.
    assert cluster.applications() == ["stateferry"]
    assert airflow.api.tasks(DAG, run)["application"]["state"] == "success"
    ferried = Run.open(Location.of(airflow.api.xcom(DAG, run, "plan")["folder"]))
    assert "@127.0.0.1" in ferried.plan.catalog_uri
    with Control(f"postgresql://{database}/catalog") as control:
        standing = control.standing("totals")
    assert standing is not None
    assert (standing.record.run_id, standing.record.target) == (ferried.plan.run_id, str(target))
    assert undisturbed.content_of(target) == undisturbed.migrated(savepoint, tmp_path / "alone", ferried.plan.now)


def _params(savepoint: Path, target: Path) -> dict[str, object]:
    states = {"legacy_state": "mainState", "new_state": "newMainState", "flag_state": "isMigratedState", "ttl": "30d"}
    source = {"source": "path", "savepoint": str(savepoint), "target": str(target)}
    return {"job": "totals", "operator": "main", **states, **source, "parallelism": 3, "approval": False}


def _at_work(airflow: Server, cluster: SparkCluster, run: str) -> int:
    """A worker that has started Python, while the savepoint is written."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and airflow.api.run(DAG, run)["state"] not in ENDED:
        is_at_work = airflow.api.tasks(DAG, run)[AT_WORK]["state"] == "running"
        if is_at_work and (worker := cluster.with_a_task_of("stateferry")) is not None:
            return worker
        time.sleep(0.1)
    raise AssertionError(f"no worker had a task of {AT_WORK}: {_told(airflow, run)}")


def _told(airflow: Server, run: str) -> str:
    """The logs of what failed."""
    tasks = [task for task in airflow.api.tasks(DAG, run).values() if task["state"] in ("failed", "up_for_retry")]
    logs = [airflow.api.log(DAG, run, task["task_id"], task["try_number"])[-3000:] for task in tasks]
    return "\n".join(logs)
