"""Make the small savepoints under ``tests/savepoints`` anew: ``python -m tests.flink.make_golden [case ...]``.

Each folder is a savepoint as Flink wrote it, with ``expected.jsonl`` beside its files: every entry as the generator
knows it. Contents are the same on every run; file names and the order of entries are not.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.flink.harness import FlinkHarness
from tests.flink.jobs import Job
from tests.flink.scenarios import SCENARIOS

SAVEPOINTS = Path(__file__).parent.parent / "savepoints"


@dataclass(frozen=True)
class Golden:
    """One case: which Flink runs what, and in which version of the format Flink writes the metadata anew, if at all."""

    version: str
    job: Job
    format: str = "CANONICAL"
    metadata_version: int | None = None


def _small(name: str, keys: int, backend: str = "rocksdb", inline_threshold: int = 0) -> Job:
    """A scenario with fewer keys, and its state in files unless told otherwise."""
    job = SCENARIOS[name]
    operators = tuple(replace(o, keys=min(o.keys, keys)) for o in job.operators)
    return replace(job, operators=operators, backend=backend, inline_threshold=inline_threshold)


_INCREMENTAL = {"execution.checkpointing.incremental": "true"}
_DEFAULT_THRESHOLD = Job.inline_threshold

CASES: Mapping[str, Golden] = {
    "legacy-2.3-rocksdb": Golden("2.3.0", _small("legacy-string-long", 128)),
    "legacy-ttl-2.3-rocksdb": Golden("2.3.0", _small("legacy-string-long-ttl", 128)),
    "legacy-1.20-hashmap": Golden("1.20.0", _small("legacy-string-long", 128, "hashmap")),
    "legacy-ttl-1.20-rocksdb": Golden("1.20.0", _small("legacy-string-long-ttl", 128)),
    "legacy-ttl-inlined-2.3-hashmap": Golden(
        "2.3.0", _small("legacy-string-long-ttl", 128, "hashmap", _DEFAULT_THRESHOLD)
    ),
    "legacy-files-and-inlined-1.20-rocksdb": Golden("1.20.0", SCENARIOS["legacy-files-and-inlined"]),
    "legacy-snappy-2.3-rocksdb": Golden("2.3.0", _small("legacy-snappy", 40)),
    "legacy-snappy-1.20-hashmap": Golden("1.20.0", _small("legacy-snappy", 40, "hashmap")),
    "legacy-wide-1.20-rocksdb": Golden("1.20.0", _small("legacy-wide", 30)),
    "legacy-tuple-pojo-2.3-rocksdb": Golden("2.3.0", _small("legacy-tuple-pojo", 10)),
    "legacy-integer-row-ttl-1.20-hashmap": Golden("1.20.0", _small("legacy-integer-row-ttl", 20, "hashmap")),
    "legacy-pojo-list-ttl-2.3-hashmap": Golden("2.3.0", _small("legacy-pojo-list-ttl", 15, "hashmap")),
    "legacy-enum-1.20-rocksdb": Golden("1.20.0", _small("legacy-string-enum", 20)),
    "kinds-2.3-rocksdb": Golden("2.3.0", _small("kinds", 12)),
    "kinds-ttl-1.20-hashmap": Golden("1.20.0", _small("kinds-ttl", 12, "hashmap")),
    "kinds-in-windows-1.20-rocksdb": Golden("1.20.0", _small("kinds-in-windows", 4)),
    "kinds-in-strings-2.3-rocksdb": Golden("2.3.0", _small("kinds-in-strings", 4)),
    "windows-2.3-hashmap": Golden("2.3.0", _small("windows", 5, "hashmap")),
    "windows-1.20-rocksdb": Golden("1.20.0", _small("windows", 5)),
    "operator-state-2.3-rocksdb": Golden("2.3.0", _small("operator-state", 8)),
    "operator-state-1.20-hashmap": Golden("1.20.0", _small("operator-state", 8, "hashmap", _DEFAULT_THRESHOLD)),
    "several-operators-2.3-hashmap": Golden("2.3.0", _small("several-operators", 20, "hashmap")),
    "finished-2.3-rocksdb": Golden("2.3.0", _small("finished", 10)),
    "sparse-wide-2.3-rocksdb": Golden("2.3.0", replace(_small("sparse-wide", 3), max_parallelism=1024)),
    "scalars-2.3-rocksdb": Golden("2.3.0", _small("scalars", 3)),
    "composites-2.3-rocksdb": Golden("2.3.0", _small("composites", 2)),
    "composites-ttl-1.20-hashmap": Golden("1.20.0", _small("composites-ttl", 2, "hashmap")),
    "arrays-1.20-hashmap": Golden("1.20.0", _small("arrays", 3, "hashmap")),
    "lists-ttl-2.3-rocksdb": Golden("2.3.0", _small("lists-ttl", 4)),
    "maps-2.3-hashmap": Golden("2.3.0", _small("maps", 4, "hashmap")),
    "map-nulls-2.3-rocksdb": Golden("2.3.0", _small("map-nulls", 5)),
    "since-flink-2-2.3-hashmap": Golden("2.3.0", _small("since-flink-2", 3, "hashmap")),
    "subclasses-2.3-rocksdb": Golden("2.3.0", _small("subclasses", 4)),
    "one-subclass-registered-1.20-rocksdb": Golden("1.20.0", _small("one-subclass-registered", 3)),
    "all-subclasses-registered-2.3-hashmap": Golden("2.3.0", _small("all-subclasses-registered", 3, "hashmap")),
    "kryo-1.20-rocksdb": Golden("1.20.0", _small("kryo", 8)),
    "kryo-2.3-rocksdb": Golden("2.3.0", _small("kryo", 8)),
    "kryo-registered-1.20-rocksdb": Golden("1.20.0", _small("kryo-registered", 4)),
    "kryo-registered-2.3-rocksdb": Golden("2.3.0", _small("kryo-registered", 4)),
    "scala-1.20-rocksdb": Golden("1.20.0", _small("scala", 5)),
    "avro-2.3-rocksdb": Golden("2.3.0", _small("avro", 5)),
    "avro-legacy-ttl-1.20-hashmap": Golden("1.20.0", _small("avro-legacy-ttl", 6, "hashmap")),
    "metadata-3-1.20-rocksdb": Golden("1.20.0", _small("operator-state", 2), metadata_version=3),
    "metadata-5-2.3-rocksdb": Golden("2.3.0", _small("operator-state", 2), metadata_version=5),
    "native-2.3-rocksdb": Golden("2.3.0", _small("legacy-string-long", 5), format="NATIVE"),
    "native-2.3-hashmap": Golden("2.3.0", _small("legacy-string-long", 5, "hashmap"), format="NATIVE"),
    "checkpoint-2.3-rocksdb": Golden(
        "2.3.0", replace(_small("legacy-string-long", 5), settings=_INCREMENTAL), format="CHECKPOINT"
    ),
}


def make(names: list[str]) -> None:
    """Replace the named cases, each by a fresh savepoint."""
    for version in sorted({CASES[name].version for name in names}):
        with FlinkHarness(version) as flink:
            for name in names:
                case = CASES[name]
                if case.version == version:
                    shutil.rmtree(SAVEPOINTS / name, ignore_errors=True)
                    made = flink.make(case.job, SAVEPOINTS / name, format_=case.format)
                    if case.metadata_version is not None:
                        metadata = made.path / "_metadata"
                        flink.rewrite_metadata(made.path, metadata, version=case.metadata_version)
                    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in made.lines)
                    (SAVEPOINTS / name / "expected.jsonl").write_text(text, encoding="ascii")


if __name__ == "__main__":
    make(sys.argv[1:] or list(CASES))
