"""Days that lie in the past, by `airflow backfill`: each rehearses the savepoint that was the newest then."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from local_airflow.server import Server
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from tests.standalone.migration import DAG, PATIENCE, STEPS, Migration, scheduled_run
from tests.standalone.orders import Orders, entries_of

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(3000)]

_TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = [_TODAY - timedelta(days=before) for before in (4, 3, 2)]

_BUSY = ("database is locked", "Another backfill is running")


@pytest.fixture
def nights(airflow: Server, job: str, tmp_path: Path) -> Migration:
    """Of a job whose folder has a savepoint of each day, and of one still to come."""
    for number, day in enumerate([*DAYS, _TODAY + timedelta(days=1)], start=1):
        folder = tmp_path / f"savepoint-{number:06}"
        Orders(number).write(folder)
        completed = (day - timedelta(hours=2)).timestamp()
        os.utime(folder / "_metadata", (completed, completed))
    return Migration(airflow, job, {"source": "folder", "savepoint_folder": str(tmp_path)})


def test_three_days_at_once_after_the_newest_and_the_scheduler_killed(
    nights: Migration, configured: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    configured(json.dumps(nights.params()))
    airflow = nights.airflow
    # The schedule begins with last midnight's run.
    nights.end_of(scheduled_run(airflow))
    _backfill(airflow, DAYS[-1], DAYS[-1])
    (newest,) = _backfill_runs(airflow)
    assert nights.end_of(newest) == "success", nights.told(newest)
    rehearsed = _contents(Path(nights.run_of(newest).staged.path))

    _backfill(airflow, DAYS[0], DAYS[-1], "--max-active-runs", "3", "--reprocess-behavior", "completed")
    runs = _backfill_runs(airflow)
    assert len(runs) == len(DAYS)
    assert runs[-1] == newest
    nights.wait_for(runs[0], "rehearsal.migrate", "running")
    scheduler = psutil.Process(airflow.pid("scheduler"))
    # Its workers end what they do, and wait ever after for somebody to tell them what else.
    request.addfinalizer(partial(_end, scheduler.children()))
    scheduler.kill()
    time.sleep(2)
    airflow.start_component("scheduler")

    for run in runs:
        assert nights.end_of(run) == "success", nights.told(run)
        states = nights.states(run)
        assert {states[task] for task in ("approve", "cut_over", "start_job", "tables")} == {"skipped"}
    ferried = [nights.run_of(run) for run in runs]
    for number, rehearsal in enumerate(ferried, start=1):
        assert rehearsal.plan.rehearse
        assert rehearsal.state is RunState.VERIFIED
        assert rehearsal.plan.source.endswith(f"savepoint-{number:06}")
        assert entries_of(Path(rehearsal.staged.path)) == Orders(number).entries
    assert nights.published() is None
    assert _contents(Path(ferried[-1].staged.path)) == rehearsed
    assert nights.in_tables(ferried[-1]) == Orders(len(DAYS)).entries, "the tables have gone back to an older day"

    _check_days(airflow, {rehearsal.plan.run_id for rehearsal in ferried})
    _check_disjoint(ferried)
    waits = [nights.log(run, task) for run in runs for task in STEPS]
    assert any("waiting: " in log for log in waits), "no run has met another's lease: this test has shown nothing"


def _check_days(airflow: Server, runs: set[str]) -> None:
    """Each day is a partition, also of the day that was rehearsed before."""
    events = airflow.api.get("/assets/events?order_by=-timestamp&limit=100")["asset_events"]
    told = [one for one in events if one["name"] == "stateferry_rehearsed_days" and one["extra"]["run_id"] in runs]
    days = {one["partition_key"]: one["extra"]["tables"] for one in told}
    assert days == {f"{day:%Y-%m-%dT%H:%M:%S}": day == DAYS[-1] for day in DAYS}


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _check_disjoint(ferried: list[Run]) -> None:
    """No two runs have worked on the job at the same time."""
    spans = sorted(span for run in ferried for span in _at_work(run))
    for (_, end, one), (begin, _, other) in pairwise(spans):
        assert end <= begin, f"{other} began before {one} had ended: {spans}"


def _at_work(run: Run) -> Iterator[tuple[int, int, str]]:
    """From the first step to the verdict, each time."""
    began: int | None = None
    for change in run.changes():
        if change.state is RunState.RUNNING and began is None:
            began = change.at
        elif change.state is RunState.VERIFIED and began is not None:
            yield began, change.at, run.plan.run_id
            began = None


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def _backfill(airflow: Server, first: datetime, last: datetime, *options: str) -> None:
    command = [str(airflow.settings.airflow / "bin" / "airflow"), "backfill", "create", "--dag-id", DAG]
    dates = ["--from-date", first.date().isoformat(), "--to-date", last.date().isoformat()]
    end = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(
            [*command, *dates, *options],
            env=airflow.settings.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        # SQLite lets nobody write who has read before another wrote. As people do: the same again.
        if done.returncode == 0 or not any(one in done.stderr for one in _BUSY) or time.monotonic() > end:
            break
        time.sleep(5)
    assert done.returncode == 0, done.stdout + done.stderr


def _backfill_runs(airflow: Server) -> list[str]:
    """By day."""
    runs = airflow.api.get(f"/dags/{DAG}/dagRuns?run_type=backfill&order_by=logical_date")["dag_runs"]
    return [str(run["dag_run_id"]) for run in runs]
