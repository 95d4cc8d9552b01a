"""Runs on a Spark cluster that loses a process, or whose network is cut, at moments drawn by a seed.

How many, and by which seed: as `area.py` says.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import psutil
import pytest

from tests.chaos.area import REPOSITORY, SEED, Area, Ended, content_of, demo_savepoint, new_name, runs
from tests.flink.proxy import Proxy
from tests.standalone.topology.processes import SparkCluster, environment, spark_settings
from tests.support.servers import LOOPBACK, free_port

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(1800)]
# Longer than Spark's own patience with an executor that is silent, and the start of another one on a busy machine.
_PATIENCE = 400
# What workers know the driver by: another address of the loopback, at which the proxies listen.
_ACROSS = "127.0.0.2"
_STEPS = ("snapshot", "migrate", "validate", "written_tables")
_VICTIMS = ("a Python worker", "an executor", "a worker", "the driver", "the driver's JVM", "the network")
_LOG_SETTINGS = (REPOSITORY / "spark_jobs" / "log4j2.properties").as_uri()
_SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
}


@dataclass
class Network:
    """What lies between a driver and the workers: a proxy before each of the two ports at which the driver listens."""

    proxies: tuple[Proxy, ...]

    @classmethod
    def between(cls, stack: ExitStack) -> Network:
        ports = (free_port(), free_port())
        return cls(tuple(stack.enter_context(Proxy(port, (_ACROSS, port))) for port in ports))

    @property
    def settings(self) -> dict[str, str]:
        driver, blocks = (str(proxy.port) for proxy in self.proxies)
        of_driver = {
            "spark.driver.port": driver,
            "spark.driver.blockManager.port": blocks,
            "spark.port.maxRetries": "0",
        }
        return {"spark.driver.host": _ACROSS, "spark.driver.bindAddress": LOOPBACK, **of_driver}

    def set(self, *, is_away: bool = False, is_silent: bool = False) -> None:
        for proxy in self.proxies:
            proxy.is_away, proxy.is_silent = is_away, is_silent


@dataclass(frozen=True)
class Undisturbed:
    source: str
    content: dict[str, bytes]
    result: dict[str, Any]


@dataclass
class Saboteur:
    """Who takes something away from a command at a moment that was drawn, and gives back what comes back."""

    cluster: SparkCluster
    network: Network
    area: Area
    drawn: random.Random

    def __post_init__(self) -> None:
        self.victim = self.drawn.choice(_VICTIMS)
        self.after = self.drawn.choice((None, *_STEPS))
        self.delay = self.drawn.uniform(0, 6 if self.after is None else 1)
        self.seconds = self.drawn.choice((1.0, 10.0, 60.0))
        self.speculates = self.drawn.random() < 0.5
        self.is_silent = self.drawn.random() < 0.5

    def __str__(self) -> str:
        how = f"{'silent' if self.is_silent else 'away'} for {self.seconds} s" if self.victim == "the network" else ""
        speculation = "with speculation" if self.speculates else ""
        return f"{self.victim} {how} {self.delay:.2f} s after {self.after or 'the start'} {speculation}"

    def run(self, *, is_spared: bool = False) -> Ended:
        settings = spark_settings() | self.network.settings | (_SPECULATES if self.speculates else {})
        options = [f"--conf={name}={value}" for name, value in settings.items()]
        options += ["--master", self.cluster.master]
        options += ["--driver-java-options", f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"]
        variables = self.area.environment | environment()
        variables["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
        with TemporaryFile("w+") as said:
            with subprocess.Popen(
                self.area.given("tests.chaos.cluster_command"),
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=variables,
                cwd=REPOSITORY,
                # Only its group is killed, not that of the tests.
                start_new_session=True,
            ) as driver:
                try:
                    if not is_spared:
                        self._wait(driver)
                        self._strike(driver)
                    code = driver.wait(_PATIENCE)
                finally:
                    self.network.set()
                    _kill_group(driver.pid)
            said.seek(0)
            return Ended(code, said.read())

    def _wait(self, driver: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _PATIENCE
        while self.after and driver.poll() is None and not self._is_done(self.after):
            assert time.monotonic() < end
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            driver.wait(self.delay)

    def _is_done(self, step: str) -> bool:
        return any(Path(self.area.folder).glob(f"home/runs/*/*/steps/{step}.json"))

    def _strike(self, driver: subprocess.Popen[bytes]) -> None:
        strikes: dict[str, Callable[[], None]] = {
            "a Python worker": lambda: self._kill_one(_is_python, *self._workers()),
            "an executor": lambda: self._kill_one(_is_executor, *self._workers()),
            "a worker": self._exchange_a_worker,
            "the driver": lambda: _kill_group(driver.pid),
            "the driver's JVM": lambda: self._kill_one(_is_java, driver.pid),
            "the network": self._cut,
        }
        strikes[self.victim]()

    def _workers(self) -> list[int]:
        return [worker.pid for worker in self.cluster.workers.values()]

    def _kill_one(self, is_one: Callable[[psutil.Process], bool], *parents: int) -> None:
        if found := [one for parent in parents for one in _below(parent) if is_one(one)]:
            with suppress(psutil.NoSuchProcess):
                self.drawn.choice(found).kill()

    def _exchange_a_worker(self) -> None:
        numbers = sorted(self.cluster.workers)
        self.cluster.kill_worker(self.drawn.choice(numbers))
        self.cluster.start_worker(numbers[-1] + 1)

    def _cut(self) -> None:
        self.network.set(is_away=not self.is_silent, is_silent=self.is_silent)
        back = threading.Timer(self.seconds, self.network.set)
        back.daemon = True
        back.start()


def _below(process: int) -> list[psutil.Process]:
    try:
        return psutil.Process(process).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _is_java(process: psutil.Process) -> bool:
    return "org.apache.spark" in _line(process)


def _is_executor(process: psutil.Process) -> bool:
    return "CoarseGrainedExecutorBackend" in _line(process)


def _is_python(process: psutil.Process) -> bool:
    return "daemon" in _line(process) and not _is_java(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("chaos") / "spark").running(workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network.between(stack)


@pytest.fixture(scope="module")
def undisturbed(cluster: SparkCluster, network: Network, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    source = demo_savepoint(str(folder / "source"), keys=3000, entries=10)
    area = area_in(folder, source)
    done = Saboteur(cluster, network, area, random.Random(SEED)).run(is_spared=True)
    assert done.code == 0, done.said
    return Undisturbed(source, content_of(source), area.result())


def area_in(folder: Path, source: str) -> Area:
    own = folder / new_name()
    own.mkdir()
    return Area(str(own), source, f"sqlite:///{own}/catalog.db")


@pytest.mark.parametrize("number", runs(0.1))
def test_a_run_ends_as_if_nothing_had_been_lost(
    number: int, cluster: SparkCluster, network: Network, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    area = area_in(tmp_path, undisturbed.source)
    saboteur = Saboteur(cluster, network, area, random.Random(f"{SEED}-{number}"))
    sys.stdout.write(f"{saboteur}\n")
    done = saboteur.run()
    if done.code != 0:
        done.check_clear()
        area.check_nothing_half(undisturbed.result)
        done = saboteur.run(is_spared=True)
    assert done.code == 0, done.said
    assert area.result() == undisturbed.result
    assert content_of(undisturbed.source) == undisturbed.content
