"""Kills around the stop of a running job: whoever waits, stops or is about to, is killed, and the cut-over goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from local_airflow.api import ENDED
from local_airflow.server import Server
from stateferry.basics.durations import now_ms
from tests.flink.cluster import FlinkCluster
from tests.flink.proxy import Proxy
from tests.standalone.cut_over.ferry import DAG, LIVE, PATIENCE, Ferry
from tests.standalone.cut_over.test_with_airflow import savepoint_was_begun, wait_for_state
from tests.standalone.migration import answer, log_of

pytestmark = [pytest.mark.full, *LIVE]
# The rehearsal is over by then.
BEFORE_THE_WINDOW = timedelta(minutes=5)


def test_kills_before_at_and_after_the_stop_lose_nothing(airflow: Server, flink: FlinkCluster, tmp_path: Path) -> None:
    with Proxy(flink.port) as proxy:
        ferry = Ferry.ready(airflow, flink, "killed", tmp_path, "--ttl-days", 30, port=proxy.port)
        old = ferry.start_old_job()
        opens = datetime.now(UTC) + BEFORE_THE_WINDOW
        window = f"{opens:%H:%M}-{opens + timedelta(hours=2):%H:%M}"
        run = ferry.cut_over(old, ttl="30d", approval=True, window=window, time_zone="UTC")
        wait_for_state(ferry, run, "decide", "awaiting_input")
        answer(airflow, DAG, run, "Approve", "decide")

        # While it waits for the window, no process waits: what would start one is killed.
        wait_for_state(ferry, run, "wait_to_stop", "up_for_reschedule")
        scheduler = psutil.Process(airflow.pid("scheduler"))
        for process in (scheduler, *scheduler.children()):
            process.kill()
        # Flink's answers are held back, so that the next task is still before the stop when it is killed.
        proxy.delay = 120
        airflow.start_component("scheduler")
        wait_for_state(ferry, run, "take_savepoint", "running")
        assert datetime.now(UTC) >= opens.replace(second=0, microsecond=0)
        kill_task(ferry, run, "take_savepoint")
        assert (old.status, ferry.published()) == ("RUNNING", None)

        # The second try is killed after it has asked for the stop, and before it knows the savepoint.
        since = now_ms()
        proxy.delay = 0
        flink.wait_until("a savepoint was begun", lambda: savepoint_was_begun(flink, old.id, since))
        kill_task(ferry, run, "take_savepoint")
        wait_for_state(ferry, run, "take_savepoint", "success")
        assert airflow.api.tasks(DAG, run)["take_savepoint"]["try_number"] == 3
        assert "the job is stopped at" in log_of(airflow, DAG, run, "wait_to_stop")

        assert ferry.end_of(run) == "success", ferry.logs(run)
        assert old.status == "FINISHED"
        savepoint = ferry.xcom(run, "take_savepoint")["savepoint"]
        publication = ferry.published()
        assert publication is not None
        assert savepoint.endswith(publication.record.source.rpartition("/")[2])
        ferry.check_that_nothing_was_lost("newMainState")


def test_a_person_takes_the_stop_back_while_flink_takes_the_savepoint(
    airflow: Server, flink: FlinkCluster, tmp_path: Path
) -> None:
    with Proxy(flink.port) as proxy:
        ferry = Ferry.ready(airflow, flink, "taken-back", tmp_path, "--ttl-days", 30, port=proxy.port)
        old = ferry.start_old_job()
        run = ferry.cut_over(old, ttl="30d")
        wait_for_state(ferry, run, "take_savepoint", "running")
        since = now_ms()
        flink.wait_until("a savepoint was begun", lambda: savepoint_was_begun(flink, old.id, since))
        # The task doesn't know that it is complete.
        proxy.delay = 30
        path = f"/dags/{DAG}/dagRuns/{quote(run, safe='')}/taskInstances/take_savepoint"
        airflow.api.call("PATCH", path, {"new_state": "failed"})
        wait_for_state(ferry, run, "take_savepoint", "failed")
        proxy.delay = 0

        assert ferry.end_of(run) == "failed"
        assert (old.status, ferry.published()) == ("FINISHED", None)
        assert "the job was stopped with file:" in log_of(airflow, DAG, run, "return_to_old_job")
        assert ferry.running().id == ferry.xcom(run, "return_to_old_job")["job_id"]
        ferry.check_that_nothing_was_lost("mainState")


def kill_task(ferry: Ferry, run: str, task: str, when: Callable[[], bool] = lambda: True) -> None:
    """Kills the process of the task's try at work, as soon as it is time."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            found = ferry.airflow.api.tasks(DAG, run)[task]
        except TimeoutError:
            # On a busy machine an answer may come too late: then it is asked for again.
            continue
        assert found["state"] not in ENDED, ferry.logs(run)
        title = f"airflow worker -- {found['id']}".encode()
        for process in Path("/proc").glob("[0-9]*/cmdline") if when() else ():
            try:
                is_its_own = process.read_bytes().replace(b"\0", b" ").startswith(title)
            except OSError:
                continue
            if is_its_own:
                os.kill(int(process.parent.name), signal.SIGKILL)
                return
        time.sleep(0.05)
    raise TimeoutError(f"no process of {task} was found")
