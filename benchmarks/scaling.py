"""Computes how long a run on a large cluster takes on N cores, from measured costs and the tasks that are planned.

Nothing is read or written but headers. Each task goes to the core that is free first; a driver starts one task at a
time. Storage and network are assumed to be fast enough.

    python -m benchmarks.scaling SAVEPOINT [CORES ...]    # a savepoint of benchmarks/planning.py
"""

from __future__ import annotations

import heapq
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks.planning import resolved_run
from flinkstate.reading.reader import Savepoint
from stateferry.inventory.inventory import InventoryTask
from stateferry.steps.snapshot import inventory_work

# Measured: `pipeline` with 500 million entries, 18 bytes each, all steps together; `scheduling` with 100,000 tasks.
SECONDS_OF_A_BYTE = 165 / 9e9
SECONDS_TO_START, SECONDS_BESIDE_THE_WORK = 0.0018, 0.0046
# Snapshot, migrate and validate (which reads two savepoints) have a task for each chunk, rescale for each new file.
BY_CHUNK, STEPS = 4, 5
# Measured: `exchanging` with 10 million entries of 18 bytes, and with 1,000 senders and 1,000 receivers. A receiver
# that meets more than 128 senders opens a file for each read.
SECONDS_OF_A_BYTE_EXCHANGED = (1.6 - 0.6) / 180e6
SECONDS_OF_A_RECEIVER_FOR_A_SENDER, SECONDS_OF_A_READ = 15.1e-6, 69.9e-6 / 2
# Measured: 0.9 GB of maps became 2.2 GB of rows. Of these a sender sorts, and a receiver reads, so many at once.
GROWTH, AT_ONCE, SMALL = 2.2 / 0.9, 64 << 20, 128 << 10


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a change of max parallelism takes for one operator beside what any rescale does."""

    senders: Sequence[int]
    receivers: int
    # How many senders have entries for a receiver: all, or twice those of an old subtask if max parallelism is doubled.
    met: int

    @property
    def _portions(self) -> int:
        """How many portions, each with something for a receiver, are in the files of the senders that it meets."""
        of_all = sum(math.ceil(GROWTH * size / AT_ONCE) for size in self.senders)
        return math.ceil(of_all * self.met / len(self.senders))

    @property
    def _times(self) -> int:
        """How often a receiver fills its memory."""
        return math.ceil(self._of_a_receiver / AT_ONCE)

    @property
    def _of_a_receiver(self) -> float:
        return GROWTH * sum(self.senders) / self.receivers

    @property
    def is_relayed(self) -> bool:
        """Whether a receiver sorts what it gets in a temporary file."""
        return self._times > 1 and self._of_a_receiver < self._portions * self._times * SMALL

    @property
    def reads_of_a_receiver(self) -> int:
        """One for each index, and those of the portions."""
        return self.met + (self._portions + self._times**2 if self.is_relayed else self._portions * self._times)

    def seconds(self, cores: int) -> float:
        """How long sending and receiving take; every sender is done before the first receiver begins."""
        of_a_byte = SECONDS_OF_A_BYTE_EXCHANGED / 2
        of_pairs = self.receivers * SECONDS_OF_A_RECEIVER_FOR_A_SENDER
        sent = seconds((size * of_a_byte + of_pairs for size in self.senders), cores)
        # A receiver that relays sends and receives once more.
        of_bytes = sum(self.senders) / self.receivers * of_a_byte * (3 if self.is_relayed else 1)
        return sent + seconds([of_bytes + self.reads_of_a_receiver * SECONDS_OF_A_READ] * self.receivers, cores)


def seconds(work: Iterable[float], cores: int) -> float:
    """How long one step takes whose tasks take so many processor seconds each, in the order of the tasks."""
    free_at, end = [0.0] * cores, 0.0
    for number, of_work in enumerate(work):
        begin = max(heapq.heappop(free_at), number * SECONDS_TO_START)
        done = begin + of_work + SECONDS_BESIDE_THE_WORK
        end = max(end, done)
        heapq.heappush(free_at, done)
    return end


def of_step(sizes: Iterable[int]) -> Iterable[float]:
    """The processor seconds of a step's tasks that read so many bytes."""
    return (size * SECONDS_OF_A_BYTE / STEPS for size in sizes)


def computed(savepoint: Path, cores: Sequence[int]) -> dict[str, dict[int, float]]:
    """The seconds of a run's steps by the number of cores, and the reads of all receivers under 0."""
    resolved = resolved_run(savepoint)
    chunks: dict[str, list[int]] = {}
    for task in inventory_work(resolved, 1):
        if isinstance(task, InventoryTask):
            chunks.setdefault(task.operator, []).append(task.chunk.size)
    opened = Savepoint.open(str(savepoint))
    files = {one.hex_id: [placed.handle.size for placed in opened.placed(one)] for one in opened.keyed_operators()}
    all_chunks, all_files = (list(chain.from_iterable(sizes.values())) for sizes in (chunks, files))
    same = {n: BY_CHUNK * seconds(of_step(all_chunks), n) + seconds(of_step(all_files), n) for n in cores}
    found = {"same max parallelism": same}
    for what, is_doubled in (("doubled", True), ("any other", False)):
        exchanges = []
        for operator, sizes in chunks.items():
            receivers = len(files[operator])
            met = math.ceil(2 * len(sizes) / receivers) if is_doubled else len(sizes)
            exchanges.append(Exchange(sizes, receivers, met))
        found[what] = {n: same[n] + sum(one.seconds(n) for one in exchanges) for n in cores}
        found[what][0] = sum(one.receivers * one.reads_of_a_receiver for one in exchanges)
    return found


if __name__ == "__main__":
    wanted = [int(one) for one in sys.argv[2:]] or [2, 100, 1000]
    sys.stdout.write(f"{json.dumps(computed(Path(sys.argv[1]), wanted))}\n")
