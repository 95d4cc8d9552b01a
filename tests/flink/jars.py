"""Flink's jars and our compiled Java, per version of Flink, fetched and built once and shared by all test runs.

The jars come through the Ivy that Spark bundles, from the repositories that Ivy knows by itself; a machine needs no
Maven. ``python -m tests.flink.jars`` does that ahead of the tests. ``jars-<version>.sha256`` pins every file: after a
deliberate change of version, ``python -m tests.flink.jars --pin`` writes these lists anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

VERSIONS = ("2.3.0", "1.20.0")
_HERE = Path(__file__).parent
_SOURCES = _HERE / "java"
# The class that people copy into their jobs, as it is.
JOB_SIDE = _HERE.parents[1] / "docs" / "job-side"
# The web's jar takes uploads; slf4j says what happens inside a cluster.
_ARTIFACTS = (
    *("flink-streaming-java", "flink-clients", "flink-statebackend-rocksdb", "flink-runtime-web"),
    *("flink-avro",),
)
# Flink 2 has no Scala of its own any more.
_ARTIFACTS_OF = {"1.20.0": (*_ARTIFACTS, "flink-scala_2.12")}
_OTHERS = (
    "org.slf4j:slf4j-simple:1.7.36",
    # Kryo's serializers for protobuf and thrift that Flink's documentation names.
    "com.twitter:chill-protobuf:0.7.6",
    "com.google.protobuf:protobuf-java:3.21.12",
    "com.twitter:chill-thrift:0.7.6",
    "org.apache.thrift:libthrift:0.9.3",
)
_FETCH_SECONDS = 900
# Flink 1.20 and Kryo look into the JDK's own classes.
OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.util",
        "java.util.concurrent",
        "java.time",
        "java.math",
        "java.text",
        "java.net",
        "java.nio",
    )
)


def java_tool(name: str) -> str:
    """The path of ``java`` or ``javac``: from ``JAVA_HOME`` if there is one, else by name from the search path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


@dataclass(frozen=True)
class Program:
    """Java of ours, the artifacts of Flink that it needs, and the file that pins all their jars.

    ``others`` are artifacts of others than Flink, as ``group:name:version``.
    """

    version: str
    artifacts: tuple[str, ...]
    pins: Path
    sources: tuple[Path, ...]
    others: tuple[str, ...] = ()

    def class_path(self) -> str:
        """Of the compiled Java and Flink of this version, made on the first call."""
        jars, classes = self.made()
        return os.pathsep.join([str(classes), f"{jars}{os.sep}*"])

    def made(self) -> tuple[Path, Path]:
        """The folder of the jars and that of the compiled Java."""
        cache = _cache(self.version)
        with _locked(cache / "lock"):
            jars = _jars(self, cache)
            return jars, _classes(self, cache, jars)

    def pin(self) -> None:
        """Writes anew which jars there are, after a deliberate change of version."""
        with tempfile.TemporaryDirectory() as scratch:
            fetched = Path(scratch) / "jars"
            _fetch(self, Path(scratch), fetched)
            self.pins.write_text(_pins(fetched))
        sys.stdout.write(f"{self.pins}\n")


def class_path(version: str) -> str:
    """The class path of the tests' Java and Flink of this version."""
    return _tests(version).class_path()


def with_other_backends(version: str) -> Program:
    """The tests' Java and Flink, with the backends whose snapshots are refused; only golden snapshots need it."""
    more = ("flink-statebackend-forst", "flink-statebackend-changelog", "flink-dstl-dfs")
    tests, pins = _tests(version), _HERE / f"jars-{version}-other-backends.sha256"
    return replace(tests, artifacts=(*tests.artifacts, *more), pins=pins)


def totals(version: str) -> Program:
    """The jobs that run on a cluster: `stateferry.totals.LegacyJob` and those that may follow it."""
    return _program(version, "totals")


