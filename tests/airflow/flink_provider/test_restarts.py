"""JobManagers that are killed and come back: with what they remember, and without."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import SavepointOrder
from tests.airflow.flink_provider.conftest import connect
from tests.airflow.flink_provider.tries import Try, complete, local, run_jar, running, savepoint
from tests.flink.cluster import ClusterError, FlinkCluster

_LONGEST = 400

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]


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
        connect(monkeypatch, cluster.port, patience=_LONGEST)
        cluster.upload_jobs()
        yield cluster


@pytest.mark.full
def test_what_flink_forgot(
    forgetful: FlinkCluster, sink: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateferry.airflow.flink.jobs._REAPPEARS_SECONDS", 1)
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
        unseen.setattr("stateferry.airflow.flink.savepoints.newest_completed", lambda directory: None)
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


@pytest.mark.full
def test_a_job_manager_that_is_away_for_a_while(available: FlinkCluster, sink: Path, tmp_path: Path) -> None:
    cluster, root = available, tmp_path / "savepoints"
    start, take = Try(), Try()
    # A savepoint takes long enough for something to happen meanwhile.
    arguments = ["--sink", str(sink), "--checkpoint-millis", "1500"]
    job_id = run_jar(arguments, wait_until="checkpoint").execute(start.context)["job_id"]
    with ThreadPoolExecutor(2) as threads:
        taken = threads.submit(savepoint(job_id, root).execute, take.context)
        _kill_while_at_it(cluster, job_id, take, root)
        started = threads.submit(run_jar(arguments).execute, start.next().context)
        cluster.start_job_manager()
        assert started.result(_LONGEST)["job_id"] == job_id
        assert [local(taken.result(_LONGEST)["savepoint"])] == complete(root)
        assert running(cluster) == [job_id]
        # Its checkpoints of before count: it was restored from one.
        assert FlinkHook().has_checkpointed(job_id)

        stop = Try()
        stopped = threads.submit(savepoint(job_id, root, stop=True).execute, stop.context)
        _kill_while_at_it(cluster, job_id, stop, root)
        cluster.start_job_manager()
        assert Path(_order(job_id, stop, root).directory) == local(stopped.result(_LONGEST)["savepoint"]).parent
    assert FlinkHook().job_state(job_id) == "FINISHED"
    assert len(complete(root)) == 2
    again = savepoint(job_id, root, stop=True).execute(stop.next().context)
    assert local(again["savepoint"]) == local(stopped.result()["savepoint"])


def _kill_while_at_it(cluster: FlinkCluster, job_id: str, task: Try, root: Path) -> None:
    cluster.wait_until("the savepoint is triggered", lambda: not _is_forgotten(cluster, job_id, task, root))
    cluster.kill_job_manager()
    assert not [path for path in complete(root) if path.parent == Path(_order(job_id, task, root).directory)]


def _order(job_id: str, task: Try, root: Path) -> SavepointOrder:
    return SavepointOrder((task.dag_id, task.task_id, "-1", task.run_id), job_id, str(root))


def _is_forgotten(cluster: FlinkCluster, job_id: str, task: Try, root: Path) -> bool:
    """Or isn't known yet."""
    try:
        cluster.get(f"/jobs/{job_id}/savepoints/{_order(job_id, task, root).trigger(0)}")
    except ClusterError as error:
        return ": 404:" in str(error)
    return False
