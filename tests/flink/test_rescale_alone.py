"""A job's savepoint is rescaled without a migration; real Flink restores all of it, in a job of the new layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint, operator_id
from stateferry.cli import main
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job
from tests.flink.judge import Make, check_restored
from tests.flink.scenarios import BACKENDS
from tests.flink.test_pipeline import whole
from tests.support.in_process import without_spark

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]

# Parallelism of each operator, max parallelism of all.
LAYOUTS: dict[str, tuple[dict[str, int], int | None]] = {
    "by-operator": ({"main": 5, "beside": 1, "plain": 2}, None),
    "max-300": ({}, 300),
    "by-operator-and-max-100": ({"main": 2, "plain": 7}, 100),
    "all": (dict.fromkeys(("main", "beside", "plain"), 4), None),
}
CASES = [
    pytest.param(version, BACKENDS[(i + j) % 2], name, id=f"{name}-{version}-{BACKENDS[(i + j) % 2]}")
    for i, name in enumerate(LAYOUTS)
    for j, version in enumerate(VERSIONS)
]


def started(job: Job, parallelism: dict[str, int], max_parallelism: int | None) -> Job:
    """The job as it starts from the rescaled savepoint."""
    operators = (
        replace(operator, parallelism=parallelism.get(operator.uid, operator.parallelism)) for operator in job.operators
    )
    return replace(job, operators=tuple(operators), max_parallelism=max_parallelism or job.max_parallelism)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend", "layout"), CASES)
def test_the_job_finds_everything_in_the_new_layout(
    version: str,
    backend: str,
    layout: str,
    made: Make,
    flink: Flink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    parallelism, max_parallelism = LAYOUTS[layout]
    job = replace(whole(128, ttl="stamped" if backend == "rocksdb" else None), backend=backend)
    source = made(version, job)
    target = tmp_path / "rescaled"
    asked = ",".join(f"{uid}={number}" for uid, number in parallelism.items())
    wanted = ["--parallelism", "4" if layout == "all" else asked] if parallelism else []
    wanted += ["--max-parallelism", str(max_parallelism)] if max_parallelism else []
    places = ["--savepoint", str(source.path), "--target", str(target)]
    assert main(["run", *places, "--job", "orders", *wanted]) == 0
    by_id = {operator.id: operator for operator in Savepoint.open(str(target)).metadata.operators}
    for uid in ("main", "beside", "plain"):
        found = by_id[operator_id(uid)]
        assert found.parallelism == parallelism.get(uid, 3)
        assert found.max_parallelism == (max_parallelism or 128)
        assert {subtask.index for subtask in found.subtasks} == set(range(found.parallelism))
    new = started(job, parallelism, max_parallelism)
    check_restored(flink(version), target, new, source, moved=max_parallelism is not None)
