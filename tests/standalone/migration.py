"""One job and the DAG runs that ferry its state, seen over Airflow's REST API and in what they leave behind."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from local_airflow.api import ENDED, RequestRefusedError
from local_airflow.server import Server
from stateferry.changes.rules import Rules
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.record.runs import Run
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.reads import read_current
from stateferry.tables.iceberg.schemas import StateTables
from stateferry.tables.versions import chunk_files
from tests.standalone.orders import Entries
from tests.support.legacy_states import FLAG, LEGACY, NEW

DAG, ROLLBACK = "state_migration", "state_rollback"
# On a busy machine a step of Spark takes two minutes, and a run waits for the one before it.
PATIENCE = 1200.0
BEFORE_PUBLICATION = ("snapshot", "migrate", "rescale", "validate")
STEPS = tuple(f"rehearsal.{step}" for step in (*BEFORE_PUBLICATION, "tables"))


@dataclass(slots=True)
class Migration:
    airflow: Server
    job: str
    source: dict[str, object]

    def params(self, **others: object) -> dict[str, object]:
        names = {"job": self.job, "operator": "main", "legacy_state": LEGACY, "new_state": NEW, "flag_state": FLAG}
        return {**self.source, **names, **others}

    def trigger(self, **params: object) -> str:
        return self.airflow.api.trigger(DAG, self.params(**params))

    def end_of(self, run: str) -> str:
        return self.airflow.api.wait_for_end(DAG, run, PATIENCE)

    def wait_for(self, run: str, task: str, state: str) -> None:
        """Fails at once when the run ends without it."""
        tasks = self.airflow.api.wait(
            DAG, run, lambda tasks, of_run: tasks.get(task, {}).get("state") == state or of_run in ENDED, PATIENCE
        )
        assert tasks[task]["state"] == state, self.told(run)

    def answer(self, run: str, option: str) -> None:
        answer(self.airflow, DAG, run, option)

    def question(self, run: str) -> dict[str, Any]:
        details: dict[str, Any] = self.airflow.api.get(f"{_path(run)}/taskInstances/approve/-1/hitlDetails")
        return details

    def states(self, run: str) -> dict[str, str]:
        return {name: task["state"] for name, task in self.airflow.api.tasks(DAG, run).items()}

    def told(self, run: str) -> str:
        """Every log of every task."""
        return "\n".join(f"--- {task}\n{self.log(run, task)}" for task in self.states(run))

    def log(self, run: str, task: str) -> str:
        return log_of(self.airflow, DAG, run, task)

    def xcom(self, run: str, task: str) -> Any:
        return self.airflow.api.xcom(DAG, run, task)

    def run_of(self, run: str) -> Run:
        return Run.open(Location.of(self.xcom(run, "plan")["folder"]))

    def published(self) -> Publication | None:
        with self._control() as control:
            return control.standing(self.job)

    def lease_holder(self) -> str | None:
        with self._control() as control:
            lease = control.lease_of(self.job)
        return lease.holder if lease is not None else None

    def in_tables(self, run: Run) -> Entries:
        """What the tables say, each entry once."""
        home = TableHome(run.plan.catalog_uri, run.plan.warehouse)
        source = Savepoint.open(run.plan.source)
        rules = Rules(source.state(source.operator("main"), LEGACY), NEW, FLAG, ttl=None, now=0)
        found: Entries = {}
        for files in chunk_files(home, StateTables(self.job, "main", NEW), "main"):
            for batch in read_current(files, rules):
                for row in batch.to_pylist():
                    assert (row["key"], row["user_key"]) not in found
                    found[row["key"], row["user_key"]] = row["value"]
        return found

    def _control(self) -> Control:
        return Control(f"sqlite:///{self.airflow.settings.stateferry_home}/catalog.db")


def scheduled_run(airflow: Server, dag: str = DAG) -> str:
    """The one that the schedule has made, as soon as there is one."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if airflow.api.has_dag(dag) and (runs := scheduled_runs(airflow, dag)):
            return runs[0]
        time.sleep(1)
    raise TimeoutError("the schedule has made no run")


def reparse(airflow: Server) -> None:
    """Has Airflow read the DAG file again, and waits until it has."""
    dag = airflow.api.get(f"/dags/{DAG}/details")
    before = dag["last_parsed_time"]
    airflow.api.call("PUT", f"/parseDagFile/{dag['file_token']}")
    end = time.monotonic() + PATIENCE
    while airflow.api.get(f"/dags/{DAG}/details")["last_parsed_time"] == before:
        assert time.monotonic() < end, "Airflow has not read the DAG file again"
        time.sleep(0.5)


def scheduled_runs(airflow: Server, dag: str = DAG) -> list[str]:
    """What the schedule has made so far."""
    return [str(run["dag_run_id"]) for run in airflow.api.get(f"/dags/{dag}/dagRuns?run_type=scheduled")["dag_runs"]]


def answer(airflow: Server, dag: str, run: str, option: str, task: str = "approve") -> None:
    """Gives a person's answer as soon as Airflow takes it."""
    wait_for_question(airflow, dag, run, task)
    airflow.api.answer(dag, run, task, option)


def wait_for_question(airflow: Server, dag: str, run: str, task: str = "approve") -> None:
    """Waits until the question can be answered: until the scheduler has noticed that the process that asked has ended.

    The scheduler takes an earlier answer for a failure of that process, and the question is asked again.
    """
    tasks = airflow.api.wait(dag, run, lambda tasks, _: tasks[task]["state"] == "awaiting_input", PATIENCE)
    key = f"dag_id='{dag}', task_id='{task}', run_id='{run}', try_number={tasks[task]['try_number']}, "
    noticed = f"Received executor event with state success for task instance TaskInstanceKey({key}"
    end = time.monotonic() + PATIENCE
    while noticed not in airflow.log_of("scheduler").read_text(errors="replace"):
        assert time.monotonic() < end, f"the scheduler's log does not say: {noticed}"
        time.sleep(0.5)


def log_of(airflow: Server, dag: str, run: str, task: str) -> str:
    """Of every try that has begun, with the reasons of what failed."""
    last = airflow.api.tasks(dag, run)[task]["try_number"]
    path = f"/dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/logs"
    lines: list[Mapping[str, Any]] = []
    for number in range(1, last + 1):
        try:
            lines += airflow.api.get(f"{path}/{number}?full_content=true")["content"]
        except RequestRefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
    return "\n".join(text for line in lines for text in (line["event"], *_reasons(line)))


def _reasons(line: Mapping[str, Any]) -> list[str]:
    return [f"{error['exc_type']}: {error['exc_value']}" for error in line.get("error_detail") or []]


def _path(run: str) -> str:
    return f"/dags/{DAG}/dagRuns/{quote(run, safe='')}"
