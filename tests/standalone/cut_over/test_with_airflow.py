"""Airflow ferries a job that runs and ingests on real Flink to its successor; every purchase is counted once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_airflow.server import Server
from tests.flink.cluster import ClusterError, FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import FAILING_JOB
from tests.standalone.cut_over.ferry import DAG, PATIENCE, Ferry
from tests.standalone.cut_over.purchases import shown

pytestmark = [pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("2.3.0", tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster


def test_a_rehearsal_leaves_the_job_alone_and_a_cut_over_replaces_it(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "replaced", tmp_path, "--ttl-days", 30)
    old = ferry.start_old_job()

    rehearsal = ferry.trigger(old, ttl="30d", mode="rehearse")
    assert ferry.end_of(rehearsal) == "success", ferry.logs(rehearsal)
    assert old.status == "RUNNING"
    assert ferry.published() is None

    run = ferry.cut_over(old, ttl="30d", approval=True, job_parallelism=3)
    airflow.api.wait(DAG, run, lambda tasks, _: tasks["approve"]["state"] == "awaiting_input", PATIENCE)
    assert old.status == "FINISHED"
    assert ferry.published() is None
    before = len(shown(ferry.sink))
    airflow.api.answer(DAG, run, "approve", "Approve")
    assert ferry.end_of(run) == "success", ferry.logs(run)

    publication = ferry.published()
    assert publication is not None
    new = ferry.running()
    assert ferry.xcom(run, "start_job")["job_id"] == new.id
    times = ferry.xcom(run, "conclude")["times"]
    assert list(times) == ["take_savepoint", "snapshot", "migrate", "rescale", "validate", "cut_over", "start_job"]
    # As its rehearsal had shown, which neither publishes nor starts a job.
    assert [part for part, time in times.items() if time["predicted"] is None] == ["cut_over", "start_job"]
    restored = flink.get(f"/jobs/{new.id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"] == f"file:{publication.record.target}"
    ferry.check_that_nothing_was_lost("newMainState")
    assert len(shown(ferry.sink)) > before


def test_the_old_job_goes_on_when_its_savepoint_fails_and_comes_back_when_the_new_one_fails(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "returned", tmp_path)
    old = ferry.start_old_job()
    savepoints = tmp_path / "savepoints"
    savepoints.write_text("no folder")
    run = ferry.cut_over(old, entry_class=FAILING_JOB, savepoint_directory=savepoints.as_uri())

    airflow.api.wait(DAG, run, lambda tasks, _: tasks["take_savepoint"]["state"] == "up_for_retry", PATIENCE)
    assert "Failed to create savepoint directory" in ferry.logs(run)
    old.wait_for_checkpoints()
    savepoints.unlink()

    assert ferry.end_of(run) == "failed"
    assert "the price list cannot be found" in ferry.logs(run)
    assert old.status == "FINISHED"
    assert ferry.published() is None
    assert ferry.running().id == ferry.xcom(run, "return_to_old_job")["job_id"]
    ferry.check_that_nothing_was_lost("mainState")


def test_a_job_manager_that_is_away_slow_and_restarted_only_takes_longer(airflow: Server, tmp_path: Path) -> None:
    with (
        FlinkCluster("1.20.0", tmp_path / "flink", high_availability=True) as cluster,
        Proxy(cluster.port) as proxy,
    ):
        ferry = Ferry.ready(airflow, cluster, "slow", tmp_path, "--checkpoint-millis", 1000, port=proxy.port)
        proxy.delay = 0.5
        old = ferry.start_old_job()
        cluster.kill_job_manager()
        run = ferry.cut_over(old)
        airflow.api.wait(DAG, run, lambda tasks, _: tasks["take_savepoint"]["state"] == "running", PATIENCE)
        cluster.start_job_manager()

        cluster.wait_until("a savepoint was begun", lambda: savepoint_was_begun(cluster, old.id))
        cluster.kill_job_manager()
        cluster.start_job_manager()

        airflow.api.wait(DAG, run, lambda tasks, _: tasks["migrate"]["state"] == "running", PATIENCE)
        cluster.kill_job_manager()
        cluster.start_job_manager()
        assert ferry.end_of(run) == "success", ferry.logs(run)
        ferry.check_that_nothing_was_lost("newMainState")


def savepoint_was_begun(cluster: FlinkCluster, job: str) -> bool:
    try:
        history = cluster.get(f"/jobs/{job}/checkpoints").get("history", [])
    except ClusterError:
        # A JobManager that has just come back doesn't know its jobs yet.
        return False
    # It may be whole before anybody has looked.
    return any(one["is_savepoint"] for one in history)
