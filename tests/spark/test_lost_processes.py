"""Runs whose JVM or workers are killed for real, and runs that a person or a scheduler ends: one line each, the exit
code that says what it means, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from stateferry.basics.exit_codes import INTERRUPTED, MAY_PASS, TERMINATED
from tests.steps.test_killed import NOW, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

_LONGEST = 600
# What Spark says whenever it starts.
_STEPS = ("Spark is starting", "snapshot:", "migrate:", "rescale:", "validate", "digests:", "known keys:", "tables:")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "world" / "home"))
    world = World.of(tmp_path).night("more", "target")
    world.make_source(NOW, keys=2000)
    return world


def ended(world: World, how: Callable[[subprocess.Popen[str]], None]) -> tuple[int, list[str]]:
    """Runs the command and ends it when its snapshot is done; the exit code and what it says that isn't progress."""
    command = [sys.executable, "-m", "stateferry.cli", *world.command]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        began = time.monotonic()
        while not list((world.root / "home" / "runs").glob("*/*/steps/snapshot.json")):
            assert process.poll() is None
            assert time.monotonic() - began < _LONGEST
            time.sleep(0.01)
        how(process)
        _, error = process.communicate(timeout=_LONGEST)
    lines = [line for line in error.splitlines() if not line.startswith(_STEPS)]
    return process.returncode, lines


def kill_the_jvm(process: subprocess.Popen[str]) -> None:
    (jvm,) = (one for one in psutil.Process(process.pid).children() if Path(one.exe()).name == "java")
    jvm.kill()


def interrupt_all(process: subprocess.Popen[str]) -> None:
    """As a terminal does at Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def ask_to_end(process: subprocess.Popen[str]) -> None:
    process.terminate()


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "code", "begins"),
    [
        (kill_the_jvm, MAY_PASS, "stateferry: Spark's JVM (process "),
        pytest.param(interrupt_all, INTERRUPTED, "stateferry: interrupted: run ", marks=pytest.mark.full),
        # Without Spark, tests/cli/test_cli.py and tests/steps/test_steps_alone.py have it.
        pytest.param(ask_to_end, TERMINATED, "stateferry: ended by SIGTERM: run ", marks=pytest.mark.full),
    ],
)
def test_a_run_that_is_ended_says_so_in_one_line_and_goes_on(
    world: World, how: Callable[[subprocess.Popen[str]], None], code: int, begins: str
) -> None:
    # Whoever runs the tests in the background has it ignored, and so would the run.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found, lines = ended(world, how)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (found, len(lines)) == (code, 1), lines
    assert lines[0].startswith(begins)
    assert "continues where it stopped" in lines[0]
    if how is kill_the_jvm:
        assert "it was ended by SIGKILL" in lines[0]
        # It has not failed, and nobody is in its way.
        command = [sys.executable, "-m", "stateferry.cli", *world.command]
        again = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
        assert again.returncode == 0, again.stderr
        assert "green" in again.stdout
        assert "snapshot:" not in again.stderr


_LOST_WORKERS = """
from stateferry.spark_jobs.session import session, wait_until_stopped
from stateferry.spark_jobs.workers import SparkWorkers
from flinkstate.errors import TransientError
from tests.spark.test_lost_processes import lost
with session("lost") as sc:
    workers = SparkWorkers(sc)
    print(list(workers.do("once", [1, 2], lost)))
    try:
        list(workers.do("always", [-1], lost))
    except TransientError as error:
        print(error)
    # The session has lost nothing else.
    print(list(workers.do("after", [3], abs)))
wait_until_stopped()
"""


def lost(number: int) -> int:
    from pyspark import TaskContext

    if number < 0 or TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.full
def test_a_lost_worker_is_replaced_and_one_that_is_lost_each_time_may_pass() -> None:
    done = subprocess.run([sys.executable, "-c", _LOST_WORKERS], capture_output=True, text=True, timeout=_LONGEST)
    once, always, after = done.stdout.splitlines()
    assert (once, after) == ("[1, 2]", "[3]")
    assert always.startswith("Spark could not go on with the work: a Python worker was lost.")
    assert "Traceback" not in done.stderr
    assert "ERROR" not in done.stderr
