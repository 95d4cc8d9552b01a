"""Airflow ferries a job that runs and ingests on real Flink to its successor; every purchase is counted once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flinkstate.files.storage import Location
from local_airflow.api import ENDED
from local_airflow.server import Server
from stateferry.basics.durations import now_ms
from stateferry.runs.predict.differences import SourceLayout
from stateferry.runs.predict.estimates import Prediction
from stateferry.runs.predict.prediction import outage_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Decision
from tests.flink.cluster import ClusterError, FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import FAILING_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.ferry import DAG, PATIENCE, ROLLBACK, Ferry
from tests.standalone.cut_over.purchases import shown
from tests.standalone.migration import answer, log_of
from tests.support.facts import kept_facts

pytestmark = [pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800)]


PARTS = ["take_savepoint", "snapshot", "migrate", "rescale", "validate", "cut_over", "start_job", "tables"]


# A plain run of the tests has the cut-over of `test_between_flinks.py`.
@pytest.mark.full
def test_a_cut_over_replaces_the_job_and_a_rollback_brings_it_back(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "replaced", tmp_path, "--ttl-days", 30, "--declared", "hint")
    old = ferry.start_old_job()
    run = ferry.cut_over(old, ttl="30d", approval=True, job_parallelism=3)
    before = approve_while_the_job_runs(ferry, run, old)
    wait_for_state(ferry, run, "take_savepoint", "success")
    assert old.status == "FINISHED"
    # What the old job has shown, and will go on from when it comes back.
    sink = shutil.copytree(ferry.sink, tmp_path / "back")
    back = replace(ferry, sink=sink, arguments=ferry.arguments.replace(str(ferry.sink), str(sink)))
    assert ferry.end_of(run) == "success", ferry.logs(run)
    check_that_nobody_was_waited_for(ferry, run)

    new = ferry.running()
    check_that_it_started_from_what_was_published(ferry, run, new)
    check_that_nothing_goes_back_beside(ferry, new)
    end = ferry.check_that_nothing_was_lost("newMainState")
    assert len(shown(ferry.sink)) > before
    check_that_the_old_job_comes_back(ferry, back, end)


def approve_while_the_job_runs(ferry: Ferry, run: str, old: RemoteJob) -> int:
    """A person is asked while the job runs, and it goes on to run; returns how much it had shown by then."""
    wait_for_state(ferry, run, "decide", "awaiting_input")
    asked = question(ferry, run)
    assert "Nothing stands still" in asked["body"]
    assert f"Cut over job {ferry.job}? Ready: it will stand still for about" in asked["subject"]
    before = len(shown(ferry.sink))
    old.wait_for_checkpoints()
    assert (old.status, ferry.published()) == ("RUNNING", None)
    answer(ferry.airflow, DAG, run, "Approve", "decide")
    return before


def check_that_it_started_from_what_was_published(ferry: Ferry, run: str, new: RemoteJob) -> None:
    publication = ferry.published()
    assert publication is not None
    assert ferry.xcom(run, "start_job")["job_id"] == new.id
    assert list(ferry.xcom(run, "conclude")["times"]) == PARTS
    restored = new.cluster.get(f"/jobs/{new.id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"] == f"file:{publication.record.target}"


def wait_for_state(ferry: Ferry, run: str, task: str, state: str) -> None:
    """Fails at once when the run ends without it."""
    tasks = ferry.airflow.api.wait(
        DAG, run, lambda tasks, of_run: tasks.get(task, {}).get("state") == state or of_run in ENDED, PATIENCE
    )
    assert tasks[task]["state"] == state, ferry.logs(run)


def question(ferry: Ferry, run: str, task: str = "decide") -> dict[str, Any]:
    path = f"/dags/{DAG}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/-1/hitlDetails"
    asked: dict[str, Any] = ferry.airflow.api.get(path)
    return asked


def check_that_nobody_was_waited_for(ferry: Ferry, run: str) -> None:
    """From the stop on; and what is published is a run of its own, on a later savepoint than the rehearsal's."""
    tasks = ferry.airflow.api.tasks(DAG, run)
    assert {tasks[name]["state"] for name in ("approve", "return_to_old_job")} == {"skipped"}
    planned = ferry.xcom(run, "plan")
    final, rehearsal = (Run.open(Location.of(planned[name])) for name in ("folder", "rehearsal"))
    layouts = [one.facts(SourceLayout) for one in (rehearsal, final)]
    assert layouts[0] is not None
    assert layouts[1] is not None
    assert layouts[0].checkpoint_id < layouts[1].checkpoint_id
    approved = [change.reason for change in final.changes() if change.state is RunState.APPROVED]
    assert approved == [f"approved by admin, on rehearsal {rehearsal.plan.run_id}"]
    # One prediction: what the person was told, what is kept, and what is told in the end.
    decision, kept, outage = kept_facts(rehearsal, Decision), final.facts(Prediction), outage_of(final)
    assert decision.foreseen == kept
    assert outage is not None
    assert f"the job stood still for {outage:.0f} s" in log_of(ferry.airflow, DAG, run, "conclude")


