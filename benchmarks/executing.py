"""Runs a command from start to end, and measures its time and the memory of all its processes together."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil

from benchmarks.measuring import Execution

ALL_CORES = frozenset(range(os.cpu_count() or 1))
_LOOK_SECONDS = 0.25
_LOOKS_FOR_MEMORY = 4
_PATIENCE = 30
_POLL, _POLLS_FOR_PROCESSOR, _POLLS_FOR_MEMORY = 0.05, 5, 20


class FailedError(Exception):
    """The command ended with an error."""


class TookTooLongError(Exception):
    """The command was stopped, because it had not done its work in time."""


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
) -> Execution:
    """Runs the command; all processes that it starts count."""
    began = time.perf_counter()
    process = _started(command, log, cores, environment)
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
    _expect_success(code, command, log)
    return Execution(seconds, sum(cpu.values()), most)


class Background:
    """A command whose work is done before it ends; a context manager, which waits for the end.

    Its work, and then its end, may take `at_most` seconds; else it is stopped, with all processes that it has started.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str], at_most: float) -> None:
        self._command, self._log, self._at_most = command, log, at_most
        self._process = _started(command, log, ALL_CORES, environment)
        self._cpu = dict[int, float]()
        self.memory = 0
        """The most that all its processes together were seen to have."""

    @property
    def cpu_seconds(self) -> float:
        """The processor seconds of all its processes until now."""
        _look(self._process, self._cpu, of_memory=False)
        return sum(self._cpu.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._wait_until(lambda: self._process.poll() is not None)
            _expect_success(self._process.wait(), self._command, self._log)
        else:
            self._stop()

    def wait_for(self, file: Path) -> None:
        """Waits until the command has written the file."""
        self._wait_until(lambda: file.exists() or self._process.poll() is not None)
        if not file.exists():
            raise FailedError(f"{' '.join(self._command)} ended without {file}:\n{_end_of(self._log)}")

    def wait_for_word(self, word: str) -> None:
        """Waits until the command has printed this."""
        self._wait_until(lambda: word in self._log.read_text() or self._process.poll() is not None)
        if word not in self._log.read_text():
            raise FailedError(f"{' '.join(self._command)} ended without saying '{word}':\n{_end_of(self._log)}")

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        end = time.perf_counter() + self._at_most
        for look in itertools.count():
            if reached():
                return
            if look % _POLLS_FOR_PROCESSOR == 0:
                of_memory = look % _POLLS_FOR_MEMORY == 0
                self.memory = max(self.memory, _look(self._process, self._cpu, of_memory=of_memory))
            if time.perf_counter() > end:
                self._stop()
                raise TookTooLongError(f"{' '.join(self._command)} was stopped after {self._at_most:.0f} seconds")
            time.sleep(_POLL)

    def _stop(self) -> None:
        """Ends the process, unless it has ended, and the others of its session if they don't end with it."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        with suppress(psutil.TimeoutExpired):
            self._process.wait(_PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _started(
    command: Sequence[str], log: Path, cores: Iterable[int], environment: Mapping[str, str] | None
) -> psutil.Popen:
    with log.open("w") as out:
        process = psutil.Popen(
            [*command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    if hasattr(process, "cpu_affinity"):
        # The command's children inherit this. The benchmark itself may be bound to one core.
        with suppress(psutil.NoSuchProcess):  # It may have ended already.
            process.cpu_affinity(sorted(cores))
    return process


def _expect_success(code: int, command: Sequence[str], log: Path) -> None:
    if code != 0:
        raise FailedError(f"{' '.join(command)} ended with {code}:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text()[-4000:]


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
