"""Flat maps are read on a fast way of their own. All that comes of it is the same as on the general way.

The tests turn the fast way off by saying that no tag is read there.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from flinkstate.errors import StateferryError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.class_finder import ClassFinder
from flinkstate.kryo.reading import MapReading
from flinkstate.kryo.to_flink_maps import KryoReader
from flinkstate.serializers.types import KryoType, MapType, Scalar
from tests.kryo.damage import damaged_examples
from tests.kryo.examples import VERSIONS, examples
from tests.kryo.test_examples import REFUSED
from tests.support.kryo_writing import Boxed, kryo_map, kryo_object, varint

KRYO = examples("1.20.0")["HashMap of 3 as its class"].kryo
SCALARS = (
    *(Scalar.STRING, Scalar.INTEGER, Scalar.LONG, Scalar.SHORT, Scalar.BYTE, Scalar.BOOLEAN, Scalar.CHARACTER),
    *(Scalar.FLOAT, Scalar.DOUBLE),
)
TEXTS = ("", "a", "ab", "item0001", "x" * 32, "x" * 33, "y" * 63, "y" * 64, "z" * 200, "日本", "ü" * 40, "a\0b")
_MARK = -7


def object_bytes(chosen: random.Random, scalar: Scalar, five: bool) -> bytes:
    """An object of the class, as Kryo writes it."""
    order = "<" if five else ">"
    bits = chosen.choice((1, 6, 7, 8, 14, 31, 56, 63))
    number = chosen.randrange(-(1 << bits), 1 << bits)
    match scalar:
        case Scalar.STRING:
            return kryo_object(chosen.choice((*TEXTS, f"key{number}")), five)
        case Scalar.LONG:
            return b"\x09" + nine_bytes(number << 1 if number >= 0 else ~(number << 1))
        case Scalar.INTEGER:
            return kryo_object(Boxed("int", (number + (1 << 31)) % (1 << 32) - (1 << 31)), five)
        case Scalar.SHORT:
            return kryo_object(Boxed("short", number % (1 << 15)), five)
        case Scalar.BYTE:
            return kryo_object(Boxed("byte", number % 128), five)
        case Scalar.BOOLEAN:
            return bytes([5, number & 1])
        case Scalar.CHARACTER:
            return b"\x07" + struct.pack(f"{order}H", number & 0xFFFF)
        case Scalar.FLOAT:
            return kryo_object(Boxed("float", chosen.choice((number % 1000 / 8, float("inf"), float("nan")))), five)
    return kryo_object(Boxed("double", chosen.choice((number / 8, -float("inf"), float("nan")))), five)


def nine_bytes(number: int) -> bytes:
    """A long of up to 64 bits; the ninth byte has eight of them."""
    return varint(number & (1 << 56) - 1 | 1 << 56)[:8] + bytes([number >> 56]) if number >> 56 else varint(number)


def a_map(chosen: random.Random, map_: MapType, five: bool) -> bytes:
    """A map of some entries, with a null now and then; it names its class, or has its id."""
    assert isinstance(map_.key, Scalar)
    assert isinstance(map_.value, Scalar)
    count = chosen.choice((0, 1, 2, 3, 5, 20))
    named = b"\x01\x00java.util.HashMa\xf0"
    parts = []
    for _ in range(count):
        no_key = map_.key is Scalar.STRING and chosen.random() < 0.02
        parts.append(b"\0" if no_key else object_bytes(chosen, map_.key, five))
        parts.append(b"\0" if chosen.random() < 0.1 else object_bytes(chosen, map_.value, five))
    return chosen.choice((b"W", named)) + b"\x01" + bytes([count + five]) + b"".join(parts)


def packed(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values one behind the other; each is behind four bytes for its length."""
    data = np.frombuffer(b"".join(b"\0\0\0\0" + value for value in values), np.uint8).copy()
    ends = np.cumsum([4 + len(value) for value in values], dtype=np.int64)
    return data, np.append(np.int64(0), ends[:-1]), ends


class Ways:
    """Reads the same values on both ways, keeping the readers."""

    def __init__(self, kryo: KryoType, map_: MapType) -> None:
        self.readers = KryoReader(kryo, map_), KryoReader(kryo, map_)
        self.finders = ClassFinder(kryo), ClassFinder(kryo)
        close(self.readers[1]._reading)
        close(self.finders[1]._reading)

    def outcomes(self, values: list[bytes]) -> tuple[tuple[object, ...], bool]:
        """What both say of the values, if it is the same; and whether the first way was enough."""
        state = self.readers[0]._reading.state
        state[codes.OBJECTS] = _MARK
        fast, general = (transcoded(reader, values) for reader in self.readers)
        assert fast == general, [value.hex() for value in values]
        was_enough = bool(state[codes.OBJECTS] == _MARK)
        classes, of_general = (found(finder, values) for finder in self.finders)
        assert classes == of_general, [value.hex() for value in values]
        return fast, was_enough


def close(reading: MapReading) -> None:
    """Lets a reading take only the general way."""
    reading.flat[0][:] = 0


def transcoded(reader: KryoReader, values: list[bytes]) -> tuple[object, ...]:
    data, starts, ends = packed(values)
    try:
        made = reader.to_flink(data, starts, starts, ends, timestamps=False)
    except StateferryError as error:
        return refusal(error)
    places = (made.starts, made.key_ends, made.ends, made.kinds, made.entries.starts, made.entries.key_ends)
    return made.data.tobytes(), made.counts, *(one.tolist() for one in places), made.entries.counts.tolist()


