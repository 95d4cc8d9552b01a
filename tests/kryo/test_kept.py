"""Values of Kryo that stay Kryo's are made whole: byte for byte what Flink writes for each of them."""

from __future__ import annotations

import random
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.classfiles.job_classes import read_job_classes
from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.kryo.class_finder import map_type_of
from flinkstate.kryo.refusal import what_helps
from flinkstate.kryo.to_flink_maps import of_the_job
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.type_text import parse_map_type, type_text
from flinkstate.serializers.types import EnumType, FlinkType, KryoMapType, KryoType, ListType, MapType, Scalar
from flinkstate.values.kryo_values import read_kryo_map
from tests.kryo.examples import by_compiled_code, by_plain_code, compiled, examples, find_classes, maps_of
from tests.kryo.kept import FOLDER, VERSIONS, Kept, classes, kept

# What is refused, and a word of the reason.
REFUSED = {
    "Class": "java.lang.Class|Kryo<Class>|Class",
    "Set.copyOf": "can't be read",
    "Locale": "String|Locale",
    "links and things": "type arguments",
    "lists that share": "type arguments",
    "a list in two fields": "type arguments",
    "a list of a field": "type arguments",
    "a list class": "extends java.util.ArrayList",
    "type arguments: boxes within boxes": "type parameters",
    "type arguments: boxes in lists in boxes": "type parameters",
    "type arguments: a tuple in a tuple": "type parameters",
    "type arguments: one box in a box, too": "type parameters",
    "type arguments: one box in two objects": "type arguments",
    "type arguments: a class inside of a class": "a class inside of a class with type arguments",
    "Row with the names of another": "type arguments",
}


def named_in_refused(name: str) -> bool:
    return any(name == one or name.startswith(f"{one} ") for one in REFUSED)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_is_what_flink_writes(version: str) -> None:
    same = 0
    for one in kept(version).values():
        made = by_compiled_code(one.kryo, one.map, one.written)
        if isinstance(made, bytes):
            assert made in (one.flink, one.again), one.name
            same += 1
        else:
            assert isinstance(made, RefusedError | DamagedError)
            assert named_in_refused(one.name), (one.name, str(made))
    assert same > 700


