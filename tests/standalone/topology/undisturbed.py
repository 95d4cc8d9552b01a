"""What one local Spark makes of a savepoint when nothing is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

STATEFERRY = Path(sys.executable).with_name("stateferry")
# The DAG's run takes the time of its start as now, which timestamps of the savepoint must not be later than.
WRITTEN_AT = time.time_ns() // 1_000_000


def migrated(savepoint: Path, folder: Path, now: int, *more: object) -> dict[str, bytes]:
    command = [STATEFERRY, "run", "--savepoint", savepoint, "--target", folder / "target", "--operator", "main"]
    command += ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
    command += ["--ttl", "30d", "--now", now, "--parallelism", 3, *more]
    home = {"STATEFERRY_HOME": str(folder / "home")}
    subprocess.run([str(word) for word in command], check=True, capture_output=True, env=os.environ | home)
    return content_of(folder / "target")


def content_of(target: Path) -> dict[str, bytes]:
    """Of all but the metadata, which names the folder."""
    return {file.name: file.read_bytes() for file in target.iterdir() if file.name != "_metadata"}
