"""Shows what an upgrade from Flink 1.20 to 2.3 makes of a `ValueState<HashMap<String, Long>>`.

    .venv/bin/python -m tests.flink.lost_entry FOLDER

Flink 1.20 writes the savepoint FOLDER, and the same job starts from it in Flink 2.3. Both say what they hold.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.flink import jars
from tests.flink.harness import FlinkHarness, Line
from tests.flink.jobs import Job, Operator, State

JOB = Job(
    (Operator("totals", key="Integer", keys=4, states=(State("totals", "HashMap{2-3}<Byte,Integer>"),)),),
    parallelism=1,
)


def shown(lines: list[Line]) -> Mapping[int, str]:
    """The maps by their keys, as text."""
    maps = {line["key"]: dict(line["value"]) for line in lines}
    return {key: str(dict(sorted(maps[key].items()))) for key in sorted(maps)}


def main(folder: Path) -> int:
    old, new = (FlinkHarness(version, jars.class_path_of_java_alone(version)) for version in ("1.20.0", "2.3.0"))
    with old, new:
        written = old.make(JOB, folder)
        read = shown(new.restore(folder, JOB).lines)
    for key, value in shown(written.lines).items():
        sys.stdout.write(f"key {key}\n  Flink 1.20 wrote  {value}\n  Flink 2.3 reads   {read.get(key)}\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tests.flink.lost_entry FOLDER")
    sys.exit(main(Path(sys.argv[1])))
