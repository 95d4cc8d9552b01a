"""Maps by Kryo whose values stay Kryo's are held against what the new state has of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import (
    FlinkType,
    KryoMapType,
    KryoType,
    MapType,
    NullableType,
    PojoField,
    PojoType,
    Scalar,
    TupleType,
)
from flinkstate.values.codecs import encode
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_maps import by_kryo, content, copied, map_reader
from stateferry.proof.plain.plain_state import PlainStateReader
from tests.kryo.examples import VERSIONS, examples
from tests.support.encoded import long, text

UUID = KryoType("java.util.UUID")
STATE = KeyedState("new", StateKind.MAP, Scalar.STRING, Scalar.VOID_NAMESPACE, Scalar.STRING, UUID, False, False)
KEY = encode(Scalar.STRING, "key") + b"\0"
# Class tag, mark, and the UUID 00000000-0000-0001-0000-000000000002.
WRITTEN = {
    "1.20.0": b"\x54\x01\x02\x04",
    "2.3.0": b"\x54\x01" + (1).to_bytes(8, "little") + (2).to_bytes(8, "little"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_that_stays_kryos(version: str) -> None:
    one = examples(version)["UUID"]
    stored = KryoMapType(one.kryo.class_name, one.kryo.reason, one.kryo, MapType(Scalar.STRING, UUID))
    (expected,) = map_reader(stored, stored.map)(one.written, 0)
    reader = PlainStateReader(STATE)

    def found(value: bytes) -> bytes:
        row = Row("new", 0, KEY + encode(Scalar.STRING, "a"), b"\0" + value)
        return reader.entry(row).value

    assert found(WRITTEN[version]) == expected.value_bytes
    assert found(bytes([*WRITTEN[version][:2], 4, *WRITTEN[version][3:]])) != expected.value_bytes


def test_a_value_of_a_class_of_the_job_cant_be_read() -> None:
    one = examples("2.3.0")["Thing"]
    map_ = MapType(Scalar.STRING, KryoType("stateferry.kryo.KryoExamples$Thing"))
    with pytest.raises(RefusedError, match=r"KryoExamples\$Thing"):
        list(map_reader(KryoMapType("java.util.HashMap", "by Kryo", one.kryo, map_), map_)(one.written, 0))


# Maps by Flink's own serializer.


def sized(*entries: bytes, count: int | None = None) -> bytes:
    return struct.pack(">i", len(entries) if count is None else count) + b"".join(entries)


def read(stored: FlinkType, map_: MapType, data: bytes, before: bytes = b"") -> list[tuple[Any, ...]]:
    found = list(map_reader(stored, map_)(before + data, len(before)))
    return [(one.user_key, one.user_key_bytes, one.is_null, one.value, one.value_bytes) for one in found]


PLAIN = MapType(Scalar.STRING, Scalar.LONG)
NULLABLE = NullableType(MapType(NullableType(Scalar.STRING, 0), Scalar.LONG), 4)
FIVE, NONE = (text("x") + b"\0" + long(5), text("y") + b"\1")
ENTRIES = [("x", text("x"), False, 5, long(5)), ("y", text("y"), True, None, b"")]


@pytest.mark.parametrize("before", [b"", b"before"])
def test_the_entries_of_a_map(before: bytes) -> None:
    assert read(PLAIN, PLAIN, sized(FIVE, NONE), before) == ENTRIES
    assert read(PLAIN, PLAIN, sized(), before) == []
    assert read(NULLABLE, PLAIN, b"\0" + sized(b"\0" + FIVE, b"\0" + NONE), before) == ENTRIES
    keys_as_they_are = NullableType(PLAIN, 4)
    assert read(keys_as_they_are, PLAIN, b"\0" + sized(FIVE, NONE), before) == ENTRIES
    assert read(NULLABLE, PLAIN, b"\1" + bytes(4), before) == []


@pytest.mark.parametrize(
    ("stored", "data", "error", "message"),
    [
        (PLAIN, b"\0\0\0", DamagedError, "the size of a map, found 3 bytes"),
        (PLAIN, sized(FIVE) + b"zz", DamagedError, "the end of a map, found 2 more bytes"),
        (PLAIN, sized(text("x") + b"\2"), DamagedError, "a map entry's null flag"),
        (NULLABLE, b"\0" + sized(b"\1" + FIVE), RefusedError, "a map has a null key"),
        (NULLABLE, b"\1" + bytes(5), DamagedError, "the end of a map, found 1 more bytes"),
        (NULLABLE, b"\2", DamagedError, "a map's null flag"),
    ],
)
def test_what_is_wrong_with_a_map_is_named(
    stored: FlinkType, data: bytes, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(stored, PLAIN, data)


# Parts by Kryo, which are copied.

BY_KRYO = MapType(Scalar.STRING, UUID)


@pytest.mark.parametrize("version", VERSIONS)
def test_parts_by_kryo_are_their_bytes(version: str) -> None:
    written = WRITTEN[version]
    data = sized(text("x") + b"\0" + written, text("y") + b"\0\0", text("z") + b"\1")
    assert read(BY_KRYO, BY_KRYO, data) == [
        ("x", text("x"), False, written, written), ("y", text("y"), False, None, b"\0"),
        ("z", text("z"), True, None, b""),
    ]  # fmt: skip
    of_keys = MapType(UUID, Scalar.LONG)
    assert read(of_keys, of_keys, sized(written + b"\0" + long(5))) == [(written, written, False, 5, long(5))]


def test_a_part_that_no_kryo_wrote_is_refused() -> None:
    with pytest.raises((DamagedError, RefusedError), match=r"expected|wrote"):
        read(BY_KRYO, BY_KRYO, sized(text("x") + b"\0" + b"\x54\x01\x02"))


def test_what_is_by_kryo_gets_its_version_and_the_classes() -> None:
    classes: Any = object()
    made = by_kryo(MapType(Scalar.STRING, UUID), five=True, classes=classes)
    assert isinstance(made, MapType)
    assert isinstance(made.value, KryoType)
    assert (made.key, made.value.five, made.value.classes) == (Scalar.STRING, True, classes)


def test_null_that_is_copied_is_one_byte() -> None:
    written = (b"\0", b"\0\0", b"", b"\1")
    of_pojos, of_tuples = PojoType("a.A", (PojoField("id", UUID),)), TupleType((UUID,), "a.Tuple1")
    assert [copied(UUID, data) for data in written] == [None, b"\0\0", b"", b"\1"]
    assert [copied(of_pojos, data) for data in written] == [b"\0", b"\0\0", b"", None]
    assert [copied(of_tuples, data) for data in written] == list(written)


def test_null_has_no_content_whoever_wrote_it() -> None:
    assert content(UUID, None, b"\0") == content(Scalar.STRING, None, b"\0") == b""
    assert content(Scalar.STRING, "a", b"written") == b"written"