def _tests(version: str) -> Program:
    return _program(version, "common", version, JOB_SIDE)


def _program(version: str, *sources: str | Path) -> Program:
    roots = tuple(_SOURCES / name for name in sources)
    artifacts = _ARTIFACTS_OF.get(version, _ARTIFACTS)
    return Program(version, artifacts, _HERE / f"jars-{version}.sha256", roots, _OTHERS)


def _cache(version: str) -> Path:
    root = os.environ.get("STATEFERRY_CACHE")
    cache = (Path(root) if root else Path.home() / ".cache" / "stateferry") / f"flink-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _jars(program: Program, cache: Path) -> Path:
    """The folder with exactly the pinned jars. Its name follows the pins, so it is complete if it exists."""
    pins = program.pins.read_text()
    target = cache / f"jars-{_digest(pins.encode())}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            fetched = Path(scratch) / "jars"
            _fetch(program, Path(scratch), fetched)
            found = _pins(fetched)
            if found != pins:
                difference = sorted(set(found.splitlines()) ^ set(pins.splitlines()))
                raise RuntimeError(f"the jars of Flink {program.version} are not those of {program.pins}: {difference}")
            fetched.rename(target)
    return target


def _fetch(program: Program, scratch: Path, target: Path) -> None:
    flinks = [f"org.apache.flink:{name}:{program.version}" for name in program.artifacts]
    # What Flink's artifacts depend on comes along; of the others only they themselves: they bring an older Kryo.
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->{conf}"/>'
        for artifacts, conf in ((flinks, "default"), (program.others, "master"))
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    wanted = scratch / "ivy.xml"
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="stateferry" module="flink-for-tests"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    command = [java_tool("java"), "-cp", str(_ivy()), "org.apache.ivy.Main", "-cache", str(scratch / "cache")]
    command += ["-ivy", str(wanted), "-retrieve", str(target / "[artifact]-[revision].[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if done.returncode != 0 or not target.exists():
        raise RuntimeError(
            f"Ivy could not fetch Flink {program.version}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )


def _ivy() -> Path:
    """Of this environment's Spark, or of the one for Spark: Airflow's brings only Spark's client."""
    spec = importlib.util.find_spec("pyspark")
    here = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    there = (_HERE.parents[1] / ".venv" / "lib").glob("python*/site-packages/pyspark")
    found = [jar for pyspark in (*here, *there) for jar in sorted((pyspark / "jars").glob("ivy-*.jar"))]
    if not found:
        raise RuntimeError("expected pyspark in this environment or in .venv, for the Ivy in it; run 'make setup'")
    return found[0]


def _classes(program: Program, cache: Path, jars: Path) -> Path:
    # By a path that says where in its package a class is, and nothing of the machine.
    found = {
        str(source.relative_to(root.parent)): source for root in program.sources for source in root.rglob("*.java")
    }
    sources = [found[name] for name in sorted(found)]
    digest = _digest(b"".join(name.encode() + b"\0" + found[name].read_bytes() for name in sorted(found)))
    target = cache / f"classes-{digest}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch) / "classes"
            command = [java_tool("javac"), "-nowarn", "--release", "17", "-d", str(made), "-cp", f"{jars}{os.sep}*"]
            done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"javac failed for Flink {program.version}:\n{done.stderr}")
            # Earlier builds stay: a JVM of another test run may be using them.
            made.rename(target)
    return target


def _pins(folder: Path) -> str:
    return "".join(f"{hashlib.sha256(j.read_bytes()).hexdigest()}  {j.name}\n" for j in sorted(folder.iterdir()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _main(arguments: Sequence[str]) -> None:
    if "--pin" in arguments:
        for version in VERSIONS:
            _tests(version).pin()
        return
    # Fetching is mostly waiting.
    with ThreadPoolExecutor() as threads:
        list(threads.map(class_path, VERSIONS))


if __name__ == "__main__":
    _main(sys.argv[1:])
