"""A JVM with a Flink cluster inside that makes savepoints of known contents and shows what it restored."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlparse

from tests.flink import jars
from tests.flink.jobs import Job
from tests.support.fetched_jars import java_tool

Line = dict[str, Any]
"""One entry in the shape of ``stateferry dump``, with its ``operator`` and ``state``."""

_STEP_SECONDS = 120
_NOT_CONTENT = ("operator", "state", "subtask", "timestamp_between")


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
    """Rows found by scan but not by key or the other way round; keys in a subtask that doesn't own them."""
    timers_missed: int
    """Timers that were due but didn't fire."""


@dataclass(frozen=True)
class Samples:
    """A serializer and what it writes."""

    serializer: str
    length: int
    """The length of every value, or -1 where it varies."""
    snapshot: bytes
    """Class name, version and body of the serializer's snapshot."""
    values: list[tuple[bytes, Any]]
    """Serialized values, each with what it means in the shape of a dump."""


class FlinkHarness:
    """One JVM for one version of Flink; it starts with the first command and ends with :meth:`close`."""

    def __init__(self, version: str, class_path: str | None = None) -> None:
        self.version, self._class_path = version, class_path
        self._process: subprocess.Popen[str] | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix=f"flink-{version}-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def make(self, job: Job, path: Path, *, format_: str = "CANONICAL", earlier: Path | None = None) -> Made:
        """Run the job until it holds its contents, and stop it with a savepoint at ``path``, which must not exist.

        ``format_`` is ``CANONICAL``, ``NATIVE`` or, for a retained checkpoint, ``CHECKPOINT``. From an ``earlier``
        savepoint the job writes its contents over what it finds; what it doesn't write over isn't in the lines.
        """
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            expected = Path(scratch) / "expected.jsonl"
            places = {
                "target": scratch,
                "expected": str(expected),
                "earlier": None if earlier is None else str(earlier),
            }
            made = self.ask("make", job=dataclasses.asdict(job), format=format_, **places)["savepoint"]
            shutil.move(unquote(urlparse(made).path), path)
            return Made(path, _lines(expected))

    def make_in_place(self, job: Job, *, format_: str, earlier: Path | None = None) -> Made:
        """As `make`, but the snapshot stays where Flink wrote it, which the absolute paths of a checkpoint need."""
        scratch = Path(tempfile.mkdtemp(dir=self._scratch))
        expected = scratch / "expected.jsonl"
        places = {
            "target": str(scratch),
            "expected": str(expected),
            "earlier": None if earlier is None else str(earlier),
        }
        answer = self.ask("make", job=dataclasses.asdict(job), format=format_, **places)
        made = Path(unquote(urlparse(answer["savepoint"]).path))
        return Made(made, _lines(expected))

    def carry(self, savepoint: Path, job: Job, *, format_: str, claim: bool = False) -> Path:
        """Start the job from a snapshot and stop it with another one of the same contents, which stays in its place.

        With ``claim`` the snapshot belongs to the job from then on.
        """
        scratch = tempfile.mkdtemp(dir=self._scratch)
        described = {"job": dataclasses.asdict(job), "savepoint": str(savepoint), "format": format_}
        command = {**described, "claim": claim, "target": scratch}
        return Path(unquote(urlparse(self.ask("carry", **command)["savepoint"]).path))

    def job_side(self, script: Mapping[str, object], savepoint: Path | None) -> tuple[Path, list[Line]]:
        """Have a job do what the script says, and stop it with a savepoint; give that and what each call has found.

        Without a savepoint the job starts with nothing.
        """
        scratch = Path(tempfile.mkdtemp(dir=self._scratch))
        observed = scratch / "observed.jsonl"
        places = {"savepoint": None if savepoint is None else str(savepoint), "target": str(scratch)}
        left = self.ask("job_side", script=script, observed=str(observed), **places)["savepoint"]
        return Path(unquote(urlparse(left).path)), _lines(observed)

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

    def database(
        self, target: Path, operations: Sequence[Sequence[str]], options: Mapping[str, object]
    ) -> dict[bytes, bytes]:
        """Have RocksDB carry out operations on a column family `state`, copy its files, and say what it finds.

        An operation is its name with a key and a value in hexadecimal.
        """
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            expected = Path(scratch) / "expected"
            command = {"operations": operations, "options": options, "family": "state"}
            places = {"scratch": f"{scratch}/database", "target": str(target), "expected": str(expected)}
            self.ask("database", **command, **places)
            lines = [line.split(" ") for line in expected.read_text(encoding="ascii").split("\n")[:-1]]
        return {bytes.fromhex(key): bytes.fromhex(value) for key, value in lines}

    def chain(self, families: Sequence[Mapping[str, str]], ttl: int, steps: Sequence[Mapping[str, object]]) -> None:
        """Have RocksDB carry out the operations of each step, and leave a checkpoint of its files in the step's target.

        An operation is its name with the number of a column family, and a key and a value in hexadecimal.
        """
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            self.ask("chain", families=families, ttl=ttl, steps=steps, scratch=scratch)

    def shown(self, database: Path) -> dict[tuple[str, bytes], bytes]:
        """What RocksDB finds in a database, by column family and key."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            expected = Path(scratch) / "expected"
            self.ask("show", database=str(database), expected=str(expected))
            lines = [line.split(" ") for line in expected.read_text(encoding="utf-8").split("\n")[:-1]]
        return {(family, bytes.fromhex(key)): bytes.fromhex(value) for family, key, value in lines}

    def samples(self, type_: str, count: int, *, seed: int = 1, registered: Sequence[str] = ()) -> Samples:
        """Values of a type as Flink serializes them: the limits of the type, and so many random ones."""
        answer = self.ask("samples", type=type_, count=count, seed=seed, registered=registered)
        values = [(b64decode(sample["bytes"]), sample["value"]) for sample in answer["samples"]]
        return Samples(answer["serializer"], answer["length"], b64decode(answer["snapshot"]), values)

    def rewrite_metadata(self, savepoint: Path, target: Path, *, version: int, absolute: bool = False) -> None:
        """Have Flink write a savepoint's metadata in another version, from 3 on, or with absolute paths."""
        command = {"savepoint": str(savepoint), "target": str(target), "version": version, "absolute": absolute}
        self.ask("rewrite_metadata", **command)

    def ask(self, command: str, **parameters: object) -> Mapping[str, Any]:
        """Give the JVM one command and return its answer."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"command": command, **parameters}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BaseException:
            # The answer to this command would be taken for that to the next.
            self._end()
            raise
        if not answer:
            raise FlinkError(f"the JVM ended during '{command}':\n{self._log().read_text()[-4000:]}")
        parsed: Mapping[str, Any] = json.loads(answer)
        if "error" in parsed:
            raise FlinkError(parsed["error"])
        return parsed

    def close(self) -> None:
        """End the JVM (it ends with its input) and remove what it left."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=_STEP_SECONDS)
            except subprocess.TimeoutExpired:
                # ForSt's threads keep the JVM.
                self._end()
            self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            options = ["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._scratch}"]
            options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", *jars.OPENED]
            class_path = self._class_path or jars.class_path(self.version)
            command = [java_tool("java"), *options, "-cp", class_path, "stateferry.flink.Main"]
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


