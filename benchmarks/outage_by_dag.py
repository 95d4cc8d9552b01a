"""Measures the outage of a cut-over that Airflow runs, beside that of the same cut-over by `stateferry run`.

The DAG runs in a local Airflow, as people trigger it. It rehearses while the job runs; the outage begins when its task
asks Flink to stop the job.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.executing import on_all_cores
from benchmarks.measuring import Outage, Scale, Subject, WrongResultError
from benchmarks.outage import Way, outage_of, state_of_job
from benchmarks.pipeline import entries_in, size_of
from benchmarks.restoring import AT_MOST, MAX_PARALLELISM, PARALLELISM, flink, start
from benchmarks.sections import ENTRIES_PER_KEY
from flinkstate.files.storage import Location
from local_airflow.server import Server, running
from local_airflow.settings import Settings, free_port
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.runs import Run
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob

_WAY = Way("canonical plain → snappy, by stateferry run", "CANONICAL", ("--compression", "snappy"))
_BY_DAG = "canonical plain → snappy, by the DAG"
# When the DAG run has ended, the new job has completed many checkpoints.
_SETTINGS = {"web.checkpoints.history": "10000"}
_DAG, _JOB = "state_migration", "totals"


def measure(scale: Scale) -> Iterator[Outage]:
    """One line for each."""
    keys = max(scale.keys // 10, 1)
    before = state_of_job(scale, keys)
    with on_all_cores():
        by_command, _ = outage_of(_WAY, scale.folder, before, keys)
        by_dag = _by_dag(scale.folder, before, keys * ENTRIES_PER_KEY)
    shutil.rmtree(before)
    yield by_command
    yield replace(by_dag, shorter=by_command.seconds / by_dag.seconds)


def _by_dag(folder: Path, before: Path, entries: int) -> Outage:
    """Cuts over a job that starts from the savepoint `before`, which has so many entries."""
    scratch = folder / "by-dag"
    scratch.mkdir()
    settings = Settings(scratch / "airflow", scratch / "home", free_port())
    with flink(scratch / "flink", _SETTINGS) as cluster, running(settings) as airflow:
        airflow.api.wait_for_dag(_DAG, AT_MOST)
        jar = cluster.upload_jobs()
        job = start(cluster, jar, LEGACY_JOB, before)
        job.wait_until_running(AT_MOST)
        job.wait_for_checkpoints(patience=AT_MOST)
        connection = {"connection_id": _JOB, "conn_type": "flink", "host": "127.0.0.1", "port": cluster.port}
        airflow.api.call("POST", "/connections", connection | {"extra": json.dumps({"patience": 120})})
        run = airflow.api.trigger(_DAG, _request(cluster, jar, job))
        if (state := airflow.api.wait_for_end(_DAG, run, 4 * AT_MOST)) != "success":
            raise WrongResultError(f"the run of the DAG {_DAG} has {state}")
        outage = _outage(airflow, cluster, run)
        if (found := entries_in(Path(_publication(airflow).record.target))) < entries:
            raise WrongResultError(f"expected at least {entries} entries after the cut-over by the DAG, found {found}")
    shutil.rmtree(scratch)
    return outage


def _request(cluster: FlinkCluster, jar: str, job: RemoteJob) -> dict[str, object]:
    return {
        "mode": "cut over",
        "source": "flink",
        "flink_conn_id": _JOB,
        "flink_job": job.id,
        "savepoint_directory": cluster.savepoints.as_uri(),
        "job": _JOB,
        "operator": "main",
        "legacy_state": "mainState",
        "new_state": "newMainState",
        "compression": "snappy",
        "approval": False,
        "start_job": True,
        "jar": jar,
        "entry_class": NEW_JOB,
        "program_args": f"--sink {cluster.folder / 'sink'} --max-parallelism {MAX_PARALLELISM}",
        "job_parallelism": PARALLELISM,
        "start_timeout": f"{AT_MOST:.0f}s",
    }


def _publication(airflow: Server) -> Publication:
    with Control(f"sqlite:///{airflow.settings.stateferry_home}/catalog.db") as control:
        standing = control.standing(_JOB)
    assert standing is not None, "the run has succeeded"
    return standing


def _outage(airflow: Server, cluster: FlinkCluster, run: str) -> Outage:
    ferried = Run.open(Location.of(airflow.api.xcom(_DAG, run, "plan")["folder"]))
    taken, started, published = ferried.facts(SavepointTaken), ferried.facts(JobStarted), _publication(airflow)
    assert taken is not None
    assert started is not None
    # A checkpoint is begun when every subtask runs.
    checkpoints: dict[str, Any] = cluster.get(f"/jobs/{started.job_id}/checkpoints")
    first = min(one["trigger_timestamp"] for one in checkpoints["history"] if one["status"] == "COMPLETED")
    moments = (taken.requested_at, taken.ended_at, published.published_at, first, started.ended_at)
    parts = tuple((later - earlier) / 1000 for earlier, later in pairwise(moments))
    return Outage(_BY_DAG, size_of(Path(published.record.source)), size_of(Path(published.record.target)), parts)


SUBJECT = Subject(
    "The same outage by the command and by the DAG, in a local Airflow, in seconds, on all cores", measure
)
