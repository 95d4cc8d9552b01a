"""A cut-over of a FlinkDeployment that is decided, with stand-ins for Kubernetes, the operator and Flink."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.flink.errors import FlinkError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import FlinkTask, task_key
from stateferry.airflow.kubernetes.api import ApiServer
from stateferry.airflow.requests.planning import Occasion, plan_for
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on import operator, operator_start, places
from stateferry.airflow.runs_on.operator_spec import plain
from stateferry.airflow.runs_on.places import place_of
from stateferry.airflow.runs_on.port import RunsOn
from stateferry.runs.record.runs import Run
from tests.airflow.kubernetes.stand_in import NAME, Body, Kubernetes, StandInOperator
from tests.airflow.state_migration.conftest import AS_OF
from tests.airflow.state_migration.conftest import home as home
from tests.airflow.state_migration.conftest import occasion as occasion
from tests.airflow.state_migration.savepoints import write_metadata
from tests.airflow.state_migration.test_decide import context, decided, rehearsed
from tests.support.operator_crds import schema

# What each job is started with, whatever the operator's defaults say.
AS_PROVEN: Body = {
    "job": {"allowNonRestoredState": False},
    "flinkConfiguration": {
        "execution.state-recovery.ignore-unclaimed-state": "false",
        "execution.savepoint.ignore-unclaimed-state": "false",
        "execution.state-recovery.claim-mode": "NO_CLAIM",
        "execution.savepoint-restore-mode": "NO_CLAIM",
    },
}
OLD_JOB = "0123456789abcdef0123456789abcdef"


def spec_of(**options: str) -> Body:
    return {
        "image": "orders:1",
        "flinkVersion": "v1_20",
        "serviceAccount": "flink",
        "flinkConfiguration": {"taskmanager.numberOfTaskSlots": "2", "state.savepoints.dir": "s3://theirs/", **options},
        "jobManager": {"resource": {"memory": "2048m", "cpu": 1.0}},
        "taskManager": {"resource": {"memory": "2048m", "cpu": 1.0}},
        "job": {
            "jarURI": "local:///opt/flink/usrlib/orders.jar",
            "entryClass": "a.LegacyJob",
            "args": ["--rate", "10"],
            "parallelism": 2,
            "upgradeMode": "last-state",
            "state": "running",
        },
    }


def session_spec_of() -> Body:
    """The same job on a session cluster."""
    spec = spec_of()
    options = {"state.savepoints.dir": spec["flinkConfiguration"]["state.savepoints.dir"]}
    return {"deploymentName": "cluster", "flinkConfiguration": options, "job": spec["job"]}


def asked(tmp_path: Path, **others: object) -> MigrationRequest:
    values = {
        "source": "flink", "flink_job": "orders", "savepoint_directory": str(tmp_path / "savepoints"),
        "operator": "main", "legacy_state": "mainState", "new_state": "newMainState", "start_job": True,
        "runs_on": "kubernetes", "resource": NAME, "namespace": "team",
        "new_spec": '{"image": "orders:2", "job": {"entryClass": "a.NewJob", "args": ["--rate", "10", "--rows"]}}',
    }  # fmt: skip
    return MigrationRequest.model_validate(values | others)


@dataclass
class Flinks:
    """What Flink would say: each job, what it was restored from, and whether it has completed a checkpoint."""

    restored: dict[str, str | None] = field(default_factory=lambda: {OLD_JOB: None})
    checkpointed: set[str] = field(default_factory=set)
    running: str | None = OLD_JOB
    savepoint: TakenSavepoint | None = None
    """With which Flink has stopped a job, whatever the operator says."""

    def stop(self, folder: str, kind: str) -> str:
        savepoint = Path(plain(folder)) / "savepoint-1"
        write_metadata(savepoint, completed_at=AS_OF.timestamp())
        self.running = None
        return str(savepoint)

    def start(self, spec: Body) -> str:
        job = f"{len(self.restored):032x}"
        self.restored[job], self.running = spec["job"]["initialSavepointPath"], job
        return job


class CutOver:
    """A decided cut-over, with all that it changes."""

    def __init__(self, tmp_path: Path, home: Path, occasion: Occasion, version: str, **others: object) -> None:
        self.flinks = Flinks()
        self.request = asked(tmp_path, **others)
        kind, spec = ("FlinkDeployment", spec_of())
        if str(self.request.resource).startswith("flinksessionjob/"):
            kind, spec = ("FlinkSessionJob", session_spec_of())
        resource: Body = {"kind": kind, "metadata": {"name": NAME, "namespace": "team"}, "spec": spec}
        of_kind = schema(version, f"{kind.lower()}s")
        self.kubernetes = Kubernetes(resource, of_kind, schema(version, "flinkstatesnapshots"))
        self.operator = StandInOperator(
            self.kubernetes, lambda *how: self.flinks.stop(*how), lambda spec: self.flinks.start(spec), OLD_JOB
        )
        self.before = json.loads(json.dumps(self.kubernetes.resource["spec"]))
        self.rehearsal = rehearsed(home, occasion.rehearsal(), self.request)
        decided(self.rehearsal)
        self.context: Any = context(self.rehearsal, self.request, occasion)
        ti = self.context["ti"]
        said, self.pushed = ti.xcom_pull(), dict[str, Any]()
        ti.xcom_pull = lambda task_ids, key="return_value": said if task_ids == "plan" else self.pushed.get(key)
        ti.xcom_push = lambda key, value: self.pushed.update({key: value})

    @property
    def spec(self) -> Body:
        found: Body = self.kubernetes.resource["spec"]
        return found

    @property
    def place(self) -> RunsOn:
        """As a task of its own sees it."""
        return place_of(self.request, self.context)

    def order(self, kind: str = "CANONICAL") -> SavepointOrder:
        directory = str(self.request.savepoint_directory)
        return SavepointOrder(task_key(self.context), "orders", directory, stop=True, format=kind)


@pytest.fixture
def cut_over(
    tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., CutOver]]:
    """Makes the cut-over; the CRDs are of the version."""
    stack: list[Any] = []

    def make(version: str = "1.10.0", **others: object) -> CutOver:
        made = CutOver(tmp_path, home, occasion, version, **others)
        serving = made.kubernetes.serving()
        url = serving.__enter__()
        stack.append(serving)
        monkeypatch.setattr(places, "api_server", lambda _: ApiServer(url, patience=2.0))
        flinks = made.flinks

        def wait_for(_: FlinkHook, job: str, goal: Any, **__: Any) -> str:
            if goal.checkpoint:
                flinks.checkpointed.add(job)
            return "RUNNING"

        def restored(_: object, job: str) -> str | None:
            return flinks.restored.get(job)

        def job_id(_: FlinkHook, job: str) -> str:
            if flinks.running is None:
                raise FlinkError("no answer")
            return flinks.running

        monkeypatch.setattr(operator_start.OperatorStart, "_restored", restored)
        monkeypatch.setattr(operator.Operator, "_stopped_in_flink", lambda *_: flinks.savepoint)
        monkeypatch.setattr(FlinkHook, "job_id", job_id)
        monkeypatch.setattr(FlinkHook, "wait_for", wait_for)
        monkeypatch.setattr(FlinkHook, "checkpoint_interval", lambda *_: 1000)
        monkeypatch.setattr(FlinkHook, "has_checkpointed", lambda _, job: job in flinks.checkpointed)
        monkeypatch.setattr(FlinkHook, "job_state", lambda _, job: "RUNNING" if job == flinks.running else "FINISHED")
        monkeypatch.setattr(FlinkHook, "cancel", lambda *_, **__: "CANCELED")
        monkeypatch.setattr(FlinkTask, "show", lambda *_: None)
        return made

    yield make
    for one in stack:
        one.__exit__(None, None, None)


def run_of(made: CutOver, occasion: Occasion, source: str) -> Run:
    """The run that reads the savepoint of the stop."""
    return Run.create(plan_for(made.request, occasion, source), occasion.now)
