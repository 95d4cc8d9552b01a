"""`python -m benchmarks.restoring SAVEPOINT ...`: how long Flink takes to restore the new job from each savepoint.

Each is restored on a cluster of its own. It prints the seconds until every subtask runs, the processor seconds of the
TaskManager, and what the first checkpoint uploaded. With `--claim` the job claims the savepoint, and so deletes it.
`--beside 'strace -c -f -o calls.txt -p PID'` runs a command that watches the TaskManager meanwhile.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import state_processor
from benchmarks.pipeline import size_of
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import NEW_JOB, RemoteJob

PARALLELISM, MAX_PARALLELISM = 2, 128
AT_MOST = 900.0
_SETTINGS = {
    # What Flink's own configuration file gives a TaskManager.
    "taskmanager.memory.managed.size": "512m",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.timeout": f"{2 * AT_MOST:.0f} s",
    # Else answers over REST are up to three seconds old.
    "web.refresh-interval": "100 ms",
    # The first checkpoint is looked up after others.
    "web.checkpoints.history": "1000",
}


@dataclass(frozen=True, slots=True)
class Restore:
    """Seconds until every subtask runs, and the processor seconds that the TaskManager needed for it.

    Of the first checkpoint the bytes that were uploaded and those of the whole state, and its seconds.
    """

    seconds: float
    user: float
    system: float
    uploaded: int
    state: int
    checkpoint: float


def flink(folder: Path, settings: Mapping[str, str] | None = None) -> FlinkCluster:
    """A cluster for one job of `PARALLELISM`, with the JVM's own settings."""
    settings = {**_SETTINGS, **(settings or {})}
    return FlinkCluster(state_processor.FLINK, folder, slots=PARALLELISM, settings=settings, jvm=())


def start(
    cluster: FlinkCluster, jar: str, entry_class: str, savepoint: Path, *more: object, claims: bool = False
) -> RemoteJob:
    """Starts the job from the savepoint, with more arguments; its sink is in the cluster's folder."""
    sink = cluster.folder / "sink"
    sink.mkdir(exist_ok=True)
    arguments = ("--sink", sink, "--max-parallelism", MAX_PARALLELISM, *more)
    return RemoteJob.start(
        cluster, jar, entry_class, *arguments, savepoint=savepoint, parallelism=PARALLELISM, claims=claims
    )


def restore(
    savepoint: Path, folder: Path, beside: str = "", settings: Mapping[str, str] | None = None, *, claims: bool = False
) -> Restore:
    """Restores the new job once. `beside` is a command that ends with an interrupt, with PID for the TaskManager."""
    with flink(folder, settings) as cluster:
        jar, task_manager = cluster.upload_jobs(), psutil.Process(cluster.pid("taskmanager"))
        watching = subprocess.Popen(shlex.split(beside.replace("PID", str(task_manager.pid)))) if beside else None
        before, began = task_manager.cpu_times(), time.perf_counter()
        job = start(cluster, jar, NEW_JOB, savepoint, claims=claims)
        job.wait_until_running(AT_MOST)
        seconds, after = time.perf_counter() - began, task_manager.cpu_times()
        if watching is not None:
            watching.send_signal(signal.SIGINT)
            watching.wait()
        job.wait_for_checkpoints(1, AT_MOST)
        first = min(cluster.get(f"/jobs/{job.id}/checkpoints")["history"], key=lambda one: int(one["id"]))
    processor = after.user - before.user, after.system - before.system
    size, state = int(first["checkpointed_size"]), int(first["state_size"])
    return Restore(seconds, *processor, size, state, int(first["end_to_end_duration"]) / 1000)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.restoring", description="Measures restores by Flink.")
    parser.add_argument("savepoints", nargs="+", metavar="SAVEPOINT", help="savepoints with the demo's MapState")
    parser.add_argument("--beside", metavar="COMMAND", default="", help="a command that watches the process PID")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], dest="settings", help="a setting of Flink"
    )
    parser.add_argument("--claim", action="store_true", help="the job claims the savepoint, and deletes it some day")
    options = parser.parse_args(argv)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    for savepoint in options.savepoints:
        path = Path(savepoint).absolute()
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            size = size_of(path)
            done = restore(path, Path(folder), options.beside, settings, claims=options.claim)
        sys.stdout.write(
            f"{savepoint}: {size / 1e6:,.0f} MB, {done.seconds:.1f} s; "
            f"processor: {done.user:.1f} s user, {done.system:.1f} s system; first checkpoint: "
            f"{done.uploaded / 1e6:,.1f} of {done.state / 1e6:,.1f} MB, {done.checkpoint:.1f} s\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
