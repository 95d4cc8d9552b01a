"""Says at the end of a run which share of the library's lines its tests have run.

Python 3.12 and later report each line once and then no more (`sys.monitoring`), which costs next to nothing. Earlier
ones report it each time, at a third more processor time, so there nothing is measured. Compiled kernels and what other
processes run (Spark's, Airflow's, commands) isn't seen.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

_HOUSE = Path(__file__).parents[2]
_PACKAGES = ("flinkstate", "stateferry")
_ELSEWHERE = ("stateferry/airflow", "stateferry/spark_jobs")
_TOOL = 1  # The number that Python keeps for tools that measure coverage.
_TOO_OLD = "coverage of lines: not measured, because that is cheap only from Python 3.12 on"

# Lines by file, which is named as from the repository.
Lines = dict[str, set[int]]


class LineCoverage:
    """Gathers the lines that this process runs, and those that the processes of pytest-xdist have run."""

    def __init__(self) -> None:
        self._ran: Lines = defaultdict(set)
        self._counts = sys.version_info >= (3, 12)
        if self._counts:
            self._watch()

    def _watch(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        if monitoring.get_tool(_TOOL) is not None:
            self._counts = False  # Another tool measures.
            return
        roots = tuple(f"{_HOUSE / package}/" for package in _PACKAGES)
        start = len(f"{_HOUSE}/")

        def line(code: CodeType, number: int) -> Any:
            if code.co_filename.startswith(roots):
                self._ran[code.co_filename[start:]].add(number)
            return monitoring.DISABLE

        monitoring.use_tool_id(_TOOL, "lines")
        monitoring.register_callback(_TOOL, monitoring.events.LINE, line)
        monitoring.set_events(_TOOL, monitoring.events.LINE)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["lines"] = {file: sorted(lines) for file, lines in self._ran.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for file, lines in getattr(node, "workeroutput", {}).get("lines", {}).items():
            self._ran[file].update(lines)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._counts:
            terminalreporter.write_line(_TOO_OLD)
            return
        for text in summary(self._ran):
            terminalreporter.write_line(text)


def summary(ran: Lines) -> Iterator[str]:
    """Yields a line for each folder of the library: how many lines of code it has, and the share that ran."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for package in _PACKAGES:
        for path in sorted((_HOUSE / package).rglob("*.py")):
            file = path.relative_to(_HOUSE).as_posix()
            if file.startswith(_ELSEWHERE) or path.stem.endswith("kernels"):
                continue
            lines = set(_lines(compile(path.read_bytes(), str(path), "exec")))
            for folder in ("/".join(path.parent.relative_to(_HOUSE).parts[:2]), "all"):
                totals[folder][0] += len(lines)
                totals[folder][1] += len(lines & ran.get(file, set()))
    yield "lines of code that ran, without compiled kernels and other processes:"
    for folder, (lines_there, lines_ran) in totals.items():
        if lines_there and folder != "all":
            yield f"  {folder:<24} {lines_ran / lines_there:4.0%} of {lines_there:,}"
    yield f"  {'all':<24} {totals['all'][1] / totals['all'][0]:4.0%} of {totals['all'][0]:,}"


def _lines(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _lines(part)
