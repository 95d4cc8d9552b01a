"""Values by Kryo inside of other values: all of them are found, and their classes decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.classfiles.class_file import PUBLIC, ClassFile
from flinkstate.classfiles.job_classes import JobClasses, read_job_classes
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import AVRO_ARRAY, kryo_snapshot
from flinkstate.serializers.types import (
    FlinkType,
    KryoRegistration,
    KryoType,
    OptionType,
    RowType,
    Scalar,
    TraversableType,
)
from stateferry.verdict import registrations
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.kryo_values import finding_of
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.sample import Finder, samples_of
from stateferry.verdict.versions import Line
from tests.support.expected_columns import SAVEPOINTS
from tests.support.kryo_writing import Boxed, kryo_map, kryo_object

BY_KRYO = kryo_snapshot("java.util.HashMap").type


def finding(case: str, state: str) -> Finding:
    found = verdicts(Savepoint.open(str(SAVEPOINTS / case)), Asked(Line.TWO, everything=True))
    return next(one.finding for one in found if one.state == state)


def held(case: str, state: str) -> list[Any]:
    lines = (SAVEPOINTS / case / "expected.jsonl").read_text(encoding="ascii").splitlines()
    return [line["value"] for line in map(json.loads, lines) if line["state"] == state]


def values_found(case: str, state: str) -> int:
    savepoint = Savepoint.open(str(SAVEPOINTS / case))
    operator = next(one for one in savepoint.metadata.operators if savepoint.keyed_header(one) is not None)
    states = tuple(one for one in savepoint.keyed_states(operator) if one.name == state)
    found = samples_of(savepoint, operator, states, _ONE_TO_TWO, None)
    return sum(sampled.values for kryos in found.values() for _, sampled in kryos)


@pytest.mark.parametrize("case", ["kryo-parts-1.20-rocksdb", "kryo-parts-ttl-1.20-hashmap"])
def test_values_of_a_map_are_found(case: str) -> None:
    """One that both Kryos could have written ends the count."""
    maps = held(case, "old-0")
    assert 0 < values_found(case, "old-0") <= sum(one is not None for map_ in maps for one in map_.values())
    assert finding(case, "old-0").outcome is Outcome.FAILS


@pytest.mark.parametrize("case", ["in-pojos-1.20-rocksdb", "in-pojos-ttl-1.20-rocksdb"])
def test_each_field_of_a_pojo_is_found(case: str) -> None:
    fields = ("before", "counts", "rates")
    pojos = [one for one in held(case, "kryo") if one is not None]
    wanted = sum(pojo[name] is not None for pojo in pojos for name in fields)
    assert values_found(case, "kryo") == wanted > 0
    assert finding(case, "kryo").outcome is Outcome.WRONG
    assert "HashMap" in finding(case, "kryo").reason


@pytest.mark.parametrize(
    ("type_", "before", "behind"),
    [
        pytest.param(RowType((BY_KRYO, Scalar.LONG), has_kind=False), b"\0", bytes(8), id="a row"),
        pytest.param(OptionType(BY_KRYO), b"\1", b"", id="an option"),
        pytest.param(TraversableType(BY_KRYO, "List"), (1).to_bytes(4, "big") + b"\1", b"", id="a Scala list"),
    ],
)
def test_values_in_rows_and_in_types_of_scala_are_found(type_: FlinkType, before: bytes, behind: bytes) -> None:
    raw = before + kryo_map({"a": 1}, five=False) + behind
    finder = Finder(type_, five=False, most=10)
    finder.add_whole(np.frombuffer(bytearray(raw), np.uint8), np.zeros(1, np.int64), np.array([len(raw)]))
    ((_, sampled),) = finder.results(whole=True)
    assert (sampled.values, sampled.whole, sampled.why_not) == (1, True, None)


_OBJECT = kryo_snapshot("java.lang.Object").type
_NEW, _A = b"\x01", b"\x03\x01a\xe2"
_TWO_TO_TWO, _ONE_TO_ONE = Journey(Line.TWO, Line.TWO), Journey(Line.ONE, Line.ONE)
_ONE_TO_TWO = Journey(Line.ONE, Line.TWO)


def _of_class(name: str, number: int = 0) -> bytes:
    """The tag of a class by its name, and the mark of a new object."""
    raw = name.encode()
    if len(raw) < 64:
        return b"\x01" + bytes([number]) + raw[:-1] + bytes([raw[-1] | 0x80]) + _NEW
    return b"\x01" + bytes([number, 0xC0 | (len(raw) + 1) & 0x3F, (len(raw) + 1) >> 6]) + raw + _NEW


_OPTIONAL, _OBJECTS = _of_class("java.util.Optional"), _of_class("[Ljava.lang.Object;")
_MAP = _of_class("java.util.HashMap", 1) + b"\x01" + _A + b"\x09\x02"
_LIST = _of_class("java.util.ArrayList", 1) + b"\x02" + _A + _A
_UUID = b"\x54" + _NEW + b"\xff" * 8 + b"\x7f" + b"\xff" * 8 + b"\x3f"
_UNREADABLE = _of_class("java.util.Collections$UnmodifiableRandomAccessList", 1) + b"\x01" + _A
_FLOATS = b"\x01\x01[\xc6"
_SET = _of_class("java.util.HashSet")


@pytest.mark.parametrize(
    ("value", "journey", "place", "outcome", "names"),
    [
        (_OPTIONAL + _MAP, _ONE_TO_TWO, Place.VALUE, Outcome.WRONG, "HashMap"),
        (_OPTIONAL + _LIST, _ONE_TO_TWO, Place.VALUE, Outcome.WRONG, "ArrayList"),
        (_OPTIONAL + _UUID, _ONE_TO_TWO, Place.VALUE, Outcome.FAILS, "UUID"),
        (_OBJECTS + b"\x03" + _MAP + b"\x09\x02", _ONE_TO_TWO, Place.VALUE, Outcome.WRONG, "HashMap"),
        (_OPTIONAL + _UNREADABLE, _ONE_TO_ONE, Place.VALUE, Outcome.FAILS, "UnmodifiableRandomAccessList"),
        (_SET + b"\x01" + _UNREADABLE, _ONE_TO_ONE, Place.VALUE, Outcome.FAILS, "UnmodifiableRandomAccessList"),
        (
            _SET + b"\x82" + _FLOATS + b"\x00\x01\x02" + bytes(4),
            _TWO_TO_TWO, Place.ELEMENT, Outcome.UNKNOWN, "a short[], char[] or float[]",
        ),
    ],
)  # fmt: skip
def test_classes_at_any_depth_decide(
    value: bytes, journey: Journey, place: Place, outcome: Outcome, names: str
) -> None:
    """Also in what has no form of Flink's own, such as a set or an Optional."""
    finder = Finder(_OBJECT, five=journey.source is Line.TWO, most=10)
    finder.add_whole(np.frombuffer(bytearray(value), np.uint8), np.zeros(1, np.int64), np.array([len(value)]))
    said = finding_of(Part(place, _OBJECT), journey, finder.results(whole=True))
    assert said is not None
    assert (said.outcome, names in said.reason) == (outcome, True), said


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (("a.Lru",), "wrote of a.Lru in another way: each map comes back without one of its entries"),
        (("java.util.LinkedHashMap", "a.Lru"), "wrote of LinkedHashMap, a.Lru in another way: each map"),
        (("a.Steps",), "wrote of a.Steps in another way: each collection comes back"),
        (("java.util.ArrayList",), "wrote of ArrayList in another way: each collection comes back"),
    ],
)
def test_collections_of_the_job_are_named(values: tuple[str, ...], shown: str) -> None:
    """Kryo writes them as those of the JDK that they extend, and what becomes of them is the same."""
    above = {"a.Lru": "java.util.LinkedHashMap", "a.Steps": "java.util.ArrayList"}
    job = {name: ClassFile(name, one, (), PUBLIC, (), None, False) for name, one in above.items()}
    kryo = KryoType("java.lang.Object", classes=JobClasses("digest", job))
    content = {"LinkedHashMap": _A + b"\x09\x02", "Lru": _A + b"\x09\x02", "ArrayList": _A, "Steps": _A}
    raw = [_of_class(name) + b"\x01" + content[name.rpartition(".")[2]] for name in values]
    ends = np.cumsum([len(one) for one in raw])
    finder = Finder(kryo, five=False, most=10)
    finder.add_whole(np.frombuffer(bytearray(b"".join(raw)), np.uint8), np.append(0, ends[:-1]), ends)
    said = finding_of(Part(Place.VALUE, kryo), _ONE_TO_TWO, finder.results(whole=True))
    assert said is not None
    assert (said.outcome, shown in said.reason) == (Outcome.WRONG, True), said


