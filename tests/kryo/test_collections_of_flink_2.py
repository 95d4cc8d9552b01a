"""Collections that Flink 2's own serializers wrote become, for Kryo 2, the same objects, as real Flink wrote both."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.kryo.to_other_kryo import Recoder
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.type_parts import with_classes, with_kryo
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoField,
    PojoType,
    Scalar,
    SetType,
)
from flinkstate.values.codecs import decode_whole, encode
from flinkstate.values.java_values import PojoValue
from flinkstate.values.kryo_values import as_flink_or_null
from tests.kryo import test_more_pojos, test_pojos
from tests.kryo.damage import damaged
from tests.kryo.kept import VERSIONS, Kept, classes, kept
from tests.kryo.test_pojos import Example
from tests.kryo.test_to_other_kryo import NOT_FOR_2, UNORDERED, WERE_ONE, recoded

# Of classes that Kryo writes in a way that isn't known, and of types that no collection of Flink 2's own has in it.
_REFUSED = re.compile(
    rf"{NOT_FOR_2.pattern}|java.util.Locale: the Kryo|java.lang.Class|an object contains itself|stands at two places|"
    r"of a class with type parameters|a (Tuple\d*|Either|Row)<.* isn't written for Kryo 2|Either is not known|"
    r"which the savepoint doesn't describe|\[Ljava.math.BigDecimal;|its field lists has a type that isn't read"
)


@dataclass(frozen=True)
class Both:
    """A map: what Flink 2's MapSerializer wrote of it, and the type for the way back.

    Kryo 2 wrote `by_kryo_2` of it, and Flink 1's MapSerializer, of this snapshot, `by_flink_1`.
    """

    name: str
    type: KryoCollectionType
    by_flink_2: bytes
    kryo_2: KryoType
    by_kryo_2: bytes
    snapshot: bytes
    by_flink_1: bytes


def _both(one: Kept | Example, by_2: Kept | Example, snapshot: bytes, job: JobClasses) -> Both:
    made = with_classes(NullableType(one.map, 0), job)
    assert isinstance(made, NullableType)
    type_ = KryoCollectionType.of(replace(by_2.kryo, classes=job, five=True, for_five=False), made)
    kryo_2 = replace(by_2.kryo, five=False)
    return Both(one.name, type_, b"\0" + one.flink, kryo_2, by_2.written, snapshot, by_2.flink)


@lru_cache
def maps() -> tuple[Both, ...]:
    """All maps that real Flink has written by both serializers."""
    kept_2, kept_5 = (kept(version) for version in VERSIONS)
    found = [
        _both(kept_5[name], one, bytes.fromhex(one.flink_snapshot), classes())
        for name, one in kept_2.items()
        if name in kept_5
    ]
    for job, (two, five) in _of_pojos():
        for name, one in two.items():
            if name in five and one.flink and five[name].flink:
                found.append(_both(five[name], one, one.flink_snapshot, job))
    return tuple(found)


def _of_pojos() -> Iterator[tuple[JobClasses, tuple[dict[str, Example], dict[str, Example]]]]:
    two, five = VERSIONS
    yield test_pojos.classes(), (test_pojos.examples(two), test_pojos.examples(five))
    of_more = [{name: one for name, (one, _) in test_more_pojos.examples(version).items()} for version in VERSIONS]
    yield test_more_pojos.classes(), (of_more[0], of_more[1])


@lru_cache
def written() -> tuple[tuple[Both, bytes], ...]:
    """The maps with what is written of them for Kryo 2; those that are refused have reasons that are known."""
    found, refused = [], {}
    for one in maps():
        try:
            found.append((one, recoded(one.type, one.by_flink_2)))
        except RefusedError as error:
            refused[one.name] = str(error)
    assert {name: why for name, why in refused.items() if not _REFUSED.search(why)} == {}
    return tuple(found)


def _text(value: object) -> str:
    """Flink 2 makes a HashMap of any map, and so on."""
    linked = {"LinkedHashMap": "HashMap", "LinkedHashSet": "HashSet", "LinkedList": "ArrayList"}
    return re.sub("|".join(linked), lambda found: linked[found[0]], repr(value))


def test_plain_code_reads_the_same_objects() -> None:
    seen = 0
    for one, made in written():
        try:
            found, expected = (decode_whole(one.kryo_2, value) for value in (made, one.by_kryo_2))
        except RefusedError:
            continue
        if one.name not in (*UNORDERED, *WERE_ONE):
            assert sorted(map(_text, found.value)) == sorted(map(_text, expected.value)), one.name
            seen += 1
    assert seen > 500
    assert len(written()) > 800


def test_each_object_is_counted() -> None:
    """Of a list with the same values several times: references inside of one of them mean objects of that one."""
    seen = 0
    for one, _ in written():
        map_ = one.type.made.value
        assert isinstance(map_, MapType)
        listed = NullableType(ListType(NullableType(map_, 0)), 0)
        type_ = KryoCollectionType.of(one.type.kryo, listed)
        value = b"\0\0\0\0\4" + one.by_flink_2 + b"\1" + one.by_flink_2 * 2
        try:
            found = decode_whole(one.kryo_2, recoded(type_, value))
            alone = decode_whole(one.kryo_2, recoded(one.type, one.by_flink_2))
        except RefusedError:
            continue
        assert repr(found.value) == repr([alone, None, alone, alone]), one.name
        seen += 1
    assert seen > 500


def test_damaged_values_are_refused_or_are_values() -> None:
    chosen, told = random.Random(3), 0
    some = [one for one, _ in written() if len(one.by_flink_2) < 2000]
    sources = [one.by_flink_2 for one in some]
    for one in chosen.choices(some, k=3000):
        value = damaged(chosen, one.by_flink_2, sources)
        try:
            made = recoded(one.type, value)
        except (DamagedError, RefusedError):
            told += 1
            continue
        by_5 = with_kryo(one.type.made, lambda kryo: replace(kryo, five=True))
        try:
            expected = decode_whole(by_5, value)
        except (DamagedError, RefusedError):
            continue
        try:
            found = as_flink_or_null(one.type.made, decode_whole(one.kryo_2, made))
        except RefusedError as refused:
            # An array of objects, which are in the form of Flink 2 without their class; or an object that Kryo 2 writes
            # in another way than it reads.
            known = ("can be copied, but not decoded", "which type arguments Kryo took an object of")
            assert str(refused).startswith(known[1]) or known[0] in str(refused), (one.name, value.hex())  # noqa: PT017
            continue
        except DamagedError as error:
            # Flink doesn't look at the bits of a NaN.
            assert "NaN" in str(error), (one.name, value.hex())  # noqa: PT017
            continue
        assert repr(found) == repr(expected), (one.name, value.hex())
    assert told > 500


def test_large_collections_and_many_of_them() -> None:
    """Buffers grow while values are written, and no value is written twice or left out."""
    one = next(one for one in maps() if one.name == "beans")
    map_ = one.type.made.value
    assert isinstance(map_, MapType)
    bean = one.by_flink_2[1:]
    type_ = KryoCollectionType.of(one.type.kryo, NullableType(ListType(NullableType(map_, 0)), 0))
    count = 3000
    large = b"\0" + count.to_bytes(4, "big") + (b"\0" + bean) * count
    small = b"\0\0\0\0\1\0" + bean
    values = [large, b"\1", small, large]
    data = np.frombuffer(b"".join(values) + bytes(64), np.uint8).copy()
    ends = np.cumsum([len(value) for value in values])
    starts = np.append(0, ends[:-1])
    made = Recoder(compile_type(type_)).recode(data, starts, ends, np.zeros(4, np.int64))
    alone = [recoded(type_, value) for value in values]
    assert made.data.tobytes() == b"".join(alone)
    found = decode_whole(one.kryo_2, alone[0])
    assert len(found.value) == count
    # Texts of equal NaNs are equal.
    assert repr(found.value[0]) == repr(found.value[-1]) == repr(decode_whole(one.kryo_2, alone[2]).value[0])


_INNER, _COLOR = "stateferry.kryo.KryoPojos$Inner", "stateferry.kryo.KryoPojos$Color"
_RED = EnumType(_COLOR, ("RED", "GREEN", "BLUE"))
_FIELDS = (PojoField("color", _RED), PojoField("text", Scalar.STRING))


def _list_of(type_: FlinkType, **changes: Any) -> KryoCollectionType:
    kryo = replace(maps()[0].type.kryo, **{"classes": test_pojos.classes(), **changes})
    return KryoCollectionType.of(kryo, NullableType(ListType(NullableType(type_, 0)), 0))


def test_an_enum_with_other_numbers_in_the_savepoint_keeps_its_constants() -> None:
    """Flink goes on with the numbers that it has for the constants, Kryo has those of the class."""
    type_ = _list_of(EnumType(_COLOR, ("BLUE", "RED", "GREEN")))
    made = recoded(type_, encode(type_.made, ["RED", "BLUE", None, "GREEN"]))
    found = decode_whole(replace(type_.kryo, five=False), made).value
    assert [one and one.value for one in found] == ["RED", "BLUE", None, "GREEN"]


def test_subclasses_that_the_job_has_registered() -> None:
    inner = PojoType(_INNER, _FIELDS)
    base = PojoType("stateferry.kryo.KryoPojos$Numbers", _numbers(), registered_subclasses=(_RED, inner))
    type_ = _list_of(base)
    value = b"\0\0\0\0\1" + b"\0" + b"\x08\1" + encode(inner, PojoValue(_INNER, {"color": "BLUE", "text": "x"}))
    (found,) = decode_whole(replace(type_.kryo, five=False), recoded(type_, value)).value
    assert found.class_name == _INNER
    assert [found.value["color"].value, found.value["text"].value] == ["BLUE", "x"]
    with pytest.raises(StateferryError):
        recoded(type_, value.replace(b"\x08\1", b"\x08\2"))


def _numbers() -> tuple[PojoField, ...]:
    (map_,) = (one.type.made.value for one in maps() if one.name == "numbers")
    assert isinstance(map_, MapType)
    assert isinstance(map_.value, PojoType)
    return map_.value.fields


def _refusals() -> Iterator[tuple[KryoCollectionType, str]]:
    inner = PojoType(_INNER, _FIELDS)
    yield _list_of(inner, classes=None), "how Kryo 2 writes stateferry.kryo.KryoPojos.Inner is not known.*--classes"
    yield _list_of(_RED, classes=None), "KryoPojos.Color is not known.*--classes"
    yield _list_of(KryoType("com.acme.Missing")), "com.acme.Missing is not known.*--classes"
    yield _list_of(ArrayType(inner, "com.acme.Missing")), r"com.acme.Missing;? is not known"
    yield _list_of(EnumType(_COLOR, ("RED", "PINK"))), "has no constant PINK in the jar"
    yield _list_of(PojoType(_INNER, _FIELDS[:1])), "Inner has other fields in the jar than in the savepoint"
    other = (PojoField("color", Scalar.STRING), _FIELDS[1])
    yield _list_of(PojoType(_INNER, other)), "the class of a field color has another type there than String"
    numbers = tuple(replace(one, type=Scalar.LONG) if one.name == "n" else one for one in _numbers())
    yield _list_of(PojoType("stateferry.kryo.KryoPojos$Numbers", numbers)), "field n has another type there than Long"
    own = (KryoRegistration("java.util.List"), KryoRegistration(_INNER, "com.acme.Own"))
    yield _list_of(inner, registrations=own), r"Inner is not known \(with the job's serializer com.acme.Own\)"
    yield _list_of(NullableType(Scalar.LONG, 8)), "isn't written for Kryo 2"


@pytest.mark.parametrize(("type_", "why"), [*_refusals()])
def test_what_cannot_be_known_is_refused_by_name(type_: KryoCollectionType, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        Recoder(compile_type(type_))


def test_a_subclass_that_the_savepoint_does_not_describe() -> None:
    type_ = _list_of(PojoType(_INNER, _FIELDS))
    with pytest.raises(RefusedError, match=r"the subclass com\.acme\.Missing, which the savepoint doesn't describe"):
        recoded(type_, b"\0\0\0\0\1\0" + b"\x04\0\x10com.acme.Missing" + b"\2")


def test_a_set_may_have_null() -> None:
    kryo = _list_of(_RED).kryo
    type_ = KryoCollectionType.of(kryo, NullableType(SetType(_RED), 0))
    found = decode_whole(replace(kryo, five=False), recoded(type_, b"\0\0\0\0\2" + b"\1" + b"\0\0\0\0\1"))
    assert found.class_name == "java.util.HashSet"
    assert [one and one.value for one in found.value] == [None, "GREEN"]
