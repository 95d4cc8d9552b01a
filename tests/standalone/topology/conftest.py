from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standalone.topology.processes import SparkCluster, postgres, postgres_programs
from tests.standalone.topology.undisturbed import STATEFERRY, WRITTEN_AT


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("the team's topology is not tested: Postgres is not installed")
    with postgres(programs) as address:
        yield address


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("team") / "spark").running(workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a step takes some seconds."""
    folder = tmp_path_factory.mktemp("savepoints") / "legacy"
    sizes = ["--keys", "20000", "--entries", "100", "--ttl", "30d", "--migrated", "0.3", "--now", str(WRITTEN_AT)]
    subprocess.run([STATEFERRY, "demo-savepoint", folder, *sizes], check=True, capture_output=True)
    return folder
