"""Cut-overs under the Flink Kubernetes Operator's own process: `make test-operator`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from airflow.sdk.bases.operator import ExecutorSafeguard

from stateferry.airflow.kubernetes.api import ApiServer
from stateferry.airflow.kubernetes.resource import FlinkResource
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on import places
from stateferry.airflow.tasks.flink_tasks import StartJob, TakeSavepoint
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.runs import Run
from tests.airflow.flink_provider.conftest import connect
from tests.airflow.kubernetes.conftest import asked
from tests.airflow.operator.control_plane import NAMESPACE, TEAM, Body, Cluster, until
from tests.airflow.operator.flink_operator import VARIABLE, OperatorProcess, crds, version
from tests.airflow.operator.pods import Pods, hosts
from tests.airflow.state_migration.conftest import home as home
from tests.airflow.state_migration.conftest import occasion as occasion
from tests.airflow.state_migration.test_decide import context, decided, rehearsed
from tests.flink.remote import LEGACY_JOB, NEW_JOB
from tests.standalone.cut_over import purchases
from tests.support.servers import LOOPBACK, free_port

# Only `make test-operator` has the operator.
collect_ignore_glob = [] if VARIABLE in os.environ else ["test_*"]
FLINK = "2.3.0"
NAME = "orders"
_REPOSITORY = Path(__file__).parents[3]
# The environment that has Spark and the kernels; Airflow's has neither.
_PYTHON = _REPOSITORY / ".venv" / "bin" / "python"


@dataclass(frozen=True)
class World:
    """What there is besides our code: Kubernetes, the operator, and pods."""

    cluster: Cluster
    operator: OperatorProcess
    pods: Pods


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("kubernetes")
    with Cluster(folder) as cluster:
        cluster.define(crds())
        _allow_what_the_docs_say(cluster)
        names = hosts(cluster, NAME)
        operator = OperatorProcess(cluster, names)
        with Pods(cluster, FLINK, names) as pods:
            try:
                operator.start()
                yield World(cluster, operator, pods)
            finally:
                operator.kill()


def _allow_what_the_docs_say(cluster: Cluster) -> None:
    text = (_REPOSITORY / "docs" / "where-jobs-live.md").read_text()
    (found,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)
    role = yaml.safe_load(found)
    cluster.create(role)
    named = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stateferry"}
    binding = {"apiVersion": role["apiVersion"], "kind": "RoleBinding", "metadata": role["metadata"]}
    cluster.create(binding | {"roleRef": named, "subjects": [user]})


@dataclass
class CutOver:
    """The job of one FlinkDeployment, and the tasks of a decided cut-over of it."""

    world: World
    port: int
    folder: Path
    request: MigrationRequest
    rehearsal: Run
    occasion: Occasion
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)

    def task(self, name: str) -> Any:
        """The context of a task."""
        here = context(self.rehearsal, self.request, self.occasion)
        said = here["ti"].xcom_pull()

        def pull(task_ids: str, key: str = "return_value") -> Any:
            return said if task_ids == "plan" else self.xcoms.get((task_ids, key))

        def push(key: str, value: Any) -> None:
            self.xcoms[name, key] = value

        here["ti"] = SimpleNamespace(**vars(here["ti"]) | {"task_id": name, "xcom_pull": pull, "xcom_push": push})
        return here

    def stop(self) -> dict[str, Any]:
        return TakeSavepoint(task_id=SavepointTaken.name).execute(self.task(SavepointTaken.name))

    def migrate(self) -> str:
        """The migration, with this process's workers in place of Spark's, and what it has published."""
        run = self.run
        states = ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]
        command = [str(_PYTHON), "-m", "tests.chaos.command", "run", "--savepoint", run.plan.source, "--job", NAME]
        place = {"STATEFERRY_HOME": str(self.folder / "of-the-command"), "PYTHONPATH": str(_REPOSITORY)}
        subprocess.run(
            [*command, *states, "--target", run.plan.target], check=True, env=os.environ | place, cwd=_REPOSITORY
        )
        return run.plan.target

    def start(self) -> dict[str, Any]:
        return StartJob(task_id=JobStarted.name).execute(self.task(JobStarted.name))

    def go_back(self) -> dict[str, Any]:
        return ReturnToOldJob(task_id="return_to_old_job").execute(self.task("return_to_old_job"))

    @property
    def run(self) -> Run:
        return Run.open(self.rehearsal.folder.parent.child(self.occasion.short_id))

    @property
    def _path(self) -> str:
        return f"/apis/flink.apache.org/v1beta1/namespaces/{NAMESPACE}/flinkdeployments/{NAME}"

    def read(self) -> Body:
        return self.world.cluster.ask("GET", self._path)

    def change(self, spec: Body) -> None:
        """As somebody else does."""
        self.world.cluster.ask("PATCH", self._path, {"spec": spec})

    def delete(self) -> None:
        # Only the operator takes its finalizer from the resource.
        self.world.operator.start()
        self.world.cluster.ask("DELETE", self._path)
        until("the resource is gone", lambda: self.world.cluster.find(self._path) is None or None)
        until("its pods are gone", lambda: not self.world.cluster.ask("GET", "/api/v1/pods")["items"] or None)

    def flink(self, path: str) -> Any:
        with urlopen(f"http://{LOOPBACK}:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def restored_from(self, job_id: str) -> str:
        found = self.flink(f"/jobs/{job_id}/checkpoints")["latest"]["restored"]["external_path"]
        return re.sub("^file:/*", "/", str(found))

    def wait_until_it_runs(self) -> None:
        """As the operator says of the spec that the resource has now."""
        until("the job is stable", lambda: self._is_stable(FlinkResource(self.read())) or None, 180)
        before = self.files()
        until("the job shows something", lambda: self.files() > before or None)

    def _is_stable(self, now: FlinkResource) -> bool:
        return now.is_observed and now.lifecycle == "STABLE" and now.job_status.get("state") == "RUNNING"

    def files(self) -> int:
        return len(list((self.folder / "sink").glob("[!.]*")))

    def outage(self) -> float:
        """The longest time in seconds for which the sink has shown nothing."""
        times = sorted(file.stat().st_mtime for file in (self.folder / "sink").glob("[!.]*"))
        return max(later - earlier for earlier, later in pairwise(times))

    def check_that_nothing_was_lost(self, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has somebody else suspend the job, and judges what all jobs have shown and what the last one holds."""
        before = self.files()
        until("the job shows something", lambda: self.files() > before + 4 or None)
        folder = self.folder / "at-the-end"
        options = {"execution.checkpointing.savepoint-dir": folder.as_uri()}
        self.change({"job": {"state": "suspended", "upgradeMode": "savepoint"}, "flinkConfiguration": options})
        until("the job is suspended", lambda: self.read()["status"].get("lifecycleState") == "SUSPENDED" or None)
        (end,) = folder.iterdir()
        lines = purchases.shown(self.folder / "sink")
        purchases.check_each_once(lines)
        monkeypatch.setattr("sys.executable", str(_PYTHON))
        monkeypatch.setenv("PYTHONPATH", str(_REPOSITORY))
        assert purchases.entries(end, state) == purchases.expected_entries(lines)
        sys.stdout.write(f"\nthe job stood still for {self.outage():.1f} s\n")


