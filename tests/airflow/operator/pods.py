"""A stand-in for scheduler, kubelet and images: pods of Flink as processes of this machine.

An image has a name and nothing else: the processes get the tests' jars of a Flink and the jobs of `stateferry.totals`.
Of which Flink, the name says if it ends like those of Flink's own images, as in `orders:1-flink-1.20.0`.
The container's arguments and the mounted ConfigMap are those that the operator wrote. All pods have the loopback
address.
"""

from __future__ import annotations

import logging
import shlex
import socket
import threading
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx

from tests.airflow.operator.control_plane import FLINK, NAMESPACE, Body, Cluster, KubeError, Process, until
from tests.flink import jars
from tests.flink.cluster import TASK_MANAGER_MEMORY
from tests.support.fetched_jars import Jars, java_tool
from tests.support.servers import LOOPBACK

MISSING_IMAGE = "orders:missing"
_MAINS = {
    # By `mode: standalone`; then by `mode: native`, where Flink's own client has written the container.
    "jobmanager": "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    "standalone-job": "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint",
    "taskmanager": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
    "kubernetes-application": "org.apache.flink.kubernetes.entrypoint.KubernetesApplicationClusterEntrypoint",
    "kubernetes-taskmanager": "org.apache.flink.kubernetes.taskmanager.KubernetesTaskExecutorRunner",
}
# What of a pod its container may ask to have in its environment.
_FIELDS = {"status.podIP": LOOPBACK, "spec.nodeName": "here"}
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.showDateTime=true")
_HERE: Body = {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": "here"}}
_BACK_OFF = 2.0
_GRACE = 5.0
_log = logging.getLogger(__name__)


def beside_flink(version: str, name: str = "flink-container") -> Jars:
    """What application mode needs beside Flink's other jars; of high availability that is `flink-kubernetes`."""
    pins = Path(__file__).parent / f"jars-{name}-{version}.sha256"
    return Jars(f"{name}-{version}", pins, alone=(f"org.apache.flink:{name}:{version}",))


def hosts(cluster: Cluster, name: str) -> Path:
    """A file that leads a JVM to the services of a FlinkDeployment: to this machine."""
    file = cluster.folder / "hosts"
    file.write_text(f"{LOOPBACK} localhost {socket.gethostname()} {name}.{NAMESPACE} {name}-rest.{NAMESPACE}\n")
    return file


@cache
def _class_path(version: str) -> str:
    flink, classes = jars.totals(version).made()
    more = [beside_flink(version), beside_flink(version, "flink-kubernetes")]
    folders = [flink, *(one.folder() for one in more if one.pins.exists())]
    return ":".join([*(f"{one}/*" for one in folders), str(classes)])


class Pods:
    """Runs the pods of the cluster until it is closed; `hosts` maps the names of services to this machine.

    `version` is the Flink of images whose name says nothing of it.
    """

    def __init__(self, cluster: Cluster, version: str, hosts: Path) -> None:
        self._cluster, self._hosts, self._version = cluster, hosts, version
        self.folder = cluster.folder / "pods"
        self._running: dict[str, Pod] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pods")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for pod in self._running.values():
            pod.end(0)

    def _work(self) -> None:
        while not self._ends.is_set():
            try:
                found = self._cluster.ask("GET", "/api/v1/pods")
                for body in found["items"]:
                    self._see(body)
                for event in self._cluster.watch("/api/v1/pods", found["metadata"]["resourceVersion"], 2):
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self._see(event["object"])
            except (httpx.TransportError, KubeError) as error:
                _log.warning("pods: %s", error)
                time.sleep(0.5)

    def _see(self, body: Body) -> None:
        uid, path = body["metadata"]["uid"], _path(body)
        if body["metadata"].get("deletionTimestamp"):
            if (pod := self._running.pop(uid, None)) is not None:
                pod.end(_GRACE)
            self._quietly("DELETE", path, gracePeriodSeconds="0")
        elif uid not in self._running:
            if not body["spec"].get("nodeName"):
                self._quietly("POST", f"{path}/binding", _HERE | {"metadata": {"name": body["metadata"]["name"]}})
            self._running[uid] = Pod(self, body)

    def start(self, body: Body, folder: Path) -> Process:
        """Starts the container of a pod, as the image's entry point does."""
        (container,) = (one for one in body["spec"]["containers"] if one["name"] == "flink-main-container")
        kind, arguments = _asked_of_the_entry_point(container["args"])
        environment, conf = _environment(container), folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for mount in container["volumeMounts"]:
            if mount["mountPath"].startswith("/opt/flink/conf"):
                self._mount(body, mount["name"], conf)
        heap = environment.get("FLINK_TM_JVM_MEM_OPTS", "-Xmx768m" if kind == "taskmanager" else "-Xmx384m").split()
        if kind == "taskmanager":
            arguments += [word for name, value in TASK_MANAGER_MEMORY.items() for word in ("-D", f"{name}={value}")]
        if kind != "kubernetes-application":
            arguments = ["--configDir", str(conf), *arguments]
        command = [java_tool("java"), *heap, *_JVM, *jars.OPENED]
        version = container["image"].partition("-flink-")[2] or self._version
        command += [f"-Djdk.net.hosts.file={self._hosts}", f"-Djava.io.tmpdir={folder}", "-cp", _class_path(version)]
        # The metadata of high availability is in the cluster, and a native JobManager asks it for TaskManagers.
        here = {"FLINK_CONF_DIR": str(conf), "KUBECONFIG": str(self._cluster.kubeconfig(FLINK))}
        log = folder / f"{kind}.log"
        return Process([*command, _MAINS[kind], *arguments], log, folder=folder, **environment | here)

    def _mount(self, body: Body, name: str, conf: Path) -> None:
        (volume,) = (one for one in body["spec"]["volumes"] if one["name"] == name)
        if "configMap" in volume:
            where = f"/api/v1/namespaces/{body['metadata']['namespace']}/configmaps/{volume['configMap']['name']}"
            # The operator makes the Deployment first.
            for file, text in until(where, lambda: self._cluster.find(where))["data"].items():
                (conf / file).write_text(text)

    def status(self, body: Body, **status: Any) -> None:
        self._quietly("PATCH", f"{_path(body)}/status", {"status": status})

    def _quietly(self, method: str, path: str, body: Body | None = None, **query: str) -> None:
        """What is gone meanwhile needs no change."""
        try:
            self._cluster.ask(method, path, body, **query)
        except KubeError as error:
            if error.status not in (404, 409):
                raise


def _asked_of_the_entry_point(arguments: list[str]) -> tuple[str, list[str]]:
    """What the container runs, and its arguments; natively these are one line for a shell."""
    if arguments[0] == "bash":
        script, *arguments = shlex.split(arguments[2])
        if script == "kubernetes-taskmanager.sh":
            return "kubernetes-taskmanager", arguments
    kind, *arguments = (one.replace("$(_POD_IP_ADDRESS)", LOOPBACK) for one in arguments)
    return kind, arguments


def _environment(container: Body) -> dict[str, str]:
    given: list[Body] = container.get("env", [])
    return {
        one["name"]: one["value"] if "value" in one else _FIELDS[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in given
    }


class Pod:
    """One pod: its container is started again when it ends, unless its owner replaces the pod itself."""

    def __init__(self, pods: Pods, body: Body) -> None:
        self._pods, self._body, self._folder = pods, body, pods.folder / body["metadata"]["name"]
        self._ends = threading.Event()
        self._process: Process | None = None
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def end(self, patience: float) -> None:
        self._ends.set()
        if (process := self._process) is not None:
            process.end(patience)
        self._thread.join()

    def _live(self) -> None:
        restarts = 0
        if self._body["spec"]["containers"][0]["image"] == MISSING_IMAGE:
            why = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{MISSING_IMAGE}"'}
            self._tell("Pending", {"waiting": why}, restarts)
            return
        while not self._ends.is_set():
            self._process = self._pods.start(self._body, self._folder)
            self._tell("Running", {"running": {"startedAt": _now()}}, restarts)
            code = self._process.wait()
            if self._ends.is_set():
                return
            if self._body["spec"].get("restartPolicy") == "Never":
                self._tell("Failed", {"terminated": {"exitCode": code, "reason": "Error"}}, restarts)
                return
            ended, pause = {"terminated": {"exitCode": code, "reason": "Error"}}, _BACK_OFF * restarts
            why = {"reason": "CrashLoopBackOff", "message": f"back-off {pause:g}s restarting failed container"}
            restarts += 1
            # A kubelet restarts it at once the first time.
            self._tell("Running", {"waiting": why} if pause else ended, restarts, ended)
            self._ends.wait(pause)

    def _tell(self, phase: str, state: Body, restarts: int, before: Body | None = None) -> None:
        runs = "running" in state
        kinds: Iterable[str] = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        conditions = [
            {"type": kind, "status": str(runs or kind in ("PodScheduled", "Initialized")), "lastTransitionTime": _now()}
            for kind in kinds
        ]
        container = self._body["spec"]["containers"][0]
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": runs, "state": state}
        self._pods.status(
            self._body, phase=phase, podIP=LOOPBACK, podIPs=[{"ip": LOOPBACK}], conditions=conditions,
            containerStatuses=[status | {"restartCount": restarts, "started": runs, "lastState": before or {}}],
        )  # fmt: skip


def _path(body: Body) -> str:
    return f"/api/v1/namespaces/{body['metadata']['namespace']}/pods/{body['metadata']['name']}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
