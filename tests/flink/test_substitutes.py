"""Flink sends each record to the subtask that the generated Java class chooses for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import encode
from stateferry.cli import main
from tests.flink import jars
from tests.support.fetched_jars import java_tool
from tests.support.keyed_blobs import write_blobs

pytestmark = [pytest.mark.flink, pytest.mark.timeout(300)]

JOB = Path(__file__).parent / "substitutes" / "SubstituteJob.java"
# Keys with characters that Java would read otherwise.
SIZES = {f"customer {number}": number % 5 for number in range(60)} | {"hot": 90, 'a"\\\n\t日本': 70, "warm": 40, "": 30}
PARALLELISM, MAX_PARALLELISM = 5, 133


def test_records_arrive_where_the_class_sends_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = write_blobs(tmp_path / "savepoint", SIZES, 2, 128, Scalar.STRING)
    layout = ("--parallelism", str(PARALLELISM), "--max-parallelism", str(MAX_PARALLELISM))
    loads = []
    for type_ in ("Integer", "Long", "String"):
        arguments = ["advise", str(savepoint), "--heaviest", "8", *layout, "--substitutes", type_]
        assert main([*arguments, "--java", f"Of{type_}"]) == 0
        (tmp_path / f"Of{type_}.java").write_text(capsys.readouterr().out)
        assert main([*arguments, "--json"]) == 0
        loads.append(json.loads(capsys.readouterr().out)["load"]["by_subtask"])
    arrived = run_job(tmp_path, list(SIZES))
    for position, type_ in enumerate(("Integer", "Long", "String")):
        own = {what: (subtask, said) for name, what, subtask, said in arrived if name == type_}
        assert all(subtask == said for subtask, said in own.values())
        assert [own[f"subtask {subtask}"][0] for subtask in range(PARALLELISM)] == list(range(PARALLELISM))
        by_subtask = [0] * PARALLELISM
        for number, key in enumerate(SIZES):
            by_subtask[own[f"key {number}"][0]] += bytes_of(key)
        assert by_subtask == loads[position]


def bytes_of(key: str) -> int:
    # Two lengths, key group, key and namespace; the map's count, and for each entry user key, null flag and value.
    return 8 + 1 + len(encode(Scalar.STRING, key)) + 1 + 4 + SIZES[key] * (10 + 1 + 8)


def run_job(folder: Path, keys: list[str]) -> list[tuple[str, str, int, int]]:
    jars_of_flink = jars.class_path("2.3.0")
    sources = [JOB, *folder.glob("Of*.java")]
    compile_ = [java_tool("javac"), "-nowarn", "--release", "17", "-d", str(folder), "-cp", jars_of_flink]
    subprocess.run([*compile_, *map(str, sources)], check=True)
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", *jars.OPENED]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dsun.jnu.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    command = [java_tool("java"), *options, "-cp", f"{folder}:{jars_of_flink}", "SubstituteJob", *keys]
    done = subprocess.run(command, capture_output=True, check=False, env={"LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr.decode()
    lines = [line.split("\t") for line in done.stdout.decode().splitlines()]
    return [(name, what, int(subtask), int(said)) for name, what, subtask, said in lines]
