"""Objects of a job's classes become POJOs, by the class files alone: the types, bytes and snapshots are Flink's own.

`python -m tests.flink.kryo` made the files; `KryoPojos.java` has the classes and the maps.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pytest

from flinkstate.classfiles.class_file import ABSTRACT, FINAL, INTERFACE, PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses, job_classes
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import class_table
from flinkstate.kryo.job_pojos import pojo_type, why_no_pojo
from flinkstate.kryo.map_fields import map_fields
from flinkstate.kryo.places_in_maps import places_of
from flinkstate.kryo.refusal import what_helps
from flinkstate.kryo.to_flink_maps import of_the_job
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.type_text import parse_map_type, type_text
from flinkstate.serializers.types import (
    ArrayType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoField,
    PojoType,
    Scalar,
    TupleType,
    children,
)
from tests.kryo.examples import by_compiled_code, by_plain_code, compiled, maps_of, without_subclasses
from tests.kryo.test_kept import damaged

FOLDER = Path(__file__).parent
VERSIONS = ("1.20.0", "2.3.0")
NO_POJO = "not a POJO: "
# Why the class files say that a class is no POJO.
REASONS = {
    "WithoutSetter": "its field n is not public and has no getter and setter",
    "WithoutConstructor": "it has no public constructor without arguments",
    "NotPublic": "it is not public",
}


@lru_cache
def classes() -> JobClasses:
    return job_classes((str(FOLDER / "pojo-classes.jar"),))


@dataclass(frozen=True)
class Example:
    """A map by Kryo; the type that Flink gives it, what Flink's serializer writes of it, and its snapshot."""

    name: str
    kryo: KryoType
    written: bytes
    map: MapType
    flink: bytes
    flink_snapshot: bytes


@lru_cache
def examples(version: str) -> dict[str, Example]:
    lines = map(json.loads, gzip.decompress((FOLDER / f"pojos-{version}.jsonl.gz").read_bytes()).splitlines())
    return {line["name"]: _example(line) for line in lines}


def _example(line: dict[str, str]) -> Example:
    written, flink, snapshot, own = (
        bytes.fromhex(line[key]) for key in ("bytes", "flink", "snapshot", "flink_snapshot")
    )
    kryo, map_ = _type_of(snapshot), _type_of(own)
    assert isinstance(kryo, KryoType)
    assert isinstance(map_, MapType)
    return Example(line["name"], replace(kryo, classes=classes()), written, map_, flink, own)


def _type_of(snapshot: bytes) -> FlinkType:
    return SnapshotParser(snapshot, "an example").read(0)[0].type


def pojos(version: str) -> list[Example]:
    return [one for one in examples(version).values() if not one.name.startswith(NO_POJO)]


def told(type_: FlinkType) -> FlinkType:
    """The type as a person tells it: of a POJO the class alone."""
    match type_:
        case PojoType(class_name):
            return PojoType(class_name, ())
        case MapType(key, value):
            return MapType(told(key), told(value))
        case TupleType(fields, class_name):
            return TupleType(tuple(map(told, fields)), class_name)
        case ListType(element):
            return ListType(told(element))
    return type_


