"""Flink for the tests: one JVM per version, started by the first test that needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.flink.harness import FlinkHarness


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def flink_1(flink: Callable[[str], FlinkHarness]) -> FlinkHarness:
    return flink("1.20.0")


@pytest.fixture(scope="session")
def flink_2(flink: Callable[[str], FlinkHarness]) -> FlinkHarness:
    return flink("2.3.0")
