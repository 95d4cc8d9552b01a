"""The team's shape as plain processes: Postgres for Airflow and for the catalog, a Spark master with two workers.

Without Postgres on the machine these tests are skipped, and say so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from tests.standalone.topology import undisturbed
from tests.standalone.topology.processes import SparkCluster, environment, submit_conf

REPOSITORY = Path(__file__).resolve().parents[3]
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over", "tables")
NOW = undisturbed.WRITTEN_AT

pytestmark = [
    pytest.mark.full,
    pytest.mark.airflow,
    pytest.mark.timeout(1800),
]


def plan_of(savepoint: Path, folder: Path, database: str, **more: object) -> Path:
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": "30d"}
    values = {
        "job": folder.name,
        "run_id": "first",
        "now": NOW,
        "source": str(savepoint),
        "target": str(folder / "target"),
        "home": str(folder / "home"),
        "catalog_uri": f"postgresql://{database}/catalog",
        "chunk_bytes": 1 << 20,
        "parallelism": 3,
        "operators": [{"operator": "main", "states": [state]}],
        **more,
    }
    file = folder / "plan.json"
    file.write_text(json.dumps(values))
    return file


def submit(cluster: SparkCluster, step: str, plan: Path) -> subprocess.Popen[str]:
    command = [Path(sys.executable).with_name("spark-submit"), *submit_conf(cluster)]
    command += [REPOSITORY / "spark_jobs" / f"{step}.py", "--plan", plan]
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )


def ended_well(step: subprocess.Popen[str]) -> None:
    said, _ = step.communicate(timeout=400)
    assert step.returncode == 0, said[-4000:]


def wait_for(seen: Callable[[], bool], step: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 200
    while not seen():
        assert step.poll() is None, step.communicate()[0][-4000:]
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_makes_the_same_savepoint_with_another_max_parallelism(
    workers: int, database: str, savepoint: Path, tmp_path: Path
) -> None:
    """Four workers on two cores only show that they get on with each other."""
    plan = plan_of(savepoint, tmp_path, database, max_parallelism=200)
    with SparkCluster(tmp_path / "spark").running(workers) as cluster:
        for step in STEPS:
            ended_well(submit(cluster, step, plan))
    alone = undisturbed.migrated(savepoint, tmp_path / "alone", NOW, "--max-parallelism", 200)
    assert undisturbed.content_of(tmp_path / "target") == alone


def test_a_worker_that_dies_midway_changes_nothing(
    cluster: SparkCluster, database: str, savepoint: Path, tmp_path: Path
) -> None:
    plan = plan_of(savepoint, tmp_path, database)
    for step in STEPS[:-1]:
        ended_well(submit(cluster, step, plan))
    tables = submit(cluster, "tables", plan)
    written = tmp_path / "home" / "warehouse"
    wait_for(lambda: sum(1 for _ in written.rglob("*.parquet")) >= 4, tables)
    cluster.kill_worker(0)
    cluster.start_worker(2)
    ended_well(tables)
    run = Run.open(Location.of(str(tmp_path / "home" / "runs" / tmp_path.name / "first")))
    assert run.state is RunState.PUBLISHED
    with Control(run.plan.catalog_uri) as control:
        standing = control.standing(run.plan.job)
    assert standing is not None
    assert standing.record.run_id == "first"
    assert undisturbed.content_of(tmp_path / "target") == undisturbed.migrated(savepoint, tmp_path / "alone", NOW)
