"""Savepoints of jobs on a real cluster, each taken once."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.flink.errors import FlinkError, FlinkSavepointError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import SavepointOrder, take
from tests.airflow.flink_provider.conftest import end
from tests.airflow.flink_provider.tries import Try, complete, local, savepoint
from tests.flink.cluster import FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import LEGACY_JOB, RemoteJob

pytestmark = pytest.mark.flink


@pytest.fixture
def job(cluster: FlinkCluster, jar: str, sink: Path, connection: None) -> Any:
    job = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    job.wait_for_checkpoints(1)
    yield job
    end(job)


def history(job: RemoteJob) -> list[dict[str, Any]]:
    answer = job.cluster.get(f"/jobs/{job.id}/checkpoints")
    return [entry for entry in [answer["latest"]["savepoint"], *answer["history"]] if entry and entry["is_savepoint"]]


def test_takes_a_canonical_savepoint_of_a_job_that_goes_on(job: RemoteJob, tmp_path: Path) -> None:
    first = Try()
    taken = savepoint("totals", tmp_path / "savepoints").execute(first.context)
    assert complete(tmp_path / "savepoints") == [local(taken["savepoint"])]
    assert taken["job_id"] == job.id == first.pushed["job_id"]
    assert taken["bytes"] > 0
    assert taken["seconds"] > 0
    found = next(entry for entry in history(job) if entry["id"] == taken["checkpoint_id"])
    assert found["savepointFormat"] == "CANONICAL"
    assert job.status == "RUNNING"
    assert first.pushed["flink_job_url"] == f"{job.cluster.rest_url}/#/job/running/{job.id}/overview"


def test_lists_the_checkpoints_whose_files_are_there(job: RemoteJob, tmp_path: Path) -> None:
    taken = savepoint("totals", tmp_path / "savepoints").execute(Try().context)

    def newest() -> int:
        """Its number; 0 if a newer one has just replaced it."""
        found = FlinkHook().completed_checkpoints(job.id)
        numbers = [one.id for one in found]
        assert numbers == sorted(numbers, reverse=True)
        assert taken["checkpoint_id"] not in numbers
        assert all(one.completed_at > 0 for one in found)
        return found[0].id if found and (local(found[0].location) / "_metadata").exists() else 0

    job.cluster.wait_until("a checkpoint after the savepoint", lambda: newest() > taken["checkpoint_id"])
    with pytest.raises(FlinkError, match="no job has the name or id 'nothing'"):
        FlinkHook().completed_checkpoints("nothing")
    assert FlinkHook().checkpoint_interval(job.id) == 500


def test_stops_a_job_with_a_savepoint(job: RemoteJob, tmp_path: Path) -> None:
    taken = savepoint(job.id, tmp_path / "savepoints", stop=True).execute(Try().context)
    assert job.status == "FINISHED"
    assert complete(tmp_path / "savepoints") == [local(taken["savepoint"])]
    assert [(entry["savepointFormat"], entry["checkpoint_type"]) for entry in history(job)[:1]] == [
        ("CANONICAL", "SYNC_SAVEPOINT")
    ]


@pytest.mark.parametrize("stop", [False, True])
def test_a_retry_returns_what_is_there(job: RemoteJob, tmp_path: Path, stop: bool) -> None:
    first = Try()
    operator = savepoint(job.id, tmp_path / "savepoints", stop=stop)
    taken = operator.execute(first.context)
    assert operator.execute(first.next().context)["savepoint"] == taken["savepoint"]
    assert len(complete(tmp_path / "savepoints")) == 1


def test_other_runs_and_other_mapped_tasks_take_their_own(job: RemoteJob, tmp_path: Path) -> None:
    operator = savepoint(job.id, tmp_path / "savepoints")
    run = Try().run_id
    tries = [Try(run), Try(), Try(run, map_index=0), Try(run, map_index=1), Try(run, "other")]
    taken = [operator.execute(each.context)["savepoint"] for each in tries]
    assert len(set(taken)) == len(complete(tmp_path / "savepoints")) == 5
    # Flink adds one level, the savepoint's own.
    assert len({local(location).parent for location in taken}) == 5


@pytest.mark.parametrize("stop", [False, True])
def test_two_tries_at_a_time_take_one(job: RemoteJob, tmp_path: Path, stop: bool) -> None:
    first = Try()
    operator = savepoint(job.id, tmp_path / "savepoints", stop=stop)
    with ThreadPoolExecutor(2) as threads:
        taken = list(threads.map(lambda each: operator.execute(each.context), [first, first.next()]))
    assert taken[0]["savepoint"] == taken[1]["savepoint"]
    assert len(complete(tmp_path / "savepoints")) == 1


@pytest.mark.parametrize("stop", [False, True])
def test_a_lost_answer_makes_no_second_savepoint(
    job: RemoteJob, through_proxy: Proxy, tmp_path: Path, stop: bool
) -> None:
    through_proxy.lost = 1
    savepoint(job.id, tmp_path / "savepoints", stop=stop).execute(Try().context)
    assert through_proxy.lost == 0
    assert len(complete(tmp_path / "savepoints")) == 1
    assert len({entry["id"] for entry in history(job)}) == 1


def test_a_savepoint_that_fails_says_why_and_can_be_taken_later(job: RemoteJob, tmp_path: Path) -> None:
    folder = tmp_path / "savepoints"
    folder.write_text("in the way")
    first = Try()
    operator = savepoint(job.id, folder)
    with pytest.raises(
        FlinkSavepointError,
        match=rf"no savepoint of job {job.id}: .*IO-problem detected.*FileAlreadyExistsException: {folder}",
    ):
        operator.execute(first.context)
    assert job.status == "RUNNING"
    # Flink still has the failure in mind, under the id of the first trigger.
    with pytest.raises(FlinkSavepointError):
        operator.execute((second := first.next()).context)
    folder.unlink()
    taken = operator.execute((third := second.next()).context)
    assert complete(folder) == [local(taken["savepoint"])]
    assert operator.execute(third.next().context)["savepoint"] == taken["savepoint"]
    assert len(complete(folder)) == 1


def test_a_stop_that_fails_leaves_the_job_running(job: RemoteJob, tmp_path: Path) -> None:
    folder = tmp_path / "savepoints"
    folder.write_text("in the way")
    with pytest.raises(FlinkSavepointError, match="FileAlreadyExistsException: "):
        savepoint(job.id, folder, stop=True).execute(Try().context)
    job.wait_for_checkpoints(1)
    assert job.status == "RUNNING"


def test_a_savepoint_after_which_the_job_went_on_is_not_where_it_stopped(job: RemoteJob, tmp_path: Path) -> None:
    first = Try()
    stale = _put_into_the_folder(job, tmp_path, first)
    taken = savepoint(job.id, tmp_path, stop=True).execute(first.context)
    assert taken["savepoint"] != stale
    assert job.status == "FINISHED"


def test_a_savepoint_of_a_job_that_was_cancelled_is_not_taken_for_its_last(job: RemoteJob, tmp_path: Path) -> None:
    first = Try()
    stale = _put_into_the_folder(job, tmp_path, first)
    job.cancel()
    with pytest.raises(FlinkError, match=rf"{stale} is complete, but job {job.id} is CANCELED"):
        savepoint(job.id, tmp_path, stop=True).execute(first.context)


def _put_into_the_folder(job: RemoteJob, root: Path, of: Try) -> str:
    """As if a stop had been triggered, its savepoint taken, and the job gone on for some reason."""
    order = SavepointOrder((of.dag_id, of.task_id, str(of.map_index), of.run_id), job.id, str(root))
    folder = order.directory
    job.cluster.post(f"/jobs/{job.id}/savepoints", {"target-directory": folder, "formatType": "CANONICAL"})
    job.cluster.wait_until("the savepoint is complete", lambda: bool(complete(root)))
    job.wait_for_checkpoints(1)
    return f"file:{complete(root)[0]}"


def test_a_job_that_ended_without_a_savepoint_has_none(job: RemoteJob, tmp_path: Path) -> None:
    job.cancel()
    with pytest.raises(FlinkError, match=rf"job 'totals' \({job.id}\) is CANCELED, and no savepoint of it is in "):
        savepoint(job.id, tmp_path).execute(Try().context)


def test_an_unknown_job_is_answered_with_those_there_are(job: RemoteJob, tmp_path: Path) -> None:
    with pytest.raises(FlinkError, match=rf"no job has the name or id 'total'.*'totals' \({job.id}, RUNNING\)"):
        savepoint("total", tmp_path).execute(Try().context)


def test_a_name_that_two_running_jobs_have_is_refused(
    job: RemoteJob, cluster: FlinkCluster, jar: str, sink: Path, tmp_path: Path
) -> None:
    other = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    try:
        with pytest.raises(FlinkError, match="2 jobs named 'totals' are running") as refused:
            savepoint("totals", tmp_path).execute(Try().context)
        assert job.id in str(refused.value)
        assert other.id in str(refused.value)
    finally:
        end(other)


def test_a_later_job_of_the_same_name_is_not_stopped_by_a_retry(
    job: RemoteJob, cluster: FlinkCluster, jar: str, sink: Path, tmp_path: Path
) -> None:
    first = Try()
    operator = savepoint("totals", tmp_path / "savepoints", stop=True)
    taken = operator.execute(first.context)
    successor = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink, savepoint=local(taken["savepoint"]))
    try:
        successor.wait_for_checkpoints(1)
        # Even if nothing is left of the savepoint.
        shutil.rmtree(tmp_path / "savepoints")
        assert operator.execute(first.next().context)["job_id"] == job.id
        assert successor.status == "RUNNING"
    finally:
        end(successor)


def test_from_python(job: RemoteJob, tmp_path: Path) -> None:
    order = SavepointOrder(("rehearsal", Try().run_id), "totals", str(tmp_path / "savepoints"))

    def taken() -> Path:
        return local(FlinkHook().run(lambda rest: take(rest, order, timeout=200, poll_interval=0.1)).location)

    (tmp_path / "savepoints").write_text("in the way")
    for _ in range(2):
        with pytest.raises(FlinkSavepointError):
            taken()
    (tmp_path / "savepoints").unlink()
    assert [taken(), taken()] == complete(tmp_path / "savepoints") * 2
