"""Measures something in several rounds on one core. The median counts, and stands beside plain Python on less work."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flinkstate.reading.reader import Savepoint

ENTRIES = 4_000_000
ROUNDS = 5
KEYS = 500_000
_READ_AT_ONCE = 4 << 20


class WrongResultError(Exception):
    """The code that was measured didn't do its work."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured; `folder` is for files."""

    folder: Path
    entries: int = ENTRIES
    rounds: int = ROUNDS
    # Keys of the savepoint for a whole run.
    keys: int = KEYS

    @property
    def twin_entries(self) -> int:
        """The smaller number of entries for plain Python."""
        return max(self.entries // 100, 100)


@dataclass(frozen=True, slots=True)
class Timing:
    """Rounds of the same work on `count` things, by the clock and by this process's processor time.

    The two differ on a busy machine.
    """

    count: int
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Things per second in the median round."""
        return self.count / statistics.median(self.seconds)

    @property
    def best_rate(self) -> float:
        """Things per second in the fastest round."""
        return self.count / min(self.seconds)

    @property
    def cpu_rate(self) -> float:
        """Things per second of processor time in the median round."""
        # The clock of processor time may not have moved.
        return self.count / max(statistics.median(self.cpu_seconds), 1e-6)


@dataclass(frozen=True, slots=True)
class Rate:
    """Units per second; `at_least` is the goal, `twin` is the same work in plain Python."""

    what: str
    unit: str
    timing: Timing
    at_least: float | None = None
    twin: Timing | None = None

    @property
    def ratio(self) -> float | None:
        """How many times faster than the twin; by processor time, because the two run at different moments."""
        return self.timing.cpu_rate / self.twin.cpu_rate if self.twin else None

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        return None if self.at_least is None else self.timing.rate >= self.at_least


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something takes; `at_most` is the goal."""

    what: str
    seconds: tuple[float, ...]
    at_most: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        return None if self.at_most is None else self.median <= self.at_most


@dataclass(frozen=True, slots=True)
class Execution:
    """A command from start to end: seconds by the clock and of processor time, and the most memory of its processes."""

    seconds: float
    cpu_seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Executions of a command; `speed` compares it with another one, by the clock and by processor time."""

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
        """How many times faster than the other, by the clock and by processor time."""
        return other.seconds / self.seconds, other.cpu_seconds / max(self.cpu_seconds, 1e-3)

    def beside(self, other: Comparison, at_least: float | None = None, most_memory: float | None = None) -> Comparison:
        """This one, compared with the other.

        The goal is to be `at_least` so many times as fast, by the clock, with at most so many bytes of memory.
        """
        speed = self.faster_than(other)
        if at_least is None:
            return replace(self, speed=speed)
        goal, is_reached = f"≥ {at_least:.2g}", speed[0] >= at_least
        if most_memory is not None:
            goal, is_reached = f"{goal}, ≤ {most_memory / 1e9:g} GB", is_reached and self.memory <= most_memory
        return replace(self, speed=speed, goal=judged(goal, is_reached=is_reached))


PARTS = ("stop with savepoint", "conversion", "restore", "first checkpoint")


@dataclass(frozen=True, slots=True)
class Outage:
    """How long a job stands still: the seconds of each of `PARTS`, up to the one that took too long.

    `source` and `result` are the bytes of both savepoints, `uploaded` those that Flink wrote to stop the job.
    `cpu_seconds` are those of Flink and of the conversion, `memory` is the most that the conversion took.
    `shorter` compares with the first outage of the table, `faster` compares the conversion with the peer's.
    """

    what: str
    source: int
    result: int
    parts: tuple[float, ...]
    cpu_seconds: float = 0
    uploaded: int = 0
    memory: int = 0
    shorter: float | None = None
    faster: float | None = None
    goal: str = ""

    @property
    def seconds(self) -> float:
        """The seconds of all parts that ended."""
        return sum(self.parts)

    @property
    def conversion(self) -> float | None:
        """The seconds from the end of Flink's savepoint to the new one; None if they were too many."""
        return self.parts[1] if len(self.parts) > 1 else None

    @property
    def is_whole(self) -> bool:
        """Whether no part took too long."""
        return len(self.parts) == len(PARTS)


@dataclass(frozen=True, slots=True)
class Cells:
    """A line of a table of its own kind: what is measured by the titles of its columns."""

    by_title: Mapping[str, str]


Line = Rate | Duration | Comparison | Outage | Cells


@dataclass(frozen=True, slots=True)
class Subject:
    """One part of the results, with a title."""

    title: str
    measure: Callable[[Scale], Iterable[Line]]


def judged(goal: str, *, is_reached: bool | None) -> str:
    """A goal, and whether it is reached."""
    return f"{goal} {'reached' if is_reached else 'MISSED'}"


def timed(
    count: int,
    work: Callable[[], int],
    rounds: int,
    *,
    first: bool = True,
    before: Callable[[], None] = lambda: None,
) -> Timing:
    """Measures `work`, which does something to `count` things and returns how many it did.

    The first round doesn't count, because it loads kernels into memory. The time of `before`, which is called before
    each round, doesn't count either.
    """
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
    """Opens a savepoint and reads its files into the page cache.

    The library's own reading and writing bypasses the page cache.
    """
    load(folder)
    return Savepoint.open(str(folder))


def load(folder: Path) -> None:
    """Reads the files of a folder into the page cache."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            while file.read(_READ_AT_ONCE):
                pass


def expect(found: object, expected: object, what: str) -> None:
    """Raises an error if the result isn't the expected one."""
    if found != expected:
        raise WrongResultError(f"expected {expected} {what}, found {found}")


def stay_on_one_core() -> int | None:
    """Binds this process and its children to one core and returns it; None if a process can't be bound."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core
