"""Make the savepoints of Flink 1.12 under ``tests/savepoints`` anew: ``python -m tests.flink.make_old_golden``.

Flink 1.12 is the last one whose savepoints have the layout of its backends' full checkpoints: RocksDB's is the
canonical one, the HashMap backend's is its own. It is fetched for this alone, and no test runs it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from flinkstate.hashing.key_groups import assign_to_key_group
from tests.flink import jars
from tests.flink.make_golden import SAVEPOINTS
from tests.support.fetched_jars import java_tool
from tests.support.samples import java_hash

VERSION = "1.12.7"
_HERE = Path(__file__).parent
PROGRAM = jars.Program(
    VERSION,
    ("flink-streaming-java_2.12", "flink-clients_2.12", "flink-statebackend-rocksdb_2.12"),
    _HERE / f"jars-{VERSION}.sha256",
    (_HERE / "java" / VERSION,),
    # What Flink's poms say of Scala is in terms that Ivy doesn't read.
    ("org.slf4j:slf4j-simple:1.7.36", "org.scala-lang:scala-library:2.12.7", "com.typesafe:config:1.3.3"),
)
_SECONDS = 300
_KEYS = 24
_MAX_PARALLELISM = 8
_TIMER = 4102444800000

# The backend, whether key groups are compressed, whether values expire, and how much state is kept in the metadata.
CASES = {
    "old-1.12-rocksdb": ("rocksdb", False, False, 0),
    "old-ttl-snappy-1.12-rocksdb": ("rocksdb", True, True, 0),
    "heap-1.12": ("heap", False, False, 1 << 20),
    "heap-ttl-snappy-1.12": ("heap", True, True, 1 << 20),
}


def lines() -> Iterator[dict[str, Any]]:
    """Every entry, as `OldSavepoints` says it; when one that expires was last used isn't known."""
    for number in range(_KEYS):
        name = f"k{number}"
        place = {"key": name, "key_group": assign_to_key_group(java_hash(name), _MAX_PARALLELISM)}
        entries = {f"u{entry}": 10 * number + entry for entry in range(number % 4)}
        yield {"operator": "main", "state": "blob", **place, "value": entries}
        for user_key, value in entries.items():
            yield {"operator": "main", "state": "entries", **place, "user_key": user_key, "value": value}
        yield {"operator": "main", "state": "flag", **place, "value": number % 2 == 0}
        names = [f"n{index}" for index in range(number % 3 + 1)]
        yield {"operator": "main", "state": "names", **place, "value": names}
        timers = "_timer_state/processing_user-timers"
        yield {"operator": "main", "state": timers, **place, "timestamp": _TIMER + number}


def make() -> None:
    for name, (backend, compressed, expires, inlined) in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            command = [java_tool("java"), *jars.OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
            command += ["-cp", PROGRAM.class_path(), "stateferry.flink.OldSavepoints"]
            command += [backend, str(compressed).lower(), str(expires).lower(), str(inlined), scratch]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
            shutil.rmtree(SAVEPOINTS / name, ignore_errors=True)
            shutil.move(unquote(urlparse(done.stdout.split()[-1]).path), SAVEPOINTS / name)
        if backend == "rocksdb" and not expires:
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines())
            (SAVEPOINTS / name / "expected.jsonl").write_text(text, encoding="ascii")


if __name__ == "__main__":
    make()
