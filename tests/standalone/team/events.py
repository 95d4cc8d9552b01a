"""What OpenLineage has heard of the tasks of a DAG run, by the listener of Airflow's provider."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from local_airflow.server import Server
from tests.standalone.migration import PATIENCE

Event = dict[str, Any]
Dataset = tuple[str, str]


def ends(airflow: Server, folder: Path, dag: str, run: str) -> dict[str, Event]:
    """How each task of the DAG run that has ended by its own has ended at last, by its name.

    Airflow tells the state of a task before the task's process has told OpenLineage, so that is waited for.
    """
    states = {name: task["state"] for name, task in airflow.api.tasks(dag, run).items()}
    wanted = {name for name, state in states.items() if state in ("success", "failed")}
    until = time.monotonic() + PATIENCE
    while wanted - (found := _ends(folder, dag, run)).keys():
        assert time.monotonic() < until, f"OpenLineage has not heard of {wanted - found.keys()}"
        time.sleep(0.5)
    return found


def _ends(folder: Path, dag: str, run: str) -> dict[str, Event]:
    found: dict[str, Event] = {}
    for event in sorted(_events(folder), key=lambda event: str(event["eventTime"])):
        of_dag, _, task = event["job"]["name"].partition(".")
        if (of_dag, event["eventType"] in ("COMPLETE", "FAIL")) == (dag, True) and task and _run_of(event) == run:
            found[task] = event
    return found


def inputs(event: Event) -> dict[Dataset, Any]:
    """The facets of each dataset that was read."""
    return {(one["namespace"], one["name"]): one.get("inputFacets") or {} for one in event["inputs"]}


def outputs(event: Event) -> dict[Dataset, Any]:
    """The facets of each dataset that was written."""
    return {(one["namespace"], one["name"]): one.get("outputFacets") or {} for one in event["outputs"]}


def _events(folder: Path) -> Iterator[Event]:
    for file in folder.iterdir():
        # One that is about to be written is read the next time.
        with suppress(json.JSONDecodeError):
            yield json.loads(file.read_text())


def _run_of(event: Event) -> str:
    return str(event["run"]["facets"]["airflow"]["dagRun"]["run_id"])
