"""Flink's jars and our compiled Java, per version of Flink, fetched and built once and shared by all test runs.

``python -m tests.flink.jars`` does that ahead of the tests. ``jars-<version>.sha256`` pins every file: after a
deliberate change of version, ``python -m tests.flink.jars --pin`` writes these lists anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.support.fetched_jars import Jars, digest, java_tool
from tests.support.hdfs_server import HADOOP
from tests.support.iceberg_server import ICEBERG
from tests.support.operator_crds import OPERATOR
from tests.support.s3_server import S3_PROXY

VERSIONS = ("2.3.0", "1.20.0")
HERE = Path(__file__).parent
SOURCES = HERE / "java"
# The class that people copy into their jobs, as it is.
JOB_SIDE = HERE.parents[1] / "docs" / "job-side"
# The web's jar takes uploads; slf4j says what happens inside a cluster.
ARTIFACTS = (
    *("flink-streaming-java", "flink-clients", "flink-statebackend-rocksdb", "flink-runtime-web"),
    *("flink-avro",),
)
# Flink 2 has no Scala of its own any more.
_ARTIFACTS_OF = {"1.20.0": (*ARTIFACTS, "flink-scala_2.12")}
OTHERS = (
    "org.slf4j:slf4j-simple:1.7.36",
    # Kryo's serializers for protobuf and thrift that Flink's documentation names.
    "com.twitter:chill-protobuf:0.7.6",
    "com.google.protobuf:protobuf-java:3.21.12",
    "com.twitter:chill-thrift:0.7.6",
    "org.apache.thrift:libthrift:0.9.3",
)
# Flink 1.20 and Kryo look into the JDK's own classes.
OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "java.time",
        "java.math",
        "java.text",
        "java.net",
        "java.nio",
    )
)


@dataclass(frozen=True)
class Program:
    """Java of ours, the artifacts of Flink that it needs, and the file that pins all their jars.

    ``sources`` are folders and files. ``others`` are artifacts of others than Flink, as ``group:name:version``.
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
        jars = self.jars
        with jars.locked():
            folder = jars.folder_under_lock()
            return folder, _classes(self, jars.cache, folder)

    @property
    def jars(self) -> Jars:
        """The jars of Flink and of others."""
        flinks = tuple(f"org.apache.flink:{name}:{self.version}" for name in self.artifacts)
        # What Flink's artifacts depend on comes along; of the others only they themselves: they bring an older Kryo.
        return Jars(f"flink-{self.version}", self.pins, flinks, self.others)


def class_path(version: str) -> str:
    """The class path of the tests' Java and Flink of this version."""
    return _tests(version).class_path()


def classes(version: str) -> Path:
    """The folder of the tests' compiled Java, among it the classes of the jobs."""
    return _tests(version).made()[1]


def class_path_of_java_alone(version: str) -> str:
    """As `class_path`, as most jobs have it: without flink-scala and flink-avro, which register classes with Kryo."""
    return of_java_alone(_tests(version))


def kryo(version: str) -> str:
    """The class path of `stateferry.kryo.KryoExamples` and `KryoJudge`, as most jobs have it."""
    return of_java_alone(_program(version, "kryo"))


def of_java_alone(program: Program) -> str:
    """The class path of a program without flink-scala, flink-avro and what comes with them."""
    folder, classes = program.made()
    others = ("flink-scala", "flink-avro", "scala-", "avro-", "chill_", "chill-protobuf", "chill-thrift")
    kept = [jar for jar in sorted(folder.glob("*.jar")) if not jar.name.startswith(others)]
    return os.pathsep.join(map(str, (classes, *kept)))


def with_other_backends(version: str) -> Program:
    """The tests' Java and Flink, with the backends whose snapshots are refused; only golden snapshots need it."""
    more = ("flink-statebackend-forst", "flink-statebackend-changelog", "flink-dstl-dfs")
    tests, pins = _tests(version), HERE / f"jars-{version}-other-backends.sha256"
    return replace(tests, artifacts=(*tests.artifacts, *more), pins=pins)


def tables(version: str) -> Program:
    """`stateferry.tables.Main`: a job with SQL and one with CEP; only their tests and golden savepoints need it."""
    more = ("flink-table-api-java-bridge", "flink-table-runtime", "flink-table-planner-loader", "flink-cep")
    artifacts, pins = (*ARTIFACTS, *more), HERE / f"jars-{version}-tables.sha256"
    source = Path(version, "stateferry", "flink", "LegacySource.java")
    return replace(_program(version, "tables", source), artifacts=artifacts, pins=pins, others=OTHERS[:1])


def evolved(version: str, side: str) -> Path:
    """The folder of classes of a job before (``old``) and after (``new``) they were changed."""
    annotations = SOURCES / "common" / "stateferry" / "flink" / "pojo" / "Subclasses.java"
    return replace(_tests(version), sources=(SOURCES / "evolved" / side, annotations)).made()[1]


def totals(version: str) -> Program:
    """The jobs that run on a cluster: `stateferry.totals.LegacyJob` and those that may follow it."""
    return _program(version, "totals")


def _tests(version: str) -> Program:
    return _program(version, "common", version, JOB_SIDE)


def _program(version: str, *sources: str | Path) -> Program:
    roots = tuple(SOURCES / name for name in sources)
    artifacts = _ARTIFACTS_OF.get(version, ARTIFACTS)
    return Program(version, artifacts, HERE / f"jars-{version}.sha256", roots, OTHERS)


def s3_plugin(version: str) -> Jars:
    """Flink's file system for S3 stores, one jar, which a cluster loads from a folder of its own."""
    wanted = f"org.apache.flink:flink-s3-fs-hadoop:{version}"
    return Jars(f"flink-s3-{version}", HERE / f"jars-s3-{version}.sha256", alone=(wanted,))


def _classes(program: Program, cache: Path, jars: Path) -> Path:
    # By a path that says where in its package a class is, and nothing of the machine.
    found = {
        str(source.relative_to(root.parent)): source
        for root in program.sources
        for source in (root.rglob("*.java") if root.is_dir() else (root,))
    }
    sources = [found[name] for name in sorted(found)]
    name = digest(b"".join(name.encode() + b"\0" + found[name].read_bytes() for name in sorted(found)))
    target = cache / f"classes-{name}"
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


def _main(arguments: Sequence[str]) -> None:
    if "--pin" in arguments:
        for jars in (
            *(program(version).jars for version in VERSIONS for program in (_tests, tables)),
            s3_plugin(VERSIONS[0]),
            S3_PROXY,
            HADOOP,
            OPERATOR,
            ICEBERG,
        ):
            jars.pin()
        return
    wanted: list[Callable[[], object]] = [partial(class_path, version) for version in VERSIONS]
    wanted += [s3_plugin(VERSIONS[0]).folder, S3_PROXY.folder, HADOOP.folder, OPERATOR.folder, ICEBERG.folder]
    # Fetching is mostly waiting.
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda fetch: fetch(), wanted))


if __name__ == "__main__":
    _main(sys.argv[1:])
