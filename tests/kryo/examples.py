"""Maps as Flink's own Kryo of both versions wrote them, and as Flink's own serializers write the same maps.

`python -m tests.flink.kryo` made the files; `KryoExamples.java` has the maps.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import StateferryError
from flinkstate.kryo.class_finder import ClassFinder
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.kryo.to_flink_maps import FlinkMaps, KryoReader
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.type_parts import with_children, with_parts
from flinkstate.serializers.types import EnumType, FlinkType, KryoMapType, KryoType, MapType, PojoType
from flinkstate.values.codecs import encode
from flinkstate.values.kryo_values import read_kryo_map
from tests.kryo.kept import classes

VERSIONS = ("1.20.0", "2.3.0")


@dataclass(frozen=True)
class Example:
    """A map: its Kryo serializer and bytes; its type, Flink's serializer for it, and the bytes that this writes."""

    version: str
    name: str
    snapshot: str
    kryo: KryoType
    written: bytes
    map: MapType | None
    flink_snapshot: str
    flink: bytes | None

    def __str__(self) -> str:
        return f"{self.version} {self.name}"


@lru_cache
def examples(version: str) -> dict[str, Example]:
    """Returns all examples that this version's Kryo could write, by their names."""
    path = Path(__file__).parent / f"examples-{version}.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    found = [_example(version, line) for line in lines if "bytes" in line]
    return {one.name: one for one in found}


def with_type(version: str) -> list[Example]:
    """Returns the examples that Flink's own serializer writes too."""
    return [one for one in examples(version).values() if one.map is not None and one.flink is not None]


def _example(version: str, line: dict[str, str]) -> Example:
    kryo, map_ = _type_of(line["snapshot"]), _type_of(line.get("flink_snapshot"))
    assert isinstance(kryo, KryoType)
    assert map_ is None or isinstance(map_, MapType)
    flink = line.get("flink")
    written = None if flink is None else bytes.fromhex(flink)
    if map_ is not None and any(isinstance(one, EnumType) for one in with_parts(map_)):
        kryo = replace(kryo, classes=classes())
    name, own = line["name"], line.get("flink_snapshot", "")
    return Example(version, name, line["snapshot"], kryo, bytes.fromhex(line["bytes"]), map_, own, written)


@lru_cache
def _type_of(snapshot: str | None) -> FlinkType | None:
    return None if snapshot is None else SnapshotParser(bytes.fromhex(snapshot), "an example").read(0)[0].type


@lru_cache
def _reader(kryo: KryoType, map_: MapType) -> KryoReader:
    return KryoReader(kryo, map_)


def behind_lengths(values: Sequence[bytes]) -> tuple[Bytes, Positions, Positions]:
    """Returns the values one behind the other, each behind a length, and where they begin and end."""
    data = np.frombuffer(b"".join(b"\0\0\0\0" + value for value in values), np.uint8).copy()
    ends = np.cumsum([4 + len(value) for value in values], dtype=np.int64)
    return data, np.append(np.int64(0), ends[:-1]) + 4, ends


def compiled(kryo: KryoType, map_: MapType, values: list[bytes]) -> FlinkMaps:
    """Returns the maps as the compiled reading makes them; each is behind a length and has no key."""
    data, starts, ends = behind_lengths(values)
    return _reader(kryo, map_).to_flink(data, starts - 4, starts - 4, ends, timestamps=False)


def find_classes(kryo: KryoType, *values: bytes) -> FoundClasses:
    """Returns which classes occur in values."""
    finder = ClassFinder(kryo)
    finder.add(*behind_lengths(values))
    return finder.found()


def maps_of(made: FlinkMaps) -> list[bytes]:
    """Returns the bytes of each map."""
    places = zip(made.key_ends.tolist(), made.ends.tolist(), strict=True)
    return [made.data[start + 4 : end].tobytes() for start, end in places]


def by_compiled_code(kryo: KryoType, map_: MapType, value: bytes) -> bytes | StateferryError:
    """Returns what the compiled reading makes of a value, or why it refuses it."""
    try:
        return maps_of(compiled(kryo, map_, [value]))[0]
    except StateferryError as error:
        return error


def by_plain_code(kryo: KryoType, map_: MapType, value: bytes) -> bytes | StateferryError:
    """As `by_compiled_code`, by the reading in plain Python."""
    try:
        return encode(map_, read_kryo_map(KryoMapType(kryo.class_name, kryo.reason, kryo, map_), value, 0))
    except StateferryError as error:
        return error


def without_subclasses(type_: FlinkType) -> FlinkType:
    return with_children(
        replace(type_, other_subclasses=()) if isinstance(type_, PojoType) else type_, without_subclasses
    )
