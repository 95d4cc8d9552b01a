"""The peer: the same conversion with Flink's State Processor API, written for speed as far as that API allows.

Its jars also run the programs in `benchmarks/java`, which measure Flink and write databases by RocksDB itself.

`python -m benchmarks.state_processor` pins the versions of its jars again, after a change of version.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.executing import ALL_CORES
from tests.flink.jars import Program
from tests.support.fetched_jars import java_tool

FLINK = "2.3.0"
_HEAP_MB, _ROCKSDB_MB = 640, 256
# Packages that Kryo reads by reflection; the API uses Kryo for its own records.
_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.time", "java.net", "java.nio")
_HERE = Path(__file__).parent

PROGRAM = Program(
    FLINK,
    ("flink-streaming-java", "flink-clients", "flink-statebackend-rocksdb", "flink-state-processor-api"),
    _HERE / "jars.sha256",
    (_HERE / "java",),
)
_OTHERS = replace(PROGRAM, sources=(_HERE.parent / "java",))


def command(source: Path, target: Path, scratch: Path, max_parallelism: int, work: str = "migrate") -> list[str]:
    """The command of a conversion, or with `rescale` of a copy, with as many subtasks as there are cores."""
    scratch.mkdir()
    options = [f"-Xmx{_HEAP_MB}m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]
    arguments = [source, target, scratch, len(ALL_CORES), _ROCKSDB_MB, max_parallelism, work]
    java = [java_tool("java"), *options, "-cp", PROGRAM.class_path(), "stateferry.benchmark.Convert"]
    return [*java, *map(str, arguments)]


def run_java(program: str, *arguments: object, options: Sequence[str] = ()) -> str:
    """Runs a program in `benchmarks/java`, and returns what it prints."""
    java = [java_tool("java"), *options, "-cp", _OTHERS.class_path(), f"stateferry.benchmark.{program}"]
    return subprocess.run([*java, *map(str, arguments)], capture_output=True, text=True, check=True).stdout
