from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from local_airflow.server import Server, running
from local_airflow.settings import USERS, Settings, free_port
from tests.standalone.migration import DAG, PATIENCE, ROLLBACK, Migration, reparse, scheduled_runs
from tests.standalone.orders import Orders

_PROCESSOR_TIMEOUT = "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT"


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Airflow for all; their jobs keep tests apart.

    It ends with the last of them: while it has nothing to do, it takes processor time from the tests that follow.
    """
    # A second user, who may read one DAG alone.
    users = {USERS: "admin:admin,ada:admin", "AIRFLOW__CORE__AUTH_MANAGER": "one_of_two.OneOfTwo"}
    logins = str(Path(__file__).parents[1] / "airflow" / "logins")
    users |= {"PYTHONPATH": os.pathsep.join(filter(None, (logins, os.environ.get("PYTHONPATH"))))}
    with airflow_in(tmp_path_factory.mktemp("airflow"), users) as server:
        yield server


@contextmanager
def airflow_in(home: Path, extra: Mapping[str, str]) -> Iterator[Server]:
    """An Airflow that tests don't wait for longer than they must; `extra` is for the environment of its processes."""
    # A task is looked for more often, as the tests wait for every one of them.
    often = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.4"}
    # Else a DAG that is configured in its first half minute keeps the schedule that it had at first.
    often |= {"AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0"}
    # On a busy machine, reading a DAG file and the variable in it may take long.
    often |= {f"AIRFLOW__{name}": "300" for name in ("CORE__DAGBAG_IMPORT_TIMEOUT", _PROCESSOR_TIMEOUT)}
    with running(Settings(home / "airflow", home / "stateferry", free_port(), extra={**often, **extra})) as server:
        for dag in (DAG, ROLLBACK):
            server.api.wait_for_dag(dag, PATIENCE)
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
    """Sets the configuration until the test is over; Airflow knows it when this returns."""
    key = "state_migration"
    made: list[str] = []

    def configure(value: str) -> None:
        airflow.api.call("POST", "/variables", {"key": key, "value": value})
        made.append(key)
        reparse(airflow)

    yield configure
    for name in made:
        airflow.api.call("DELETE", f"/variables/{name}")
        reparse(airflow)
    # Another test's schedule finds none that is in its way.
    for night in scheduled_runs(airflow):
        airflow.api.call("DELETE", f"/dags/{DAG}/dagRuns/{quote(night, safe='')}")
