"""The compiled search for a field in POJOs, against the plain one: on POJOs that Flink wrote, and on damaged ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.pojo_fields import find_field
from flinkstate.serializers.types import (
    KryoType,
    ListType,
    NullableType,
    PojoField,
    PojoMapType,
    PojoType,
    Scalar,
    TupleType,
)
from stateferry.proof.plain import plain_pojos
from tests.steps.test_maps_in_pojos import sections

Span = tuple[int, int, int] | None
CASES = [
    *(("in-pojos-ttl-1.20-rocksdb", name) for name in ("totals", "typed", "kryo", "moved")),
    *(("in-pojos-ttl-2.3-rocksdb", name) for name in ("totals", "typed", "kryo")),
    ("in-pojos-upgraded-2.3-rocksdb", "kryo"),
]


def values(golden: str, name: str) -> tuple[PojoMapType, list[bytes]]:
    type_, found = sections(golden, name)
    stamp = 8 if "-ttl-" in golden else 0
    return type_, [
        section.data[start + stamp : end].tobytes()
        for section in found
        for start, end in zip(section.value_starts.tolist(), section.ends.tolist(), strict=True)
    ]


def compiled(type_: PojoMapType, pojos: list[bytes]) -> list[Span]:
    data = np.array(bytearray(b"".join(pojos)), np.uint8)
    ends = np.cumsum([len(pojo) for pojo in pojos])
    starts = np.append(0, ends[:-1])
    assert isinstance(type_.pojo, PojoType)
    found = find_field(type_.pojo, type_.field, data, starts, ends)
    parts = zip(found.flags - starts, found.starts - starts, found.ends - starts, found.present, strict=True)
    return [(int(flag), int(start), int(end)) if there else None for flag, start, end, there in parts]


def plain(type_: PojoMapType, pojo: bytes) -> Span:
    found = plain_pojos.find_field(type_, pojo, 0)
    return None if found is None else (found.flag, found.start, found.end)


@pytest.mark.parametrize(("golden", "name"), CASES)
def test_it_finds_what_plain_code_finds(golden: str, name: str) -> None:
    type_, pojos = values(golden, name)
    spans = compiled(type_, pojos)
    assert spans == [plain(type_, pojo) for pojo in pojos]
    assert None in spans
    assert any(span is not None for span in spans)


@pytest.mark.parametrize(("golden", "name"), CASES)
def test_damage_ends_with_its_place_or_changes_nothing(golden: str, name: str) -> None:
    type_, pojos = values(golden, name)
    seed = 7
    drawn, both, offsets = random.Random(seed), 0, []
    for _ in range(150):
        pojo = bytearray(drawn.choice(pojos))
        if drawn.random() < 0.3:
            del pojo[drawn.randrange(len(pojo)) :]
        else:
            pojo[drawn.randrange(len(pojo))] ^= 1 << drawn.randrange(8)
        try:
            (found,) = compiled(type_, [bytes(pojo)])
        except DamagedError as error:
            offsets.append((error.offset, len(pojo)))
            continue
        except RefusedError:
            continue
        try:
            expected = plain(type_, bytes(pojo))
        except (DamagedError, RefusedError):
            # Plain code reads the values too, in which a byte may be wrong.
            continue
        both += 1
        assert found == expected, f"{bytes(pojo).hex()} (seed {seed})"
    assert both
    assert all(offset is not None and 0 <= offset <= size for offset, size in offsets)


LONG_MAP = NullableType(Scalar.LONG, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the flag of a POJO"),
        ("01 00", "the end of a null POJO, found 1 more bytes"),
        ("05", "a POJO flag 1, 2, 4 or 8, found 5"),
        ("02 02", "a flag 0 or 1 before a field of a POJO, found 2"),
        ("02 01 01 00", "the end of a POJO, found 1 more bytes"),
        ("02 01", "a flag 0 or 1 before a field of a POJO, found its end"),
        ("04 00 03 61 2e", "the name of a subclass of a.Totals, found its end"),
        ("04 00 03 61 2e 42 02", "a value is of the subclass a.B, which the savepoint doesn't describe"),
        ("08 01 02", "the tag of a registered subclass of a.Totals, found 1"),
        ("08", "the tag of a registered subclass of a.Totals, found its end"),
        ("08 00 02", "the subclass a.Shop of a.Totals has no field counts"),
        ("04 00 03 61 2e 43 02", "the subclass a.C of a.Totals has another serializer for the field counts"),
    ],
)
def test_what_is_wrong_is_named(data: str, message: str) -> None:
    shop = PojoType("a.Shop", (PojoField("at", Scalar.STRING),))
    other = PojoType("a.C", (PojoField("counts", Scalar.LONG),))
    pojo = PojoType(
        "a.Totals",
        (PojoField("counts", LONG_MAP), PojoField("total", Scalar.LONG)),
        (shop,),
        (("a.C", other),),
    )
    content = np.array(bytearray.fromhex(data), np.uint8)
    with pytest.raises((DamagedError, RefusedError), match=message):
        find_field(pojo, "counts", content, np.array([0]), np.array([len(content)]))


LIST, OBJECT = KryoType("java.util.List"), KryoType("java.lang.Object")
CART = PojoType("a.Cart", (PojoField("items", LIST), PojoField("owner", Scalar.LONG)))
LAST = ListType(TupleType((OBJECT, Scalar.LONG), "org.apache.flink.api.java.tuple.Tuple2"))
BESIDE = PojoMapType(
    "a.Totals",
    "a map in a field",
    PojoType("a.Totals", (PojoField("cart", CART), PojoField("counts", OBJECT), PojoField("last", LAST))),
    "counts",
    OBJECT,
)
# A String by either Kryo; UUIDs by Kryo 2 and by Kryo 5.
TEXT, UUIDS = bytes.fromhex("03 01 61 62 e3"), (b"\x54\1\2\4", b"\x54\1" + bytes(16))
CARTS = (b"\1", b"\0\1", *(b"\0\2\0" + uuid + b"\0" + bytes(8) for uuid in UUIDS), b"\0\2\1\0" + bytes(8))


@pytest.mark.parametrize("cart", CARTS)
@pytest.mark.parametrize("uuid", UUIDS)
def test_a_field_beside_others_that_have_parts_by_kryo(cart: bytes, uuid: bytes) -> None:
    counts, last = b"\0" + TEXT, b"\0\0\0\0\2" + 2 * (uuid + bytes(8))
    pojo = b"\2" + cart + counts + last
    at = 1 + len(cart)
    mixed = cart in CARTS[2:4] and CARTS.index(cart) - 2 != UUIDS.index(uuid)
    if mixed:
        # One Kryo wrote all of a POJO.
        with pytest.raises((DamagedError, RefusedError)):
            compiled(BESIDE, [b"\1", pojo])
        return
    assert compiled(BESIDE, [b"\1", pojo, pojo])[1:] == 2 * [(at, at + 1, at + 1 + len(TEXT))]
    assert plain(BESIDE, pojo) == (at, at + 1, at + 1 + len(TEXT))
    for wrong in (pojo[:-1], pojo + b"\0"):
        with pytest.raises(DamagedError):
            compiled(BESIDE, [wrong])
