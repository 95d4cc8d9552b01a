"""Measures how long the new job waits for its savepoint: from the command to the publication.

The command is given when the source is complete, so Spark's start counts. The processor time and the memory are those
of the whole run, with the tables that follow.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import state_processor
from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Execution, Scale, Subject, expect
from benchmarks.native_runs import as_native
from benchmarks.pipeline import Bench, entries_in, goal, run_command
from benchmarks.sections import ENTRIES_PER_KEY, NOW
from flinkstate.metadata.file_names import METADATA

_LARGE = (500_000, 5_000_000)


def measure(scale: Scale) -> Iterator[Comparison]:
    """One line for the peer, and one for each format of source and result."""
    bench = Bench(scale.folder, scale.keys)
    canonical, native = bench.source("plain", bench.plain), scale.folder / "native"
    peer = Comparison(f"State Processor API of Flink {state_processor.FLINK}", (bench.peer(canonical),))
    yield peer
    yield _line("canonical plain → the default", _published(bench, canonical), peer, _goal(bench, 7))
    for compression in ("stored", "snappy"):
        done = _published(bench, canonical, "--compression", compression)
        yield _line(f"canonical plain → {compression}", done, peer)
    as_native(canonical, native)
    shutil.rmtree(canonical)
    yield _line(
        "native → native", _published(bench, native, "--format", "native", "--no-timers"), peer, _goal(bench, 4)
    )
    shutil.rmtree(native)


def _published(bench: Bench, source: Path, *options: str) -> Execution:
    """The run, as long as it took until the new job could have started."""
    target, home = bench.folder / "published", bench.folder / "home-of-published"
    command, began = run_command(source, target, "--now", str(NOW), *options), time.time()
    done = execute(command, bench.folder / "run.log", environment={"STATEFERRY_HOME": str(home)})
    seconds = (target / METADATA).stat().st_mtime - began
    expect(entries_in(target), bench.keys * ENTRIES_PER_KEY, f"entries in {target}")
    for folder in (target, home):
        shutil.rmtree(folder)
    return replace(done, seconds=seconds)


def _goal(bench: Bench, times: float) -> float | None:
    return times if bench.keys in _LARGE else None


def _line(what: str, done: Execution, peer: Comparison, times: float | None = None) -> Comparison:
    line = Comparison(what, (done,)).beside(peer)
    return replace(line, goal=goal(line, times)) if times else line


SUBJECT = Subject("From the command to the publication, String -> Long, 100 entries a key, on all cores", measure)