def known(one: Example) -> MapType:
    meant = told(one.map)
    assert isinstance(meant, MapType)
    return of_the_job(meant, one.kryo, of_flink_2=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_class_files_say_which_fields_flink_finds(version: str) -> None:
    for one in pojos(version):
        meant = without_subclasses(known(one))
        assert meant == one.map, one.name
        if not any(isinstance(part, TupleType) for part in children(one.map)):
            assert snapshot_of(meant).raw == one.flink_snapshot, one.name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_flink(version: str) -> None:
    for one in pojos(version):
        assert by_compiled_code(one.kryo, known(one), one.written) == one.flink, one.name
        assert by_plain_code(one.kryo, known(one), one.written) == one.flink, one.name
    beans = [one for one in pojos(version) if "bean" in one.name and one.map == examples(version)["beans"].map]
    beans = [one for one in beans if one.kryo == examples(version)["beans"].kryo]
    assert len(beans) == 4
    made = compiled(beans[0].kryo, known(beans[0]), [one.written for one in beans] * 3)
    assert maps_of(made) == [one.flink for one in beans] * 3


@pytest.mark.parametrize("version", VERSIONS)
def test_what_flink_takes_for_no_pojo_is_none(version: str) -> None:
    for name, reason in REASONS.items():
        one = examples(version)[f"{NO_POJO}{name}"]
        class_name = f"stateferry.kryo.KryoPojos${name}"
        with pytest.raises(RefusedError) as refused:
            of_the_job(parse_map_type(f"Map<String, Pojo<{class_name}>>"), one.kryo, of_flink_2=False)
        assert reason in str(refused.value)
        assert str(refused.value).endswith(f"Kryo<{class_name}>")
        assert not isinstance(one.map.value, PojoType)
    for name in ("WithList", "Itself"):
        # These are POJOs for Flink, with a field by Kryo; in Flink 2 the list is not.
        one = examples(version)[f"{NO_POJO}{name}"]
        meant = parse_map_type(f"Map<String, Pojo<stateferry.kryo.KryoPojos${name}>>")
        assert of_the_job(meant, one.kryo, of_flink_2=version >= "2") == one.map


@pytest.mark.parametrize("version", VERSIONS)
def test_a_null_pojo_is_refused_as_a_key(version: str) -> None:
    one = examples(version)[f"{NO_POJO}a subclass"]
    meant = of_the_job(parse_map_type("Map<Pojo<stateferry.kryo.KryoPojos$Inner>, Long>"), one.kryo, of_flink_2=False)
    head = b"\x01\x00java.util.HashMa\xf0\x01"
    written = head + bytes([1 + (version == "2.3.0")]) + b"\x00\x09\x02"
    assert isinstance(by_compiled_code(one.kryo, replace(meant, key=Scalar.STRING), written), bytes)
    # Of two failed readings each gives the error of the one that got farther.
    for refused in (by_compiled_code(one.kryo, meant, written), by_plain_code(one.kryo, meant, written)):
        assert isinstance(refused, RefusedError | DamagedError)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_object_of_a_subclass_is_behind_its_name(version: str) -> None:
    """`test_upgrade.py` of `tests/flink` has Flink read such objects."""
    one = examples(version)[f"{NO_POJO}a subclass"]
    meant = of_the_job(parse_map_type("Map<String, Pojo<stateferry.kryo.KryoPojos$Inner>>"), one.kryo, of_flink_2=False)
    made = by_compiled_code(one.kryo, meant, one.written)
    assert isinstance(made, bytes)
    name = b"stateferry.kryo.KryoPojos$Special"
    assert b"\x04" + len(name).to_bytes(2, "big") + name + b"\x02" in made
    assert made == by_plain_code(one.kryo, meant, one.written)
    # One that is no POJO has no such form.
    alone = without_subclasses(meant)
    assert isinstance(alone, MapType)
    for refused in (by_compiled_code(one.kryo, alone, one.written), by_plain_code(one.kryo, alone, one.written)):
        assert isinstance(refused, RefusedError)
        assert "KryoPojos$Special" in str(refused)


def test_subclasses_without_end() -> None:
    """An abstract class, a subclass that has a list of it, and one that is no POJO."""

    def made(name: str, superclass: str, access: int, *fields: Member) -> ClassFile:
        new = Member("<init>", "()V", PUBLIC)
        return ClassFile(name, superclass, (), access, fields, None, False, (new,), access)

    pack = Member("pack", "Ljava/util/List;", PUBLIC, "Ljava/util/List<LUp;>;")
    up = made("Up", "java.lang.Object", PUBLIC | ABSTRACT, Member("n", "J", PUBLIC))
    jars = {"Up": up, "Dog": made("Dog", "Up", PUBLIC, pack), "Cat": made("Cat", "Up", 0)}
    found = pojo_type("Up", KryoType("Up", classes=JobClasses("all", jars)), of_flink_2=True)
    assert [name for name, _ in found.other_subclasses] == ["Dog"]
    (dog,) = found.subclasses
    assert isinstance(dog, PojoType)
    inside = next(one.type for one in dog.fields if one.name == "pack")
    assert inside == NullableType(ListType(NullableType(PojoType("Up", found.fields), 0)), 0)
    with pytest.raises(RefusedError, match="it is abstract"):
        pojo_type("Up", KryoType("Up", classes=JobClasses("fewer", {"Up": up, "Cat": jars["Cat"]})), of_flink_2=True)


def test_a_field_of_a_class_around_it_stays_with_kryo() -> None:
    """Also one of a superclass, as in `Knot` of `tests/flink/test_new_classes.py`; what is in an array doesn't."""

    def made(name: str, superclass: str, *fields: Member) -> ClassFile:
        new = Member("<init>", "()V", PUBLIC)
        return ClassFile(name, superclass, (), PUBLIC, fields, None, False, (new,), PUBLIC)

    up = made("Up", "java.lang.Object", Member("n", "J", PUBLIC))
    knot = made("Knot", "Up", *(Member(name, f"{name};", PUBLIC) for name in ("LUp", "LKnot", "[LUp", "[[LUp")))
    found = without_subclasses(
        pojo_type("Knot", KryoType("Knot", classes=JobClasses("knot", {"Up": up, "Knot": knot})), of_flink_2=True)
    )
    assert isinstance(found, PojoType)
    kryos = {one.name: one.type.class_name for one in found.fields if isinstance(one.type, KryoType)}
    inside = PojoType("Up", (PojoField("n", Scalar.LONG),))
    assert kryos == {"LUp": "Up", "LKnot": "Knot"}
    assert {one.name: one.type for one in found.fields if one.name not in kryos} == {
        "[LUp": ArrayType(inside, "Up"),
        "[[LUp": ArrayType(ArrayType(inside, "Up"), "[LUp;"),
        "n": Scalar.LONG,
    }


def test_a_type_with_a_pojo_is_told_and_said_again() -> None:
    text = "Map<String,List<Pojo<com.acme.Reading>>>"
    assert type_text(parse_map_type(text)) == text
    with pytest.raises(RefusedError, match=r"com.acme.Reading can't become a POJO: the jars don't have it"):
        of_the_job(parse_map_type(text), examples(VERSIONS[0])["beans"].kryo, of_flink_2=False)
    of_library = parse_map_type("Map<String,Pojo<org.apache.commons.lang3.mutable.MutableLong>>")
    with pytest.raises(RefusedError, match=r"don't have it. Classes of this library aren't read from a jar either$"):
        of_the_job(of_library, examples(VERSIONS[0])["beans"].kryo, of_flink_2=False)
    with pytest.raises(RefusedError, match="give --classes"):
        of_the_job(parse_map_type(text), replace(examples(VERSIONS[0])["beans"].kryo, classes=None), of_flink_2=False)


def test_an_advice_that_would_be_refused_isnt_given() -> None:
    """Of a class with a field of `TimeUnit` no objects by Kryo are read either."""
    unit = Member("unit", "Ljava/util/concurrent/TimeUnit;", PUBLIC)
    constructor = Member("<init>", "()V", PUBLIC)
    base, account = (
        ClassFile(name, above, (), PUBLIC, fields, signature, False, (constructor,), PUBLIC)
        for name, above, fields, signature in (
            ("acme.Base", "java.lang.Object", (unit,), "<ID:Ljava/lang/Object;>Ljava/lang/Object;"),
            ("acme.Account", "acme.Base", (), "Lacme/Base<Ljava/lang/Long;>;"),
        )
    )
    kryo = KryoType("java.util.HashMap", classes=JobClasses("a", {one.name: one for one in (base, account)}))
    expected = (
        "acme.Account can't become a POJO: acme.Base has type parameters. Nor can its objects stay values of Kryo"
    )
    with pytest.raises(RefusedError, match=f"^{expected}: its field unit is of java.util.concurrent.TimeUnit"):
        of_the_job(parse_map_type("Map<String,Pojo<acme.Account>>"), kryo, of_flink_2=False)


def test_of_a_class_that_is_a_map_itself_it_is_said() -> None:
    """Kryo writes its entries and none of its fields, so no map is in one."""
    held = (Member("map", "Ljava/util/Map;", PUBLIC),)
    plain, json = (
        ClassFile(name, "java.lang.Object", interfaces, PUBLIC, held, None, False)
        for name, interfaces in (("com.acme.Plain", ()), ("com.acme.Json", ("java.util.Map",)))
    )
    job = JobClasses("maps", {one.name: one for one in (plain, json)})
    assert map_fields(KryoType("com.acme.Plain", classes=job)) == ("map",)
    assert map_fields(KryoType("com.acme.Json", classes=job)) == ()
    type_ = parse_map_type("Map<String,Kryo<com.acme.Json>>")
    places_of(type_, class_table(KryoType("java.util.HashMap", classes=job)))
    with pytest.raises(RefusedError, match=r"no class becomes Json.*give its jar: --classes"):
        places_of(type_, class_table(KryoType("java.util.HashMap")))


@pytest.mark.parametrize(
    ("above", "interfaces", "access", "has_arguments", "of_object", "of_pojo"),
    [
        ("java.util.LinkedHashMap", (), 0, False, True, True),
        ("java.lang.Object", ("java.util.Map",), 0, False, True, True),
        ("java.lang.Object", ("java.util.SortedMap",), INTERFACE | ABSTRACT, False, True, True),
        ("java.util.Properties", (), 0, False, True, True),
        # Kryo writes no tag of a final class in an object, so nothing is taken out there.
        ("java.util.HashMap", (), FINAL, False, False, True),
        ("java.util.HashMap", (), 0, True, False, True),
        ("java.util.ArrayList", (), 0, False, False, False),
        ("java.lang.Object", ("java.util.Set",), 0, False, False, False),
        ("java.util.TreeMap", (), 0, False, False, False),
        ("java.lang.Object", (), 0, False, False, False),
    ],
)
def test_fields_of_maps_of_the_job_are_named(
    above: str, interfaces: tuple[str, ...], access: int, has_arguments: bool, of_object: bool, of_pojo: bool
) -> None:
    """Whatever the class is called: a run takes the map out of such a field."""
    name, signature = "com.acme.HeatMap", "Lcom/acme/HeatMap<Ljava/lang/String;>;" if has_arguments else None
    fields = (Member("heat", "Lcom/acme/HeatMap;", PUBLIC, signature), Member("no", "J", PUBLIC))
    holder = ClassFile("com.acme.Room", "java.lang.Object", (), PUBLIC, fields, None, False)
    heat = ClassFile(name, above, interfaces, PUBLIC | access, (), None, False)
    job = JobClasses("maps", {one.name: one for one in (holder, heat)})
    room = KryoType("com.acme.Room", classes=job)
    assert map_fields(room) == (("heat",) if of_object else ())
    assert not of_object or class_table(room).job.parts["com.acme.Room"][0].kind == codes.TAGGED_PART
    pojo = PojoType("com.acme.Room", (PojoField("heat", KryoType(name, classes=job)), PojoField("no", Scalar.LONG)))
    assert map_fields(pojo) == (("heat",) if of_pojo else ())


def test_a_class_that_extends_a_map_of_the_jdk_is_no_pojo() -> None:
    """Flink leaves it to Kryo, also in a collection of a POJO's field."""
    counter = ClassFile("com.acme.Counter", "java.util.HashMap", (), PUBLIC, (), None, False)
    assert (
        why_no_pojo("com.acme.Counter", JobClasses("maps", {counter.name: counter})) == "it extends java.util.HashMap"
    )


def test_a_jar_is_asked_for_only_where_it_helps() -> None:
    for name, said in (
        ("com.acme.Reading", "give its jar: --classes"),
        ("com.google.gson.JsonObject", "Classes of this library aren't read from a jar either"),
    ):
        with pytest.raises(RefusedError, match=f"no class becomes .*{said}"):
            places_of(parse_map_type(f"Map<String,Kryo<{name}>>"), class_table(KryoType("java.util.HashMap")))
        assert said in what_helps([name])
    assert what_helps(["java.util.Formatter", "com.acme.Json (it implements java.util.Map)"]) == ""


def test_the_place_of_another_class_is_named() -> None:
    one = examples(VERSIONS[0])["beans"]
    bean = known(one).value
    assert isinstance(bean, PojoType)
    numbers = tuple(
        PojoField(field.name, bean.fields[1].type) if field.name == "numbers" else field for field in bean.fields
    )
    wrong = MapType(one.map.key, replace(bean, fields=numbers))
    refused = by_compiled_code(one.kryo, wrong, one.written)
    assert isinstance(refused, RefusedError)
    assert "the map's value.numbers" in str(refused)


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_seen_alike_by_both_readings(version: str) -> None:
    chosen = random.Random(7)
    read = 0
    for one, written in _damaged(version, chosen, 300):
        made, plain = (by(one.kryo, known(one), written) for by in (by_compiled_code, by_plain_code))
        assert isinstance(made, bytes | RefusedError | DamagedError)
        assert isinstance(plain, bytes | RefusedError | DamagedError)
        assert isinstance(made, bytes) == isinstance(plain, bytes), (one.name, written.hex(), made, plain)
        if isinstance(made, bytes):
            assert made == plain
            read += 1
    assert read > 10


def _damaged(version: str, chosen: random.Random, count: int) -> Iterator[tuple[Example, bytes]]:
    some = [one for one in pojos(version) if one.name != "many"]
    for one in chosen.choices(some, k=count):
        yield one, damaged(chosen, one.written)