def check_that_nothing_goes_back_beside(ferry: Ferry, new: RemoteJob) -> None:
    """The new job runs, and goes by another name than was given: to start the old one would make them two."""
    publication = ferry.published()
    run = ferry.roll_back(approval=False, flink_job="another")
    assert ferry.airflow.api.wait_for_end(ROLLBACK, run, PATIENCE) == "failed"
    assert f"the new job {new.id} is RUNNING" in log_of(ferry.airflow, ROLLBACK, run, "cancel_new_job")
    assert ferry.published() == publication
    assert ferry.running() == new


def check_that_the_old_job_comes_back(ferry: Ferry, back: Ferry, end: str) -> None:
    """From its own savepoint, though the new job has gone on since; it shows in a sink of its own what it reads."""
    api, publication, of_old_job = ferry.airflow.api, ferry.published(), indexes(back)
    assert publication is not None
    new = RemoteJob.start(ferry.cluster, ferry.jar, NEW_JOB, *ferry.arguments.split(), savepoint=end, parallelism=3)
    new.wait_for_checkpoints()
    run = back.roll_back(flink_job="totals")
    api.wait(ROLLBACK, run, lambda tasks, _: tasks["approve"]["state"] == "awaiting_input", PATIENCE)
    said = log_of(ferry.airflow, ROLLBACK, run, "plan")
    source, checkpoint = publication.record.source, publication.record.checkpoint_id
    for line in (
        f"the job starts again from {source} (checkpoint {checkpoint})",
        f"the job reads input since checkpoint {checkpoint} again",
        "the job writes all output since then again",
    ):
        assert line in said
    assert (ferry.published(), new.status) == (publication, "RUNNING")
    answer(ferry.airflow, ROLLBACK, run, "Approve")
    assert api.wait_for_end(ROLLBACK, run, PATIENCE) == "success"

    assert (ferry.published(), new.status) == (None, "CANCELED")
    old = ferry.running()
    assert api.xcom(ROLLBACK, run, "start_old_job")["job_id"] == old.id
    assert api.xcom(ROLLBACK, run, "roll_back")["savepoint"] == source
    restored = ferry.cluster.get(f"/jobs/{old.id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"] == f"file:{source}"

    # A person has it done once more: by now the old job is the one of that name, but not the one that was meant.
    again = {"dag_run_id": run, "task_ids": ["cancel_new_job"], "include_downstream": True, "only_failed": False}
    api.call("POST", f"/dags/{ROLLBACK}/clearTaskInstances", again | {"dry_run": False, "reset_dag_runs": True})
    assert api.wait_for_end(ROLLBACK, run, PATIENCE) == "success"
    assert api.tasks(ROLLBACK, run)["start_old_job"]["try_number"] == 2
    assert ferry.running() == old

    back.check_that_nothing_was_lost("mainState")
    assert (indexes(ferry) & indexes(back)) - of_old_job, "nothing was read again"


def indexes(ferry: Ferry) -> set[int]:
    """Of the purchases that were shown."""
    return {line.index for line in shown(ferry.sink)}


@pytest.mark.full
def test_a_no_at_the_last_moment_leaves_the_job_running(airflow: Server, flink: FlinkCluster, tmp_path: Path) -> None:
    """After the yes, a sign is waited for; nothing stands still meanwhile, nor after it is refused."""
    ferry = Ferry.ready(airflow, flink, "refused", tmp_path, "--ttl-days", 30)
    old = ferry.start_old_job()
    run = ferry.cut_over(old, ttl="30d", approval=True, on_sign=True)
    wait_for_state(ferry, run, "decide", "awaiting_input")
    answer(airflow, DAG, run, "Approve", "decide")
    wait_for_state(ferry, run, "wait_to_stop", "awaiting_input")
    asked = question(ferry, run, "wait_to_stop")
    assert asked["subject"] == f"Stop job {ferry.job} now?"
    assert "The job runs. Its cut-over is approved by" in asked["body"]
    old.wait_for_checkpoints()
    answer(airflow, DAG, run, "Reject", "wait_to_stop")
    assert ferry.end_of(run) == "failed"
    assert (old.status, ferry.published()) == ("RUNNING", None)
    said = log_of(airflow, DAG, run, "conclude")
    assert "the cut-over was rejected by" in said
    assert "The job was not stopped, and runs on" in said
    states = {name: task["state"] for name, task in airflow.api.tasks(DAG, run).items()}
    assert (states["take_savepoint"], states["return_to_old_job"]) == ("upstream_failed", "skipped")
    ferry.check_that_nothing_was_lost("mainState")


