"""Cut-overs under the Flink Kubernetes Operator's own process: `make test-operator`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from airflow.sdk.bases.operator import ExecutorSafeguard

from stateferry.airflow.flink.savepoints import SavepointOrder
from stateferry.airflow.kubernetes.resource import FlinkResource
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.operator_spec import plain
from stateferry.airflow.runs_on.places import check_place, savepoint_of_running_job
from stateferry.airflow.tasks.flink_tasks import StartJob, TakeSavepoint
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.runs import Run
from tests.airflow.flink_provider.conftest import connect
from tests.airflow.kubernetes.conftest import asked
from tests.airflow.operator.control_plane import NAMESPACE, TEAM, Body, Cluster, until
from tests.airflow.operator.flink_operator import VARIABLE, OperatorProcess, crds, flink, version
from tests.airflow.operator.pods import Pods, hosts
from tests.airflow.operator.resources import NAME, application
from tests.airflow.state_migration.conftest import home as home
from tests.airflow.state_migration.conftest import occasion as occasion
from tests.airflow.state_migration.test_decide import context, decided, rehearsed
from tests.flink.remote import NEW_JOB
from tests.standalone.cut_over import purchases
from tests.support.servers import LOOPBACK, free_port, with_us

# Only `make test-operator` has the operator.
collect_ignore_glob = [] if VARIABLE in os.environ else ["test_*"]
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
        _allow_what_the_chart_says(cluster)
        names = hosts(cluster, NAME)
        operator = OperatorProcess(cluster, names)
        with Pods(cluster, flink(), names) as pods:
            try:
                operator.start()
                yield World(cluster, operator, pods)
            finally:
                operator.kill()


def _allow_what_the_docs_say(cluster: Cluster) -> None:
    text = (_REPOSITORY / "docs" / "where-jobs-live.md").read_text()
    (found,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)
    role = yaml.safe_load(found)
    role["rules"][0]["resources"].append("flinksessionjobs")
    cluster.allow("stateferry", role)


def _allow_what_the_chart_says(cluster: Cluster) -> None:
    """The role that the operator's Helm chart gives to the pods of Flink."""
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    of_core = {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": verbs}
    of_apps = {"apiGroups": ["apps"], "resources": ["deployments", "deployments/finalizers"], "verbs": verbs}
    named = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "flink"}}
    cluster.allow("flink", named | {"rules": [of_core, of_apps]})


