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
    """One case: which Flink runs what."""

    version: str
    job: Job
    format: str = "CANONICAL"


def _in_files(name: str) -> Job:
    return replace(SCENARIOS[name], inline_threshold=0)


CASES: Mapping[str, Golden] = {
    "legacy-2.3-rocksdb": Golden("2.3.0", _in_files("legacy-string-long")),
    "legacy-ttl-2.3-rocksdb": Golden("2.3.0", _in_files("legacy-string-long-ttl")),
    "legacy-1.20-hashmap": Golden("1.20.0", replace(_in_files("legacy-string-long"), backend="hashmap")),
    "legacy-ttl-1.20-rocksdb": Golden("1.20.0", _in_files("legacy-string-long-ttl")),
    "legacy-ttl-inlined-2.3-hashmap": Golden("2.3.0", replace(SCENARIOS["legacy-string-long-ttl"], backend="hashmap")),
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
                    text = "".join(json.dumps(line) + "\n" for line in made.lines)
                    (SAVEPOINTS / name / "expected.jsonl").write_text(text, encoding="ascii")


if __name__ == "__main__":
    make(sys.argv[1:] or list(CASES))
