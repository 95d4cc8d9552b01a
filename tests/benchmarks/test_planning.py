"""The benchmark of planning, on a small cluster: its savepoint has the size that is asked for, and takes no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planning import TERABYTE, Cluster, plan, write
from flinkstate.reading.reader import Savepoint


@pytest.mark.slow
def test_every_large_key_group_is_a_task_and_every_file_one(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    write(folder, Cluster(operators=2, subtasks=3, max_parallelism=32), TERABYTE)
    savepoint = Savepoint.open(str(folder))
    sizes = [placed.file.size for one in savepoint.metadata.operators for placed in savepoint.placed(one)]
    assert sum(sizes) == pytest.approx(TERABYTE, rel=1e-6)
    assert sum(file.stat().st_blocks for file in folder.iterdir()) * 512 < 1_000_000
    assert {step: tasks.number for step, tasks in plan(folder).items()} == {"snapshot": 2 * 32, "rescale": 2 * 3}


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{}, {"max_parallelism": 400}])
def test_a_task_is_not_larger_on_a_larger_cluster(changed: dict[str, object], tmp_path: Path) -> None:
    """Each describes the files that it reads, and no others."""
    largest = {}
    for name, cluster in (("small", Cluster(1, 5, 50)), ("large", Cluster(8, 32, 320))):
        write(tmp_path / name, cluster, TERABYTE)
        largest[name] = {step: tasks.largest for step, tasks in plan(tmp_path / name, **changed).items()}
    for step, size in largest["small"].items():
        assert largest["large"][step] < 1.5 * size, step
