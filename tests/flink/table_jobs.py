"""A job of Flink SQL and one of CEP, each run by a JVM of its own until it is stopped with a savepoint.

``python -m tests.flink.table_jobs [case ...]`` makes anew the small ones under ``tests/table_savepoints``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from tests.flink import jars
from tests.support.fetched_jars import java_tool

SAVEPOINTS = Path(__file__).parents[1] / "table_savepoints"
_SECONDS = 400

# What is left out has nothing in its headers that the others haven't.
_FEW = {"queries": "distinct,retracted,joined,sessions,over,columns", "from": "0", "to": "12", "parallelism": "1"}
_EVENTS = {"job": "cep", "from": "0", "to": "20", "parallelism": "2"}
CASES: Mapping[str, Mapping[str, str]] = {
    "sql-1.20-rocksdb": {"job": "sql", "backend": "rocksdb", "format": "CANONICAL", **_FEW},
    "sql-2.3-hashmap": {"job": "sql", "backend": "hashmap", "format": "CANONICAL", **_FEW},
    "cep-1.20-hashmap": {"backend": "hashmap", "format": "CANONICAL", **_EVENTS},
    "cep-objects-1.20-rocksdb": {"backend": "rocksdb", "format": "CANONICAL", **_EVENTS, "objects": "true"},
    "cep-2.3-rocksdb": {"backend": "rocksdb", "format": "CANONICAL", **_EVENTS},
}


def run_job(version: str, folder: Path, **asked: str) -> tuple[Path, list[str]]:
    """Runs a job as `stateferry.flink.Tables` is asked; returns its savepoint in the folder, and what it has said."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        said = Path(scratch) / "said"
        places = {"scratch": scratch, "said": str(said), "target": str(folder)}
        options = ["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jars.OPENED]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", jars.tables(version).class_path()]
        command = [java_tool("java"), *options, "stateferry.flink.Tables"]
        command += [f"{name}={value}" for name, value in {**places, **asked}.items()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Flink {version} has failed:\n{done.stderr[-6000:]}")
        return Path(unquote(urlparse(done.stdout.strip()).path)), said.read_text(encoding="utf-8").splitlines()


def results(said: list[str]) -> Counter[str]:
    """The rows that there are after all changes; what isn't a change is one more."""
    out: Counter[str] = Counter()
    for line in said:
        name, _, row = line.partition(" ")
        out[f"{name} {row.lstrip('+-IUABD') if row.startswith(('+', '-')) else row}"] += -1 if row[0] == "-" else 1
    return +out


def _main(cases: list[str]) -> None:
    for case in cases or CASES:
        version = next(one for one in jars.VERSIONS if f"-{one.rsplit('.', 1)[0]}-" in case)
        with tempfile.TemporaryDirectory() as scratch:
            made, _ = run_job(version, Path(scratch), **CASES[case])
            shutil.rmtree(SAVEPOINTS / case, ignore_errors=True)
            shutil.copytree(made, SAVEPOINTS / case)
        sys.stdout.write(f"{case}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
