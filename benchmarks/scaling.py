"""Computes how long a run on a large cluster takes on N cores, from measured costs and the tasks that are planned.

Nothing is read or written but headers. Each task goes to the core that is free first; a driver starts one task at a
time. Storage and network are assumed to be fast enough.

    python -m benchmarks.scaling SAVEPOINT [CORES ...]    # a savepoint of benchmarks/planning.py
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.planning import resolved_run
from stateferry.migration.inventory import InventoryTask
from stateferry.savepoint.reader import Savepoint
from stateferry.steps.snapshot import inventory_work

# Measured: `pipeline` with 500 million entries, 18 bytes each, all steps together; `scheduling` with 100,000 tasks.
SECONDS_OF_A_BYTE = 165 / 9e9
SECONDS_TO_START, SECONDS_BESIDE_THE_WORK = 0.0018, 0.0046
# Snapshot, migrate and validate (which reads two savepoints) have a task for each chunk, rescale for each new file.
BY_CHUNK, STEPS = 4, 5


def seconds(sizes: Iterable[int], cores: int) -> float:
    """How long one step takes whose tasks read so many bytes each, in the order of the tasks."""
    free_at, end = [0.0] * cores, 0.0
    for number, size in enumerate(sizes):
        begin = max(heapq.heappop(free_at), number * SECONDS_TO_START)
        done = begin + size * SECONDS_OF_A_BYTE / STEPS + SECONDS_BESIDE_THE_WORK
        end = max(end, done)
        heapq.heappush(free_at, done)
    return end


def computed(savepoint: Path, cores: Sequence[int]) -> dict[int, float]:
    """The seconds of a run's steps by the number of cores."""
    resolved = resolved_run(savepoint)
    chunks = [task.chunk.size for task in inventory_work(resolved, 1) if isinstance(task, InventoryTask)]
    opened = Savepoint.open(str(savepoint))
    files = [placed.handle.size for one in opened.keyed_operators() for placed in opened.placed(one)]
    return {number: BY_CHUNK * seconds(chunks, number) + seconds(files, number) for number in cores}


if __name__ == "__main__":
    wanted = [int(one) for one in sys.argv[2:]] or [2, 100, 1000]
    sys.stdout.write(f"{json.dumps(computed(Path(sys.argv[1]), wanted))}\n")
