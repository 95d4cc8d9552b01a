"""A Flink cluster of processes on loopback: JobManager, TaskManager and, where the JobManager is to remember its jobs
when it comes back, ZooKeeper.

`python -m tests.flink.cluster 2.3.0 FOLDER` keeps one running until it is stopped, for a look at it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.flink import jars
from tests.support.fetched_jars import java_tool
from tests.support.hdfs_server import HdfsServer
from tests.support.s3_server import S3Server
from tests.support.servers import LOOPBACK, Server, free_port, listens, with_us

PATIENCE = 300.0
_POLL = 0.1
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_ZOOKEEPER = "org.apache.flink.runtime.zookeeper.FlinkZooKeeperQuorumPeer"
# What the start script would have reckoned out.
TASK_MANAGER_MEMORY = {
    "taskmanager.cpu.cores": "2",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}
# Tests start many clusters for a short time: the JVM starts quickly, and compiles less well.
_SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ClusterError(Exception):
    """The cluster didn't do what was asked of it; the message is in Flink's words."""


class WaitedTooLongError(ClusterError):
    """What was waited for didn't happen in time."""


class FlinkCluster(Server):
    """Everything it writes is in `folder`, which outlives it; its processes don't, and neither do they outlive us.

    With `high_availability` a JobManager that comes back goes on with its jobs from their newest checkpoints; without,
    it knows of none. `jvm` are options of all JVMs. With a `store`, savepoints and checkpoints are there.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        slots: int = 8,
        high_availability: bool = False,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = _SHORT_LIVED,
        store: S3Server | HdfsServer | None = None,
    ) -> None:
        self.version = version
        self.folder = folder
        self.savepoints = folder / "savepoints"
        self.checkpoints = folder / "checkpoints"
        self.port = free_port()
        self.rest_url = f"http://{LOOPBACK}:{self.port}"
        self._slots = slots
        self._zookeeper_port = free_port() if high_availability else None
        self._settings = dict(settings or {})
        self._jvm = tuple(jvm)
        self._store = store
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for name in ("conf", "tmp", "uploads/flink-web-upload", "savepoints", "checkpoints"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "conf" / "config.yaml").write_text(
            "".join(f"{name}: {value}\n" for name, value in self._configuration().items())
        )
        if self._zookeeper_port is not None:
            self._start_zookeeper(self._zookeeper_port)
        if isinstance(self._store, S3Server):
            # Flink loads a file system from a folder of its own, with a class loader of its own.
            (self.folder / "plugins").mkdir(exist_ok=True)
            shutil.copytree(jars.s3_plugin(self.version).folder(), self.folder / "plugins" / "s3", dirs_exist_ok=True)
        self.start_job_manager()
        self.start_task_manager()

    @property
    def savepoints_uri(self) -> str:
        """The folder of savepoints as Flink is told of it."""
        return self.savepoints.as_uri() if self._store is None else self._store.uri("flink", "savepoints")

    def close(self) -> None:
        for name in list(self._running):
            self._kill(name)

    def start_job_manager(self) -> None:
        self._launch("jobmanager", 384, _JOB_MANAGER, "--configDir", self.folder / "conf")
        self.wait_until("the JobManager answers", lambda: self._ask_or_none("GET", "/overview") is not None)

    def kill_job_manager(self) -> None:
        self._kill("jobmanager")

    def start_task_manager(self) -> None:
        self._launch("taskmanager", 768, _TASK_MANAGER, "--configDir", self.folder / "conf")
        self.wait_until(
            "the TaskManager's slots are known",
            lambda: (self._ask_or_none("GET", "/overview") or {}).get("slots-total") == self._slots,
        )

    def pid(self, name: str) -> int:
        """The process of `jobmanager` or `taskmanager`."""
        return self._running[name].pid

    def kill_task_manager(self) -> None:
        self._kill("taskmanager")

    def upload(self, jar: Path) -> str:
        """The id under which the cluster knows the jar."""
        boundary = uuid.uuid4().hex
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{jar.name}"\r\n'
        head += "Content-Type: application/java-archive\r\n\r\n"
        body = head.encode() + jar.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        answer = self._send("POST", "/jars/upload", body, f"multipart/form-data; boundary={boundary}")
        return str(answer["filename"]).rpartition("/")[2]

    def upload_jobs(self) -> str:
        """The jobs of the package `stateferry.totals`, as a jar that is uploaded already: its id."""
        return self.upload(self.jobs_jar())

    def jobs_jar(self) -> Path:
        _, classes = jars.totals(self.version).made()
        jar = self.folder / "totals.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for file in sorted(classes.rglob("*.class")):
                archive.write(file, file.relative_to(classes))
        return jar

    def get(self, path: str) -> Any:
        return self._send("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self._send("POST", path, json.dumps({} if body is None else body).encode())

    def patch(self, path: str) -> Any:
        return self._send("PATCH", path)

    def wait_until(self, what: str, reached: Callable[[], bool], patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not reached():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise ClusterError(
                        f"{name} ended, exit code {process.returncode}, before {what}:\n{self.log(name)}"
                    )
            if time.monotonic() > end:
                raise WaitedTooLongError(f"waited {patience} s until {what}:\n{self.log('jobmanager')}")
            time.sleep(_POLL)

    def log(self, name: str, characters: int = 4000) -> str:
        """The end of what `jobmanager`, `taskmanager` or `zookeeper` has to say."""
        file = self._log(name)
        return file.read_text(errors="replace")[-characters:] if file.exists() else ""

    def _configuration(self) -> dict[str, str]:
        checkpoints = self.checkpoints.as_uri()
        configuration = {
            "jobmanager.rpc.address": LOOPBACK,
            "jobmanager.rpc.port": str(free_port()),
            "jobmanager.bind-host": LOOPBACK,
            "taskmanager.host": LOOPBACK,
            "taskmanager.bind-host": LOOPBACK,
            "rest.address": LOOPBACK,
            "rest.bind-address": LOOPBACK,
            "rest.port": str(self.port),
            "web.upload.dir": str(self.folder / "uploads"),
            "io.tmp.dirs": str(self.folder / "tmp"),
            "taskmanager.numberOfTaskSlots": str(self._slots),
            **TASK_MANAGER_MEMORY,
            # A machine may be busy with other tests; a dead process is noticed by its connection all the same.
            "heartbeat.interval": "2000",
            "heartbeat.timeout": "60000",
            "pekko.ask.timeout": "60 s",
            "state.backend.type": "rocksdb",
            "state.checkpoints.dir": checkpoints,
            "state.savepoints.dir": self.savepoints_uri,
            "restart-strategy.type": "none",
        }
        if self._zookeeper_port is not None:
            configuration |= {
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": f"{LOOPBACK}:{self._zookeeper_port}",
                "high-availability.storageDir": (self.folder / "ha").as_uri(),
                "high-availability.zookeeper.client.session-timeout": "5000",
            }
        if self._store is not None:
            configuration["state.checkpoints.dir"] = self._store.uri("flink", "checkpoints")
        if isinstance(self._store, S3Server):
            configuration |= {
                "s3.endpoint": self._store.url,
                "s3.endpoint.region": self._store.region,
                "s3.path.style.access": "true",
            }
        return configuration | self._settings

    def _start_zookeeper(self, port: int) -> None:
        file = self.folder / "conf" / "zoo.cfg"
        file.write_text(f"clientPort={port}\nclientPortAddress={LOOPBACK}\ndataDir={self.folder / 'zookeeper'}\n")
        self._launch("zookeeper", 128, _ZOOKEEPER, "--zkConfigFile", file, "--peerId", 1)
        self.wait_until("ZooKeeper listens", lambda: listens(port))

    def _launch(self, name: str, heap_mb: int, main: str, *arguments: object) -> None:
        if name in self._running:
            raise ClusterError(f"{name} is running already")
        flink, _ = jars.totals(self.version).made()
        options = [f"-Xmx{heap_mb}m", *self._jvm, *jars.OPENED]
        options += [f"-Djava.io.tmpdir={self.folder / 'tmp'}", "-Dzookeeper.admin.enableServer=false"]
        options += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        class_path = f"{flink}/*"
        if isinstance(self._store, HdfsServer):
            class_path += f":{self._store.client_class_path}"
        command = [*with_us(), java_tool("java"), *options, "-cp", class_path, main, *map(str, arguments)]
        place = {} if self._store is None else self._store.environment
        with self._log(name).open("ab") as log:
            # In its own folder: Flink looks for plugins beside where it is.
            self._running[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **place},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _kill(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _ask_or_none(self, method: str, path: str) -> Any:
        try:
            return self._send(method, path)
        except (ClusterError, OSError):
            return None

    def _send(self, method: str, path: str, body: bytes | None = None, type_: str = "application/json") -> Any:
        headers = {"Content-Type": type_} if body is not None else {}
        request = urllib.request.Request(self.rest_url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise ClusterError(f"{method} {path}: {error.code}: {error.read().decode()}") from None
        return json.loads(text) if text else None


def _main() -> None:
    version, folder = sys.argv[1:]
    with FlinkCluster(version, Path(folder), high_availability=True) as cluster:
        sys.stdout.write(f"{cluster.rest_url}\njar {cluster.upload_jobs()}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    _main()
