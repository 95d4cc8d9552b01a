"""Maps by Kryo whose values (or keys) Flink itself writes by Kryo, as Flink of both versions wrote them.

`python -m tests.flink.kryo` made the files; `KryoValues.java` and `KryoThings.java` have the maps.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from flinkstate.classfiles.job_classes import JobClasses, job_classes
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.types import FlinkType, KryoType, MapType

FOLDER = Path(__file__).parent
VERSIONS = ("1.20.0", "2.3.0")


@dataclass(frozen=True)
class Kept:
    """A map by Kryo; the type that Flink gives it, and what Flink's serializer writes of it.

    `again` is what Flink writes after it has read the map: the order of a set can be another then.
    """

    name: str
    kryo: KryoType
    written: bytes
    map: MapType
    flink_snapshot: str
    flink: bytes
    again: bytes
    snapshot: str


@lru_cache
def classes() -> JobClasses:
    """Returns the classes of `KryoThings` and `KryoValues`."""
    return job_classes((str(FOLDER / "kept-classes.jar"),))


@lru_cache
def kept(version: str) -> dict[str, Kept]:
    """Returns all maps that Flink can read again, by their names."""
    raw = gzip.decompress((FOLDER / f"kept-{version}.jsonl.gz").read_bytes())
    lines = [json.loads(line) for line in raw.splitlines()]
    return {line["name"]: _kept(line) for line in lines if "refused" not in line}


def _kept(line: dict[str, str]) -> Kept:
    kryo, map_ = _type_of(line["snapshot"]), _type_of(line["flink_snapshot"])
    assert isinstance(kryo, KryoType)
    assert isinstance(map_, MapType)
    written, flink, again = (bytes.fromhex(line[key]) for key in ("bytes", "flink", "again"))
    kryo = replace(kryo, classes=classes())
    return Kept(line["name"], kryo, written, map_, line["flink_snapshot"], flink, again, line["snapshot"])


@lru_cache
def _type_of(snapshot: str) -> FlinkType | None:
    return SnapshotParser(bytes.fromhex(snapshot), "an example").read(0)[0].type
