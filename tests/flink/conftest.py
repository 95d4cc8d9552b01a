"""Flink for the tests: one JVM per version, started by the first test that needs it; one savepoint of each job."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator

import pytest

from tests.flink import jars
from tests.flink.harness import FlinkHarness, Made
from tests.flink.jobs import Job
from tests.flink.judge import Make, Started
from tests.flink.upgrade_rows import ROWS


@pytest.fixture(scope="package")
def flink() -> Iterator[Callable[[str], FlinkHarness]]:
    """The harness of a version of Flink, by its name."""
    running: dict[str, FlinkHarness] = {}

    def harness(version: str) -> FlinkHarness:
        if version not in running:
            running[version] = FlinkHarness(version)
        return running[version]

    yield harness
    for started in running.values():
        started.close()


@pytest.fixture(scope="package")
def flink_1(flink: Callable[[str], FlinkHarness]) -> FlinkHarness:
    return flink("1.20.0")


@pytest.fixture(scope="package")
def flink_2(flink: Callable[[str], FlinkHarness]) -> FlinkHarness:
    return flink("2.3.0")


@pytest.fixture(scope="package")
def made(flink: Callable[[str], FlinkHarness], tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A job's savepoint, made when it is first asked for; tests only read it."""
    known: dict[str, Made] = {}
    folder = tmp_path_factory.mktemp("savepoints")

    def make(version: str, job: Job, format_: str = "CANONICAL") -> Made:
        described = json.dumps([version, format_, dataclasses.asdict(job)])
        if described not in known:
            known[described] = flink(version).make(job, folder / str(len(known)), format_=format_)
        return known[described]

    return make


@pytest.fixture(scope="package")
def started() -> Iterator[Started]:
    """The harness of a version, with flink-scala and flink-avro on its class path or, as most jobs have it, without."""
    running: dict[tuple[str, bool], FlinkHarness] = {}

    def harness(version: str, whole: bool) -> FlinkHarness:
        if (version, whole) not in running:
            class_path = jars.class_path(version) if whole else jars.class_path_of_java_alone(version)
            running[version, whole] = FlinkHarness(version, class_path)
        return running[version, whole]

    yield harness
    for one in running.values():
        one.close()


@pytest.fixture(scope="package")
def savepoints(started: Started, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Made]:
    """The savepoint of a row by a version, made when it is first asked for."""
    known: dict[tuple[str, str], Made] = {}
    folder = tmp_path_factory.mktemp("rows")

    def make(version: str, name: str) -> Made:
        if (version, name) not in known:
            row = ROWS[name]
            path = folder / str(len(known))
            known[version, name] = started(version, row.whole_class_path).make(row.job, path, format_=row.format)
        return known[version, name]

    return make