@pytest.mark.parametrize("version", VERSIONS)
def test_many_at_once_are_the_same(version: str) -> None:
    """What one map said (names, numbers, objects) is forgotten for the next one."""
    alike = [one for one in kept(version).values() if one.name.startswith(("things", "links", "lists", "Set of"))]
    by_type: dict[tuple[KryoType, MapType], list[Kept]] = {}
    for one in alike:
        if isinstance(by_compiled_code(one.kryo, one.map, one.written), bytes):
            by_type.setdefault((one.kryo, one.map), []).append(one)
    for (kryo, map_), some in by_type.items():
        made = maps_of(compiled(kryo, map_, [one.written for one in some] * 2))
        for one, bytes_ in zip(some * 2, made, strict=True):
            assert bytes_ in (one.flink, one.again)


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_are_found_on_the_way(version: str) -> None:
    one = kept(version)["UUID with null"]
    made = compiled(one.kryo, one.map, [one.written, one.written])
    entries = made.entries
    keys = [made.data[start:end].tobytes() for start, end in zip(entries.starts, entries.key_ends, strict=True)]
    assert keys == [b"\x02a", b"\x02b", b"\x02c", b"\x02d"] * 2
    flags = made.data[entries.key_ends].tolist()
    assert flags == [1, 0, 1, 0] * 2
    assert (entries.ends - entries.key_ends)[[0, 2]].tolist() == [1, 1]
    assert entries.ends[3] == entries.stops[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_are_what_flink_writes(version: str) -> None:
    """A type that is only named gets the registrations of the job."""
    for one in kept(version).values():
        told = of_the_job(MapType(named(one.map.key), named(one.map.value)), one.kryo, of_flink_2=True)
        if one.name == "registered all":
            # Whether the job has registered the declared class of the old state, too, no header says.
            continue
        assert told == one.map, one.name
        assert snapshot_of(told).raw.hex() == one.flink_snapshot, one.name


def named(type_: FlinkType) -> FlinkType:
    match type_:
        case KryoType():
            return replace(type_, registrations=(), defaults=(), classes=None)
        case EnumType():
            return replace(type_, names=())
        case ListType(element):
            return ListType(named(element))
        case MapType(key, value):
            return MapType(named(key), named(value))
    return type_


def test_types_are_proposed_and_have_a_notation() -> None:
    one = kept("2.3.0")["UUID"]
    assert type_text(proposed(one)) == "Map<String,Kryo<java.util.UUID>>"
    assert type_text(proposed(kept("2.3.0")["HashSet of Long in lists"])) == "Map<String,List<Kryo<java.util.HashSet>>>"
    assert type_text(proposed(kept("1.20.0")["enums"])) == "Map<String,Kryo<stateferry.kryo.KryoThings$Color>>"
    assert type_text(proposed(kept("1.20.0")["Row by Kryo"])) == "Map<String,Kryo<org.apache.flink.types.Row>>"
    bodies = "Map<String,Kryo<stateferry.kryo.KryoThings$Shape>>"
    assert type_text(proposed(kept("1.20.0")["enums with bodies"])) == bodies
    told = parse_map_type("Map<Kryo<java.util.UUID>, List<Enum<com.acme.Color>>>")
    assert told == MapType(KryoType("java.util.UUID"), ListType(EnumType("com.acme.Color", ())))
    assert parse_map_type(type_text(told)) == told
    with pytest.raises(RefusedError, match=r"Thing.*Kryo<\.\.\.>"):
        proposed(kept("1.20.0")["things"])


def test_an_enum_that_is_another_one_in_another_jar_is_read_by_neither(tmp_path: Path) -> None:
    """Kryo writes the number of a constant: by the new job's jar RED could be BLUE."""
    jar, color = FOLDER / "kept-classes.jar", "stateferry.kryo.KryoThings$Color"
    differently = "with other constants"
    file = f"{color.replace('.', '/')}.class"
    with zipfile.ZipFile(jar) as classes_:
        data = classes_.read(file)
    changed = tmp_path / file
    changed.parent.mkdir(parents=True)
    changed.write_bytes(data.replace(b"GREEN", b"WHITE"))
    one = kept("2.3.0")["enums by Flink"]
    for places in ((tmp_path, jar), (jar, tmp_path)):
        both = read_job_classes([str(place) for place in places])
        assert [name for name, found in both.classes.items() if found.differs] == [color]
        assert both != read_job_classes([str(places[0])])
        kryo = replace(one.kryo, classes=both)
        assert isinstance(by_compiled_code(kryo, one.map, one.written), RefusedError)
        assert list(find_classes(kryo, one.written).foreign) == [f"{color} (two of the jars have it, {differently})"]
        told = parse_map_type(f"Map<String, Enum<{color}>>")
        with pytest.raises(RefusedError, match=f"two of the jars have {re.escape(color)}, {differently}"):
            of_the_job(told, kryo, of_flink_2=True)
        assert "not decoded" in str(by_plain_code(kryo, one.map, one.written))
    changed.write_bytes(data)
    assert read_job_classes([str(jar), str(tmp_path)]) == classes()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_keys_of_an_enum_map_are_enums(version: str) -> None:
    color = "stateferry.kryo.KryoThings$Color"
    one, inner = examples(version)["EnumMap of Color as Map"], examples(version)["EnumMap of Color in maps"]
    assert type_text(map_type_of(find_classes(one.kryo, one.written))) == f"Map<Kryo<{color}>,Long>"
    assert type_text(map_type_of(find_classes(inner.kryo, inner.written))) == f"Map<String,Map<Kryo<{color}>,Long>>"
    found = find_classes(replace(one.kryo, classes=None), one.written)
    with pytest.raises(RefusedError, match=r"KryoThings\$Color 1\..*--classes"):
        map_type_of(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_class_that_is_not_public_is_proposed_as_one_that_is(version: str) -> None:
    """A job can't name the others in its code."""
    for name, public in (
        ("EnumSet", "EnumSet"),
        ("EnumSet of many", "EnumSet"),
        ("emptySet as Set", "Set"),
        ("Set.copyOf of String", "Set"),
    ):
        if version == "1.20.0" and name.startswith("Set.copyOf"):
            continue
        found = proposed(kept(version)[name])
        assert isinstance(found.value, KryoType)
        assert found.value.class_name.endswith(f".{public}"), name


@pytest.mark.parametrize("version", VERSIONS)
def test_an_identity_map_inside_of_a_map_stays_kryos(version: str) -> None:
    one, outer = kept(version)["IdentityHashMap"], examples(version)["IdentityHashMap of two"]
    assert type_text(proposed(one)) == "Map<String,Kryo<java.util.IdentityHashMap>>"
    assert map_type_of(find_classes(outer.kryo, outer.written)) == outer.map


@pytest.mark.parametrize("version", VERSIONS)
def test_an_either_has_a_form_of_flinks_own(version: str) -> None:
    one = examples(version)["Either of Either"]
    found = map_type_of(find_classes(one.kryo, one.written))
    assert found == one.map
    assert type_text(found) == "Map<String,Either<List<String>,Either<Integer,Map<String,Either<Long,String>>>>>"
    assert parse_map_type(type_text(found)) == found
    lefts = kept(version)["Either of one with a part by Kryo"]
    assert type_text(proposed(lefts)) == "Map<String,Either<Kryo<java.util.UUID>,String>>"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_either_or_a_row_of_flink_would_lose_is_refused(version: str) -> None:
    both = kept(version)["Either that was used twice"]
    with pytest.raises(RefusedError, match=r"objects of both sides.*Kryo<org.apache.flink.types.Either>"):
        find_classes(both.kryo, both.written)
    named, more = kept(version)["Row with names"], kept(version)["Row with names and positions"]
    wide, other = examples(version)["Row of 5"], examples(version)["Row of 6"].map
    assert other is not None
    for kryo, written, told, why in (
        (both.kryo, both.written, "Map<String, Either<Long, String>>", "objects of both sides"),
        (named.kryo, named.written, "Map<String, Row<Long>>", r"fields have names.*Kryo<org.apache.flink.types.Row>"),
        (more.kryo, more.written, "Map<String, Row<Long, String>>", "fields have names"),
        (wide.kryo, wide.written, type_text(other), "another number of fields in the Row as the map's value, found 5"),
        (wide.kryo, wide.written, "Map<String, Row<Long>>", "another number of fields"),
    ):
        made = by_compiled_code(kryo, parse_map_type(told), written)
        assert isinstance(made, RefusedError)
        assert re.search(why, str(made)), str(made)
        assert isinstance(by_plain_code(kryo, parse_map_type(told), written), RefusedError)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["lists of constants", "constants in objects", "lists of asList"])
def test_plain_code_reads_what_shares_an_empty_list(name: str, version: str) -> None:
    one = kept(version)[name]
    read = read_kryo_map(KryoMapType(one.kryo.class_name, one.kryo.reason, one.kryo, one.map), one.written, 0)
    assert [key for key, _ in read] == list("abcde" if name != "lists of asList" else "abc")


def proposed(one: Kept) -> MapType:
    return map_type_of(find_classes(one.kryo, one.written))


def test_without_classes_their_names_are_said_with_counts() -> None:
    one = kept("1.20.0")["things of keys"]
    found = find_classes(replace(one.kryo, classes=None), one.written, one.written)
    assert found.foreign == {"stateferry.kryo.KryoThings$Thing": 2}
    with pytest.raises(RefusedError, match=r"KryoThings\$Thing"):
        map_type_of(found)
    made = by_compiled_code(replace(one.kryo, classes=None), one.map, one.written)
    assert isinstance(made, RefusedError)


def test_no_type_is_proposed_for_a_state_of_both_kryos() -> None:
    old, new = kept("1.20.0")["UUID"], kept("2.3.0")["UUID"]
    with pytest.raises(RefusedError, match="no job could read"):
        map_type_of(find_classes(old.kryo, old.written, new.written))


def test_values_of_another_class_than_told_are_refused() -> None:
    one = kept("2.3.0")["specials"]
    other = MapType(Scalar.STRING, KryoType("java.util.UUID", registrations=one.map.value.registrations))  # type: ignore[union-attr]
    made = by_compiled_code(one.kryo, other, one.written)
    assert isinstance(made, RefusedError)
    assert "expected UUID as the map's value, found stateferry.kryo.KryoThings$Special" in str(made)


def test_constants_that_an_enum_does_not_have_are_damage() -> None:
    one = kept("2.3.0")["enums by Flink"]
    at = one.written.rindex(b"\x03")
    made = by_compiled_code(one.kryo, one.map, one.written[:at] + b"\x04" + one.written[at + 1 :])
    assert isinstance(made, StateferryError)


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_refused_or_read(version: str) -> None:
    chosen = random.Random(7)
    some = [one for one in kept(version).values() if len(one.written) < 2000]
    refused = 0
    for _ in range(4000):
        one = chosen.choice(some)
        made = by_compiled_code(one.kryo, one.map, damaged(chosen, one.written))
        if isinstance(made, StateferryError):
            refused += 1
            assert isinstance(made, RefusedError) or made.offset is not None  # type: ignore[attr-defined]
    assert refused > 2000


def damaged(chosen: random.Random, written: bytes) -> bytes:
    raw = bytearray(written)
    place = chosen.randrange(len(raw))
    match chosen.randrange(3):
        case 0:
            raw[place] ^= 1 << chosen.randrange(8)
        case 1:
            raw[place] = chosen.randrange(256)
        case 2:
            del raw[place:]
    return bytes(raw)


def test_the_jar_has_the_classes() -> None:
    color = classes().classes["stateferry.kryo.KryoThings$Color"]
    assert color.constants == ("RED", "GREEN", "BLUE")
    special = "stateferry.kryo.KryoThings$Special"
    assert classes().superclasses(special) == (special, "stateferry.kryo.KryoThings$Thing", "java.lang.Object")


@pytest.mark.parametrize(
    ("unread", "helps"),
    [
        ("com.acme.Thing", True),
        ("com.acme.Thing (it has type parameters)", False),
        ("com.acme.Thing (with the job's serializer com.acme.Own)", False),
        ("java.util.KeyValueHolder", False),
    ],
)
def test_a_jar_helps_with_classes_that_are_not_known(unread: str, helps: bool) -> None:
    assert ("--classes" in what_helps([unread])) is helps
    assert "--classes" in what_helps([unread, "com.acme.Other"])


def test_a_number_that_flink_scala_gives_to_a_class_is_named_as_such() -> None:
    """Real Flink 1.20 with flink-scala wrote this number in a `ValueState` of `classOf[Map[String, Long]]`."""
    kryo, map_ = KryoType("java.util.HashMap"), parse_map_type("Map<String,Long>")
    for read in (by_compiled_code, by_plain_code):
        assert "flink-scala" in str(read(kryo, map_, bytes((27 + 2, 1, 3))))
