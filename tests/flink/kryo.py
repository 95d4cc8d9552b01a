"""Flink's own Kryo: what it writes, and how it reads what it is asked about.

    .venv/bin/python -m tests.flink.kryo

makes the golden files in `tests/kryo/`: the lines of `stateferry.kryo.KryoExamples` of both versions of Flink.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.flink import jars
from tests.support.fetched_jars import java_tool

GOLDEN = Path(__file__).parents[1] / "kryo"


def examples(version: str) -> str:
    """Returns the lines that `KryoExamples` prints with a version of Flink."""
    return _run(version, "KryoExamples")


def judged(version: str, questions: Sequence[tuple[str, str, bytes]]) -> list[str]:
    """Returns the answers of `KryoJudge` for the snapshots of both serializers and the bytes of a map."""
    asked = "".join(f"{kryo} {own} {value.hex()}\n" for kryo, own, value in questions)
    return _run(version, "KryoJudge", asked).splitlines()


def kept_examples(version: str) -> str:
    """Returns the lines of `KryoValues`, whose values Flink itself writes by Kryo."""
    return _run(version, "KryoValues", arguments=("examples",))


def pojo_examples(version: str) -> str:
    """Returns the lines of `KryoPojos`, whose values Flink itself writes as POJOs."""
    return _run(version, "KryoValues", arguments=("pojos",))


def field_examples(version: str) -> str:
    """Returns the lines of `KryoFields`, objects with a map in a field."""
    return _run(version, "KryoFields")


def more_pojo_examples(version: str) -> str:
    """Returns the lines of `KryoMorePojos`, POJOs with fields that Flink leaves to Kryo or to its collections."""
    return _run(version, "KryoMorePojos")


def kept_judged(version: str, questions: Sequence[tuple[str, bytes, str, bytes]]) -> list[str]:
    """Asks whether Flink reads the same map of the bytes of Kryo's serializer and of those of its own."""
    asked = "".join(f"{kryo} {value.hex()} {own} {made.hex()}\n" for kryo, value, own, made in questions)
    return _run(version, "KryoValues", asked, ("judge",)).splitlines()


def golden(version: str) -> Path:
    return GOLDEN / f"examples-{version}.jsonl.gz"


def golden_kept(version: str) -> Path:
    return GOLDEN / f"kept-{version}.jsonl.gz"


def golden_pojos(version: str) -> Path:
    return GOLDEN / f"pojos-{version}.jsonl.gz"


def golden_more_pojos(version: str) -> Path:
    return GOLDEN / f"more-pojos-{version}.jsonl.gz"


def golden_fields(version: str) -> Path:
    return GOLDEN / f"fields-{version}.jsonl.gz"


# The classes of `KryoThings` and `KryoValues`, those of `KryoPojos`, of `KryoMorePojos`, and of `KryoFields`.
GOLDEN_JAR, GOLDEN_POJO_JAR = GOLDEN / "kept-classes.jar", GOLDEN / "pojo-classes.jar"
GOLDEN_MORE_POJO_JAR, GOLDEN_FIELD_JAR = GOLDEN / "more-pojo-classes.jar", GOLDEN / "field-classes.jar"
# Of classes that tests/savepoints/in-objects-... have.
TOTALS_JAR = GOLDEN / "totals-classes.jar"
# Of those that tests/savepoints/in-collections-... has.
COLLECTIONS_JAR = GOLDEN / "collection-classes.jar"
KEPT, POJOS, FIELDS = "Kryo[TV]*.class", "KryoPojos*.class", "KryoFields*.class"
MORE_POJOS = "KryoMorePojos*.class"


def class_jar(version: str, names: str = KEPT) -> bytes:
    """Returns a jar of the classes with these names."""
    return _jar(Path(jars.kryo(version).partition(os.pathsep)[0]), names)


def totals_jar(version: str) -> bytes:
    """Returns a jar of the classes with totals of the jobs of `tests.flink.jobs`."""
    return _jar(jars.classes(version), "pojo/*Totals.class")


def collections_jar(version: str) -> bytes:
    """Returns a jar of the classes with collections of the jobs of `tests.flink.jobs`, and of what is in them."""
    names = ("Address", "Cart", "Color", "Ids", "Item", "Opaque", "Shelf")
    return _jar(jars.classes(version), *(f"pojo/{name}.class" for name in names))


def _jar(folder: Path, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as jar:
        for path in sorted(path for name in names for path in folder.rglob(name)):
            jar.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
    return buffer.getvalue()


def _run(version: str, program: str, asked: str = "", arguments: Sequence[str] = ()) -> str:
    options = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command = [java_tool("java"), *options, *jars.OPENED, "-cp", jars.kryo(version), f"stateferry.kryo.{program}"]
    command += arguments
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed with Flink {version}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    for version in jars.VERSIONS:
        golden(version).write_bytes(gzip.compress(examples(version).encode("ascii"), mtime=0))
        golden_kept(version).write_bytes(gzip.compress(kept_examples(version).encode("ascii"), mtime=0))
        golden_pojos(version).write_bytes(gzip.compress(pojo_examples(version).encode("ascii"), mtime=0))
        golden_more_pojos(version).write_bytes(gzip.compress(more_pojo_examples(version).encode("ascii"), mtime=0))
        golden_fields(version).write_bytes(gzip.compress(field_examples(version).encode("ascii"), mtime=0))
    GOLDEN_JAR.write_bytes(class_jar(jars.VERSIONS[0]))
    GOLDEN_POJO_JAR.write_bytes(class_jar(jars.VERSIONS[0], POJOS))
    GOLDEN_MORE_POJO_JAR.write_bytes(class_jar(jars.VERSIONS[0], MORE_POJOS))
    GOLDEN_FIELD_JAR.write_bytes(class_jar(jars.VERSIONS[0], FIELDS))
    TOTALS_JAR.write_bytes(totals_jar(jars.VERSIONS[0]))
    COLLECTIONS_JAR.write_bytes(collections_jar(jars.VERSIONS[0]))
