"""What Flink's own Kryo of both versions wrote is read as what it is, by the compiled reading and by the plain one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.kryo import to_flink_maps
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import ListType, MapType, Scalar
from flinkstate.values.codecs import decode_whole, decoder, encode, whole_codec
from flinkstate.values.kryo_class_names import LISTS, MAPS, SETS
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import PRIMITIVE_ARRAYS, SCALARS
from flinkstate.values.value_json import value_json
from tests.kryo.examples import (
    VERSIONS,
    Example,
    by_compiled_code,
    by_plain_code,
    compiled,
    examples,
    maps_of,
    with_type,
)

# What is refused, and the word for it.
REFUSED = {
    # Two of its keys may be equal, and would be one in a map of Flink's own.
    "IdentityHashMap in maps": "IdentityHashMap",
}
# What only objects of a type that Flink has no serializer for have; and which of these the plain reading can show.
UNKNOWN = {
    "long[][]": "[[J",
    "seventy levels": "more than 64 deep",
    "a map in itself": "contains itself",
    "enum": "KryoExamples$Color",
    "enum of the JDK": "java.util.concurrent.TimeUnit",
    "EnumMap": "KryoExamples$Color",
    "Thing": "KryoExamples$Thing",
    "Duration": "java.time.Duration",
    "Class": "java.lang.Class",
    "Optional": "java.util.Optional",
    "BitSet": "java.util.BitSet",
    "ZonedDateTime": "java.time.ZonedDateTime",
    "AtomicLong": "java.util.concurrent.atomic.AtomicLong",
}


def same_form(map_: MapType, written: bytes) -> bytes:
    """For zero, one and ten as BigInteger, Flink writes a short or a long form, depending on the object."""
    has_numbers = any(part in (Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL) for part in with_parts(map_))
    return encode(map_, decode_whole(map_, written)) if has_numbers else written


@pytest.mark.parametrize("version", VERSIONS)
def test_maps_become_what_flinks_own_serializer_writes(version: str) -> None:
    for one in with_type(version):
        if one.name in REFUSED:
            continue
        assert one.map is not None
        assert one.flink is not None
        expected = same_form(one.map, one.flink)
        assert by_compiled_code(one.kryo, one.map, one.written) == expected, one
        assert by_plain_code(one.kryo, one.map, one.written) == expected, one
    assert len(with_type(version)) > 480


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_class_that_is_not_read_is_refused_by_name(version: str, name: str) -> None:
    one = examples(version)[name]
    assert one.map is not None
    for read in (by_compiled_code, by_plain_code):
        found = read(one.kryo, one.map, one.written)
        assert isinstance(found, RefusedError)
        assert REFUSED[name] in str(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_null_that_flink_cant_write_is_refused(version: str) -> None:
    one = examples(version)["Tuple2 with null"]
    assert one.map is not None
    for read in (by_compiled_code, by_plain_code):
        found = read(one.kryo, one.map, one.written)
        assert isinstance(found, RefusedError)
        assert "which Flink can't write" in str(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_which_kryo_wrote_a_map(version: str) -> None:
    wrote = to_flink_maps.KRYO_2 if version == "1.20.0" else to_flink_maps.KRYO_5
    both = to_flink_maps.KRYO_2 | to_flink_maps.KRYO_5
    # Only these have no count.
    alike = ("emptyMap as ", "singletonMap as ", "null as ")
    for one in [one for one in examples(version).values() if one.map is not None and one.name not in REFUSED]:
        if one.name == "Tuple2 with null":
            continue
        assert one.map is not None
        (kind,) = compiled(one.kryo, one.map, [one.written]).kinds.tolist()
        assert kind & both == (both if one.name.startswith(alike) else wrote), one


def test_maps_of_both_kryos_in_one_state() -> None:
    """As an upgraded job leaves them: empty and null maps, empty and nested lists, all others, in turn."""
    by_map: dict[MapType, list[Example]] = {}
    for version in VERSIONS:
        for one in with_type(version):
            is_read = one.name not in REFUSED and one.kryo.classes is None
            if is_read and len({part.class_name for part in one.kryo.registrations}) <= 2:
                assert one.map is not None
                by_map.setdefault(one.map, []).append(one)
    nulls = [examples(version)["null as HashMap"] for version in VERSIONS]
    kryo = nulls[0].kryo
    for map_, maps in by_map.items():
        of_one = [one for one in maps if one.kryo == kryo] + nulls
        alternating = sorted(of_one, key=lambda one: (one.name, one.version))
        expected = [b"\0\0\0\0" if one.flink is None else same_form(map_, one.flink) for one in alternating]
        assert maps_of(compiled(kryo, map_, [one.written for one in alternating])) == expected
        assert [by_plain_code(kryo, map_, one.written) for one in alternating] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dump_shows_a_map_by_kryo_like_one_of_its_type(version: str) -> None:
    for one in with_type(version):
        if one.name in REFUSED:
            continue
        assert one.map is not None
        assert one.flink is not None
        of_kryo = json.loads(value_json(one.kryo, decode_whole(one.kryo, one.written)))
        of_flink = json.loads(value_json(one.map, decode_whole(one.map, one.flink)))
        assert without_empty_maps(of_kryo) == without_empty_maps(of_flink), one


def without_empty_maps(value: Any) -> Any:
    """Without the difference between an empty object and an empty array: an empty map doesn't say what its keys are."""
    if isinstance(value, dict):
        return {key: without_empty_maps(part) for key, part in value.items()} or []
    return [without_empty_maps(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("version", VERSIONS)
def test_what_flink_has_no_serializer_for_is_shown_or_refused(version: str) -> None:
    shown = [one for one in examples(version).values() if one.map is None]
    assert shown
    for one in shown:
        why = UNKNOWN.get(one.name) or ("java.util.ArrayDeque" if one.name.startswith("ArrayDeque") else None)
        if why is None:
            assert value_json(one.kryo, decode_whole(one.kryo, one.written)), one
        else:
            with pytest.raises(RefusedError, match=re.escape(why)):
                decode_whole(one.kryo, one.written)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("UUID", '{"a":"00000000-0000-0001-0000-000000000002"}'),
        ("TreeSet three", '{"k":["a","bc","ü"]}'),
        ("TreeSet reverse", '{"k":["b","a"]}'),
        ("Set.of", '{"k":["a"]}'),
        ("list of two classes", '{"k":["a",1]}'),
        ("list of five nulls", '{"k":[null,null,null,null,null]}'),
        ("null key as Map", "[[null,1]]"),
        ("object map", '{"a":1,"b":2}'),
    ],
)
def test_a_dump_shows_objects(version: str, name: str, shown: str) -> None:
    one = examples(version)[name]
    assert value_json(one.kryo, decode_whole(one.kryo, one.written)) == shown