@pytest.mark.parametrize(("others", "outcome"), [([], Outcome.RESTORES), ([_OPTIONAL + _MAP], Outcome.WRONG)])
def test_a_value_that_both_can_read_hides_no_other(others: list[bytes], outcome: Outcome) -> None:
    values = [_OPTIONAL + _A, *others]
    ends = np.cumsum([len(value) for value in values])
    finder = Finder(_OBJECT, five=False, most=10)
    finder.add_whole(np.frombuffer(bytearray(b"".join(values)), np.uint8), np.append(0, ends[:-1]), ends)
    said = finding_of(Part(Place.VALUE, _OBJECT), _ONE_TO_TWO, finder.results(whole=True))
    assert said is not None
    assert said.outcome is outcome, said


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        pytest.param(BY_KRYO, [kryo_map({"a": 1}, five=False)], id="a map"),
        pytest.param(_OBJECT, [kryo_object(Boxed("double", 1.5), five=False)], id="a number that both can read"),
    ],
)
def test_one_among_others_may_fail(type_: KryoType, values: list[bytes]) -> None:
    """Alone these are only wrong. Of the class in the second map nothing is known, and Kryo 5 can't read the UUID."""
    more = kryo_map({"a": _of_class("com.acme.Reading") + b"\x02"}, five=False) if type_ is BY_KRYO else _UUID
    for held, may_fail in ((values, False), ([*values, more], True)):
        ends = np.cumsum([len(value) for value in held])
        finder = Finder(type_, five=False, most=10)
        finder.add_whole(np.frombuffer(bytearray(b"".join(held)), np.uint8), np.append(0, ends[:-1]), ends)
        said = finding_of(Part(Place.VALUE, type_), _ONE_TO_TWO, finder.results(whole=True))
        assert said is not None
        assert (Outcome.WRONG in said.possible, Outcome.FAILS in said.possible) == (True, may_fail), said