@pytest.mark.full
def test_the_way_back_converts_what_the_new_job_has_learnt(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "converted", tmp_path, "--ttl-days", 30)
    run = ferry.cut_over(ferry.start_old_job(), ttl="30d")
    assert ferry.end_of(run) == "success", ferry.logs(run)
    forth, new = ferry.published(), ferry.running()
    new.wait_for_checkpoints()

    savepoints = flink.savepoints.as_uri()
    back = ferry.roll_back(way_back="convert", flink_job=new.id, savepoint_directory=savepoints, approval=False)
    assert airflow.api.wait_for_end(ROLLBACK, back, PATIENCE) == "success"
    conversion = f"manual__back_{back}"
    assert ferry.end_of(conversion) == "success", ferry.logs(conversion)
    assert new.status == "FINISHED"
    publication, old = ferry.published(), ferry.running()
    assert forth is not None
    assert publication is not None
    assert publication.sequence > forth.sequence
    assert old.id == ferry.xcom(conversion, "start_job")["job_id"]
    # Old job, new job and old job again have shown each purchase once.
    ferry.check_that_nothing_was_lost("mainState")


@pytest.mark.full
def test_a_rehearsal_leaves_the_job_alone_and_predicts_the_times_of_the_cut_over(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "rehearsed", tmp_path, "--ttl-days", 30)
    old = ferry.start_old_job()
    rehearsal = ferry.trigger(old, ttl="30d", mode="rehearse")
    assert ferry.end_of(rehearsal) == "success", ferry.logs(rehearsal)
    assert old.status == "RUNNING"
    assert ferry.published() is None

    run = ferry.cut_over(old, ttl="30d")
    assert ferry.end_of(run) == "success", ferry.logs(run)
    times = ferry.xcom(run, "conclude")["times"]
    assert list(times) == PARTS
    # A rehearsal neither publishes nor starts a job: that is assumed.
    assert [part for part, time in times.items() if time["predicted"] is None] == []
    ferry.check_that_nothing_was_lost("newMainState")


@pytest.mark.full
def test_the_old_job_goes_on_when_its_savepoint_fails_and_comes_back_when_the_new_one_fails(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "returned", tmp_path)
    old = ferry.start_old_job()
    savepoints = tmp_path / "savepoints"
    savepoints.write_text("no folder")
    run = ferry.cut_over(old, entry_class=FAILING_JOB, savepoint_directory=savepoints.as_uri())

    wait_for_state(ferry, run, "rehearsal.take_savepoint", "up_for_retry")
    assert "Failed to create savepoint directory" in ferry.logs(run)
    old.wait_for_checkpoints()
    savepoints.unlink()

    assert ferry.end_of(run) == "failed"
    assert "the price list cannot be found" in ferry.logs(run)
    assert old.status == "FINISHED"
    assert ferry.published() is None
    assert ferry.running().id == ferry.xcom(run, "return_to_old_job")["job_id"]
    ferry.check_that_nothing_was_lost("mainState")


@pytest.mark.full
def test_a_job_manager_that_is_away_slow_and_restarted_only_takes_longer(airflow: Server, tmp_path: Path) -> None:
    with (
        FlinkCluster("1.20.0", tmp_path / "flink", high_availability=True) as cluster,
        Proxy(cluster.port) as proxy,
    ):
        arguments = ("--checkpoint-millis", 1000, "--declared", "hint")
        ferry = Ferry.ready(airflow, cluster, "slow", tmp_path, *arguments, port=proxy.port)
        proxy.delay = 0.5
        old = ferry.start_old_job()
        cluster.kill_job_manager()
        run = ferry.cut_over(old)
        # It asks Flink for the jars.
        wait_for_state(ferry, run, "plan", "running")
        cluster.start_job_manager()

        wait_for_state(ferry, run, "rehearsal.snapshot", "running")
        since = now_ms()
        wait_for_state(ferry, run, "take_savepoint", "running")
        cluster.wait_until("a savepoint was begun", lambda: savepoint_was_begun(cluster, old.id, since))
        cluster.kill_job_manager()
        cluster.start_job_manager()

        wait_for_state(ferry, run, "migrate", "running")
        cluster.kill_job_manager()
        cluster.start_job_manager()
        assert ferry.end_of(run) == "success", ferry.logs(run)
        ferry.check_that_nothing_was_lost("newMainState")


def savepoint_was_begun(cluster: FlinkCluster, job: str, since: int) -> bool:
    try:
        history = cluster.get(f"/jobs/{job}/checkpoints").get("history", [])
    except ClusterError:
        # A JobManager that has just come back doesn't know its jobs yet.
        return False
    # It may be whole before anybody has looked.
    return any(one["is_savepoint"] and one["trigger_timestamp"] > since for one in history)
