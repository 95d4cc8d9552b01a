"""A JVM with a Flink cluster inside that makes savepoints of known contents and shows what it restored."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlparse

from tests.flink import jars
from tests.flink.scenarios import Job

Line = dict[str, Any]
"""One entry in the shape of ``stateferry dump``, with its ``operator`` and ``state``."""

_STEP_SECONDS = 120
# Flink 1.20 and Kryo look into the JDK's own classes.
_OPENED = (
    "java.lang",
    "java.util",
    "java.util.concurrent",
    "java.time",
    "java.math",
    "java.text",
    "java.net",
    "java.nio",
)


class FlinkError(Exception):
    """Flink refused or failed; the message is Java's stack trace, causes included."""


@dataclass(frozen=True)
class Made:
    """A savepoint and all that it holds, as the generator knows it."""

    path: Path
    lines: list[Line]


@dataclass(frozen=True)
class Restored:
    """What a running job held after a restore."""

    lines: list[Line]
    """Every entry and timer that it found; those of operator state name their ``subtask``."""
    fired: list[Line]
    """The timers that fired after the restore."""
    problems: list[Line]
    """Rows that are found by scan but not by key or the other way round, and keys in a subtask that doesn't own them."""
    timers_missed: int
    """Timers that were due but didn't fire."""


class FlinkHarness:
    """One JVM for one version of Flink; it starts with the first command and ends with :meth:`close`."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._process: subprocess.Popen[str] | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix=f"flink-{version}-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def make(self, job: Job, path: Path, *, format_: str = "CANONICAL") -> Made:
        """Run the job until it holds its contents, and stop it with a savepoint at ``path``, which must not exist.

        ``format_`` is ``CANONICAL``, ``NATIVE`` or, for a retained checkpoint, ``CHECKPOINT``.
        """
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            expected = Path(scratch) / "expected.jsonl"
            command = {"job": dataclasses.asdict(job), "format": format_, "target": scratch, "expected": str(expected)}
            made = self.ask("make", **command)["savepoint"]
            shutil.move(unquote(urlparse(made).path), path)
            return Made(path, _lines(expected))

    def restore(self, savepoint: Path, job: Job) -> Restored:
        """Start the job from the savepoint, and have it show every entry and fire every timer that is due."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            observed = Path(scratch) / "observed.jsonl"
            command = {"job": dataclasses.asdict(job), "savepoint": str(savepoint), "observed": str(observed)}
            missed = self.ask("restore", **command)["timers_missed"]
            lines = _lines(observed)
        fired = [line for line in lines if line.pop("fired", False)]
        problems = [line for line in lines if "problem" in line]
        plain = [line for line in lines if not any(line is other for other in fired) and "problem" not in line]
        return Restored(plain, fired, problems, missed)

    def ask(self, command: str, **parameters: object) -> Mapping[str, Any]:
        """Give the JVM one command and return its answer."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"command": command, **parameters}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise FlinkError(f"the JVM ended during '{command}':\n{self._log().read_text()[-4000:]}")
        parsed: Mapping[str, Any] = json.loads(answer)
        if "error" in parsed:
            raise FlinkError(parsed["error"])
        return parsed

    def close(self) -> None:
        """End the JVM (it ends with its input) and remove what it left."""
        if self._process is not None:
            self._process.communicate(timeout=_STEP_SECONDS)
            self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            options = ["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
            options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
            command = [jars.java_tool("java"), *options, "-cp", jars.class_path(self.version), "stateferry.flink.Main"]
            with self._log().open("w") as log:
                self._process = subprocess.Popen(
                    [*command, str(self._scratch), str(_STEP_SECONDS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process

    def _log(self) -> Path:
        return self._scratch / "log"


def _lines(path: Path) -> list[Line]:
    with path.open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]
