"""The share of lines that tests run, as it is printed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from tests.support.line_coverage import summary

HOUSE = Path(__file__).parents[1]


def lines_of(file: str) -> set[int]:
    def lines(code: CodeType) -> Iterator[int]:
        yield from (line for _, _, line in code.co_lines() if line)
        for part in code.co_consts:
            if isinstance(part, CodeType):
                yield from lines(part)

    return set(lines(compile((HOUSE / file).read_bytes(), file, "exec")))


def test_the_shares_are_those_of_the_lines_that_ran() -> None:
    nothing = list(summary({}))[1:]
    assert all("  0% of" in line for line in nothing)
    assert not any(kernel in line for line in nothing for kernel in ("airflow", "spark_jobs"))
    files = [file.relative_to(HOUSE).as_posix() for file in (HOUSE / "flinkstate/values").glob("*.py")]
    half = {file: lines_of(file) for file in files}
    (values,) = [line.split() for line in summary(half) if "flinkstate/values" in line]
    assert values[1] == "100%"
    assert int(values[3].replace(",", "")) == sum(map(len, half.values()))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_lines_that_run_are_seen() -> None:
    code = (
        "from tests.support.line_coverage import LineCoverage\n"
        "coverage = LineCoverage()\n"
        "import flinkstate.ttl\n"
        "before = set(coverage._ran['flinkstate/ttl.py'])\n"
        "flinkstate.ttl.expired(1, 2, 3)\n"
        "print(len(before), len(coverage._ran['flinkstate/ttl.py'] - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HOUSE, capture_output=True, text=True, check=True)
    before, more = map(int, done.stdout.split())
    assert before > 20
    assert 5 < more < 15