def test_a_serializer_of_flink_avro_is_seen_behind_one_of_the_job() -> None:
    """Real Flink 2.3 refused such a header: Missing value for the key 'org.apache.avro.generic.GenericData$Array'."""
    own = KryoRegistration("com.acme.Message", "com.twitter.chill.protobuf.ProtobufSerializer")
    avro = KryoRegistration(AVRO_ARRAY, "org.apache.flink.formats.avro.utils.AvroKryoSerializerUtils$AvroSerializer")
    for registered, outcome in (((own,), Outcome.UNKNOWN), ((own, avro), Outcome.REFUSED)):
        part = Part(Place.VALUE, KryoType("java.util.HashMap", registrations=registered))
        said = registrations.finding_of(part, _ONE_TO_TWO, is_rewritten=False)
        assert said is not None
        assert said.outcome is outcome


def test_numbers_that_both_read_alike_by_chance_say_nothing_of_those_not_read() -> None:
    zeros = np.frombuffer(bytearray(2 * (b"\x0a" + bytes(8))), np.uint8)
    finder = Finder(_OBJECT, five=False, most=10)
    finder.add_whole(zeros, np.array([0, 9]), np.array([9, 18]))
    for whole, outcome in ((True, Outcome.RESTORES), (False, Outcome.UNKNOWN)):
        said = finding_of(Part(Place.VALUE, _OBJECT), _ONE_TO_TWO, finder.results(whole))
        assert said is not None
        assert said.outcome is outcome, said


def test_objects_that_do_not_fit_the_new_jobs_class_are_not_told_to_restore() -> None:
    """The class lacks a field now, and Kryo has no names of fields in the bytes."""
    totals, savepoint = "stateferry.flink.pojo.Totals", Savepoint.open(str(SAVEPOINTS / "in-objects-1.20-rocksdb"))
    job = read_job_classes([str(Path(__file__).parents[1] / "kryo" / "totals-classes.jar")])
    # Of classes that aren't public Flink makes no POJOs.
    hidden = {name: replace(one, access=one.access & ~PUBLIC, declared=0) for name, one in job.classes.items()}
    fewer = replace(hidden[totals], fields=tuple(one for one in hidden[totals].fields if one.name != "name"))
    for classes, expected in ((hidden, Outcome.RESTORES), (hidden | {totals: fewer}, Outcome.UNKNOWN)):
        new_job = JobClasses(expected.word, classes)
        found = {one.state: one.finding for one in verdicts(savepoint, Asked(Line.ONE, new_job, new_job=new_job))}
        assert found["whole"].outcome is expected
    assert "can't be read" in found["whole"].reason
