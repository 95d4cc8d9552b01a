"""A cut-over with nothing but Flink's REST API and the command line: what a person does without Airflow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.purchases import check_each_once, entries, expected_entries, shown

pytestmark = [pytest.mark.flink, pytest.mark.spark]

# Of version, parallelism of the new job, max parallelism of the new savepoint, time to live.
CASES = [("2.3.0", 3, 256, 30), ("1.20.0", 2, None, None)]


@pytest.mark.parametrize(("version", "parallelism", "max_parallelism", "ttl_days"), CASES)
def test_no_purchase_is_lost_and_none_counted_twice(
    version: str, parallelism: int, max_parallelism: int | None, ttl_days: int | None, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    sink.mkdir()
    of_jobs: list[object] = ["--sink", sink]
    of_run: list[object] = []
    if ttl_days is not None:
        of_jobs += ["--ttl-days", ttl_days]
        of_run += ["--ttl", f"{ttl_days}d"]
    of_new: list[object] = []
    if max_parallelism is not None:
        of_new += ["--max-parallelism", max_parallelism]
        of_run += ["--parallelism", parallelism, "--max-parallelism", max_parallelism]
    with FlinkCluster(version, tmp_path / "flink") as cluster:
        jar = cluster.upload_jobs()
        old = RemoteJob.start(cluster, jar, LEGACY_JOB, *of_jobs)
        old.wait_for_checkpoints()

        rehearsed = old.savepoint()
        stateferry_run(tmp_path, rehearsed, tmp_path / "never", "--rehearse", *of_run)
        assert old.status == "RUNNING"

        stopped = old.stop_with_savepoint()
        before = shown(sink)
        assert entries(stopped, "mainState") == expected_entries(before)
        migrated = tmp_path / "migrated"
        stateferry_run(tmp_path, stopped, migrated, *of_run)

        new = RemoteJob.start(cluster, jar, NEW_JOB, *of_jobs, *of_new, savepoint=migrated, parallelism=parallelism)
        new.wait_for_checkpoints(4)
        end = new.stop_with_savepoint()
    after = shown(sink)
    check_each_once(after)
    assert len(after) > len(before)
    assert entries(end, "newMainState") == expected_entries(after)
    assert not (tmp_path / "never").exists()


def stateferry_run(home: Path, source: Path, target: Path, *options: object) -> None:
    command = ["run", "--job", "totals", "--savepoint", source, "--target", target, "--operator", "main"]
    command += ["--legacy-state", "mainState", "--new-state", "newMainState", *options]
    done = subprocess.run(
        [sys.executable, "-m", "stateferry.cli", *map(str, command)],
        env={**os.environ, "STATEFERRY_HOME": str(home / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
