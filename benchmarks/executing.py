"""Runs a command from start to end, and measures its time and the memory of all its processes together."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks.measuring import Execution

ALL_CORES = frozenset(range(os.cpu_count() or 1))
_LOOK_SECONDS = 0.25
_LOOKS_FOR_MEMORY = 4


class FailedError(Exception):
    """The command ended with an error."""


def execute(
    command: Sequence[str],
    log: Path,
    *,
    cores: Iterable[int] = ALL_CORES,
    environment: Mapping[str, str] | None = None,
) -> Execution:
    """Runs the command; all processes that it starts count."""
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
        seconds = time.perf_counter() - began
    if code != 0:
        raise FailedError(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-4000:]}")
    return Execution(seconds, sum(cpu.values()), most)


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
