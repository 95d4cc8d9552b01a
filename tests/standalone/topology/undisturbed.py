"""What one local Spark makes of a savepoint when nothing is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STATEFERRY = Path(sys.executable).with_name("stateferry")
WRITTEN_AT = 1_800_000_000_000


def migrated(savepoint: Path, folder: Path, now: int) -> dict[str, bytes]:
    command = [STATEFERRY, "run", "--savepoint", savepoint, "--target", folder / "target", "--operator", "main"]
    command += ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
    command += ["--ttl", "30d", "--now", now, "--parallelism", 3]
    home = {"STATEFERRY_HOME": str(folder / "home")}
    subprocess.run([str(word) for word in command], check=True, capture_output=True, env=os.environ | home)
    return content_of(folder / "target")


def content_of(target: Path) -> dict[str, bytes]:
    """Of all but the metadata, which names the folder."""
    return {file.name: file.read_bytes() for file in target.iterdir() if file.name != "_metadata"}
