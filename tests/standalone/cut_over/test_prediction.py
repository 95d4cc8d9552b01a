"""After three rehearsals of a live job, what is predicted of a cut-over of twice the size is what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_airflow.server import Server
from stateferry.demo import DemoState, write_demo_savepoint
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, RemoteJob
from tests.standalone.cut_over.ferry import LIVE, Ferry

pytestmark = [pytest.mark.full, *LIVE]
KEYS, ENTRIES_PER_KEY, SUBTASKS, KEY_GROUPS, NOW = 10_000, 100, 2, 128, 1_750_000_000_000


def test_three_rehearsals_predict_a_cut_over_of_twice_the_size(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "predicted", tmp_path, "--max-parallelism", KEY_GROUPS)
    old = job_of(ferry, tmp_path / "once", KEYS)
    for _ in range(3):
        run = ferry.trigger(old, mode="rehearse")
        assert ferry.end_of(run) == "success", ferry.logs(run)
    old.cancel()

    twice = job_of(ferry, tmp_path / "twice", 2 * KEYS)
    run = ferry.cut_over(twice)
    assert ferry.end_of(run) == "success", ferry.logs(run)
    foreseen, took = ferry.xcom(run, "decide"), ferry.xcom(run, "conclude")
    assert foreseen["outage"] == pytest.approx(took["outage"], rel=0.25), (foreseen, took)


def job_of(ferry: Ferry, savepoint: Path, keys: int) -> RemoteJob:
    """The old job, with so many keys in its state."""
    write_demo_savepoint(str(savepoint), DemoState(keys, ENTRIES_PER_KEY, 0, None, NOW, SUBTASKS, KEY_GROUPS, seed=1))
    job = RemoteJob.start(ferry.cluster, ferry.jar, LEGACY_JOB, *ferry.arguments.split(), savepoint=savepoint)
    job.wait_for_checkpoints()
    return job
