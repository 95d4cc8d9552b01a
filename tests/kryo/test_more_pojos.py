"""Objects of a job's classes become POJOs some of whose fields Flink leaves to Kryo, or to its collections.

`python -m tests.flink.kryo` made the files; `KryoMorePojos.java` has the classes and the maps.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from functools import lru_cache

import pytest

from flinkstate.classfiles.job_classes import JobClasses, job_classes
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.to_flink_maps import of_the_job
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.types import KryoMapType, KryoType, MapType
from flinkstate.values.codecs import decode_whole
from flinkstate.values.kryo_values import read_kryo_map
from stateferry.proof.plain.plain_maps import by_kryo
from tests.kryo.examples import VERSIONS, by_compiled_code, compiled, maps_of
from tests.kryo.test_kept import damaged
from tests.kryo.test_pojos import FOLDER, Example, _type_of, told

# Of which classes the files don't say how Flink stores a field.
NOT_KNOWN = {"arrays of lists": "its field lists is an array of a class with type arguments"}
# What the compiled reading refuses, and plain code reads.
NOT_ALIKE = ("type arguments", "becomes", "expected")
# What isn't read of Kryo.
NOT_READ = {"arrays of decimals": "no class becomes BigDecimal[]"}


@lru_cache
def classes() -> JobClasses:
    return job_classes((str(FOLDER / "more-pojo-classes.jar"),))


@lru_cache
def examples(version: str) -> dict[str, tuple[Example, bytes]]:
    """The examples, and what Flink writes of the map that its Kryo reads, by their names."""
    lines = map(json.loads, gzip.decompress((FOLDER / f"more-pojos-{version}.jsonl.gz").read_bytes()).splitlines())
    return {line["name"]: _example(line) for line in lines}


def _example(line: dict[str, str]) -> tuple[Example, bytes]:
    raw = {key: bytes.fromhex(text) for key, text in line.items() if key not in ("name", "refused")}
    kryo, map_ = _type_of(raw["snapshot"]), _type_of(raw["flink_snapshot"])
    assert isinstance(kryo, KryoType)
    assert isinstance(map_, MapType)
    kryo = replace(kryo, classes=classes())
    one = Example(line["name"], kryo, raw["bytes"], map_, raw.get("flink", b""), raw["flink_snapshot"])
    return one, raw.get("again", b"")


def known(one: Example, version: str) -> MapType:
    meant = told(one.map)
    assert isinstance(meant, MapType)
    return of_the_job(meant, one.kryo, of_flink_2=version >= "2")


@pytest.mark.parametrize("version", VERSIONS)
def test_class_files_say_how_flink_stores_each_field(version: str) -> None:
    for one, _ in examples(version).values():
        if one.name in NOT_KNOWN:
            with pytest.raises(RefusedError, match=NOT_KNOWN[one.name]):
                known(one, version)
            continue
        assert known(one, version) == one.map, one.name
        assert snapshot_of(known(one, version)).raw == one.flink_snapshot, one.name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_flink(version: str) -> None:
    for one, again in examples(version).values():
        if one.name in (*NOT_KNOWN, *NOT_READ) or not one.flink:
            continue
        assert by_compiled_code(one.kryo, known(one, version), one.written) in (one.flink, again), one.name
    for name, reason in NOT_READ.items():
        one, _ = examples(version)[name]
        refused = by_compiled_code(one.kryo, known(one, version), one.written)
        assert isinstance(refused, RefusedError)
        assert reason in str(refused)


@pytest.mark.parametrize("version", VERSIONS)
def test_many_at_once_are_the_same(version: str) -> None:
    """What one map said (names, numbers, objects) is forgotten for the next one."""
    for name in ("lists that share", "others that share", "concrete that share", "in fields"):
        one, again = examples(version)[name]
        made = compiled(one.kryo, known(one, version), [one.written] * 3)
        assert all(found in (one.flink, again) for found in maps_of(made)), name


def test_flink_2_finds_no_end_in_a_class_with_a_list_of_itself() -> None:
    """It looks at the class again and again, until its stack is full: no golden has it."""
    one, _ = examples("1.20.0")["trees"]
    with pytest.raises(RefusedError, match=r"its field children has elements of .*Tree, which Flink 2 can't analyse"):
        known(one, "2.3.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_code_reads_the_same_objects(version: str) -> None:
    same = 0
    for one, again in examples(version).values():
        if one.name in (*NOT_KNOWN, *NOT_READ) or not one.flink:
            continue
        type_ = known(one, version)
        stored = KryoMapType(one.kryo.class_name, one.kryo.reason, one.kryo, type_)
        try:
            found = read_kryo_map(stored, one.written, 0)
        except RefusedError:
            # Of a few classes it can't read the objects.
            continue
        by_flink = by_kryo(type_, five=version >= "2", classes=one.kryo.classes)
        assert repr(found) in [repr(decode_whole(by_flink, raw)) for raw in (one.flink, again)], one.name
        same += 1
    assert same > 9


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_refused_or_read_alike(version: str) -> None:
    chosen, read = random.Random(5), 0
    some = [one for one, _ in examples(version).values() if one.flink and one.name not in (*NOT_KNOWN, *NOT_READ)]
    for one in chosen.choices(some, k=500):
        written, type_ = damaged(chosen, one.written), known(one, version)
        made = by_compiled_code(one.kryo, type_, written)
        assert isinstance(made, bytes | RefusedError | DamagedError)
        try:
            plain = read_kryo_map(KryoMapType(one.kryo.class_name, one.kryo.reason, one.kryo, type_), written, 0)
        except (RefusedError, DamagedError):
            continue
        if isinstance(made, bytes):
            by_flink = by_kryo(type_, five=version >= "2", classes=one.kryo.classes)
            assert repr(decode_whole(by_flink, made)) == repr(plain), (one.name, written.hex())
            read += 1
        else:
            assert any(known_ in str(made) for known_ in NOT_ALIKE), (one.name, written.hex(), str(made))
    assert read > 10