@dataclass
class CutOver:
    """The job of a resource, and the tasks of a decided cut-over of it."""

    world: World
    kinds: list[str]
    """Of what there is, the job's last."""
    port: int
    folder: Path
    request: MigrationRequest
    rehearsal: Run
    occasion: Occasion
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    shown: list[Body] = field(default_factory=list)
    """The patches that were shown, each of which somebody else applies a moment later."""

    def task(self, name: str) -> Any:
        """The context of a task."""
        here = context(self.rehearsal, self.request, self.occasion)
        said = here["ti"].xcom_pull()

        def pull(task_ids: str, key: str = "return_value") -> Any:
            return said if task_ids == "plan" else self.xcoms.get((task_ids, key))

        def push(key: str, value: Any) -> None:
            self.xcoms[name, key] = value
            if key == "patch":
                self.shown.append(value["spec"])
                threading.Timer(2, self.change, [value["spec"]]).start()

        here["ti"] = SimpleNamespace(**vars(here["ti"]) | {"task_id": name, "xcom_pull": pull, "xcom_push": push})
        return here

    def check(self) -> None:
        """As the task plan does before anything is changed."""
        check_place(self.request, self.task("plan"))

    def rehearse(self) -> Path:
        """The savepoint that a rehearsal takes of the running job."""
        job, folder = str(self.request.flink_job), str(self.request.savepoint_directory)
        order = SavepointOrder((self.occasion.short_id,), job, folder)
        taken = savepoint_of_running_job(self.request.rehearsal(), self.task("rehearsal"), order)
        assert taken.job_id == self.read()["status"]["jobStatus"]["jobId"]
        return Path(plain(taken.location))

    def stop(self) -> dict[str, Any]:
        return TakeSavepoint(task_id=SavepointTaken.name).execute(self.task(SavepointTaken.name))

    def migrate(self) -> str:
        """The migration, with this process's workers in place of Spark's, and what it has published."""
        run = self.run
        command = [str(_PYTHON), "-m", "tests.chaos.command", "run", "--savepoint", run.plan.source, "--job", NAME]
        for name, value in self.request.given_options().items():
            option = f"--{name.replace('_', '-')}"
            command += [option] if value is True else [option, str(value)]
        place = {"STATEFERRY_HOME": str(self.folder / "of-the-command"), "PYTHONPATH": str(_REPOSITORY)}
        subprocess.run([*command, "--target", run.plan.target], check=True, env=os.environ | place, cwd=_REPOSITORY)
        return run.plan.target

    def start(self) -> dict[str, Any]:
        return StartJob(task_id=JobStarted.name).execute(self.task(JobStarted.name))

    def go_back(self) -> dict[str, Any]:
        return ReturnToOldJob(task_id="return_to_old_job").execute(self.task("return_to_old_job"))

    def by_dag(self) -> Body:
        """Runs the DAG in an Airflow of its own; returns what its tasks said."""
        flink = {"conn_type": "flink", "host": LOOPBACK, "port": self.port, "extra": {"patience": 10}}
        connections = {"KUBERNETES_DEFAULT": _connection(self.world.cluster), "FLINK_DEFAULT": flink}
        fixed = {"mode": "cut over", "approval": False, "job": NAME}
        form = self.request.model_dump(exclude_unset=True) | fixed
        (self.folder / "asked.json").write_text(json.dumps({"connections": connections, "form": form}))
        command = [*with_us("TERM"), str(_PYTHON), "-m", "tests.airflow.operator.in_airflow", str(self.folder)]
        path = os.pathsep.join([str(_REPOSITORY), os.environ["PYTHONPATH"]])
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, cwd=_REPOSITORY) as running:
            try:
                assert running.wait() == 0
            finally:
                # It ends Airflow when it is told to end; subprocess.run would kill it.
                running.terminate()
        said: Body = json.loads((self.folder / "said.json").read_text())
        return said

    @property
    def run(self) -> Run:
        return Run.open(self.rehearsal.folder.parent.child(self.occasion.short_id))

    def _path(self, kind: str = "") -> str:
        return f"/apis/flink.apache.org/v1beta1/namespaces/{NAMESPACE}/{(kind or self.kinds[-1]).lower()}s/{NAME}"

    def read(self) -> Body:
        return self.world.cluster.ask("GET", self._path())

    def snapshots(self) -> list[Body]:
        """The savepoints that the operator has taken while a job ran, but for those before a stop."""
        return [one for one in self._all_snapshots() if one["metadata"]["name"].startswith("stateferry-")]

    def _all_snapshots(self) -> list[Body]:
        found: list[Body] = self.world.cluster.ask("GET", self._snapshots)["items"]
        return found

    @property
    def _snapshots(self) -> str:
        return self._path("FlinkStateSnapshot").rpartition("/")[0]

    def delete_snapshots_of_stops(self) -> None:
        """As the operator does after some days."""
        kept = self.snapshots()
        paths = [f"{self._snapshots}/{one['metadata']['name']}" for one in self._all_snapshots() if one not in kept]
        assert paths
        for path in paths:
            self.world.cluster.ask("DELETE", path)
            until("the snapshot is gone", partial(self._is_gone, path))

    def change(self, spec: Body) -> None:
        """As somebody else does."""
        self.world.cluster.ask("PATCH", self._path(), {"spec": spec})

    def delete(self) -> None:
        # Only the operator takes its finalizer from the resource.
        self.world.operator.start()
        for path in map(self._path, reversed(self.kinds)):
            self.world.cluster.ask("DELETE", path)
            until("the resource is gone", partial(self._is_gone, path))
        until("its pods are gone", lambda: not self.world.cluster.ask("GET", "/api/v1/pods")["items"] or None)

    def _is_gone(self, path: str) -> bool | None:
        return self.world.cluster.find(path) is None or None

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
        assert now.error is None
        return now.is_observed and now.lifecycle == "STABLE" and now.job_status.get("state") == "RUNNING"

    def files(self) -> int:
        return len(list((self.folder / "sink").glob("[!.]*")))

    def outage(self) -> float:
        """The longest time in seconds for which the sink has shown nothing."""
        times = sorted(file.stat().st_mtime for file in (self.folder / "sink").glob("[!.]*"))
        return max(later - earlier for earlier, later in pairwise(times))

    def check_that_nothing_was_lost(self, state: str, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Has somebody else suspend the job, and judges what all jobs have shown and what the last one holds.

        Returns the last one's savepoint.
        """
        before = self.files()
        until("the job shows something", lambda: self.files() > before + 4 or None)
        # Else the operator might be content with the metadata of high availability, before it has seen the job run.
        fixed = {"kubernetes.operator.job.upgrade.last-state-fallback.enabled": "false"}
        self.change({"job": {"state": "suspended", "upgradeMode": "savepoint"}, "flinkConfiguration": fixed})
        until("the job is suspended", lambda: self.read()["status"].get("lifecycleState") == "SUSPENDED" or None)
        end = Path(re.sub("^file:/*", "/", self.read()["status"]["jobStatus"]["upgradeSavepointPath"]))
        assert end.name.startswith("savepoint-")
        lines = purchases.shown(self.folder / "sink")
        purchases.check_each_once(lines)
        monkeypatch.setattr("sys.executable", str(_PYTHON))
        monkeypatch.setenv("PYTHONPATH", str(_REPOSITORY))
        assert purchases.entries(end, state) == purchases.expected_entries(lines)
        sys.stdout.write(f"\nthe job stood still for {self.outage():.1f} s\n")
        return end


@pytest.fixture
def cut_over(
    world: World, tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., CutOver]]:
    """Makes resources whose old job runs, and a decided cut-over to the new spec."""
    made: list[CutOver] = []
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    _without_the_other_tasks(monkeypatch)
    (tmp_path / "sink").mkdir()

    def make(
        new_spec: Body | None = None, resources: Callable[[Path, int], list[Body]] = application, **others: object
    ) -> CutOver:
        port = free_port()
        connect(monkeypatch, port, patience=10)
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(_connection(world.cluster)))
        kinds = [str(world.cluster.create(one)["kind"]) for one in resources(tmp_path, port)]
        wanted = json.dumps(new_spec or {"image": "orders:2", "job": {"entryClass": NEW_JOB}})
        fields = {"flink_job": "totals", "resource": f"{kinds[-1].lower()}/{NAME}", "start_timeout": "3m", **others}
        request = asked(tmp_path, new_spec=wanted, **fields)
        rehearsal = rehearsed(home, occasion.rehearsal(), request)
        decided(rehearsal)
        one = CutOver(world, kinds, port, tmp_path, request, rehearsal, occasion)
        made.append(one)
        one.wait_until_it_runs()
        return one

    yield make
    for one in made:
        one.delete()


def _connection(cluster: Cluster) -> Body:
    """Airflow's connection to the cluster, with the role of the docs."""
    extra = {"kube_config_path": str(cluster.kubeconfig(TEAM)), "namespace": NAMESPACE}
    return {"conn_type": "kubernetes", "extra": extra}


def _without_the_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tasks of the DAG would have made sure of."""
    for name in ("wait_for_slots", "wait_until_ready", "wait_until_the_job_may_stop", "publication_of"):
        monkeypatch.setattr(f"stateferry.airflow.tasks.flink_tasks.{name}", lambda *_: None)


def pytest_report_header() -> str:
    return f"Flink Kubernetes Operator {version()}, Flink {flink()}" if VARIABLE in os.environ else ""