def by_state(lines: Iterable[Line]) -> dict[tuple[str, str], Counter[str]]:
    """What each operator's state holds, as texts that are equal where the entries are."""
    out: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        rest = {name: value for name, value in line.items() if name not in _NOT_CONTENT}
        out[line["operator"], line["state"]][json.dumps(rest, sort_keys=True)] += 1
    return dict(out)


def restored_by_state(restored: Restored, job: Job) -> dict[tuple[str, str], Counter[str]]:
    """As :func:`by_state`, with what every subtask has a copy of (union and broadcast state) counted once."""
    copied = {(o.uid, s.name) for o in job.operators for s in o.operator_states if s.mode != "SPLIT"}
    out = by_state(line for line in restored.lines if (line["operator"], line["state"]) not in copied)
    for place in copied:
        lines = [line for line in restored.lines if (line["operator"], line["state"]) == place]
        subtasks = {line["subtask"] for line in lines}
        copies = [by_state(line for line in lines if line["subtask"] == subtask) for subtask in subtasks]
        if any(copy != copies[0] for copy in copies):
            raise AssertionError(f"the subtasks of {place[0]} don't agree on {place[1]}: {copies}")
        if copies:
            out.update(copies[0])
    return out


def _lines(path: Path) -> list[Line]:
    with path.open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]
