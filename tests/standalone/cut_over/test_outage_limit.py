"""An outage that takes longer than it may ends with the old job, whatever hangs or is killed; never after the new job
has completed a checkpoint."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from flinkstate.files.storage import Location
from local_airflow.server import Server
from stateferry.basics.durations import now_ms, parse_duration
from stateferry.runs.control.outage_limit import OutageExceeded
from stateferry.runs.record.facts import JobStarted, NewJob, Returned, SavepointTaken
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from tests.flink.cluster import ClusterError, FlinkCluster
from tests.flink.remote import RemoteJob
from tests.standalone.cut_over.ferry import DAG, LIVE, Ferry
from tests.standalone.cut_over.test_with_airflow import wait_for_state
from tests.standalone.killing import driver_at
from tests.standalone.migration import log_of
from tests.standalone.test_pages import get, token_of
from tests.support.facts import kept_facts

pytestmark = [pytest.mark.full, *LIVE]
# Longer than an outage is predicted to be on a busy machine.
LIMIT = "150s"
# Airflow's own time for the two tasks that end the outage, on a busy machine.
SLACK = 60


def test_a_new_job_without_a_checkpoint_goes_though_scheduler_and_triggerer_are_killed(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "late", tmp_path, "--ttl-days", 30)
    never = f"{ferry.arguments} --checkpoint-millis 3600000"
    run = ferry.cut_over(ferry.start_old_job(), ttl="30d", outage_limit=LIMIT, program_args=never, start_timeout="1h")
    wait_for_state(ferry, run, "start_job", "running")
    final = run_of(ferry, run)
    flink.wait_until("the new job runs", lambda: new_job_runs(ferry, final))
    with without_scheduler(airflow, "triggerer"):
        time.sleep(5)

    assert ferry.end_of(run) == "failed"
    check_returned_in_time(ferry, run, final)
    assert final.state is RunState.ROLLED_BACK
    assert new_job(ferry, final).status == "CANCELED"
    assert ferry.published() is None
    ferry.check_that_nothing_was_lost("mainState")


def test_a_step_that_hangs_is_left_alone_and_the_old_job_runs_again(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "hangs", tmp_path, "--ttl-days", 30)
    run = ferry.cut_over(ferry.start_old_job(), ttl="30d", outage_limit=LIMIT)
    wait_for_state(ferry, run, "take_savepoint", "success")
    final = run_of(ferry, run)
    with stopped(driver_at(final, Step.MIGRATE)):
        check_page(airflow, tmp_path / "jobs.html")
        # The old job does not wait for the step.
        wait_for_state(ferry, run, "return_to_old_job", "success")
        check_returned_in_time(ferry, run, final)
    assert ferry.end_of(run) == "failed"
    assert final.state is RunState.REJECTED
    assert (ferry.published(), final.facts(NewJob)) == (None, None)
    ferry.check_that_nothing_was_lost("mainState")


def test_after_the_first_checkpoint_the_new_job_stays_however_late_that_is_noticed(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink, "noticed", tmp_path, "--ttl-days", 30)
    # The new job's first checkpoint comes when nobody of Airflow is there to see it.
    later = f"{ferry.arguments} --checkpoint-millis 20000"
    run = ferry.cut_over(ferry.start_old_job(), ttl="30d", outage_limit=LIMIT, program_args=later, start_timeout="1h")
    wait_for_state(ferry, run, "start_job", "running")
    final = run_of(ferry, run)
    flink.wait_until("the new job runs", lambda: new_job_runs(ferry, final))
    with without_scheduler(airflow, "triggerer"):
        assert final.facts(JobStarted) is None, "it was noticed too early"
        new_job(ferry, final).wait_for_checkpoints(1)
        time.sleep(max(ends_by(final) - time.time(), 0) + 5)
    assert ferry.end_of(run) == "success", ferry.logs(run)
    assert final.facts(OutageExceeded) is None
    assert ferry.running().id == new_job(ferry, final).id
    ferry.check_that_nothing_was_lost("newMainState")


def run_of(ferry: Ferry, run: str) -> Run:
    return Run.open(Location.of(ferry.xcom(run, "plan")["folder"]))


def new_job(ferry: Ferry, final: Run) -> RemoteJob:
    recorded = kept_facts(final, NewJob)
    assert recorded.job_id is not None
    return RemoteJob(ferry.cluster, recorded.job_id)


def new_job_runs(ferry: Ferry, final: Run) -> bool:
    try:
        return final.facts(NewJob) is not None and new_job(ferry, final).status == "RUNNING"
    except ClusterError:
        # It is recorded before Flink knows it.
        return False


def ends_by(final: Run) -> float:
    taken = kept_facts(final, SavepointTaken)
    assert taken.requested_at is not None
    return (taken.requested_at + parse_duration(LIMIT)) / 1000


def check_returned_in_time(ferry: Ferry, run: str, final: Run) -> None:
    """After the limit, not before, and not much later; and the logs say why."""
    exceeded, returned = kept_facts(final, OutageExceeded), kept_facts(final, Returned)
    assert exceeded.at / 1000 >= ends_by(final)
    assert returned.ended_at is not None
    assert returned.ended_at / 1000 <= ends_by(final) + SLACK
    assert returned.ended_at <= now_ms()
    assert ferry.running().id == ferry.xcom(run, "return_to_old_job")["job_id"]
    assert exceeded.reason in log_of(ferry.airflow, DAG, run, "watch_outage")


def check_page(airflow: Server, kept: Path) -> None:
    """Who is on call reads all of it while the job stands still."""
    # What is shown is two seconds old at most.
    time.sleep(2.1)
    status, said = get(airflow, "/", token_of(airflow, "admin"))
    kept.write_text(said)
    assert status == 200
    for words in (
        "1 stands still",
        "The job stands still.",
        "without a checkpoint of the new job by then, the old job is started again by itself",
        "</a> running for ",
        "its first checkpoint ends the outage",
        "approval is switched off; triggered by admin",
    ):
        assert words in said, (words, kept)


@contextmanager
def without_scheduler(airflow: Server, *others: str) -> Iterator[None]:
    """Kills it with all tasks at work, and the others; starts them again at the end."""
    for name in ("scheduler", *others):
        process = psutil.Process(airflow.pid(name))
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                one.kill()
    yield
    for name in ("scheduler", *others):
        airflow.start_component(name)


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """The process hangs, and is killed in the end."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGKILL)
