"""Measures whole runs from RocksDB's own files to RocksDB's own files, beside those from canonical to canonical."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Scale, Subject
from benchmarks.pipeline import Bench, run_without_states

_ROUNDS = 3
# How many times as long as a canonical run a native one may take.
_MOST = 2


def as_native(source: Path, target: Path) -> None:
    """Writes a savepoint with the same content in RocksDB's own files."""
    home = target.with_name("home-of-native")
    command = run_without_states(source, target, "--format", "native")
    execute(command, target.with_name("log"), environment={"STATEFERRY_HOME": str(home)})
    shutil.rmtree(home)


def measure(scale: Scale) -> Iterator[Comparison]:
    """One line for each of the two, measured in turn."""
    bench = Bench(scale.folder, scale.keys)
    canonical, native = bench.source("plain", bench.plain), scale.folder / "native"
    as_native(canonical, native)
    ours, others = [], []
    for _ in range(min(scale.rounds, _ROUNDS)):
        others.append(bench.night(canonical).execution)
        ours.append(bench.night(native, "--format", "native", "--no-timers").execution)
    for folder in (canonical, native):
        shutil.rmtree(folder)
    before = Comparison("canonical to canonical", tuple(others))
    yield before
    yield Comparison("native to native", tuple(ours)).beside(before, 1 / _MOST)


SUBJECT = Subject(
    "Whole runs on RocksDB's own files, String -> Long, 100 entries a key, rehearsed, on all cores", measure
)