@pytest.fixture
def cut_over(
    world: World, tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., CutOver]]:
    """Makes a FlinkDeployment whose old job runs, and a decided cut-over to the new spec."""
    made: list[CutOver] = []
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    _without_the_other_tasks(monkeypatch)
    (tmp_path / "sink").mkdir()

    def make(new_spec: Body | None = None) -> CutOver:
        port = free_port()
        connect(monkeypatch, port, patience=10)
        of_team = {"Authorization": f"Bearer {TEAM}"}
        server = ApiServer(world.cluster.url, lambda: of_team, world.cluster.tls())
        monkeypatch.setattr(places, "api_server", lambda _: server)
        kind = {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "metadata": {"name": NAME}}
        world.cluster.create(kind | {"spec": _spec(tmp_path, port)})
        wanted = json.dumps(new_spec or {"image": "orders:2", "job": {"entryClass": NEW_JOB}})
        request = asked(tmp_path, flink_job="totals", new_spec=wanted, start_timeout="3m")
        rehearsal = rehearsed(home, occasion.rehearsal(), request)
        decided(rehearsal)
        one = CutOver(world, port, tmp_path, request, rehearsal, occasion)
        made.append(one)
        one.wait_until_it_runs()
        return one

    yield make
    for one in made:
        one.delete()


def _without_the_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tasks of the DAG would have made sure of."""
    for name in ("wait_for_slots", "wait_until_ready", "wait_until_the_job_may_stop", "publication_of"):
        monkeypatch.setattr(f"stateferry.airflow.tasks.flink_tasks.{name}", lambda *_: None)


def _spec(folder: Path, port: int) -> Body:
    fixed = {f"{name}.bind-host": LOOPBACK for name in ("jobmanager", "taskmanager")}
    ports = {name: str(free_port()) for name in ("jobmanager.rpc.port", "blob.server.port", "taskmanager.rpc.port")}
    options = {
        "taskmanager.numberOfTaskSlots": "4",
        "rest.port": str(port),
        "rest.bind-address": LOOPBACK,
        "taskmanager.host": LOOPBACK,
        "web.refresh-interval": "50",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.savepoint-dir": (folder / "theirs").as_uri(),
        "restart-strategy.type": "none",
    }
    memory = {"resource": {"memory": "2048m", "cpu": 1.0}}
    job = {
        "jarURI": "local:///opt/flink/usrlib/orders.jar",
        "entryClass": LEGACY_JOB,
        "args": ["--sink", str(folder / "sink")],
        "parallelism": 2,
        "upgradeMode": "savepoint",
        "state": "running",
    }
    return {
        "image": "orders:1",
        "flinkVersion": f"v{FLINK.rpartition('.')[0].replace('.', '_')}",
        "mode": "standalone",
        "serviceAccount": "flink",
        "flinkConfiguration": options | fixed | ports,
        "jobManager": memory,
        "taskManager": memory,
        "job": job,
    }


def pytest_report_header() -> str:
    return f"Flink Kubernetes Operator {version()}, Flink {FLINK}" if VARIABLE in os.environ else ""
