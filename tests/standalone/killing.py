"""Kills the Spark application that a run's steps share in the middle of a step, and checks that the step went on."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateferry.runs.control.shared_application import DismissedError, SharedApplication
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF
from stateferry.runs.record.steps import Step
from tests.standalone.migration import DAG, PATIENCE, Migration

STEP, APPLICATION = Step.MIGRATE, "application"
# Not the JVM that was submitted, on whose command line the program is Java.
_DRIVER = re.compile(r"python\S* \S*steps\.py .*--application (\S+)")


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
        driver = driver_at(ferried, STEP)
        done_before = {step: ferried.stored(FACTS_OF[step]) for step in STEP.earlier(rehearses=False)}
        for process in _application(ferried):
            os.kill(process, signal.SIGKILL)
        assert _is_over(driver)
        return cls(migration, run, done_before)

    def check_went_on(self) -> None:
        """The steps before are not done again, and the step succeeded in an application of its own."""
        ferried, log = self.migration.run_of(self.run), self.migration.log(self.run, STEP)
        # If Airflow is quicker than the end of the killed driver, it takes the lease for held.
        waits = "is being worked on by the same run" in log
        assert waits or "the application of the run doesn't answer, or has ended" in log, log
        assert log.count("Spark-Submit cmd") == 1, log
        tasks = self.migration.airflow.api.tasks(DAG, self.run)
        assert tasks[STEP]["try_number"] == 1, log
        assert tasks[APPLICATION]["state"] == "skipped"
        assert "has ended with exit code" in self.migration.log(self.run, APPLICATION)
        assert {step: ferried.stored(FACTS_OF[step]) for step in self.done_before} == self.done_before
        assert [change.state for change in ferried.changes()].count(RunState.FAILED) == 0


def driver_at(run: Run, step: str) -> int:
    """The driver, once it is asked for the step."""
    end = time.monotonic() + PATIENCE
    with SharedApplication(run.plan.catalog_uri, run.folder.shown) as shared:
        while time.monotonic() < end:
            for process in _application(run):
                driver = _DRIVER.search(_command(process))
                with suppress(DismissedError):
                    if driver and (asked := shared.request(driver[1])) is not None and asked.step == step:
                        return process
            time.sleep(0.02)
    raise TimeoutError(f"no driver was asked for {step}")


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