@pytest.mark.parametrize("version", VERSIONS)
def test_one_object_in_several_places_is_the_same_object(version: str) -> None:
    one = examples(version)["one list under two keys"]
    found = decode_whole(one.kryo, one.written)
    assert isinstance(found, KryoObject)
    (_, first), (_, second), (_, third) = found.value
    assert first is second
    assert first == third is not first


def test_the_page_names_every_class_that_is_read() -> None:
    """`docs/kryo.md` is a promise."""
    page = (Path(__file__).parents[2] / "docs" / "kryo.md").read_text(encoding="utf-8")
    names = (*MAPS, *LISTS, *SETS, *SCALARS, *PRIMITIVE_ARRAYS, "java.util.UUID")
    shown = {name.rsplit(".", 1)[-1] for name in names if "$" not in name and not name.startswith("[")}
    assert [name for name in sorted(shown) if f"`{name}`" not in page] == []


def test_a_value_by_kryo_inside_of_another_is_refused() -> None:
    """There, a map of Kryo 2 could also be a shorter one of Kryo 5 and something else behind it."""
    one = examples("1.20.0")["HashMap of 3 as its class"]
    assert whole_codec(one.kryo).decode(b"??" + one.written, 2, 2 + len(one.written))[1] == 2 + len(one.written)
    with pytest.raises(RefusedError, match="HashMap"):
        decoder(ListType(one.kryo))(b"\0\0\0\1" + one.written, 0, 4 + len(one.written))
