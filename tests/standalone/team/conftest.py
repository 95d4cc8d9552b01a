from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_airflow.server import Server
from local_airflow.settings import REPOSITORY
from tests.standalone.conftest import airflow_in


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An Airflow with a folder of DAGs in which a team has files of its own, and whose tasks tell OpenLineage."""
    home = tmp_path_factory.mktemp("airflow-of-a-team")
    dags = shutil.copytree(REPOSITORY / "dags", home / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    # Each event is a file of its own: two tasks may tell at once.
    transport = {"type": "file", "log_file_path": str(home / "events" / "event"), "append": False}
    (home / "events").mkdir()
    extra = {"CORE__DAGS_FOLDER": str(dags), "OPENLINEAGE__TRANSPORT": json.dumps(transport)}
    with airflow_in(home, {f"AIRFLOW__{name}": value for name, value in extra.items()}) as server:
        yield server


@pytest.fixture
def events(airflow: Server) -> Path:
    """The folder with all that OpenLineage has heard."""
    return airflow.settings.home.parent / "events"
