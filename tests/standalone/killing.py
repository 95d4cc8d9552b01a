"""Kills a step's Spark application in the middle of its work, and checks that the next try went on where it was."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateferry.runs.facts import FACTS_OF, Step
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run
from tests.standalone.migration import DAG, PATIENCE, Migration

STEP = Step.RESCALE


@dataclass(frozen=True, slots=True)
class Killed:
    """A DAG run whose Spark application was killed."""

    migration: Migration
    run: str
    done_before: dict[Step, Any]

    @classmethod
    def at_work(cls, migration: Migration, run: str) -> Killed:
        """Waits until the application is at work, and kills all of its processes."""
        migration.wait_for(run, STEP, "running")
        ferried = migration.run_of(run)
        driver = _at_work(migration, ferried, STEP)
        done_before = {step: ferried.stored(FACTS_OF[step]) for step in STEP.earlier(rehearses=False)}
        for process in _application(ferried):
            os.kill(process, signal.SIGKILL)
        assert not Path("/proc", str(driver)).exists() or _is_over(driver)
        return cls(migration, run, done_before)

    def check_went_on(self) -> None:
        """The steps before are not done again, and the step succeeded in a second application."""
        ferried, log = self.migration.run_of(self.run), self.migration.log(self.run, STEP)
        tasks = self.migration.airflow.api.tasks(DAG, self.run)
        # If Airflow is quicker than the end of the killed driver, it takes the lease for held, and no try for lost.
        assert tasks[STEP]["try_number"] == 2 or "is being worked on by the same run" in log, log
        assert log.count("Spark-Submit cmd") == 2, log
        assert {step: ferried.stored(FACTS_OF[step]) for step in self.done_before} == self.done_before
        assert [change.state for change in ferried.changes()].count(RunState.FAILED) == 0


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
