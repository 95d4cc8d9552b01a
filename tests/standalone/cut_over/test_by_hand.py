"""A cut-over with nothing but Flink's REST API and the command line: what a person does without Airflow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flink.cluster import FlinkCluster
from tests.flink.jars import VERSIONS
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.purchases import check_each_once, entries, expected_entries, shown

pytestmark = [pytest.mark.full, pytest.mark.flink, pytest.mark.spark]


@pytest.mark.parametrize("declared", ["types", "hint"])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_purchase_is_lost_and_none_counted_twice(version: str, declared: str, tmp_path: Path) -> None:
    """Though the new job has another parallelism, and every key another key group."""
    sink = tmp_path / "sink"
    sink.mkdir()
    arguments = ["--sink", sink, "--ttl-days", 30, "--declared", declared]
    with FlinkCluster(version, tmp_path / "flink") as cluster:
        jar = cluster.upload_jobs()
        old = RemoteJob.start(cluster, jar, LEGACY_JOB, *arguments)
        old.wait_for_checkpoints()
        # One of the running job, on which the plan is checked before the job stops.
        old.savepoint()
        migrated, layout = tmp_path / "migrated", ("--parallelism", 3, "--max-parallelism", 256)
        with stateferry_run(tmp_path / "home", cluster.savepoints, migrated, "--ttl", "30d", *layout):
            stopped = old.stop_with_savepoint()
        before = shown(sink)
        assert entries(stopped, "mainState") == expected_entries(before)
        arguments += ["--max-parallelism", 256]
        new = RemoteJob.start(cluster, jar, NEW_JOB, *arguments, savepoint=migrated, parallelism=3)
        new.wait_for_checkpoints(4)
        end = new.stop_with_savepoint()
    after = shown(sink)
    check_each_once(after)
    assert len(after) > len(before)
    assert entries(end, "newMainState") == expected_entries(after)


@contextmanager
def stateferry_run(home: Path, savepoints: Path, target: Path, *options: object) -> Iterator[None]:
    """Begins before the context, in which the job is stopped, and ends after it."""
    command = ["run", "--job", "totals", "--next-in", savepoints, "--target", target, "--operator", "main"]
    command += ["--legacy-state", "mainState", "--new-state", "newMainState", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "stateferry.cli", *map(str, command)],
        env={**os.environ, "STATEFERRY_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if "now stop the job" in line:
                yield
        assert process.wait() == 0, "".join(said)
