"""The benchmark of whole runs: it measures what it starts, and its peer does the work that ours does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import native_runs, publishing
from benchmarks.executing import FailedError, execute
from benchmarks.measuring import Comparison, Execution, Scale, WrongResultError
from benchmarks.other_values import Values
from benchmarks.pipeline import Bench
from benchmarks.report import tables
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.values.java_values import RowValue
from stateferry.demo import MAIN_STATE

KEYS = 700
_CHILD = (
    "import time; held = bytearray(80_000_000); end = time.process_time() + 1.5\nwhile time.process_time() < end: 0"
)
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}], check=True)"


@pytest.mark.slow
def test_all_processes_count(tmp_path: Path) -> None:
    began = time.perf_counter()
    done = execute([sys.executable, "-c", _PARENT], tmp_path / "log")
    assert 1.5 < done.seconds < time.perf_counter() - began
    assert 0.1 < done.cpu_seconds < 30
    assert done.memory > 80_000_000


def test_a_command_that_fails_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(FailedError, match="ended with 3:\nwhy"):
        execute([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"], tmp_path / "log")


def test_comparisons_are_shown_by_median_and_most_memory() -> None:
    slow = Comparison("slow", tuple(Execution(seconds, 30, 10**9) for seconds in (50, 60, 90)))
    fast = Comparison("fast", tuple(Execution(seconds, 10, memory) for seconds, memory in ((20, 1), (30, 2 * 10**9))))
    assert slow.faster_than(fast) == (25 / 60, 1 / 3)
    *_, row = tables([slow, Comparison("fast", fast.executions, fast.faster_than(slow))]).splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "fast", "25.0", "20.0", "10.0", "2.0 GB", "2.40", "3.00", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "memory", "goal"),
    [(15, 2e9, "≥ 0.67, ≤ 2 GB reached"), (16, 2e9, "≥ 0.67, ≤ 2 GB MISSED"), (9, 2e9 + 1, "≥ 0.67, ≤ 2 GB MISSED")],
)
def test_a_goal_of_a_comparison_may_limit_the_memory(seconds: float, memory: float, goal: str) -> None:
    other = Comparison("other", (Execution(10, 10, 10**10),))
    ours = Comparison("ours", (Execution(seconds, 10, int(memory)),))
    assert ours.beside(other, 1 / 1.5, 2e9).goal == goal
    assert "GB" not in ours.beside(other, 1 / 1.5).goal


@pytest.mark.slow
def test_another_night_differs_in_every_hundredth_key_of_a_section(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KEYS)
    source = bench.source("plain", bench.plain)
    changed, count = bench.next_night(source)
    before, after = _values(source), _values(changed)
    different = [key for key, value in before.items() if after[key] != value]
    assert len(before) == KEYS
    assert 0 < count == len(different) <= 128
    assert all(before[key][:-1] == after[key][:-1] for key in different)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "of"),
    [
        (Values.NULLABLE, lambda _, number: number if number % 10 else None),
        (Values.NESTED, lambda name, number: RowValue((number, name if number % 10 else None, number / 8))),
    ],
)
def test_other_values_stand_where_the_plain_ones_did(
    values: Values, of: Callable[[str, int], object], tmp_path: Path
) -> None:
    bench = Bench(tmp_path, KEYS)
    source = bench.source("plain", bench.plain)
    plain = _values(source)
    numbers = [number for entries in plain.values() for _, number in entries]
    assert 0.05 < sum(number % 10 == 0 for number in numbers) / len(numbers) < 0.15
    other = bench.of_other_values(source, values)
    assert _values(other) == {
        key: [(name, of(name, number)) for name, number in entries] for key, entries in plain.items()
    }


def _values(path: Path) -> dict[str, list[tuple[str, Any]]]:
    savepoint = Savepoint.open(str(path))
    (operator,) = savepoint.keyed_operators()
    entries = read_entries(savepoint, operator, savepoint.state(operator, MAIN_STATE))
    return {entry.key: entry.value for entry in entries}


@pytest.mark.full
@pytest.mark.flink
def test_the_peer_writes_every_entry(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KEYS)
    assert bench.peer(bench.source("plain", bench.plain)).memory > 0
    with pytest.raises(WrongResultError):
        Bench(tmp_path, KEYS + 1).peer(tmp_path / "plain")


@pytest.mark.full
def test_the_time_until_the_publication_is_shorter_than_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[Execution] = []

    def executed(*arguments: Any, **options: Any) -> Execution:
        whole.append(execute(*arguments, **options))
        return whole[-1]

    monkeypatch.setattr(publishing, "execute", executed)
    peer, *lines = publishing.measure(Scale(tmp_path, keys=KEYS, rounds=1))
    assert peer.speed is None
    for line, run in zip(lines, whole, strict=True):
        assert 1 < line.seconds < run.seconds
        assert line.cpu_seconds == run.cpu_seconds
        assert line.speed is not None
    assert not {"plain", "native", "published", "home-of-published"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.full
def test_native_runs_are_measured_beside_canonical_ones(tmp_path: Path) -> None:
    before, line = native_runs.measure(Scale(tmp_path, keys=KEYS, rounds=1))
    assert before.speed is None
    assert line.speed is not None
    assert not {"plain", "native", "home-of-native"} & {path.name for path in tmp_path.iterdir()}
