"""Jobs on a real cluster that are stopped with a checkpoint: each goes on from its newest one, or isn't stopped."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.flink.errors import FlinkError, FlinkSavepointError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.operators import FlinkStopWithCheckpointOperator
from stateferry.airflow.flink.savepoints import CHECKPOINT, SavepointOrder
from stateferry.airflow.flink.stopping import fresh_checkpoint, why_not_with_checkpoint
from tests.airflow.flink_provider.conftest import end
from tests.airflow.flink_provider.tries import Try, local
from tests.flink import jars
from tests.flink.cluster import FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import LEGACY_JOB, RemoteJob
from tests.standalone.cut_over.purchases import check_each_once, shown

pytestmark = pytest.mark.flink


RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
RETAINED = {RETENTION: "RETAIN_ON_CANCELLATION"}


def started(cluster: FlinkCluster, jar: str, sink: Path, settings: dict[str, str], **more: object) -> RemoteJob:
    wanted = {"entryClass": LEGACY_JOB, "programArgsList": ["--sink", str(sink)], "parallelism": 2}
    wanted |= {"flinkConfiguration": settings, **more}
    return RemoteJob(cluster, cluster.post(f"/jars/{jar}/run", wanted)["jobid"])


@pytest.fixture
def job(cluster: FlinkCluster, jar: str, sink: Path, connection: None) -> Any:
    job = started(cluster, jar, sink, RETAINED)
    job.wait_for_checkpoints(1)
    yield job
    end(job)


def stop(job: str) -> FlinkStopWithCheckpointOperator:
    return FlinkStopWithCheckpointOperator(task_id="task", job=job, poll_interval=0.1, timeout=60)


def newest(job: RemoteJob) -> str:
    return str(job.cluster.get(f"/jobs/{job.id}/checkpoints")["latest"]["completed"]["external_path"])


def test_a_job_goes_on_from_its_newest_checkpoint_and_shows_each_record_once(
    job: RemoteJob, jar: str, sink: Path
) -> None:
    first = Try()
    taken = stop("totals").execute(first.context)
    assert job.status == "CANCELED"
    assert taken["savepoint"] == newest(job)
    assert (local(taken["savepoint"]) / "_metadata").exists()
    # A retry finds it, and so does one of a task that was lost before it knew.
    for again in (first.next(), Try()):
        assert stop(job.id).execute(again.context)["savepoint"] == taken["savepoint"]
    before = len(shown(sink))
    successor = RemoteJob.start(job.cluster, jar, LEGACY_JOB, "--sink", sink, savepoint=local(taken["savepoint"]))
    try:
        successor.wait_for_checkpoints(2)
    finally:
        end(successor)
    lines = shown(sink)
    check_each_once(lines)
    assert len(lines) > before


def test_a_lost_answer_takes_one_checkpoint(job: RemoteJob, through_proxy: Proxy) -> None:
    through_proxy.lost = 1
    taken = stop(job.id).execute(Try().context)
    assert through_proxy.lost == 0
    assert taken["savepoint"] == newest(job)


def test_a_running_job_is_asked_for_a_checkpoint_now(job: RemoteJob) -> None:
    before = newest(job)
    order = SavepointOrder(("catch-up", Try().run_id), job.id, "", format=CHECKPOINT)
    found = FlinkHook().run(lambda rest: fresh_checkpoint(rest, order, timeout=60, poll_interval=0.1))
    assert found.id > int(before.rpartition("-")[2])
    assert job.status == "RUNNING"


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({}, "removes its"),
        ({RETENTION: "DELETE_ON_CANCELLATION"}, "removes its"),
        (RETAINED | {"execution.checkpointing.unaligned.enabled": "true"}, "may be unaligned"),
    ],
    ids=["not kept", "removed", "unaligned"],
)
def test_what_a_checkpoint_would_lose_is_refused_and_the_job_runs_on(
    settings: dict[str, str], what: str, cluster: FlinkCluster, jar: str, sink: Path
) -> None:
    job = started(cluster, jar, sink, settings)
    try:
        job.wait_until_running()
        with pytest.raises(FlinkError, match=rf"can't be stopped with a checkpoint: .*{what}.*It was not stopped"):
            stop(job.id).execute(Try().context)
        assert FlinkHook().run(lambda rest: why_not_with_checkpoint(rest, job.id)) != ""
        assert job.status == "RUNNING"
    finally:
        end(job)


@pytest.mark.full
@pytest.mark.usefixtures("connection")
def test_a_changelog_is_refused_and_the_job_runs_on(cluster: FlinkCluster, sink: Path, tmp_path: Path) -> None:
    """Flink's checkpoints of it have changes that no file of the state has yet."""
    settings = RETAINED | {"state.changelog.enabled": "true", "state.changelog.storage": "memory"}
    job = started(cluster, cluster.upload(with_changelog(cluster, tmp_path)), sink, settings)
    try:
        job.wait_for_checkpoints(1)
        with pytest.raises(FlinkError, match=r"its checkpoints are a changelog of the state\. It was not stopped"):
            stop(job.id).execute(Try().context)
        assert job.status == "RUNNING"
    finally:
        end(job)


def with_changelog(cluster: FlinkCluster, folder: Path) -> Path:
    """The jobs' jar with the state backend, which Flink doesn't bring along."""
    made = Path(shutil.copyfile(cluster.jobs_jar(), folder / "with-changelog.jar"))
    backends = jars.with_other_backends(cluster.version).jars.folder()
    with zipfile.ZipFile(made, "a") as archive:
        for name in ("changelog", "common"):
            with zipfile.ZipFile(backends / f"flink-statebackend-{name}-{cluster.version}.jar") as found:
                for file in found.namelist():
                    if file.endswith(".class"):
                        archive.writestr(file, found.read(file))
    return made


@pytest.mark.usefixtures("connection")
def test_a_checkpoint_that_fails_leaves_the_job_running(cluster: FlinkCluster, jar: str, sink: Path) -> None:
    tolerant = {"execution.checkpointing.tolerable-failed-checkpoints": "100000"}
    job = started(cluster, jar, sink, RETAINED | tolerant)
    try:
        job.wait_for_checkpoints(1)
        folder = local(newest(job)).parent
        folder.rename(folder.with_name("away"))
        folder.write_text("in the way")
        with pytest.raises(FlinkSavepointError, match="which runs on"):
            stop(job.id).execute(Try().context)
        assert job.status == "RUNNING"
        folder.unlink()
        folder.with_name("away").rename(folder)
        assert stop(job.id).execute(Try().context)["savepoint"] == newest(job)
    finally:
        end(job)
