"""A cut-over with nothing but Flink's REST API and the command line: what a person does without Airflow."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.flink.cluster import FlinkCluster
from tests.flink.jars import VERSIONS
from tests.flink.judge import raw_entries
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.purchases import check_each_once, entries, expected_entries, shown
from tests.standalone.cut_over.test_caught_up import SETTINGS

pytestmark = [pytest.mark.full, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800)]
RUN = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState", "--format", "native")


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


@pytest.mark.parametrize("version", VERSIONS)
def test_what_changes_is_caught_up_with_though_each_command_is_killed_once(version: str, tmp_path: Path) -> None:
    """The job retains one checkpoint, and completes two in a second; the new job has another parallelism."""
    sink, target = tmp_path / "sink", tmp_path / "migrated"
    sink.mkdir()
    with FlinkCluster(version, tmp_path / "flink", settings=SETTINGS) as cluster:
        jar = cluster.upload_jobs()
        old = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
        old.wait_for_checkpoints()
        wanted = ("run", "--target", target, *RUN, "--parallelism", 3, "--no-timers", "--now", 1_700_000_000_000)
        said = killed_and_given_again(tmp_path, *wanted, "--rehearse", "--savepoint", old.savepoint("NATIVE"))
        copy = re.findall(r"run (\S+) of job", said)[0]
        old.wait_for_checkpoints()
        checkpoints = ("--checkpoints", cluster.checkpoints / old.id, "--settle", "1h")
        said = killed_and_given_again(tmp_path, "catch-up", copy, *checkpoints)
        (since,) = re.findall(r"caught up with \d+ changed keys in .* s, as run (\S+)", said)
        old.wait_for_checkpoints()
        stopped = old.stop_with_savepoint("NATIVE")
        killed_and_given_again(tmp_path, *wanted, "--savepoint", stopped, "--since", since)
        before = shown(sink)
        assert entries(target, "newMainState") == expected_entries(before)
        assert stateferry(tmp_path, "whole", *wanted[:2], tmp_path / "whole", *wanted[3:], "--savepoint", stopped)
        assert raw_entries(target) == raw_entries(tmp_path / "whole")
        new = RemoteJob.start(cluster, jar, NEW_JOB, "--sink", sink, savepoint=target, parallelism=3)
        new.wait_for_checkpoints(4)
        end = new.stop_with_savepoint()
    after = shown(sink)
    check_each_once(after)
    assert len(after) > len(before)
    assert entries(end, "newMainState") == expected_entries(after)


def killed_and_given_again(folder: Path, *command: object) -> str:
    """Kills the command once its run has read its source, and gives it again; returns what it said then."""
    there = runs(folder)
    with begun(folder, "totals", *command) as process:
        while not any(Run.open(one).facts(SnapshotFacts) for one in runs(folder) if one not in there):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return stateferry(folder, "totals", *command)


def runs(folder: Path) -> list[Location]:
    home = folder / "home"
    return [one.folder for one in runs_of(str(home), "totals") if one.plan is not None] if home.exists() else []


def stateferry(folder: Path, job: str, *command: object) -> str:
    with begun(folder, job, *command) as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    return said


def begun(folder: Path, job: str, *command: object) -> subprocess.Popen[str]:
    """The command in a process, which leads a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "stateferry.cli", *map(str, command), "--job", job],
        env={**os.environ, "STATEFERRY_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


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
