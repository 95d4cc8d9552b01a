"""Runs a command from start to end, and measures its time and the memory of all its processes together."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.measuring import Execution

ALL_CORES = frozenset(range(os.cpu_count() or 1))
_LOOK_SECONDS = 0.25
_LOOKS_FOR_MEMORY = 4
_PATIENCE = 30


class FailedError(Exception):
    """The command ended with an error."""


class TookTooLongError(Exception):
    """The command was stopped, because it had not ended in time."""


@contextmanager
def on_all_cores() -> Iterator[None]:
    """Lets this process, and what it starts, run on all cores for a while."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ALL_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def execute(
    command: Sequence[str],
    log: Path,
    *,
    cores: Iterable[int] = ALL_CORES,
    environment: Mapping[str, str] | None = None,
    at_most: float | None = None,
) -> Execution:
    """Runs the command; all processes that it starts count. It is stopped after `at_most` seconds."""
    with log.open("w") as out:
        began = time.perf_counter()
        process = psutil.Popen(
            [*command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        if hasattr(process, "cpu_affinity"):
            # The command's children inherit this. The benchmark itself may be bound to one core.
            process.cpu_affinity(sorted(cores))
        most, cpu = 0, dict[int, float]()
        for look in itertools.count():
            try:
                code = process.wait(_LOOK_SECONDS)
                break
            except psutil.TimeoutExpired:
                # Reading the memory takes some milliseconds for each process, on the cores that are measured, so it is
                # done rarely.
                most = max(most, _look(process, cpu, of_memory=look % _LOOKS_FOR_MEMORY == 0))
                if at_most is not None and time.perf_counter() - began > at_most:
                    _stop(process)
                    raise TookTooLongError(f"{' '.join(command)} was stopped after {at_most:.0f} seconds") from None
        seconds = time.perf_counter() - began
    if code != 0:
        raise FailedError(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-4000:]}")
    return Execution(seconds, sum(cpu.values()), most)


def _stop(process: psutil.Popen) -> None:
    """Ends the process, and the others of its session if they don't end with it."""
    process.terminate()
    with suppress(psutil.TimeoutExpired):
        process.wait(_PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _look(process: psutil.Process, cpu: dict[int, float], *, of_memory: bool) -> int:
    """The memory of the process and its descendants, where shared memory counts once.

    Puts the processor seconds of each process into `cpu`.
    """
    total = 0
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for one in tree:
        try:
            times = one.cpu_times()
            cpu[one.pid] = times.user + times.system
            if of_memory:
                total += one.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total
