"""Damaged values, and values that somebody made to do harm: refused, or read as the same by both readings."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.kryo.class_finder import map_type_of
from flinkstate.serializers.types import KryoType, ListType, MapType, Scalar
from flinkstate.values.codecs import decode_whole
from flinkstate.values.value_json import value_json
from tests.kryo.damage import damaged_examples
from tests.kryo.examples import by_compiled_code, by_plain_code, examples, find_classes

LISTS = MapType(Scalar.STRING, ListType(Scalar.STRING))
KRYO = examples("1.20.0")["HashMap of 3 as its class"].kryo


def outcomes_of(count: int, seed: int) -> dict[str, int]:
    """Holds both readings of damaged values against each other; says how many were read and how many refused."""
    counts = dict.fromkeys(("read", "refused"), 0)
    for one in damaged_examples(count, seed):
        assert one.map is not None
        compiled = by_compiled_code(one.kryo, one.map, one.written)
        plain = by_plain_code(one.kryo, one.map, one.written)
        if isinstance(compiled, bytes):
            assert plain == compiled, (str(one), one.written.hex())
        else:
            assert isinstance(plain, StateferryError), (str(one), one.written.hex())
        counts["read" if isinstance(compiled, bytes) else "refused"] += 1
    return counts


def test_damaged_values_are_refused_or_read_alike() -> None:
    counts = outcomes_of(2000, seed=1)
    assert counts["read"] > 50
    assert counts["refused"] > 1000


@pytest.mark.full
def test_many_damaged_values_are_refused_or_read_alike() -> None:
    counts = outcomes_of(20_000, seed=2)
    assert counts["read"] > 500
    assert counts["refused"] > 10_000


def text(ascii_text: str) -> bytes:
    """A String with class tag and mark."""
    return b"\x03\x01" + ascii_text[:-1].encode() + bytes([ord(ascii_text[-1]) | 0x80])


def by_name(name: str, number: int) -> bytes:
    """A class tag with a name that is new, and the mark of a new object."""
    return bytes([1, number]) + name[:-1].encode() + bytes([ord(name[-1]) | 0x80]) + b"\x01"


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


ARRAY_LIST = by_name("java.util.ArrayList", 0)
AGAIN = b"\x01\x00\x01"  # the class of that name once more


def nested_lists(five: bool, depth: int) -> bytes:
    """A map of Kryo 2 with lists in lists, the innermost of them empty; or of Kryo 5."""
    count = b"\x01" if not five else b"\x02"
    inner = b"".join((ARRAY_LIST if level == 0 else AGAIN) + count for level in range(depth))
    if five:
        # Each list says the class of its elements, which then have only a mark.
        inner = ARRAY_LIST + b"".join(b"\x82\x01\x00\x00\x01" for _ in range(depth))
    return b"W\x01" + count + text("key") + inner + (b"\x01" if five else AGAIN + b"\x00")


def doubling_lists(levels: int) -> bytes:
    """A map of Kryo 2: each list has the one before twice, by reference, so that it would have 2^levels elements."""
    value = b"W\x01" + bytes([levels + 1])
    # Objects: the map 0, then for each entry its key and its list.
    value += text("k0") + ARRAY_LIST + b"\x01" + text("xx")
    for level in range(1, levels + 1):
        reference = 2 if level == 1 else 2 * level + 1 - 1
        key = text(f"k{level:02d}")
        twice = (b"\x01\x00" + bytes([reference + 2])) * 2
        value += key + AGAIN + b"\x02" + twice
    return value


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a map of 2^31 entries": lambda: b"W\x01\xff\xff\xff\xff\x07",
    "a map of 2^32 - 1 entries": lambda: b"W\x01\xff\xff\xff\xff\x0f" + text("key") * 20,
    "a list of 2^31 elements": lambda: b"W\x01\x01" + text("key") + ARRAY_LIST + b"\xff\xff\xff\xff\x07",
    "a list of 2^31 nulls of Kryo 5": lambda: b"W\x01\x02" + text("key") + ARRAY_LIST + b"\xff\xff\xff\xff\x07\x00",
    "many lists of a million nulls": lambda: (
        b"W\x01\xe9\x07" + (b"\x03\x01\x81" + by_name("java.util.ArrayList", 0) + b"\xc0\x84\x3d\x00")
        + (b"\x03\x01\x81" + AGAIN + b"\xc0\x84\x3d\x00") * 999
    ),
    "an array of 2^31 longs": lambda: b"W\x01\x01" + text("key") + by_name("[J", 0) + b"\xff\xff\xff\xff\x07",
    "a String of 2^31 characters": lambda: b"W\x01\x01\x03\x01\xff\xff\xff\xff\x0f",
    "a number of 2^31 bytes": lambda: (
        b"W\x01\x01" + text("key") + by_name("java.math.BigInteger", 0) + b"\xff\xff\xff\xff\x07"
    ),
    "a reference to an object that is still to come": lambda: (
        b"W\x01\x02" + text("aa") + b"\x03\x05" + text("bb") + text("cc")
    ),
    "a reference to itself": lambda: b"W\x01\x01" + text("key") + b"W\x02",
    "a list in itself": lambda: b"W\x01\x01" + text("key") + ARRAY_LIST + b"\x01\x01\x00\x04",
    "10,000 nested lists of Kryo 2": lambda: nested_lists(False, 10_000),
    "10,000 nested lists of Kryo 5": lambda: nested_lists(True, 10_000),
    "lists that double by references": lambda: doubling_lists(40),
    "names without an end": lambda: b"W\x01\x01\x01\x00" + b"a" * 200_000,
    "a thousand names": lambda: (
        b"W\x01\x01" + text("key") + ARRAY_LIST + b"\xe8\x07"
        + b"".join(b"\x01" + varint(number) + text(f"class{number}")[2:] + b"\x01\x00" for number in range(1, 1001))
    ),
    "nothing but ones": lambda: b"\x01" * 100_000,
    "nothing but 0xff": lambda: b"\xff" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_is_refused_at_small_cost(name: str) -> None:
    value = HOSTILE[name]()
    for read in (by_compiled_code, by_plain_code, shown, found):
        # Compile before time is measured.
        read(KRYO, LISTS, b"\0")
        tracemalloc.start()
        begin = time.process_time()
        answer = read(KRYO, LISTS, value)
        took, most = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert isinstance(answer, DamagedError | RefusedError), read
        assert took < 5, read
        assert most < 80 * len(value) + (48 << 20), read


def found(kryo: KryoType, _: MapType, value: bytes) -> str | StateferryError:
    """The type that the classes of all objects give."""
    try:
        return str(map_type_of(find_classes(kryo, value)))
    except StateferryError as error:
        return error


def shown(kryo: KryoType, _: MapType, value: bytes) -> str | StateferryError:
    """The value as a dump shows it."""
    try:
        return value_json(kryo, decode_whole(kryo, value))
    except StateferryError as error:
        return error


def test_a_long_name_with_another_letter_is_another_class() -> None:
    """Kryo 2 writes a name of 64 letters or more with its length: bit 7 of a byte doesn't end it."""
    one = examples("1.20.0")["emptySortedMap in maps"]
    assert one.map is not None
    at = one.written.index(b"UnmodifiableNavigableMap")
    damaged = one.written[:at] + bytes([one.written[at] | 0x80]) + one.written[at + 1 :]
    for read in (by_compiled_code, by_plain_code):
        assert isinstance(read(one.kryo, one.map, damaged), StateferryError), read


def test_lists_may_be_nested_some_levels() -> None:
    for five in (False, True):
        assert "[[[" in str(shown(KRYO, LISTS, nested_lists(five, 20)))
        assert "nested more than 64 deep" in str(shown(KRYO, LISTS, nested_lists(five, 80)))


def test_references_may_double_lists_within_reason() -> None:
    map_ = MapType(Scalar.STRING, ListType(ListType(Scalar.STRING)))
    value = doubling_lists(1)
    assert str(shown(KRYO, map_, value)) == '{"k0":["xx"],"k01":[["xx"],["xx"]]}'
