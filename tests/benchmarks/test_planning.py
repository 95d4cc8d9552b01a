"""The benchmark of planning, on a small cluster: its savepoint has the size that is asked for, and takes no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planning import TERABYTE, Cluster, plan, write
from stateferry.savepoint.reader import Savepoint


@pytest.mark.slow
def test_every_large_key_group_is_a_task_and_every_file_one(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    write(folder, Cluster(operators=2, subtasks=3, max_parallelism=32), TERABYTE)
    savepoint = Savepoint.open(str(folder))
    sizes = [placed.file.size for one in savepoint.metadata.operators for placed in savepoint.placed(one)]
    assert sum(sizes) == pytest.approx(TERABYTE, rel=1e-6)
    assert sum(file.stat().st_blocks for file in folder.iterdir()) * 512 < 1_000_000
    assert plan(folder) == {"snapshot": 2 * 32, "rescale": 2 * 3}
