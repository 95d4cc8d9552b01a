"""Says at the end of a run in several processes until when each of them was busy, and with which files of tests."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest

_LONGEST = 12


class Busy:
    """Adds up, for each process of pytest-xdist, how long its files of tests took."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._until: dict[str, float] = {}
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = getattr(report, "node", None)
        if node is not None:
            self._until[node.gateway.id] = time.monotonic() - self._began
            self._seconds[node.gateway.id][report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for process, until in sorted(self._until.items()):
            files = sorted(self._seconds[process].items(), key=lambda item: -item[1])[:_LONGEST]
            said = ", ".join(f"{file.removeprefix('tests/')} {seconds:.0f} s" for file, seconds in files)
            terminalreporter.write_line(f"{process} was busy until second {until:.0f}: {said}")
