"""Finds the Java that Spark will start, and checks that Spark can use it.

The check reads the file `release` of the Java installation, because starting Java takes a tenth of a second. It starts
Java only if that file doesn't say the version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from flinkstate.errors import MissingHereError

OLDEST = 17
# Spark names this module when it starts the JVM. A JVM without the module ends at once.
NEEDED_MODULE = "jdk.incubator.vector"

_NEEDS = f"Spark needs Java {OLDEST} or later"
_WHAT_TO_DO = f"Install Java {OLDEST} or 21, and set JAVA_HOME to its folder"
_LINE = re.compile(r'^(\w+)="?(.*?)"?$', re.MULTILINE)
_VERSION = re.compile(r'version "([^"]+)"')
_LONGEST_START = 30


def program() -> str | None:
    """The Java program that Spark will start, found in the same way as Spark finds it."""
    if home := os.environ.get("JAVA_HOME"):
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java")


def check() -> None:
    """Raises an error if Spark surely can't start with this Java."""
    java = program()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        why = (
            f"there is no program bin/java in {home}, the folder of JAVA_HOME"
            if home
            else ("there is no java on the PATH, and JAVA_HOME isn't set")
        )
        raise MissingHereError(f"{_NEEDS}: {why}. {_WHAT_TO_DO}")
    release = _release_of(java)
    version = release.get("JAVA_VERSION") or _asked(java)
    if version is not None and _major(version) < OLDEST:
        raise MissingHereError(f"{_NEEDS}: {java} is Java {version}. {_WHAT_TO_DO}")
    if "MODULES" in release and NEEDED_MODULE not in release["MODULES"].split():
        raise MissingHereError(
            f"Spark needs Java with its module {NEEDED_MODULE}, and {java} (Java {version}) was made without it. "
            f"{_WHAT_TO_DO}"
        )


def _release_of(java: str) -> dict[str, str]:
    """The values in the installation's file `release`; empty if there is none."""
    try:
        text = (Path(java).resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        return {}
    return dict(_LINE.findall(text))


def _asked(java: str) -> str | None:
    """The version that the program itself prints; None if that can't be read. Then Spark finds out."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_LONGEST_START
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return found[1] if found else None


def _major(version: str) -> int:
    """The major version: 8 of `1.8.0_392`, 17 of `17.0.15`; any other text counts as new enough."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if numbers[:1] == [1] and len(numbers) > 1:
        return numbers[1]
    return numbers[0] if numbers else OLDEST
