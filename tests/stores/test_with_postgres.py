"""Home, savepoints and tables on S3 or HDFS, the catalog in Postgres, on real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.runs.catalog.publications import Control
from tests.standalone.topology.processes import postgres, postgres_programs
from tests.stores.area import Area

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def catalog() -> Iterator[str]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("S3 together with Postgres is not tested: Postgres is not installed")
    with postgres(programs) as address:
        yield f"postgresql://{address}/catalog"


def stateferry(area: Area, catalog: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stateferry.cli", *arguments],
        env={**os.environ, "STATEFERRY_HOME": area.at("home"), "STATEFERRY_CATALOG": catalog},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("folder", ["s3", pytest.param("hdfs", marks=pytest.mark.full)], indirect=True)
def test_two_nights_and_the_way_back(area: Area, catalog: str, tmp_path: Path) -> None:
    area.source()
    for night in ("first", "second"):
        stateferry(area, catalog, *area.run("--job", "totals", target=night))
        published = Savepoint.open(area.at(night))
        assert published.folder.uri.startswith(area.name)
        with Control(catalog) as control:
            standing = control.standing("totals")
        assert standing is not None
        assert standing.record.target == area.at(night)
    assert area.at("second") in stateferry(area, catalog, "status", "--job", "totals")
    stateferry(area, catalog, "rollback", "--job", "totals")
    with Control(catalog) as control:
        standing = control.standing("totals")
    assert standing is not None
    assert standing.record.target == area.at("first")
    assert list(tmp_path.rglob("*.db")) == []
