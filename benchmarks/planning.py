"""Measures how long a driver plans a run on the savepoint of a large cluster, and its memory: which tasks there are.

Planning reads `_metadata` and the headers of the files, and no state. So each file is a header and a hole, and 10 TB
fit on any disk whose file system knows holes.

    python -m benchmarks.planning SAVEPOINT    # plans a run on one that was written, and says how many tasks it has
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Scale, Subject, WrongResultError, expect, judged
from flinkstate.hashing.key_groups import ranges
from flinkstate.keyed.header import build_header
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import KeyedHandle, Metadata, Operator, RelativeFile, Subtask
from flinkstate.reading.reader import Savepoint, operator_id
from stateferry.demo import OPERATOR, DemoState, write_demo_savepoint
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.steps import rescale, snapshot
from stateferry.steps.workers import Measure

TERABYTE = 10**12
STATE = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": "30d"}
GOAL_SECONDS, GOAL_MEMORY = 60, 2 * 10**9
Work = TypeVar("Work")
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A job, whose operators are alike."""

    operators: int = 20
    subtasks: int = 1000
    max_parallelism: int = 32768


class PlannedError(Exception):
    """The tasks of a step are known, and nobody does them."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """How many tasks a step has, and the bytes of the largest as it is sent."""

    number: int
    largest: int


@dataclass(slots=True)
class Nobody:
    """Workers that count the tasks that they get."""

    tasks: Tasks | None = None
    at_once: int = 1000
    temporary_folder: str | None = None

    def begin(self, step: str) -> float:
        return 0.0

    def do(
        self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact], measure: Measure[Fact] | None = None
    ) -> list[Fact]:
        if work:
            self.tasks = Tasks(len(work), max(len(pickle.dumps(one)) for one in work))
            raise PlannedError
        return []


def write(folder: Path, cluster: Cluster, size: int, seed: int = 1) -> None:
    """A savepoint of about `size` bytes, in which key groups differ in size as those of real jobs do."""
    header = _header(folder.parent / "of-a-header")
    folder.mkdir()
    random = np.random.default_rng(seed)
    of_file = size / cluster.operators / cluster.subtasks
    operators = []
    for number in range(cluster.operators):
        uid, subtasks = f"operator-{number}", []
        for index, key_groups in enumerate(ranges(cluster.max_parallelism, cluster.subtasks)):
            shares = random.lognormal(0, 1, key_groups.size)
            ends = len(header) + np.cumsum(np.maximum(shares / shares.sum() * of_file, 1).astype(np.int64))
            offsets, end = (len(header), *map(int, ends[:-1])), int(ends[-1])
            file = folder / f"{uid}-{index}"
            with file.open("wb") as opened:
                opened.write(header)
                opened.truncate(end)
            subtasks.append(
                Subtask(index, managed_keyed=KeyedHandle(key_groups, offsets, RelativeFile(file.name, end)))
            )
        id_ = operator_id(uid)
        operators.append(Operator(id_, cluster.subtasks, cluster.max_parallelism, uid, uid, subtasks=tuple(subtasks)))
    # Java's serialized null: no properties.
    metadata = Metadata(6, 1, tuple(operators), properties=b"\xac\xed\x00\x05\x70")
    (folder / "_metadata").write_bytes(build_metadata(metadata))


def _header(folder: Path) -> bytes:
    if not folder.exists():
        tiny = DemoState(1, 1, 0, ttl=2_592_000_000, now=1, parallelism=1, max_parallelism=1, seed=1)
        write_demo_savepoint(str(folder), tiny)
    savepoint = Savepoint.open(str(folder))
    header = savepoint.keyed_header(savepoint.operator(OPERATOR))
    assert header is not None
    return build_header(header)


def resolved_run(folder: Path, **others: object) -> ResolvedPlan:
    """A run that migrates every operator of the savepoint; `others` are more of its plan."""
    names = [operator.label for operator in Savepoint.open(str(folder)).metadata.operators]
    away, home = str(folder.parent / "away"), str(folder.parent / "home")
    values = {"job": "large", "run_id": "first", "now": 2, "source": str(folder), "target": away, "home": home}
    operators = [{"operator": name, "states": [STATE]} for name in names]
    wanted = planned({**values, "catalog_uri": f"sqlite:///{away}.db", "operators": operators, **others})
    return resolve(wanted, open_source(wanted))


def plan(folder: Path, **others: object) -> dict[str, Tasks]:
    """The tasks of snapshot and rescale of such a run, or those that come first."""
    resolved = resolved_run(folder, **others)
    exchange, staged = resolved.source.folder.child("exchange"), str(folder.parent / "away")
    steps: dict[str, Callable[[Nobody], object]] = {
        "snapshot": lambda nobody: snapshot.count(nobody, resolved),
        "rescale": lambda nobody: rescale.alone(nobody, resolved, staged, exchange),
    }
    return {name: _tasks(step) for name, step in steps.items()}


def _tasks(step: Callable[[Nobody], object]) -> Tasks:
    nobody = Nobody()
    with suppress(PlannedError):
        step(nobody)
    if nobody.tasks is None:
        raise WrongResultError("a step without tasks")
    return nobody.tasks


def measure(
    scale: Scale, cluster: Cluster | None = None, terabytes: Sequence[int] = (1, 10, 100)
) -> Iterator[Comparison]:
    """One line for each size."""
    cluster = cluster or Cluster()
    for size in terabytes:
        folder, log = scale.folder / f"large-{size}", scale.folder / "planning.log"
        write(folder, cluster, size * TERABYTE)
        executions = []
        for _ in range(scale.rounds):
            executions.append(execute([sys.executable, "-m", "benchmarks.planning", str(folder)], log))
        tasks = json.loads(log.read_text().splitlines()[-1])
        expect(tasks["rescale"]["number"], cluster.operators * cluster.subtasks, "as the tasks that write a file each")
        most = max(one.memory for one in executions)
        seconds = min(one.seconds for one in executions)
        is_reached = seconds <= GOAL_SECONDS and most <= GOAL_MEMORY
        goal = judged(f"≤ {GOAL_SECONDS} s, ≤ {GOAL_MEMORY // 10**9} GB", is_reached=is_reached)
        chunks = f"{size} TB: {tasks['snapshot']['number']:,} chunks"
        yield Comparison(chunks, tuple(executions), goal=goal if size == 10 else "")


SUBJECT = Subject(
    "Planning a run: 20 operators, each with 1,000 subtasks and 32,768 key groups; no state is read", measure
)


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps({step: asdict(tasks) for step, tasks in plan(Path(sys.argv[1])).items()})}\n")
