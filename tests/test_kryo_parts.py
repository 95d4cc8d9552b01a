"""The compiled walk over maps with keys and values by Kryo, against the plain one: whole maps, and damaged ones."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from flinkstate.classfiles.job_classes import read_job_classes
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.keyed.stored_maps import whole_maps
from flinkstate.kryo.reading import kryo_reading
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import map_of
from flinkstate.serializers.types import (
    FlinkType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoField,
    PojoMapType,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    TupleType,
)
from flinkstate.values.codecs import encode
from stateferry.proof.plain.plain_maps import map_reader

GOLDENS = Path(__file__).parent / "savepoints"
MADE = (
    *("kryo-parts-1.20-rocksdb", "kryo-parts-ttl-2.3-rocksdb"),
    *("pojo-parts-1.20-rocksdb", "pojo-parts-ttl-2.3-hashmap"),
)
JAR = str(Path(__file__).parent / "kryo" / "collection-classes.jar")
Entry = tuple[bytes, bytes | None]


def maps_in(golden: str) -> dict[FlinkType, list[bytes]]:
    """The maps of each type."""
    source, found = Savepoint.open(str(GOLDENS / golden)), dict[FlinkType, list[bytes]]()
    job = read_job_classes([JAR]) if golden.startswith("pojo-") else None
    for file in source.open_files(source.operator("main")):
        states = source.keyed_states(source.operator("main"))
        types = {state.name: state.with_classes(job).value for state in states}
        for key_group in file.handle.range:
            for section in file.sections(key_group):
                type_ = types[file.header.states[section.state].name]
                assert type_ is not None
                starts = section.value_starts + (8 if "-ttl-" in golden else 0)
                found.setdefault(type_, []).extend(
                    section.data[start:end].tobytes()
                    for start, end in zip(starts.tolist(), section.ends.tolist(), strict=True)
                )
    return found


def compiled(type_: FlinkType, maps: list[bytes]) -> list[list[Entry]]:
    data = np.array(bytearray(b"".join(maps)), np.uint8)
    ends = np.cumsum([len(one) for one in maps])
    whole = whole_maps(type_, data, np.append(0, ends[:-1]), ends)
    parts = zip(whole.entries.starts, whole.entries.key_ends, whole.entries.ends, strict=True)
    entries = [
        (whole.data[start:key_end].tobytes(), None if whole.data[key_end] else whole.data[key_end + 1 : end].tobytes())
        for start, key_end, end in parts
    ]
    firsts = np.append(0, np.cumsum(whole.entries.counts)).tolist()
    return [entries[first:last] for first, last in pairwise(firsts)]


def plain(type_: FlinkType, one: bytes) -> list[Entry]:
    map_ = map_of(type_)
    assert map_ is not None
    read = map_reader(type_, map_)(one, 0)
    return [(entry.user_key_bytes, None if entry.is_null else entry.value_bytes) for entry in read]


@pytest.mark.parametrize("golden", MADE)
def test_it_finds_what_plain_code_finds(golden: str) -> None:
    found = maps_in(golden)
    assert len(found) >= 4
    for type_, maps in found.items():
        entries = compiled(type_, maps)
        assert entries == [plain(type_, one) for one in maps]
        assert sum(map(len, entries)) > len(maps)
    assert any(value is None for type_, maps in found.items() for one in compiled(type_, maps) for _, value in one)


@pytest.mark.parametrize("golden", MADE)
def test_damage_ends_with_its_place_or_changes_nothing(golden: str) -> None:
    seed = 11
    drawn, both, offsets = random.Random(seed), 0, []
    found = maps_in(golden)
    for _ in range(300):
        type_ = drawn.choice(list(found))
        one = bytearray(drawn.choice(found[type_]))
        if drawn.random() < 0.3:
            del one[drawn.randrange(len(one)) :]
        else:
            one[drawn.randrange(len(one))] ^= 1 << drawn.randrange(8)
        try:
            (entries,) = compiled(type_, [bytes(one)])
        except DamagedError as error:
            offsets.append((error.offset, len(one)))
            continue
        except RefusedError:
            continue
        try:
            expected = plain(type_, bytes(one))
        except (DamagedError, RefusedError):
            # Plain code reads the values too, in which a byte may be wrong.
            continue
        both += 1
        assert entries == expected, f"{bytes(one).hex()} (seed {seed})"
    assert both
    assert all(offset is not None and 0 <= offset <= size for offset, size in offsets)


OBJECTS = MapType(Scalar.STRING, KryoType("java.lang.Object"))
NULLABLE = NullableType(MapType(NullableType(KryoType("java.util.UUID"), 0), Scalar.LONG), 0)


def entry(key: str, kryo: str) -> bytes:
    return encode(Scalar.STRING, key) + b"\0" + bytes.fromhex(kryo)


def test_a_double_ends_at_the_same_place_by_both_kryos() -> None:
    # Which number it is depends on the Kryo, but it stays a value of Kryo.
    one = b"\0\0\0\1" + entry("a", "0a 3f f8 00 00 00 00 00 00")
    assert compiled(OBJECTS, [one]) == [[(encode(Scalar.STRING, "a"), bytes.fromhex("0a3ff8000000000000"))]]


def test_nan_is_the_same_by_both_kryos() -> None:
    type_, key = MapType(KryoType("java.lang.Object"), Scalar.DOUBLE), bytes.fromhex("0301 61e2")
    one = b"\0\0\0\1" + key + b"\0" + bytes.fromhex("7ff8000000000000")
    assert plain(type_, one) == compiled(type_, [one])[0]
    assert [found for found, _ in plain(type_, one)] == [key]


@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        (OBJECTS, b"", "bytes"),
        (OBJECTS, b"\0\0\0\1" + encode(Scalar.STRING, "a"), "a flag 0 or 1 before a value of a map, found its end"),
        (OBJECTS, b"\0\0\0\1" + encode(Scalar.STRING, "a") + b"\3", "a flag 0 or 1 before a value of a map, found 3"),
        (OBJECTS, b"\0\0\0\1" + entry("a", "09 02 00"), "the end of the map, found 1 more bytes"),
        (OBJECTS, b"\0\0\0\2" + entry("a", "09 02"), "String"),
        (OBJECTS, b"\0\0\0\1" + entry("a", "01 00 61 2e c2"), r"a\.B can't be read"),
        (NULLABLE, b"\0\0\0\0\1\2", "a flag 0 or 1 in UUID, found 2"),
        (NULLABLE, b"\0\0\0\0\1\1\1", "a map has a null key"),
    ],
)
def test_what_is_wrong_is_named(type_: FlinkType, data: bytes, message: str) -> None:
    before = b"\0\0\0\0\0" if type_ is NULLABLE else b"\0\0\0\0"
    with pytest.raises((DamagedError, RefusedError), match=message):
        compiled(type_, [before, data])


def test_a_map_with_many_entries_is_walked_once() -> None:
    count, uuid = 50_000, "03 01 61 62 e3"
    one = count.to_bytes(4, "big") + b"".join(entry(f"key-{number}", uuid) for number in range(count))
    # This takes 0.05 s of processor time; entry by entry in Python it took 9 s.
    compiled(OBJECTS, [b"\0\0\0\0"])
    data, begun = np.frombuffer(bytearray(one), np.uint8), time.process_time()
    entries = whole_maps(OBJECTS, data, np.array([0]), np.array([len(one)])).entries
    assert time.process_time() - begun < 2
    assert entries.counts.tolist() == [count]
    assert entries.starts[1:].tolist() == entries.ends[:-1].tolist()
    assert (entries.ends - entries.key_ends == 6).all()


def varint(number: int) -> bytes:
    return bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80,)) + varint(number >> 7)


def nested(count: int, version: int) -> str:
    """A HashMap by name, with as many entries of two Integers."""
    entries = b"".join(b"\2" + varint(number << 1) + b"\2\2" for number in range(count))
    return (b"\1\0java.util.HashMa" + b"\xf0\1" + varint(count + (version == 5)) + entries).hex()


@pytest.mark.parametrize("version", [2, 5])
@pytest.mark.parametrize("count", [200, 2500, 9000])
def test_large_values_by_kryo_get_room_in_the_midst_of_a_map(count: int, version: int) -> None:
    small, large = entry("a", "03 01 61 62 e3"), entry("b", nested(count, version))
    one = b"\0\0\0\3" + small + large + small.replace(b"a", b"c", 1)
    entries = compiled(OBJECTS, [b"\0\0\0\1" + small, one, one])
    key = encode(Scalar.STRING, "b")
    assert entries[1] == entries[2] == plain(OBJECTS, one)
    assert entries[1][1] == (key, large[len(key) + 1 :])


@pytest.mark.parametrize("version", [2, 5])
def test_the_end_of_a_large_map_is_found_where_one_value_is_looked_at(version: int) -> None:
    data = np.frombuffer(bytearray(bytes.fromhex(nested(2500, version)) + b"\0"), np.uint8)
    reading, at = kryo_reading(KryoType("java.lang.Object")), np.array([0])
    ends = reading.find_ends(data, at, np.array([len(data)]), five=version == 5, strict=True)
    assert ends.tolist() == [len(data) - 1]


TUPLE = "org.apache.flink.api.java.tuple.Tuple3"
# A class of another serializer has the same number in each.
LISTS = KryoType("java.util.List", registrations=(KryoRegistration("java.util.ArrayList"),))
MAPS = KryoType(
    "java.util.Map", registrations=(KryoRegistration("java.util.Map"), KryoRegistration("java.util.HashMap"))
)
WRITTEN_LIST, WRITTEN_MAP = bytes.fromhex("57 01 01 03 01 61 e2"), bytes.fromhex("58 01 01 03 01 61 e2 02 02")


@pytest.mark.parametrize(
    "type_",
    [
        MapType(Scalar.STRING, TupleType((LISTS, Scalar.LONG, MAPS), TUPLE)),
        MapType(Scalar.STRING, ListType(TupleType((LISTS, Scalar.LONG, MAPS), TUPLE))),
        MapType(
            Scalar.STRING,
            PojoType("a.A", tuple(PojoField(*one) for one in (("a", LISTS), ("b", Scalar.LONG), ("c", MAPS)))),
        ),
    ],
)
def test_each_part_is_read_by_its_own_serializer(type_: MapType) -> None:
    long = bytes(7) + b"\5"
    of_fields = WRITTEN_LIST, long, WRITTEN_MAP
    match type_.value:
        case ListType():
            value = b"\0\0\0\2" + 2 * b"".join(of_fields)
        case PojoType():
            value = b"\2" + b"".join(b"\0" + one for one in of_fields)
        case _:
            value = b"".join(of_fields)
    key = encode(Scalar.STRING, "a")
    one = (
        b"\0\0\0\3" + key + b"\0" + value + encode(Scalar.STRING, "b") + b"\1" + key.replace(b"a", b"c") + b"\0" + value
    )
    entries = compiled(type_, [b"\0\0\0\0", one, one])
    assert entries[1] == entries[2] == plain(type_, one)
    assert [found for _, found in entries[1]] == [value, None, value]


def test_a_null_field_has_no_part() -> None:
    type_ = MapType(PojoType("a.A", (PojoField("a", LISTS), PojoField("b", MAPS))), Scalar.LONG)
    key = b"\2\1\0" + WRITTEN_MAP
    one = b"\0\0\0\2" + key + b"\1" + b"\2\1\1" + b"\0" + bytes(8)
    assert compiled(type_, [one])[0] == plain(type_, one) == [(key, None), (b"\2\1\1", bytes(8))]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\2\0" + WRITTEN_MAP, "the number of a class|ArrayList"),
        (b"\2\0" + WRITTEN_LIST[:-1], "more bytes of what Kryo wrote|String"),
        (b"\2\0" + WRITTEN_LIST + b"\5", "a flag 0 or 1 in"),
        (b"\2\0" + WRITTEN_LIST, "bytes of"),
        (b"\2\0" + WRITTEN_LIST + b"\1\1", "the end of the map, found 1 more bytes"),
        (b"\2\0" + bytes.fromhex("01 00 61 2e c2") + b"\1", r"a\.B can't be read in a value that Kryo wrote"),
    ],
)
def test_what_is_wrong_in_a_pojo_is_named(data: bytes, message: str) -> None:
    type_ = MapType(Scalar.STRING, PojoType("a.A", (PojoField("a", LISTS), PojoField("b", MAPS))))
    with pytest.raises((DamagedError, RefusedValueError), match=message) as caught:
        compiled(type_, [b"\0\0\0\1" + encode(Scalar.STRING, "a") + b"\0" + data])
    assert isinstance(caught.value, DamagedError | RefusedValueError)
    assert caught.value.offset is not None
    assert caught.value.offset >= 8


def test_a_map_that_each_kryo_would_cut_elsewhere_is_refused() -> None:
    type_ = MapType(Scalar.STRING, TupleType((KryoType("java.util.UUID"), PrimitiveArrayType(Scalar.BYTE)), TUPLE))

    def behind(key: str, uuid: bytes, content: bytes) -> bytes:
        return encode(Scalar.STRING, key) + b"\0\x54\1" + uuid + len(content).to_bytes(4, "big") + content

    # Kryo 2 writes this UUID in two bytes, Kryo 5 each in sixteen: for it the array's length is a part of the UUID.
    last = behind("b", b"\2\4", b"")
    array = bytes(10) + bytes(4) + behind("c", bytes(16), last)[: -len(last)]
    one = b"\0\0\0\2" + behind("a", b"\2\4", array) + last
    with pytest.raises(RefusedError, match="could both have written the entries of this map"):
        compiled(type_, [b"\0\0\0\0", one])
    with pytest.raises(RefusedError, match="could both have written this map"):
        plain(type_, one)
    alone = b"\0\0\0\1" + last
    assert compiled(type_, [alone])[0] == plain(type_, alone)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (LISTS, None),
        (OpaqueType("com.acme.Own", "not Flink's own"), r"com.acme.Own (not Flink's own)"),
        (
            KryoType("com.acme.A", registrations=(KryoRegistration("com.acme.A", "com.acme.ASerializer"),)),
            "com.acme.A (serialized by Kryo with com.acme.ASerializer)",
        ),
    ],
)
def test_what_has_no_end_is_refused_wherever_it_is(part: FlinkType, why: str | None) -> None:
    pojo = PojoType("a.A", (PojoField("one", ListType(TupleType((LISTS, part), TUPLE))),))
    for type_ in (MapType(Scalar.STRING, pojo), MapType(pojo, Scalar.LONG)):
        state = KeyedState("old", StateKind.VALUE, Scalar.LONG, Scalar.VOID_NAMESPACE, None, type_, False, False)
        expected = None if why is None else f"its entries have a part whose end can't be found: {why}"
        assert state.why_not_split == expected


@pytest.mark.parametrize("nullable", [False, True])
def test_a_map_with_parts_by_kryo_in_a_field(nullable: bool) -> None:
    value = PojoType("a.B", (PojoField("list", LISTS),))
    map_ = MapType(Scalar.STRING, value)
    field = NullableType(MapType(NullableType(Scalar.STRING, 0), value), 0) if nullable else map_
    pojo = PojoType("a.A", (PojoField("beside", MAPS), PojoField("counts", field), PojoField("last", value)))
    type_ = PojoMapType("a.A", "a map in a field", pojo, "counts", field)
    state = KeyedState("old", StateKind.VALUE, Scalar.LONG, Scalar.VOID_NAMESPACE, None, type_, False, False)
    assert state.why_not_split is None
    written, keys = b"\2\0" + WRITTEN_LIST, [encode(Scalar.STRING, key) for key in "abc"]
    values = [written, None, b"\2\1"]
    content = b"\0\0\0\3" + b"".join(
        bytes(nullable) + key + (b"\1" if one is None else b"\0" + one) for key, one in zip(keys, values, strict=True)
    )
    one = b"\2\0" + WRITTEN_MAP + b"\0" + bytes(nullable) + content + b"\0" + written
    without = b"\2\1\1\1"
    assert compiled(type_, [b"\1", one, without, one]) == [[], list(zip(keys, values, strict=True))] * 2
    with pytest.raises(DamagedError):
        compiled(type_, [one[:-1]])