def found(finder: ClassFinder, values: list[bytes]) -> tuple[object, ...]:
    data, starts, ends = packed(values)
    try:
        return finder.add(data, starts + 4, ends).tolist(), finder.found()
    except StateferryError as error:
        return refusal(error)


def refusal(error: StateferryError) -> tuple[object, ...]:
    return type(error), str(error), *(getattr(error, name, None) for name in ("offset", "user_key", "mixes_numbers"))


def pairs(chosen: random.Random, count: int) -> Iterator[MapType]:
    for _ in range(count):
        yield MapType(chosen.choice(SCALARS), chosen.choice(SCALARS))


def test_random_maps_are_the_same_on_both_ways() -> None:
    """Of one Kryo and of both in turn, as an upgraded job has them."""
    chosen = random.Random(1)
    enough = 0
    for map_ in pairs(chosen, 50):
        ways = Ways(KRYO, map_)
        for kryos in ((False,), (True,), (False, True)):
            values = [a_map(chosen, map_, chosen.choice(kryos)) for _ in range(20)]
            enough += ways.outcomes(values)[1]
    assert enough > 140


def test_damaged_maps_are_the_same_on_both_ways() -> None:
    chosen = random.Random(2)
    refused = 0
    for map_ in pairs(chosen, 40):
        ways = Ways(KRYO, map_)
        for _ in range(20):
            raw = bytearray(a_map(chosen, map_, chosen.random() < 0.5))
            place = chosen.randrange(len(raw))
            match chosen.randrange(4):
                case 0:
                    raw[place] ^= 1 << chosen.randrange(8)
                case 1:
                    raw[place] = chosen.choice((0, 1, 2, 3, 9, 0x7F, 0x80, 0xFF))
                case 2:
                    del raw[place:]
                case 3:
                    raw[place:place] = bytes([chosen.choice((0, 1, 3, 9, 0x80))])
            refused += isinstance(ways.outcomes([bytes(raw)])[0][0], type)
    assert refused > 200


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.full)])
def test_damaged_examples_are_the_same_on_both_ways(count: int) -> None:
    all_ways: dict[tuple[KryoType, MapType], Ways] = {}
    for one in damaged_examples(count, seed=3):
        assert one.map is not None
        if one.name not in REFUSED:
            ways_of(all_ways, one.kryo, one.map).outcomes([one.written])


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", VERSIONS)
def test_examples_are_the_same_on_both_ways(version: str) -> None:
    all_ways: dict[tuple[KryoType, MapType], Ways] = {}
    enough = 0
    for one in examples(version).values():
        for map_ in (one.map, MapType(Scalar.STRING, Scalar.LONG)):
            if map_ is not None and one.name not in REFUSED:
                enough += ways_of(all_ways, one.kryo, map_).outcomes([one.written] * 3)[1]
    assert enough > 50


def ways_of(made: dict[tuple[KryoType, MapType], Ways], kryo: KryoType, map_: MapType) -> Ways:
    if (kryo, map_) not in made:
        made[kryo, map_] = Ways(kryo, map_)
    return made[kryo, map_]


def test_a_map_by_the_other_kryo_is_read_fast() -> None:
    """Where the first guess is wrong, for each number of entries around it."""
    ways = Ways(KRYO, MapType(Scalar.STRING, Scalar.LONG))
    maps = [kryo_map({f"k{one}": one for one in range(size)}, five) for size in range(4) for five in (False, True)]
    assert ways.outcomes(maps + maps[::-1])[1]
    with_texts = [kryo_map({"x" * size: 1}, five) for size in (32, 33, 63, 64) for five in (False, True)]
    assert ways.outcomes(with_texts + with_texts[::-1])[1]


@pytest.mark.parametrize("count", [30_000, pytest.param(4_900_000, marks=pytest.mark.full)])
def test_one_map_may_be_very_large(count: int) -> None:
    """Of 257 MiB with 4.9 million entries, as with fewer."""
    entry = b"\x03\x01" + b"k" * 40 + b"0000000\xb0" + b"\x09\x80\x80\x80\x01"
    entries = np.tile(np.frombuffer(entry, np.uint8), (count, 1))
    for digit in range(8):
        entries[:, 49 - digit] |= (np.arange(count) // 10**digit % 10).astype(np.uint8)
    data = np.concatenate([np.frombuffer(b"\0\0\0\0W\x01" + varint(count), np.uint8), entries.ravel()])
    start, end = np.zeros(1, np.int64), np.array([len(data)])
    finder = ClassFinder(KRYO)
    assert finder.add(data, start + 4, end).tolist() == [count]
    assert finder.found().classes["value"] == {"java.lang.Long": count}
    reader = KryoReader(KRYO, MapType(Scalar.STRING, Scalar.LONG))
    made = reader.to_flink(data, start, start, end, timestamps=False)
    assert made.counts.entries == count
    assert len(made.data) == 8 + count * (49 + 1 + 8)
    first, last = (made.data[made.entries.starts[one] : made.entries.ends[one]].tobytes() for one in (0, -1))
    value = b"\0" + (1 << 20).to_bytes(8, "big")
    assert first == b"\x31" + b"k" * 40 + b"00000000" + value
    assert last == b"\x31" + b"k" * 40 + f"{count - 1:08}".encode() + value
