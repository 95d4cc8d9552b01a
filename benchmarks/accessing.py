"""Measures how long a Flink job takes to change one entry of a map, by kind of state, backend and size."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import state_processor
from benchmarks.measuring import Cells, Scale, Subject, WrongResultError
from tests.flink.jars import OPENED
from tests.support.fetched_jars import java_tool

_PROGRAM = replace(state_processor.PROGRAM, sources=(Path(__file__).parent / "java",))
_ENTRIES, _BYTES = (1, 2, 4, 8, 16, 31, 64, 256), (8, 100, 4096)
_BACKENDS = {"rocksdb": "RocksDB", "hashmap": "HashMap"}
_KINDS = {"value": "ValueState", "list": "ListState", "map": "MapState"}
_STATE_BYTES, _MILLISECONDS = 10_000_000, 800

Size = tuple[int, int]


def microseconds(
    backend: str, kind: str, sizes: Sequence[Size], milliseconds: int = _MILLISECONDS
) -> dict[Size, float]:
    """The median time of a change by size (entries, bytes of a value), each in a job of its own."""
    options = ["-Xmx1500m", "-XX:+UseSerialGC", *OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    named = {f"{entries}x{size}": (entries, size) for entries, size in sizes}
    arguments = [backend, kind, str(_STATE_BYTES), str(milliseconds), *named]
    command = [java_tool("java"), *options, "-cp", _PROGRAM.class_path(), "stateferry.benchmark.AccessState"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("median ")]
    found = {named[name]: int(nanoseconds) / 1000 for _, name, nanoseconds in lines}
    if list(found) != list(sizes):
        raise WrongResultError(f"expected the medians of {', '.join(named)}, found {done.stdout[-500:]!r}")
    return found


def measure(scale: Scale) -> Iterator[Cells]:
    """One line for each size of a map."""
    sizes = [(entries, size) for size in _BYTES for entries in _ENTRIES]
    times = {(backend, kind): microseconds(backend, kind, sizes) for backend in _BACKENDS for kind in _KINDS}
    for entries, size in sizes:
        shown = {
            f"{_BACKENDS[backend]}, {_KINDS[kind]}": f"{of[entries, size]:,.1f}"
            for (backend, kind), of in times.items()
        }
        ratio = times["rocksdb", "value"][entries, size] / times["rocksdb", "map"][entries, size]
        head = {"entries": f"{entries:,}", "bytes of a value": f"{size:,}"}
        yield Cells({**head, **shown, "RocksDB, times": f"{ratio:.1f}"})


SUBJECT = Subject("Microseconds to change one entry of a map, in a job with 10 MB of state", measure)
