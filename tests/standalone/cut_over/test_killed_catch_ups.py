"""Kills in each part of a cut-over that catches up: copy, catch-ups, stop, final catch-up, publication."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from local_airflow.server import Server
from stateferry.basics.durations import now_ms
from stateferry.runs.record.catch_ups import CatchUps, is_catch_up_of
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, ValidateFacts
from tests.flink.cluster import FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import RemoteJob
from tests.standalone.cut_over.ferry import DAG, Ferry
from tests.standalone.cut_over.test_caught_up import (
    SLOW,
    WANTED,
    WITH_CHECKPOINT,
    check_that_it_was_caught_up_with,
    flink,
)
from tests.standalone.cut_over.test_killed import kill_task
from tests.standalone.cut_over.test_with_airflow import question, wait_for_state
from tests.standalone.migration import answer
from tests.support.facts import kept_facts

__all__ = ["flink"]

pytestmark = [
    pytest.mark.full,
    pytest.mark.airflow,
    pytest.mark.flink,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
]
COPY = ("rehearsal.snapshot", "rehearsal.migrate", "rehearsal.validate")
BEFORE, AGAIN = "rehearsal.catch_up", "rehearsal_again.catch_up"
FINAL = ("snapshot", "migrate", "validate", "cut_over", "start_job")
# Without an older one, right before the stop no other catch-up is made.
OLD_MS = 61_000


def test_kills_in_each_part_lose_nothing(airflow: Server, flink: FlinkCluster, tmp_path: Path) -> None:
    with Proxy(flink.port) as proxy:
        ferry = Ferry.ready(airflow, flink, tmp_path.name, tmp_path, port=proxy.port)
        old = ferry.start_old_job()
        run = decided(ferry, old)
        kill_task(ferry, run, AGAIN)
        kill_task(ferry, run, AGAIN, in_the_middle_of_a_catch_up(ferry, run))
        # Flink's answers are held back, so that the next task is still before the stop when it is killed.
        proxy.delay = 120
        wait_for_state(ferry, run, "take_savepoint", "running")
        kill_task(ferry, run, "take_savepoint")
        assert (old.status, ferry.published()) == ("RUNNING", None)
        # The second try is killed after it has asked for the stop.
        proxy.delay = 0
        kill_task(ferry, run, "take_savepoint", lambda: old.status != "RUNNING")
        for task in FINAL:
            kill_task(ferry, run, task)
        check_that_it_was_caught_up_with(ferry, run)
        tasks = airflow.api.tasks(DAG, run)
        tries = {task: tasks[task]["try_number"] for task in (*COPY, BEFORE, AGAIN, "take_savepoint", *FINAL)}
        assert min(tries.values()) > 1, tries
        assert min(tries[task] for task in (BEFORE, AGAIN, "take_savepoint")) > 2, tries
        ferry.check_that_nothing_was_lost("newMainState")


def decided(ferry: Ferry, old: RemoteJob) -> str:
    """A run that a person has approved, though each of its tasks was killed so far."""
    for _ in range(3):
        # One catch-up is enough, and after that nobody asks Flink for anything.
        run = ferry.cut_over(old, **WANTED, **WITH_CHECKPOINT, approval=True, settle="1h")
        for task in COPY:
            kill_task(ferry, run, task)
        kill_task(ferry, run, BEFORE)
        kill_task(ferry, run, BEFORE, in_the_middle_of_a_catch_up(ferry, run))
        wait_for_state(ferry, run, "decide", "awaiting_input")
        if SLOW not in (body := question(ferry, run)["body"]):
            assert "The cut-over converts only what has changed" in body, ferry.logs(run)
            found = kept_facts(rehearsal_of(ferry, run), CatchUps)
            time.sleep(max(found.done[-1].at + OLD_MS - now_ms(), 0) / 1000)
            answer(ferry.airflow, DAG, run, "Approve", "decide")
            return run
        answer(ferry.airflow, DAG, run, "Reject", "decide")
        ferry.end_of(run)
    pytest.fail(f"the machine is too busy: {body}")


def rehearsal_of(ferry: Ferry, run: str) -> Run:
    return Run.open(Location.of(ferry.xcom(run, "plan")["rehearsal"]))


def in_the_middle_of_a_catch_up(ferry: Ferry, run: str) -> Callable[[], bool]:
    """Says whether one has read its source, and isn't validated."""
    plan = rehearsal_of(ferry, run).plan

    def is_there() -> bool:
        # What is held of a checkpoint is there before the run is.
        found = [one for one in runs_of(plan.home, plan.job) if one.plan is not None]
        opened = [Run.open(one.folder) for one in found if is_catch_up_of(plan.run_id, one.run_id)]
        return any(one.facts(SnapshotFacts) and one.facts(ValidateFacts) is None for one in opened)

    return is_there
