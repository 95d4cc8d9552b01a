"""Measures how long a Flink job takes to change one entry of a map, by kind of state, backend and size."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import state_processor
from benchmarks.measuring import Cells, Scale, Subject, WrongResultError
from tests.flink.jars import OPENED
from tests.support.fetched_jars import java_tool

_PROGRAM = replace(state_processor.PROGRAM, sources=(Path(__file__).parent / "java",))
_ENTRIES, _BYTES = (1, 2, 4, 16, 64, 256, 1024), (8, 100, 4096)
_BACKENDS = {"rocksdb": "RocksDB", "hashmap": "HashMap"}
_KINDS = {"value": "ValueState", "list": "ListState", "map": "MapState"}
_STATE_BYTES, _MILLISECONDS = 40_000_000, 1500


def microseconds(backend: str, kind: str, entries: int, size: int, milliseconds: int = _MILLISECONDS) -> float:
    """The median time of a change, in a job of its own with 40 MB of state."""
    options = ["-Xmx1500m", "-XX:+UseSerialGC", *OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    arguments = [backend, kind, str(entries), str(size), str(_STATE_BYTES), str(milliseconds)]
    command = [java_tool("java"), *options, "-cp", _PROGRAM.class_path(), "stateferry.benchmark.AccessState"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("median ")]
    if len(found) != 1:
        raise WrongResultError(f"expected a line with the median, found {done.stdout[-500:]!r}")
    return int(found[0][1]) / 1000


def measure(scale: Scale) -> Iterator[Cells]:
    """One line for each size of a map."""
    for size in _BYTES:
        for entries in _ENTRIES:
            times = {
                f"{shown}, {name}": microseconds(backend, kind, entries, size)
                for backend, shown in _BACKENDS.items()
                for kind, name in _KINDS.items()
            }
            before, after = (times[f"RocksDB, {kind}"] for kind in ("ValueState", "MapState"))
            shown = {what: f"{time:,.1f}" for what, time in times.items()}
            ratio = f"{before / after:.1f}"
            yield Cells({"entries": f"{entries:,}", "bytes of a value": f"{size:,}", **shown, "RocksDB, times": ratio})


SUBJECT = Subject("Microseconds to change one entry of a map, in a job with 40 MB of state", measure)
