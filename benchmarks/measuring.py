"""How something is measured: several rounds on one core, of which the median counts, beside a plain twin on less."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from stateferry.savepoint.reader import Savepoint

ENTRIES = 4_000_000
ROUNDS = 5
KEYS = 500_000
_READ_AT_ONCE = 4 << 20


class WrongResultError(Exception):
    """What was to be measured didn't do its work."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: map entries, and the fewer ones that plain Python gets; `folder` is where files go."""

    folder: Path
    entries: int = ENTRIES
    rounds: int = ROUNDS
    # Of the savepoint for a whole run.
    keys: int = KEYS

    @property
    def twin_entries(self) -> int:
        return max(self.entries // 100, 100)


@dataclass(frozen=True, slots=True)
class Timing:
    """Rounds of the same work on `count` things: by the clock, and what of it the processor worked for this process.
    On a busy machine they differ."""

    count: int
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        return self.count / statistics.median(self.seconds)

    @property
    def best_rate(self) -> float:
        return self.count / min(self.seconds)

    @property
    def cpu_rate(self) -> float:
        # The clock of processor time moves in steps.
        return self.count / max(statistics.median(self.cpu_seconds), 1e-6)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of a unit per second; `at_least` is the goal, `twin` the same in plain Python."""

    what: str
    unit: str
    timing: Timing
    at_least: float | None = None
    twin: Timing | None = None

    @property
    def ratio(self) -> float | None:
        """How much faster than the twin, both by processor time: the two don't run at the same moment."""
        return self.timing.cpu_rate / self.twin.cpu_rate if self.twin else None

    @property
    def is_reached(self) -> bool | None:
        return None if self.at_least is None else self.timing.rate >= self.at_least


@dataclass(frozen=True, slots=True)
class Duration:
    """So long it takes; `at_most` is the goal."""

    what: str
    seconds: tuple[float, ...]
    at_most: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def is_reached(self) -> bool | None:
        return None if self.at_most is None else self.median <= self.at_most


@dataclass(frozen=True, slots=True)
class Execution:
    """A command from start to end: by the clock, by the processors' time for all its processes, and the most memory
    that these had together."""

    seconds: float
    cpu_seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Executions of something; `speed` compares it with another, by the median and by processor time."""

    what: str
    executions: tuple[Execution, ...]
    speed: tuple[float, float] | None = None
    goal: str = ""

    @property
    def seconds(self) -> float:
        return statistics.median(one.seconds for one in self.executions)

    @property
    def cpu_seconds(self) -> float:
        return statistics.median(one.cpu_seconds for one in self.executions)

    @property
    def memory(self) -> int:
        return max(one.memory for one in self.executions)

    def faster_than(self, other: Comparison) -> tuple[float, float]:
        return other.seconds / self.seconds, other.cpu_seconds / max(self.cpu_seconds, 1e-3)


@dataclass(frozen=True, slots=True)
class Subject:
    """One table of results."""

    title: str
    measure: Callable[[Scale], Iterable[Rate | Duration | Comparison]]


def timed(
    count: int,
    work: Callable[[], int],
    rounds: int,
    *,
    first: bool = True,
    before: Callable[[], None] = lambda: None,
) -> Timing:
    """`work` does its thing to `count` things and says to how many it did. The first time, which brings kernels into
    memory, doesn't count; nor does what happens `before` each."""
    seconds, cpu_seconds = [], []
    for _ in range(rounds + 1 if first else rounds):
        before()
        cpu, clock = time.process_time(), time.perf_counter()
        done = work()
        seconds.append(time.perf_counter() - clock)
        cpu_seconds.append(time.process_time() - cpu)
        expect(done, count, "things done")
    left_out = 1 if first else 0
    return Timing(count, tuple(seconds[left_out:]), tuple(cpu_seconds[left_out:]))


def in_memory(folder: Path) -> Savepoint:
    """The savepoint, its files in the page cache, which what writes and reads savepoints goes around."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            while file.read(_READ_AT_ONCE):
                pass
    return Savepoint.open(str(folder))


def expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise WrongResultError(f"expected {expected} {what}, found {found}")


def stay_on_one_core() -> int | None:
    """Binds this process and its children to one core and says which; None where a process can't be bound."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core
