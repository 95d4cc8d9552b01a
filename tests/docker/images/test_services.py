"""The services of the compose file, from the images: the DAG migrates the demo savepoint on two Spark workers.

They have read-only root file systems, a user without rights, and a network that leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from flinkstate.files.storage import Location
from local_airflow.api import Api
from local_airflow.settings import Settings
from stateferry.runs.report.report import Report
from tests.docker.images.compose import DATABASE, ON_S3, Services
from tests.docker.images.containers import Image
from tests.docker.images.database import start_postgres
from tests.docker.images.object_store import HOST, SETTINGS, start_store
from tests.standalone.topology.processes import postgres_programs

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(2400)]

DAG = "state_migration"
_UP = ("airflow-api", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer", "spark-master", "spark-worker")


@pytest.fixture(scope="module", params=["volumes", "s3"])
def services(
    request: pytest.FixtureRequest, images: dict[str, Image], secrets_of_the_team: dict[str, str]
) -> Iterator[Services]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("the services are not tested: Postgres is not installed")
    on_s3 = request.param == "s3"
    # pytest's own folders are closed to others, and Postgres and the containers have other users.
    with TemporaryDirectory(prefix="stateferry-services-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        variables = secrets_of_the_team | (SETTINGS if on_s3 else {})
        services = Services(images, folder, variables, ON_S3 if on_s3 else None, [HOST])
        with services.pod.running() as pod:
            start_postgres(pod, DATABASE, programs, folder / "postgres", variables)
            if on_s3:
                start_store(pod, folder / "store")
            services.start_all()
            yield services


def test_all_services_say_that_they_are_well(services: Services) -> None:
    for name in _UP:
        services.wait_until_healthy(name)


def test_the_dag_migrates_the_demo_savepoint(services: Services) -> None:
    api = Api(Settings(services.volume("airflow"), services.volume("state"), 8080))

    def follow() -> str:
        api.wait_for_dag(DAG)
        api.call("PATCH", f"/dags/{DAG}", {"is_paused": False})
        run = api.trigger(DAG, {"approval": False})
        state = api.wait_for_end(DAG, run, 420)
        assert state == "success", _failures(api, run)
        return str(api.xcom(DAG, run, "plan")["folder"])

    folder = services.pod.on("airflow-api", follow)
    # S3Proxy keeps the object s3://bucket/name as the file bucket/name.
    store, bucket_and_name = services.folder / "store" / "objects", folder.removeprefix("s3://")
    run_folder = store / bucket_and_name if services.also else services.volume("state") / folder.removeprefix("/data/")
    assert Report.read(Location.of(str(run_folder / "report.json"))).is_green
    assert any(services.volume("state").iterdir()) == (services.also is None)


def _failures(api: Api, run: str) -> str:
    tasks = [task for task in api.tasks(DAG, run).values() if task["state"] in ("failed", "up_for_retry")]
    return "\n".join(api.log(DAG, run, task["task_id"], task["try_number"])[-3000:] for task in tasks)
