"""Runs on Spark, killed for real at random moments and given again until one comes to its end.

How many kills and by which seed: `STATEFERRY_KILLS` and `STATEFERRY_KILL_SEED`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from stateferry.steps.workers import InProcess
from tests.steps.test_killed import NOW, Night, World
from tests.support.in_process import without_spark

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("STATEFERRY_KILLS", "2"))
SEED = int(os.environ.get("STATEFERRY_KILL_SEED", "1"))
_LONGEST_RUN = 120
_VICTIMS = ("driver and JVM", "driver", "worker")
_STEPS = ("snapshot", "migrate", "validate", "cut_over", "written_tables")


@dataclass(slots=True)
class Killer:
    """Runs the command and kills it, or one of its workers, at a moment of its choice."""

    command: list[str]
    folder: Path
    runs: Path
    random: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    _met: list[psutil.Process] = field(default_factory=list)

    def run(self, *, spare: bool) -> int | None:
        """The exit code, None if it was killed; whom it spares comes to an end."""
        log = (self.folder / "log").open("wb")
        self.folder.joinpath("java").mkdir(exist_ok=True)
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.folder / 'java'}"}
        with (
            log,
            subprocess.Popen(
                [sys.executable, "-m", "stateferry.cli", *self.command],
                stdout=log,
                stderr=log,
                env=environment,
                # A group of its own, which is not that of the tests.
                start_new_session=True,
            ) as process,
        ):
            if spare:
                return process.wait(_LONGEST_RUN)
            # Each as often as the others, in any order.
            rarest = min(self.kills[one] for one in _VICTIMS)
            victim = self.random.choice([one for one in _VICTIMS if self.kills[one] == rarest])
            # Before the first step there are no workers.
            before = self.random.choice(("claim", *_STEPS) if victim == "worker" else (None, "claim", *_STEPS))
            delay = self.random.uniform(0, 4 if before is None else 1)
            self._wait_until_done(before, process)
            try:
                return process.wait(delay)
            except subprocess.TimeoutExpired:
                return self._kill(process, victim)

    def _wait_until_done(self, step: str | None, process: subprocess.Popen[bytes]) -> None:
        """Until the step is done and Spark's workers are there: time alone would say little on a machine that is
        busy."""
        began = time.monotonic()
        while step is not None and process.poll() is None:
            if list(self.runs.glob(f"*/*/steps/{step}.json")) and any(map(_is_worker, self._family(process))):
                return
            assert time.monotonic() - began < _LONGEST_RUN, self.said()
            time.sleep(0.05)

    def _family(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        try:
            return psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _kill(self, process: subprocess.Popen[bytes], victim: str) -> int | None:
        family = self._family(process)
        self._met += family
        workers = [one for one in family if _is_worker(one)]
        if victim == "worker" and workers:
            self.kills[victim] += 1
            self.random.choice(workers).kill()
            code = process.wait(_LONGEST_RUN)
            # A task that is tried once fails with its worker; one that was idle isn't missed.
            return code if code == 0 else None
        if victim == "driver":
            process.kill()
        else:
            victim = "driver and JVM"
            os.killpg(process.pid, signal.SIGKILL)
        self.kills[victim] += 1
        process.wait(_LONGEST_RUN)
        return None

    def see_all_end(self) -> None:
        """Orphans go by themselves; what doesn't in a while is ended."""
        began = time.monotonic()
        while (alive := [one for one in self._met if _is_alive(one)]) and time.monotonic() - began < 30:
            time.sleep(0.1)
        for one in alive:
            one.kill()
        assert alive == []

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def _is_alive(process: psutil.Process) -> bool:
    """Asked of hundreds of processes, the numbers of some of which others have by now."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_worker(process: psutil.Process) -> bool:
    try:
        line = process.cmdline()
    except psutil.Error:
        return False
    return any("daemon" in word or "pyspark.worker" in word for word in line) and "java" not in Path(line[0]).name


@pytest.mark.full
@pytest.mark.timeout(120 + 40 * KILLS)
def test_runs_killed_for_real_at_random_moments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sys.stdout.write(f"STATEFERRY_KILLS={KILLS} STATEFERRY_KILL_SEED={SEED}\n")
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "world" / "home"))
    world = World.of(tmp_path).night("more", "target", "--parallelism", "3")
    world.make_source(NOW, keys=2000)
    with pytest.MonkeyPatch.context() as patch:
        # The tables' chunks are made for the cores there are.
        without_spark(patch, InProcess(at_once=len(os.sched_getaffinity(0))))
        undisturbed = Night.undisturbed(world)
    _start_afresh(world)
    killer = Killer(world.command, tmp_path, world.root / "home" / "runs", random.Random(SEED))
    ended = 0
    enough = killer.random.randint(4, 9)
    try:
        while killer.kills.total() < KILLS or not ended:
            code = killer.run(spare=killer.kills.total() >= min(enough, KILLS))
            undisturbed.check_what_readers_see()
            if code is None:
                continue
            assert code == 0, f"after {dict(killer.kills)}: {killer.said()}"
            assert world.result() == undisturbed.after, f"after {dict(killer.kills)}"
            ended += 1
            enough = killer.kills.total() + killer.random.randint(4, 9)
            _start_afresh(world)
    finally:
        killer.see_all_end()
    sys.stdout.write(f"kills: {dict(killer.kills)}; {ended} runs came to their end\n")
    assert KILLS < 6 or len(killer.kills) == 3


def _start_afresh(world: World) -> None:
    shutil.rmtree(world.root)
    world.root.mkdir()
