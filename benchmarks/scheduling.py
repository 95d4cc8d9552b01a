"""Measures what Spark costs beside the work: a driver's memory and processor time with the tasks that 10 TB have.

A standalone cluster of two processes with one core each gets the tasks of a snapshot of `benchmarks/planning.py`'s
savepoint, and gives back results as large as real ones. Only the reading is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from pyspark import SparkContext

from benchmarks.executing import on_all_cores
from benchmarks.measuring import Comparison, Execution, Scale, Subject, expect, judged
from benchmarks.planning import TERABYTE, Cluster, resolved_run, write
from flinkstate.metadata.bytes_read import HEADER
from flinkstate.metadata.metadata import KeyedHandle
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts
from stateferry.inventory.ages import Ages
from stateferry.inventory.inventory import CopiedFilesTask, Inventory, InventoryTask, total
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.spark_jobs.engine import submitted_workers
from stateferry.steps import snapshot
from tests.standalone.topology.processes import SparkCluster, environment, submit_conf

TASKS, GOAL_MEMORY = 100_000, 2 * 10**9
_STATES = ("mainState", "newMainState", "isMigratedState")
_MONTH = 30 * 86_400_000
_STAMPS = 20_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What an application took: seconds by the clock, processor seconds and the most memory of its parts."""

    tasks: int
    seconds: float
    python_cpu: float
    jvm_cpu: float
    executors_cpu: float
    python_memory: int
    jvm_memory: int


def without_reading(task: InventoryTask | CopiedFilesTask) -> Inventory:
    """An inventory like that of a chunk with three states, in which ages are spread over a month."""
    inventory = Inventory()
    if isinstance(task, CopiedFilesTask):
        return inventory
    for state in _STATES:
        for key_group in task.chunk.key_groups:
            key = (task.operator, state, key_group)
            inventory.entries[key], inventory.sizes[key] = _STAMPS, task.chunk.size
    inventory.met[StateRef(task.operator, _STATES[0])] = InventoryCounts(blobs=_STAMPS)
    stamps = np.random.default_rng(task.chunk.size).integers(0, _MONTH, _STAMPS)
    for state in _STATES:
        ages = inventory.ages[task.operator, _STATES[0], state] = Ages()
        ages.count(stamps, np.ones(_STAMPS, np.int64), _MONTH, _MONTH)
    for part in task.chunk.parts:
        if isinstance(part.handle, KeyedHandle):
            for number in (HEADER, *part.key_groups):
                inventory.read.add(part.handle.stream.name, number, f"{number:016x}")
    return inventory


def application(savepoint: Path, most: int, out: Path) -> None:
    """Gives the tasks to Spark as the snapshot step does, adds up the results, and says what that took."""
    resolved = resolved_run(savepoint)
    with submitted_workers("scheduling", _say) as workers:
        work = snapshot.inventory_work(resolved, workers.at_once)[:most]
        python, jvm = psutil.Process(), psutil.Process(os.getppid())
        python_cpu, jvm_cpu, executors_cpu, began = _cpu(python), _cpu(jvm), _executors_cpu(), time.monotonic()
        found = total(workers.do("scheduling", work, without_reading))
        cost = Cost(
            len(work),
            time.monotonic() - began,
            _cpu(python) - python_cpu,
            _cpu(jvm) - jvm_cpu,
            _executors_cpu() - executors_cpu,
            _most_memory(python),
            _most_memory(jvm),
        )
    expect(sum(counts.blobs for counts in found.met.values()), len(work) * _STAMPS, "blobs")
    out.write_text(json.dumps({name: getattr(cost, name) for name in Cost.__slots__}))


def _say(progress: LiveProgress) -> None:
    sys.stdout.write(f"{progress.seconds:.0f} s: {progress.done:,} of {progress.total:,}\n")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _executors_cpu() -> float:
    """Of this application's executors, which are on this machine, and their Python processes."""
    mine = SparkContext.getOrCreate().applicationId
    executors = [one for one in psutil.process_iter(["cmdline"]) if mine in (one.info["cmdline"] or ())]
    return sum(_cpu(one) for executor in executors for one in (executor, *executor.children(recursive=True)))


def _most_memory(process: psutil.Process) -> int:
    """The most memory that the process has had."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def measure(scale: Scale, cluster: Cluster | None = None, tasks: int = TASKS) -> Iterator[Comparison]:
    """The driver and the executors, each with its processor time and memory."""
    savepoint, out = scale.folder / "of-10-TB", scale.folder / "cost.json"
    write(savepoint, cluster or Cluster(), 10 * TERABYTE)
    with on_all_cores(), SparkCluster(scale.folder / "spark").running(workers=2) as spark:
        command = [Path(sys.executable).with_name("spark-submit"), *submit_conf(spark), "--driver-memory", "1g"]
        subprocess.run(
            [str(word) for word in (*command, __file__, savepoint, tasks, out)],
            env=environment() | {"PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    cost = Cost(**json.loads(out.read_text()))
    memory, driver = cost.python_memory + cost.jvm_memory, cost.python_cpu + cost.jvm_cpu
    yield Comparison(
        f"driver, {cost.tasks:,} tasks: {1000 * driver / cost.tasks:.1f} ms each",
        (Execution(cost.seconds, driver, memory),),
        goal=judged(f"≤ {GOAL_MEMORY // 10**9} GB", is_reached=memory <= GOAL_MEMORY),
    )
    yield Comparison("of it Python", (Execution(cost.seconds, cost.python_cpu, cost.python_memory),))
    yield Comparison("of it Spark's JVM", (Execution(cost.seconds, cost.jvm_cpu, cost.jvm_memory),))
    yield Comparison(
        f"two executors: {1000 * cost.executors_cpu / cost.tasks:.1f} ms for each task",
        (Execution(cost.seconds, cost.executors_cpu, 0),),
    )


SUBJECT = Subject("Scheduling the tasks of 10 TB on Spark: without their reading", measure)


if __name__ == "__main__":
    application(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
