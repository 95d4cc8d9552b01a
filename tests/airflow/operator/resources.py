"""The resources of a team: a FlinkDeployment in application mode, or a session cluster and a FlinkSessionJob on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.airflow.operator.control_plane import Body
from tests.airflow.operator.flink_operator import flink
from tests.airflow.operator.pods import beside_flink
from tests.flink import jars
from tests.flink.remote import LEGACY_JOB
from tests.support.servers import LOOPBACK, free_port

NAME = "orders"
FLINK_1 = "1.20.0"
# What the run of a job `of_flink_1` is told.
UPGRADED = {"to": "flink-2", "ttl": "30d", "declared": "beside/recent.totals=List<String>"}
ROLLBACK = "kubernetes.operator.deployment.rollback.enabled"


def application(folder: Path, port: int) -> list[Body]:
    """The old job's FlinkDeployment; its sink is in the folder, and its REST API at the port."""
    job = _job(folder, "local:///opt/flink/usrlib/orders.jar")
    return [_resource("FlinkDeployment", _cluster(folder, port) | {"job": job})]


def of_flink_1(folder: Path, port: int) -> list[Body]:
    """The same, as a job of Flink 1.20 that keeps, beside its map, what Flink 2 would read wrongly."""
    job = _job(folder, "local:///opt/flink/usrlib/orders.jar")
    job["args"] += ["--ttl-days", "30", "--declared", "hint", "--beside", "yes"]
    cluster = _cluster(folder, port, FLINK_1) | {"image": f"orders:1-flink-{FLINK_1}"}
    return [_resource("FlinkDeployment", cluster | {"job": job})]


def highly_available(folder: Path, port: int) -> list[Body]:
    """The same, but Kubernetes keeps for another JobManager where its job goes on."""
    (one,) = application(folder, port)
    kept = {"high-availability.type": "kubernetes", "high-availability.storageDir": (folder / "ha").as_uri()}
    one["spec"]["flinkConfiguration"] |= kept
    return [one]


def rolled_back_by_operator(folder: Path, port: int) -> list[Body]:
    """The same, but the operator goes back to the last spec that was stable if another one isn't within a second."""
    (one,) = highly_available(folder, port)
    one["spec"]["flinkConfiguration"] |= {ROLLBACK: "true", "kubernetes.operator.deployment.readiness.timeout": "1 s"}
    return [one]


def native(folder: Path, port: int) -> list[Body]:
    """The old job's FlinkDeployment in the mode by which Flink itself asks Kubernetes for TaskManagers."""
    (one,) = application(folder, port)
    return [_natively(one, jar(folder, flink()))]


def native_of_flink_1(folder: Path, port: int) -> list[Body]:
    """The job of Flink 1.20 in that mode."""
    (one,) = of_flink_1(folder, port)
    return [_natively(one, jar(folder, FLINK_1))]


def _natively(one: Body, jar: Path) -> Body:
    # The CRD's default.
    del one["spec"]["mode"]
    one["spec"]["job"]["jarURI"] = f"local://{jar}"
    return one


def session(folder: Path, port: int) -> list[Body]:
    """The same job on a session cluster: the cluster, and the job's resource of the same name."""
    job = {"deploymentName": NAME, "job": _job(folder, jar(folder, flink()).as_uri())}
    return [_resource("FlinkDeployment", _cluster(folder, port)), _resource("FlinkSessionJob", job)]


def jar(folder: Path, version: str) -> Path:
    """The jar of the jobs, compiled for that Flink, where the program is loaded from it."""
    _, classes = jars.totals(version).made()
    # Flink takes no file of another name.
    made, name = shutil.make_archive(str(folder / "orders"), "zip", classes), f"orders-{version}.jar"
    return Path(made).rename(folder / name)


def _resource(kind: str, spec: Body) -> Body:
    return {"apiVersion": "flink.apache.org/v1beta1", "kind": kind, "metadata": {"name": NAME}, "spec": spec}


def _job(folder: Path, jar: str) -> Body:
    return {
        "jarURI": jar,
        "entryClass": LEGACY_JOB,
        "args": ["--sink", str(folder / "sink")],
        "parallelism": 2,
        "upgradeMode": "savepoint",
        "state": "running",
    }


def skip_unless_fit(resources: object) -> None:
    """Skips the test if the operator has no Flink that these resources need."""
    if resources in (of_flink_1, native_of_flink_1) and flink().startswith("1."):
        pytest.skip(f"this operator is given no Flink 2, but {flink()}")
    needed = resources in (highly_available, native, native_of_flink_1, rolled_back_by_operator)
    if needed and not beside_flink(flink(), "flink-kubernetes").pins.exists():
        pytest.skip(f"flink-kubernetes of Flink {flink()} isn't pinned")


def flink_version(version: str) -> str:
    """As the operator calls the line of a Flink."""
    return f"v{version.rpartition('.')[0].replace('.', '_')}"


def _cluster(folder: Path, port: int, version: str = "") -> Body:
    version = version or flink()
    fixed = {f"{name}.bind-host": LOOPBACK for name in ("jobmanager", "taskmanager")}
    ports = {name: str(free_port()) for name in ("jobmanager.rpc.port", "blob.server.port", "taskmanager.rpc.port")}
    # By the names that operators of that time ask for.
    is_newer = not version.startswith("1.")
    of_checkpoints = "execution.checkpointing.dir" if is_newer else "state.checkpoints.dir"
    of_savepoints = "execution.checkpointing.savepoint-dir" if is_newer else "state.savepoints.dir"
    options = {
        "taskmanager.numberOfTaskSlots": "4",
        "rest.port": str(port),
        "rest.bind-address": LOOPBACK,
        "taskmanager.host": LOOPBACK,
        "web.refresh-interval": "50",
        "state.backend.type": "rocksdb",
        of_checkpoints: (folder / "checkpoints").as_uri(),
        of_savepoints: (folder / "theirs").as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "none",
    }
    memory = {"resource": {"memory": "2048m", "cpu": 1.0}}
    return {
        "image": "orders:1",
        "flinkVersion": flink_version(version),
        "mode": "standalone",
        "serviceAccount": "flink",
        "flinkConfiguration": options | fixed | ports,
        "jobManager": memory,
        "taskManager": memory,
    }


def put_back(before: Body, savepoint: str) -> Body:
    """The spec of an old job that a run has started again: as it was, but it needs all state and claims none."""
    # The second nonce of the run: the first one was that of the new job.
    started = {"allowNonRestoredState": False, "initialSavepointPath": savepoint, "savepointRedeployNonce": 2}
    options = {
        "execution.state-recovery.ignore-unclaimed-state": "false",
        "execution.savepoint.ignore-unclaimed-state": "false",
        "execution.state-recovery.claim-mode": "NO_CLAIM",
        "execution.savepoint-restore-mode": "NO_CLAIM",
    }
    return before | {
        "job": before["job"] | started,
        "flinkConfiguration": before.get("flinkConfiguration", {}) | options,
    }
