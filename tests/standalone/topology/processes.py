"""A Postgres and a Spark cluster of processes on this machine, as `docker/compose.yaml` has them of containers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from local_airflow.settings import LOOPBACK, free_port

_BIN = Path(sys.executable).parent
_PATIENCE = 400.0
# Postgres refuses to run as root.
_NOBODY = "nobody"


def postgres_programs() -> Path | None:
    """Where `initdb` and `postgres` are: on the path, or where Debian puts them."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders and (folders[-1] / "postgres").exists() else None


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """The address of a server, to which a database's name is to be added: `airflow` and `catalog`."""
    port, user = free_port(), _NOBODY if os.geteuid() == 0 else None
    with TemporaryDirectory(prefix="ferry-postgres-") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        make = ["--pgdata", str(folder / "data"), "--username", "ferry", "--auth", "trust", "--no-sync"]
        subprocess.run([programs / "initdb", *make], check=True, capture_output=True, user=user, cwd=folder)
        listen = ["-D", folder / "data", "-h", LOOPBACK, "-p", port, "-k", folder, "-c", "fsync=off"]
        client = ["--host", LOOPBACK, "--port", str(port), "--username", "ferry"]
        with _process([programs / "postgres", *listen], folder / "log", user=user, cwd=folder):
            ready: list[str | Path] = [programs / "pg_isready", *client]
            _wait(lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0, folder / "log")
            for database in ("airflow", "catalog"):
                subprocess.run([programs / "createdb", *client, database], check=True, capture_output=True)
            yield f"ferry@{LOOPBACK}:{port}"


@dataclass(slots=True)
class SparkCluster:
    """A standalone master and its workers, each with a core."""

    folder: Path
    port: int = field(default_factory=free_port)
    page: int = field(default_factory=free_port)
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    @contextmanager
    def running(self, workers: int) -> Iterator[SparkCluster]:
        self.folder.mkdir(parents=True)
        log = self.folder / "master.log"
        master = [_BIN / "spark-class", "org.apache.spark.deploy.master.Master", "--host", LOOPBACK]
        with _process([*master, "--port", self.port, "--webui-port", self.page], log, env=environment()):
            try:
                _wait(lambda: self._alive() is not None, log)
                for number in range(workers):
                    self.start_worker(number)
                _wait(lambda: self._alive() == workers, log)
                yield self
            finally:
                for number in list(self.workers):
                    self.kill_worker(number)

    def start_worker(self, number: int) -> None:
        command: list[str | Path] = [_BIN / "spark-class", "org.apache.spark.deploy.worker.Worker"]
        command += ["--host", LOOPBACK, "--cores", "1"]
        command += ["--memory", "1g", "--webui-port", str(free_port()), "--work-dir", self.folder / f"worker-{number}"]
        with (self.folder / f"worker-{number}.log").open("wb") as log:
            self.workers[number] = subprocess.Popen(
                [*map(str, command), self.master],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )

    def kill_worker(self, number: int) -> None:
        """The worker, its executors and their Python processes, all at once."""
        worker = self.workers.pop(number)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def applications(self) -> list[str]:
        """The names of all there were, and are."""
        said = self._said()
        return [str(one["name"]) for one in (*said["activeapps"], *said["completedapps"])] if said else []

    def with_a_task_of(self, word: str) -> int | None:
        """A worker in which Python is at work for an application with this word in its name, if there is one now."""
        active = [str(one["name"]) for one in (self._said() or {"activeapps": ()})["activeapps"]]
        if not any(f" {word} " in f" {name} " for name in active):
            return None
        return next((number for number, worker in self.workers.items() if _has_python(worker.pid)), None)

    def _alive(self) -> int | None:
        """How many workers there are, once the master answers."""
        said = self._said()
        return None if said is None else int(said["aliveworkers"])

    def _said(self) -> dict[str, Any] | None:
        # Until the master is ready, its page says so instead of this.
        with (
            suppress(OSError, json.JSONDecodeError),
            urllib.request.urlopen(f"http://{LOOPBACK}:{self.page}/json/", timeout=20) as answer,
        ):
            said: dict[str, Any] = json.load(answer)
            return said
        return None


def _has_python(worker: int) -> bool:
    """An executor starts Python for its first task."""
    with suppress(psutil.NoSuchProcess):
        return any("python" in one.name() for one in psutil.Process(worker).children(recursive=True))
    return False


def submit_conf(cluster: SparkCluster) -> list[str]:
    """What spark-submit is told beside the application."""
    return ["--master", cluster.master, *(f"--conf={name}={value}" for name, value in spark_settings().items())]


def spark_settings() -> dict[str, str]:
    return {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }


def environment() -> dict[str, str]:
    python = str(_BIN / "python")
    return os.environ | {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
    }


@contextmanager
def _process(
    command: Sequence[object],
    log: Path,
    env: dict[str, str] | None = None,
    user: str | None = None,
    cwd: Path | None = None,
) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            user=user,
            cwd=cwd,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(is_ready: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while not is_ready():
        if time.monotonic() > end:
            raise TimeoutError(f"not up after {_PATIENCE:.0f} s: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.3)
