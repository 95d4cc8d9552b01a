"""Says at the end of a run in several processes until when each of them was busy, and with what."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

import pytest

_LONGEST = 6


class Busy:
    """Adds up, for each process of pytest-xdist, how long its groups of tests took."""

    def __init__(self, group: Callable[[str], str]) -> None:
        self._group = group
        self._began = time.monotonic()
        self._until: dict[str, float] = {}
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = getattr(report, "node", None)
        if node is not None:
            self._until[node.gateway.id] = time.monotonic() - self._began
            self._seconds[node.gateway.id][self._group(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for process, until in sorted(self._until.items()):
            groups = sorted(self._seconds[process].items(), key=lambda item: -item[1])[:_LONGEST]
            said = ", ".join(f"{group.removeprefix('tests/')} {seconds:.0f} s" for group, seconds in groups)
            terminalreporter.write_line(f"{process} was busy until second {until:.0f}: {said}")
