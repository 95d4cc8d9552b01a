"""Flink's own Kryo: what it writes, and how it reads what it is asked about.

    .venv/bin/python -m tests.flink.kryo

makes the golden files in `tests/kryo/`: the lines of `stateferry.kryo.KryoExamples` of both versions of Flink.
"""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.flink import jars
from tests.support.fetched_jars import java_tool

GOLDEN = Path(__file__).parents[1] / "kryo"


def examples(version: str) -> str:
    """Returns the lines that `KryoExamples` prints with a version of Flink."""
    return _run(version, "KryoExamples")


def judged(version: str, questions: Sequence[tuple[str, str, bytes]]) -> list[str]:
    """Returns the answers of `KryoJudge` for the snapshots of both serializers and the bytes of a map."""
    asked = "".join(f"{kryo} {own} {value.hex()}\n" for kryo, own, value in questions)
    return _run(version, "KryoJudge", asked).splitlines()


def golden(version: str) -> Path:
    return GOLDEN / f"examples-{version}.jsonl.gz"


def _run(version: str, program: str, asked: str = "") -> str:
    options = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command = [java_tool("java"), *options, *jars.OPENED, "-cp", jars.kryo(version), f"stateferry.kryo.{program}"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed with Flink {version}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    for version in jars.VERSIONS:
        golden(version).write_bytes(gzip.compress(examples(version).encode("ascii"), mtime=0))
