from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local_airflow.server import Server, running
from local_airflow.settings import Settings, free_port
from tests.standalone.migration import DAG, PATIENCE, ROLLBACK, Migration, scheduled_run
from tests.standalone.orders import Orders


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Airflow for all; their jobs keep tests apart."""
    home = tmp_path_factory.mktemp("airflow")
    # A task is looked for more often, as the tests wait for every one of them.
    often = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.4"}
    with running(Settings(home / "airflow", home / "stateferry", free_port(), extra=often)) as server:
        for dag in (DAG, ROLLBACK):
            server.api.wait_for_dag(dag, PATIENCE)
        # The schedule's first run comes with the server. It must not find what is meant for others, and on SQLite its
        # first writes and a trigger's may wait for each other until one of them gives up.
        server.api.wait_for_end(DAG, scheduled_run(server), PATIENCE)
        yield server


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return str(request.node.name).removeprefix("test_")[:60]


@pytest.fixture
def migration(airflow: Server, job: str, tmp_path: Path) -> Migration:
    """Of a job with a savepoint of its own."""
    orders = Orders()
    orders.write(tmp_path / "savepoint")
    return Migration(airflow, job, {"source": "path", "savepoint": str(tmp_path / "savepoint")})


@pytest.fixture
def configured(airflow: Server) -> Iterator[Callable[[str], None]]:
    """Sets what scheduled and backfill runs do, until the test is over."""
    key = "state_migration"
    made: list[str] = []

    def configure(value: str) -> None:
        airflow.api.call("POST", "/variables", {"key": key, "value": value})
        made.append(key)

    yield configure
    for name in made:
        airflow.api.call("DELETE", f"/variables/{name}")
