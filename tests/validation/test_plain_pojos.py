"""Plain code finds a field in POJOs, and names what is wrong with one."""

from __future__ import annotations

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.types import KryoType, MapType, OpaqueType, PojoField, PojoMapType, PojoType, Scalar
from stateferry.proof.plain.plain_pojos import PlainField, find_field, without_map

COUNTS = MapType(Scalar.BYTE, Scalar.BYTE)
FIELDS = (PojoField("counts", COUNTS), PojoField("total", Scalar.BYTE))
SHOP = PojoType("a.Shop", (*FIELDS, PojoField("zip", Scalar.BYTE)))
CITY = PojoType("a.City", FIELDS)
LONG_NAME = f"a.{'x' * 300}"
OPAQUE = OpaqueType("a.Other", "a reason")
POJO = PojoType(
    "a.Totals", FIELDS, (SHOP, CITY), (("a.Shop", SHOP), ("a.City", CITY), (LONG_NAME, CITY), ("a.Other", OPAQUE))
)
TYPE = PojoMapType("a.Totals", "a map in a field", POJO, "counts", COUNTS)
# One entry; and the fields of a POJO with it.
MAP = "00 00 00 01 05 00 06"
BODY = f"00 {MAP} 00 07"


def named(name: str) -> str:
    return "04" + len(name).to_bytes(2, "big").hex() + name.encode().hex()


@pytest.mark.parametrize(
    ("data", "flag"),
    [
        (f"02 {BODY}", 1),
        (f"08 00 02 {BODY} 00 08", 3),
        (f"08 00 02 {BODY} 01", 3),
        (f"08 01 02 {BODY}", 3),
        (f"{named('a.Shop')} 02 {BODY} 00 08", 10),
        (f"{named('a.City')} 02 {BODY}", 10),
        (f"{named(LONG_NAME)} 02 {BODY}", 306),
    ],
)
@pytest.mark.parametrize("before", ["", "02 02 02"])
def test_the_field_is_found_in_each_class(data: str, flag: int, before: str) -> None:
    value, position = bytes.fromhex(before + data), len(bytes.fromhex(before))
    found = find_field(TYPE, value, position)
    assert found == PlainField(position + flag, position + flag + 1, position + flag + 8)
    left = value[: position + flag] + b"\1" + value[position + flag + 8 :]
    assert without_map(TYPE, value, position) == left
    assert find_field(TYPE, left, position) is None


@pytest.mark.parametrize("data", ["01", "02 01 00 07", "08 01 01", f"{named('a.City')} 01"])
def test_a_pojo_may_be_null_or_have_null_in_the_field(data: str) -> None:
    value = bytes.fromhex(data)
    assert find_field(TYPE, value, 0) is None
    assert without_map(TYPE, value, 0) == value


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ("", DamagedError, "the flag of a POJO, found its end"),
        ("03", DamagedError, "the flag of a POJO, found 3"),
        (f"08 02 02 {BODY}", DamagedError, "the flag of a POJO, found 8"),
        ("08", DamagedError, "the flag of a POJO, found 8"),
        ("08 00", DamagedError, "the flag of a POJO, found its end"),
        (f"{named('a.Hut')} 02 {BODY}", RefusedError, r"the savepoint doesn't describe: a\.Hut"),
        (f"{named('a.Other')} 02 {BODY}", RefusedError, "a subclass that is no POJO"),
        (f"02 {BODY} 00", DamagedError, "the end of a POJO, found 1 more bytes"),
        ("02 02", DamagedError, "the null flag of field counts"),
        (f"02 00 {MAP}", DamagedError, "the null flag of field total"),
        ("02 00 00 00 00 01 05", DamagedError, "the size of a Map"),
    ],
)
def test_what_is_wrong_is_named(data: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_field(TYPE, bytes.fromhex(data), 0)


def test_a_class_without_the_field_is_named() -> None:
    type_ = PojoMapType("a.Totals", "a map in a field", POJO, "others", COUNTS)
    with pytest.raises(RefusedError, match=r"a\.Totals has no field others"):
        find_field(type_, bytes.fromhex(f"02 {BODY}"), 0)


OBJECT = KryoType("java.lang.Object")


def of_objects(*names: str, others: tuple[PojoField, ...] = ()) -> PojoMapType:
    pojo = PojoType("a.Totals", (*(PojoField(name, OBJECT) for name in names), *others))
    return PojoMapType("a.Totals", "a map in a field", pojo, "counts", OBJECT)


# A HashMap by name with no entry, behind which the other Kryo would find one.
EMPTY = "01 00" + b"java.util.HashMa".hex() + "f0 01"


def test_a_map_by_either_kryo_is_found() -> None:
    for count in ("00", "01"):
        value = bytes.fromhex(f"02 00 {EMPTY} {count}")
        expected = PlainField(1, 2, len(value))
        assert find_field(of_objects("counts"), value, 0) == expected
        assert find_field(of_objects("counts", others=FIELDS[1:]), value + b"\0\7", 0) == expected


def test_what_no_kryo_wrote_is_refused() -> None:
    with pytest.raises((DamagedError, RefusedError)):
        find_field(of_objects("counts"), bytes.fromhex(f"02 00 {EMPTY} 05"), 0)


def test_what_both_kryos_may_have_written_is_refused() -> None:
    """Kryo 2: a map with a null key and a UUID of 15 bytes, null. Kryo 5: an empty map, a UUID of 16 bytes."""
    both = f"02 00 {EMPTY} 01 00 54 01 {'81' * 8} 01 {'81' * 5} 01 01"
    with pytest.raises(RefusedError, match="could both have written this POJO"):
        find_field(of_objects("counts", "next"), bytes.fromhex(both), 0)
