"""Maps in fields of objects that Kryo wrote as a whole: the map and the object without it are what Flink writes.

`python -m tests.flink.kryo` made the files; `KryoFields.java` has the classes and the objects.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from flinkstate.classfiles.job_classes import JobClasses, job_classes
from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.kryo.to_flink_maps import KryoReader
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.types import FlinkType, KryoMapType, KryoType, MapType, PojoMapType
from flinkstate.values.codecs import encode
from stateferry.proof.plain.plain_objects import map_of_object, object_without_map
from tests.kryo.examples import behind_lengths
from tests.kryo.test_kept import damaged

FOLDER = Path(__file__).parent
VERSIONS = ("1.20.0", "2.3.0")
# Behind a collection that stands in two fields with type arguments, Kryo 2 can write what it doesn't read.
REFUSED = {
    "1.20.0": ("a map in two fields with type arguments", "a map in a field without type arguments"),
    "2.3.0": ("a map in a field without type arguments",),
}


@dataclass(frozen=True)
class Example:
    """An object; the map in its field as Flink's MapSerializer writes it; the object with null in the field.

    The last two are there twice: of the object, and of what Flink's Kryo reads of its bytes.
    """

    name: str
    kryo: KryoType
    written: bytes
    map: MapType
    flink: tuple[bytes, bytes]
    rest: tuple[bytes, bytes]


@lru_cache
def classes() -> JobClasses:
    return job_classes((str(FOLDER / "field-classes.jar"),))


@lru_cache
def examples(version: str) -> dict[str, Example]:
    lines = map(json.loads, gzip.decompress((FOLDER / f"fields-{version}.jsonl.gz").read_bytes()).splitlines())
    return {line["name"]: _example(line) for line in lines}


def _example(line: dict[str, str]) -> Example:
    told = {key: bytes.fromhex(text) for key, text in line.items() if key != "name"}
    kryo, map_ = _type_of(told["snapshot"]), _type_of(told["flink_snapshot"])
    assert isinstance(kryo, KryoType)
    assert isinstance(map_, MapType)
    kryo = replace(kryo, classes=classes())
    of_flink, rests = ((told[one], told[f"{one}_again"]) for one in ("flink", "rest"))
    return Example(line["name"], kryo, told["bytes"], map_, of_flink, rests)


def _type_of(snapshot: bytes) -> FlinkType:
    return SnapshotParser(snapshot, "an example").read(0)[0].type


def reader(one: Example) -> KryoReader:
    return KryoReader(one.kryo, one.map, field="counts")


def maps(of: KryoReader, written: list[bytes]) -> list[bytes]:
    data, starts, ends = behind_lengths(written)
    made = of.to_flink(data, starts - 4, starts - 4, ends, timestamps=False)
    return [made.data[start + 4 : end].tobytes() for start, end in zip(made.key_ends, made.ends, strict=True)]


def rests(of: KryoReader, written: list[bytes]) -> list[bytes]:
    out, ends = of.without_maps(*behind_lengths(written))
    return [one.tobytes() for one in np.split(out, ends)[:-1]]


def result(one: Example) -> tuple[bytes, bytes] | StateferryError:
    try:
        of = reader(one)
        return maps(of, [one.written])[0], rests(of, [one.written])[0]
    except StateferryError as error:
        return error


@pytest.mark.parametrize("version", VERSIONS)
def test_map_and_rest_are_what_flink_writes(version: str) -> None:
    refused: list[str] = []
    for one in examples(version).values():
        made = result(one)
        if isinstance(made, StateferryError):
            assert isinstance(made, RefusedError), one.name
            assert "type arguments" in str(made)
            refused.append(one.name)
            continue
        assert made[0] in one.flink, one.name
        assert made[1] in one.rest, one.name
    assert tuple(refused) == REFUSED[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_many_at_once_are_the_same(version: str) -> None:
    """What one object said (names, numbers, objects) is forgotten for the next one."""
    raw = [one for one in examples(version).values() if one.kryo == examples(version)["raw"].kryo]
    raw = [one for one in raw if one.map == raw[0].map] * 3
    assert len(raw) > 12
    of = reader(raw[0])
    written = [one.written for one in raw]
    for one, map_, rest in zip(raw, maps(of, written), rests(of, written), strict=True):
        assert map_ in one.flink
        assert rest in one.rest


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_seen_alike_by_both_readings(version: str) -> None:
    chosen, read = random.Random(11), 0
    some = [
        one
        for one in examples(version).values()
        if not isinstance(one.map.value, KryoType) and one.name not in (*REFUSED[version], *NOT_PLAIN)
    ]
    for one in chosen.choices(some, k=400):
        written = damaged(chosen, one.written)
        made, plain = result(replace(one, written=written)), by_plain_code(one, written)
        assert isinstance(made, tuple | RefusedError | DamagedError)
        if isinstance(made, tuple) and isinstance(plain, tuple):
            assert made == plain, (one.name, written.hex())
            read += 1
        elif isinstance(made, tuple) or isinstance(plain, tuple):
            # A reference to a collection of a field with type arguments is refused by one of them alone.
            reason = str(plain if isinstance(made, tuple) else made)
            assert "type arguments" in reason or "itself" in reason, (one.name, written.hex(), made, plain)
    assert read > 20


def by_plain_code(one: Example, written: bytes) -> tuple[bytes, bytes] | StateferryError:
    type_ = type_of(one)
    try:
        return encode(one.map, map_of_object(type_, written, 0)), object_without_map(type_, written, 0)
    except StateferryError as error:
        return error


def type_of(one: Example) -> PojoMapType:
    map_ = KryoMapType(one.kryo.class_name, one.kryo.reason, one.kryo, one.map)
    return PojoMapType(one.kryo.class_name, "in a field", one.kryo, "counts", map_)


# Plain code follows no object that contains itself.
NOT_PLAIN = ("itself",)


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_code_finds_the_same(version: str) -> None:
    for one in examples(version).values():
        type_ = type_of(one)
        if one.name in NOT_PLAIN:
            with pytest.raises(RefusedError):
                object_without_map(type_, one.written, 0)
            continue
        if one.name in REFUSED[version]:
            continue
        if not isinstance(one.map.value, KryoType):
            assert encode(one.map, map_of_object(type_, one.written, 0)) in one.flink, one.name
        assert object_without_map(type_, one.written, 0) in one.rest, one.name


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_code_names_an_object_without_the_field(version: str) -> None:
    named = "has no field others"
    for one in examples(version).values():
        type_ = replace(type_of(one), field="others")
        # Of POJOs by Kryo 5 one contains itself outside of the field that isn't there.
        if one.name in (*NOT_PLAIN, "pojos", *REFUSED[version]) or one.written == b"\0":
            continue
        with pytest.raises(RefusedError, match=named):
            map_of_object(type_, one.written, 0)
        with pytest.raises(RefusedError, match=named):
            object_without_map(type_, one.written, 0)
