"""The whole way on Flink 1.20."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink.errors import FlinkSavepointError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import Goal
from stateferry.airflow.flink.operators import FlinkCancelJobOperator
from tests.airflow.flink_provider.conftest import connect
from tests.airflow.flink_provider.tries import Try, complete, run_jar, running, savepoint
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import FAILING_JOB

# A plain run of the tests ferries a job of Flink 1.20 in a real Airflow: `tests/standalone/cut_over`.
pytestmark = [pytest.mark.full, pytest.mark.flink]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlinkCluster]:
    folder = tmp_path_factory.mktemp("flink")
    with FlinkCluster("1.20.0", folder, slots=4) as cluster:
        connect(monkeypatch, cluster.port)
        cluster.upload_jobs()
        yield cluster
    shutil.rmtree(folder)


def test_the_whole_way(cluster: FlinkCluster, sink: Path, tmp_path: Path) -> None:
    arguments, folder = ["--sink", str(sink)], tmp_path / "savepoints"
    assert FlinkHook().test_connection() == (True, "Flink 1.20.0 with 1 TaskManagers")

    start = Try()
    with ThreadPoolExecutor(2) as threads:
        operators = [(run_jar(arguments), start), (run_jar(arguments), start.next())]
        old, again = threads.map(lambda each: each[0].execute(each[1].context)["job_id"], operators)
    assert running(cluster) == [old] == [again]
    FlinkHook().wait_for(old, Goal(checkpoint=True), timeout=200)

    # It is taken sooner than Flink brings up to date what it tells of a job.
    assert savepoint("totals", folder).execute(Try().context)["bytes"] > 0
    stop = Try()
    stopped = savepoint("totals", folder, stop=True).execute(stop.context)["savepoint"]
    assert savepoint("totals", folder, stop=True).execute(stop.next().context)["savepoint"] == stopped
    assert FlinkHook().job_state(old) == "FINISHED"
    assert len(complete(folder)) == 2

    failing = Try()
    with pytest.raises(AirflowFailException, match="the price list cannot be found"):
        run_jar(arguments, FAILING_JOB, savepoint=stopped, wait_until="checkpoint").execute(failing.context)
    assert not FlinkHook().has_checkpointed(failing.pushed["job_id"])

    misfit = Try()
    with pytest.raises(AirflowFailException, match="Cannot map checkpoint/savepoint state for operator"):
        run_jar([*arguments, "--uid", "other"], savepoint=stopped).execute(misfit.context)
    assert FlinkHook().job_state(misfit.pushed["job_id"]) == "FAILED"
    assert not FlinkHook().has_checkpointed(misfit.pushed["job_id"])

    new = run_jar(arguments, savepoint=stopped, wait_until="checkpoint").execute(Try().context)["job_id"]
    assert cluster.get(f"/jobs/{new}/checkpoints")["latest"]["restored"]["external_path"] == stopped
    (blocked := tmp_path / "blocked").write_text("in the way")
    with pytest.raises(FlinkSavepointError, match="FileAlreadyExistsException"):
        savepoint(new, blocked).execute(Try().context)
    cancel = FlinkCancelJobOperator(task_id="task", job=new, poll_interval=0.1)
    assert cancel.execute(Try().context)["state"] == "CANCELED"
    assert FlinkHook().job_state("0" * 32) is None
