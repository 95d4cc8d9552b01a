"""JobManagers that are killed and come back: with what they remember, and without."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException
from flink_provider.hook import FlinkHook
from flink_provider.savepoints import SavepointOrder

from tests.airflow.flink_provider.conftest import connect
from tests.airflow.flink_provider.tries import Try, complete, local, run_jar, running, savepoint
from tests.flink.cluster import ClusterError, FlinkCluster

pytestmark = [pytest.mark.flink, pytest.mark.timeout(180)]


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlinkCluster]:
    """It forgets what was triggered after two seconds, and everything when its JobManager is restarted."""
    settings = {"rest.async.store-duration": "2 s", "web.refresh-interval": "50"}
    with FlinkCluster("2.3.0", tmp_path / "flink", slots=4, settings=settings) as cluster:
        connect(monkeypatch, cluster.port)
        cluster.upload_jobs()
        yield cluster


@pytest.fixture
def available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlinkCluster]:
    """Its JobManager comes back with its jobs."""
    with FlinkCluster("2.3.0", tmp_path / "flink", slots=4, high_availability=True) as cluster:
        connect(monkeypatch, cluster.port, patience=90)
        cluster.upload_jobs()
        yield cluster


def test_what_flink_forgot(
    forgetful: FlinkCluster, sink: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_provider.jobs._REAPPEARS_SECONDS", 1)
    cluster = forgetful
    start, take, stop = Try(), Try(), Try()
    job_id = run_jar(["--sink", str(sink)], wait_until="checkpoint").execute(start.context)["job_id"]
    of_running, of_stopped = tmp_path / "running", tmp_path / "stopped"
    first = savepoint(job_id, of_running).execute(take.context)["savepoint"]
    last = savepoint("totals", of_stopped, stop=True).execute(stop.context)["savepoint"]
    cluster.wait_until(
        "the triggers are forgotten",
        lambda: _is_forgotten(cluster, job_id, take, of_running) and _is_forgotten(cluster, job_id, stop, of_stopped),
    )

    # In the job's history, where this machine can't see the directory.
    with monkeypatch.context() as unseen:
        unseen.setattr("flink_provider.savepoints.newest_completed", lambda directory: None)
        stop = stop.next()
        assert savepoint("totals", of_stopped, stop=True).execute(stop.context)["savepoint"] == last
    # In the directory, because the history has gone on to the savepoint with which the job was stopped.
    again = savepoint(job_id, of_running).execute(take.next().context)["savepoint"]
    assert local(again) == local(first)

    cluster.kill_job_manager()
    cluster.start_job_manager()
    assert cluster.get("/jobs/overview")["jobs"] == []
    again = savepoint("totals", of_stopped, stop=True).execute(stop.next().context)
    assert local(again["savepoint"]) == local(last)
    assert len(complete(of_running)) == len(complete(of_stopped)) == 1

    # A job may have come far before it was forgotten: that it is started again is for a person to say.
    cluster.wait_until("the slots are back", lambda: cluster.get("/overview")["slots-total"] == 4)
    with pytest.raises(AirflowFailException, match=f"knows no job {job_id}: if its JobManager was restarted"):
        run_jar(["--sink", str(sink)]).execute(start.next().context)
    assert cluster.get("/jobs/overview")["jobs"] == []
    assert run_jar(["--sink", str(sink)], restart_lost=True).execute(start.next().context)["job_id"] == job_id


def test_a_job_manager_that_is_away_for_a_while(available: FlinkCluster, sink: Path, tmp_path: Path) -> None:
    cluster, root = available, tmp_path / "savepoints"
    start, take = Try(), Try()
    job_id = run_jar(["--sink", str(sink)], wait_until="checkpoint").execute(start.context)["job_id"]
    taken = savepoint(job_id, root).execute(take.context)["savepoint"]

    cluster.kill_job_manager()
    with ThreadPoolExecutor(2) as threads:
        # They ask while nobody is there to answer.
        started = threads.submit(run_jar(["--sink", str(sink)]).execute, start.next().context)
        retaken = threads.submit(savepoint(job_id, root).execute, take.next().context)
        cluster.start_job_manager()
        assert started.result(90)["job_id"] == job_id
        assert local(retaken.result(90)["savepoint"]) == local(taken)
    assert running(cluster) == [job_id]
    assert len(complete(root)) == 1
    # Its checkpoints of before count: it was restored from one.
    assert FlinkHook().has_checkpointed(job_id)

    stopped = savepoint(job_id, root, stop=True).execute(Try().context)
    assert FlinkHook().job_state(job_id) == "FINISHED"
    assert len(complete(root)) == 2
    assert local(stopped["savepoint"]) != local(taken)


def _is_forgotten(cluster: FlinkCluster, job_id: str, task: Try, root: Path) -> bool:
    order = SavepointOrder((task.dag_id, task.task_id, "-1", task.run_id), job_id, str(root))
    try:
        cluster.get(f"/jobs/{job_id}/savepoints/{order.trigger(0)}")
    except ClusterError as error:
        return ": 404:" in str(error)
    return False
