"""A Spark application that is killed in the middle of its step: the next try goes on where it was."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from stateferry.runs.facts import FACTS_OF, Step
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run
from tests.standalone.migration import DAG, PATIENCE, Migration
from tests.standalone.orders import Orders, entries_of

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(3000)]


def test_a_killed_application_goes_on_where_it_was(migration: Migration) -> None:
    run = migration.trigger(approval=False)
    migration.wait_for(run, "rescale", "running")
    ferried = migration.run_of(run)
    driver = _at_work(migration, ferried, "rescale")
    done_before = {step: ferried.stored(FACTS_OF[step]) for step in Step.RESCALE.earlier}
    for process in _application(ferried):
        os.kill(process, signal.SIGKILL)
    assert not Path("/proc", str(driver)).exists() or _is_over(driver)

    assert migration.end_of(run) == "success", migration.told(run)
    tasks, log = migration.airflow.api.tasks(DAG, run), migration.log(run, "rescale")
    # If Airflow is quicker than the end of the killed driver, it takes the lease for held, and no try for lost.
    assert tasks["rescale"]["try_number"] == 2 or "is being worked on by the same run" in log, log
    assert log.count("Spark-Submit cmd") == 2, log
    assert {step: ferried.stored(FACTS_OF[step]) for step in done_before} == done_before
    assert [change.state for change in ferried.changes()].count(RunState.FAILED) == 0
    assert entries_of(Path(ferried.plan.target)) == Orders().entries
    assert migration.in_tables(ferried) == Orders().entries
    publication = migration.published()
    assert publication is not None
    assert publication.record.target == ferried.plan.target


def _at_work(migration: Migration, run: Run, step: str) -> int:
    """The driver, once the job's lease is its own."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        holder = migration.lease_holder() or ""
        for process in _application(run):
            if holder.startswith(f"process {process} ") and f"{step}.py" in _command(process):
                return process
        time.sleep(0.02)
    raise TimeoutError(f"no driver of {step} has taken the lease")


def _application(run: Run) -> list[int]:
    """The JVM that was submitted, the driver, and whatever else was started with the run's folder."""
    processes = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for process in processes if run.folder.shown in _command(process)]


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _is_over(process: int) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if not _command(process):
            return True
        time.sleep(0.05)
    return False
