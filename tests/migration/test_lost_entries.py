"""What an upgrade lost of single values: by their objects, and for flat maps by their bytes alone."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.serializers.types import KryoRegistration, KryoType
from flinkstate.values.kryo_map_places import map_places
from flinkstate.values.kryo_misread import misread
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import read_kryo_part
from stateferry.changes.upgrade.flat_maps import flat_losses
from stateferry.changes.upgrade.lost_entries import (
    Fate,
    Loss,
    agrees,
    is_unread,
    losses,
    losses_of_gone,
    put_back,
    put_back_gone,
    text_of,
)

_UTIL = "java.util."
_CLASSES = {"HashMap": _UTIL + "HashMap", "LinkedHashMap": _UTIL + "LinkedHashMap", "TreeMap": _UTIL + "TreeMap"}
_NAMES = ("", "a", "bc", "ü", "item-0", "one of more than thirty-two characters", "x" * 70, "日本", "\ud800")


def _type(name: str) -> KryoType:
    return KryoType(_CLASSES[name], registrations=(KryoRegistration(_CLASSES[name], None),))


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80 and len(out) < 8:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def _string(text: str, five: bool) -> bytes:
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    if text.isascii() and 1 < units <= (32 if five else 63):
        raw = text.encode("ascii")
        return b"\x03\x01" + raw[:-1] + bytes([raw[-1] | 0x80])
    length = units + 1
    head = bytes([0x80 | length]) if length < 0x40 else bytes([0xC0 | length & 0x3F]) + _varint(length >> 6)
    return b"\x03\x01" + head + text.encode("utf-8", "surrogatepass")


def _number(value: Any, five: bool) -> bytes:
    if value is None:
        return b"\0"
    if isinstance(value, float):
        # Java writes one NaN only.
        value = math.nan if math.isnan(value) else value
        return b"\x0a" + struct.pack("<d" if five else ">d", value)
    return b"\x09" + _varint(value << 1 if value >= 0 else ~(value << 1))


def _map(name: str, entries: dict[str, Any], five: bool) -> bytes:
    """The bytes of a map, as the table in `kryo_reader` says."""
    is_sorted = name == "TreeMap"
    body = b"".join(_string(key, five) + _number(value, five) for key, value in entries.items())
    count = _varint(len(entries) + five)
    return (
        b"\x57\x01"
        + (count + b"\0" if five else b"\0" + count if is_sorted else b"") * is_sorted
        + (b"" if is_sorted else count)
        + body
    )


def _decoded(type_: KryoType, data: bytes, five: bool) -> KryoObject | None:
    found, end = read_kryo_part(type_, data, 0, len(data), five=five)
    assert end == len(data)
    return found


def _entries(value: KryoObject | None) -> dict[str, Any]:
    return {} if value is None else {key.value: one and one.value for key, one in value.value}


def _by_name(found: list[Loss]) -> dict[str, Fate]:
    return {one.key.value: one.fate for one in found if one.key is not None}


@pytest.mark.parametrize("name", _CLASSES)
def test_what_flink_2_reads(name: str) -> None:
    """Real Flink 2.3 does so: `tests/flink/test_lost_entries.py`."""
    type_ = _type(name)
    read = misread(type_, _map(name, {"a": 1, "b" * 40: None, "c": 2}, five=False))
    assert _entries(read) == ({} if name == "TreeMap" else {"a": 1, "b" * 40: None})
    assert (read is None) == (name == "TreeMap")
    assert misread(type_, _map(name, {}, five=False)) is None
    swapped = struct.unpack("<d", struct.pack(">d", 1.5))[0]
    read = misread(type_, _map(name, {"a": 1.5, "b": 2.5}, five=False))
    assert _entries(read) == ({} if name == "TreeMap" else {"a": swapped})


def test_each_fate() -> None:
    type_, names = _type("HashMap"), "abcdef"
    old = _map("HashMap", dict.fromkeys(names, 1.5), five=False)
    read = misread(type_, old)
    wrong = _entries(read)["a"]
    now = _map("HashMap", {"a": wrong, "b": 7.0, "d": 1.5, "e": wrong, "new": 2.0}, five=True)
    found = list(losses(_decoded(type_, old, False), read, _decoded(type_, now, True)))
    assert _by_name(found) == {
        "a": Fate.LOST, "b": Fate.OVERWRITTEN, "c": Fate.REMOVED, "e": Fate.LOST, "f": Fate.LOST,
    }  # fmt: skip
    five = map_places(type_, _map("HashMap", dict.fromkeys(names, 1.5), five=True))
    there = map_places(type_, now)
    assert five is not None
    assert there is not None
    made = put_back(five, there, [one for one in found if one.fate is Fate.LOST])
    assert _entries(_decoded(type_, made, True)) == {
        "a": 1.5, "b": 7.0, "d": 1.5, "e": 1.5, "new": 2.0, "f": 1.5,
    }  # fmt: skip
    gone = list(losses_of_gone(_decoded(type_, old, False), read))
    assert _by_name(gone) == dict.fromkeys("abcde", Fate.REMOVED) | {"f": Fate.GONE}
    back = put_back_gone(five, [one for one in gone if one.fate is Fate.GONE])
    assert _entries(_decoded(type_, back, True)) == {"f": 1.5}


def test_values_that_are_no_maps() -> None:
    one, other, third = (KryoObject("java.lang.Double", value) for value in (1.5, 2.5, 3.5))
    assert list(losses(one, other, other)) == [Loss(Fate.LOST, one, is_there=True)]
    assert list(losses(one, other, third)) == [Loss(Fate.OVERWRITTEN, one, is_there=True)]
    assert list(losses(one, other, one)) == list(losses(one, one, third)) == []
    # A number is misread as another one, which the job has seen before it removed the row.
    assert list(losses_of_gone(one, other)) == [Loss(Fate.REMOVED, one)]
    assert list(losses_of_gone(one, None)) == [Loss(Fate.GONE, one)]
    assert agrees(one, other, other)
    assert not agrees(one, other, third)
    nan = KryoObject("java.lang.Double", math.nan)
    assert list(losses(one, nan, KryoObject("java.lang.Double", struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0]))) == [
        Loss(Fate.LOST, one, is_there=True)
    ]


@pytest.mark.parametrize("text", ["ab", "\U0001f600\ud800", "x" * 32, "x" * 33, "", "ü" * 70])
def test_a_string_that_stands_twice_in_a_map_is_put_back(text: str) -> None:
    """Kryo writes it once, and a reference in its second place."""
    type_, shared = _type("HashMap"), _string(text, True) if text.isascii() else _units(text)
    old = map_places(type_, b"\x57\x01\x03" + _string("k1", True) + shared + _string("k2", True) + b"\x03\x04")
    newer = map_places(type_, _map("HashMap", {"k1": 1, "zz": 2}, five=True))
    assert old is not None
    assert newer is not None
    lost = [Loss(Fate.LOST, value, True, key) for key, value in old.found.value[1:]]
    made = put_back(old, newer, lost)
    assert made == _map("HashMap", {"k1": 1, "zz": 2}, five=True).replace(b"\x57\x01\x03", b"\x57\x01\x04") + (
        _string("k2", True) + shared
    )
    gone = put_back_gone(old, [Loss(Fate.GONE, value, True, key) for key, value in old.found.value[1:]])
    assert _entries(_decoded(type_, gone, True)) == {"k2": text}


def _units(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    each = [
        chr(int.from_bytes(units[at : at + 2], "big")).encode("utf-8", "surrogatepass")
        for at in range(0, len(units), 2)
    ]
    length = len(each) + 1
    head = bytes([0x80 | length]) if length < 0x40 else bytes([0xC0 | length & 0x3F]) + _varint(length >> 6)
    return b"\x03\x01" + head + b"".join(each)


def _nested(entries: dict[str, dict[str, int]]) -> KryoObject:
    """A HashMap of HashMaps, and of HashSets of the same keys."""

    def text(one: str) -> KryoObject:
        return KryoObject("java.lang.String", one)

    def inside(one: dict[str, int]) -> KryoObject:
        pairs = [(text(name), KryoObject("java.lang.Long", number)) for name, number in one.items()]
        of_both = {
            "map": KryoObject(_UTIL + "HashMap", pairs),
            "set": KryoObject(_UTIL + "HashSet", list(map(text, one))),
        }
        return KryoObject("com.acme.Both", of_both)

    return KryoObject(_UTIL + "HashMap", [(text(key), inside(one)) for key, one in entries.items()])


def test_the_order_inside_of_an_entry_does_not_count() -> None:
    """Flink 2 reads a HashMap into a smaller one than Flink 1, so it writes it in another order."""
    old = _nested({"a": {"x": 1, "y": 2}, "b": {"x": 3}})
    read, again = _nested({"a": {"x": 1}}), _nested({"a": {"x": 1, "z": 3, "y": 2}})
    written = _nested({"a": {"y": 2, "z": 3, "x": 1}})
    assert _by_name(list(losses(old, read, read))) == dict.fromkeys("ab", Fate.LOST)
    assert _by_name(list(losses(old, again, written))) == dict.fromkeys("ab", Fate.LOST)
    assert agrees(again, read, written)
    assert not agrees(old, read, written)
    assert is_unread(again, read, written)
    assert not is_unread(old, again, written)
    list_, other = (
        KryoObject(_UTIL + "ArrayList", [KryoObject("java.lang.Long", one) for one in of]) for of in ((1, 2), (2, 1))
    )
    assert text_of(list_) != text_of(other)
    assert text_of((list_, other)) != text_of((other, list_))


@pytest.mark.parametrize("name", _CLASSES)
def test_an_empty_map_that_flink_2_has_read_as_null_is_lost(name: str) -> None:
    old = KryoObject(_CLASSES[name], [])
    assert list(losses(old, None, None)) == [Loss(Fate.LOST, old, is_there=True)]
    assert not is_unread(old, None, old)
    assert list(losses(old, None, old)) == list(losses(old, None, KryoObject(_CLASSES[name], [(None, None)]))) == []


def test_entries_that_nobody_has_written_are_refused() -> None:
    one, other = (KryoObject(_UTIL + "HashMap", [(KryoObject("java.lang.String", key), None)]) for key in "ab")
    with pytest.raises(RefusedError, match="entries of it that nobody has written"):
        list(losses(one, other, None))


def test_entries_with_dates_are_not_put_into_newer_maps() -> None:
    type_ = _type("HashMap")
    date = b"\x01\x00java.util.Dat\xe5\x01\x05"
    maps = [
        map_places(type_, b"\x57\x01" + bytes([len(keys) + 1]) + b"".join(b"\x03\x01" + key + date for key in keys))
        for key, keys in (("", [b"a\xe1"]),)
    ]
    assert maps[0] is not None
    lost = [Loss(Fate.LOST, None, True, maps[0].found.value[0][0])]
    newer = map_places(type_, _map("HashMap", {"zz": 1}, five=True))
    assert newer is not None
    with pytest.raises(RefusedError, match="only numbers and Strings can"):
        put_back(maps[0], newer, lost)
    empty = map_places(type_, _map("HashMap", {}, five=True))
    assert empty is not None
    assert put_back(maps[0], empty, lost) == maps[0].data


def test_entries_are_put_into_no_map_that_cannot_hold_them() -> None:
    """A TreeMap compares its keys; an empty map of Collections has no place for any."""
    old, sorted_ = (map_places(_type(name), _map(name, {"a": 1, "b": 2}, five=True)) for name in ("HashMap", "TreeMap"))
    assert old is not None
    lost = [Loss(Fate.LOST, None, True, old.found.value[1][0])]
    for one, other, why in (
        (old, sorted_, "a HashMap can't be put into a TreeMap"),
        (old, None, "a map of a fixed size"),
        (None, old, "a map of a fixed size"),
    ):
        with pytest.raises(RefusedError, match=why):
            put_back(one, other, lost)
    flat = _map("HashMap", {"a": 1, "b": 2}, five=False), _map("HashMap", {"a": 1, "b": 2}, five=True)
    linked = b"\x01\x00java.util.LinkedHashMa\xf0\x01" + _map("HashMap", {"a": 1}, five=True)[2:]
    assert flat_losses(_type("HashMap"), *flat, linked) is None


def test_a_map_that_is_just_what_flink_2_has_read_agrees() -> None:
    old, five, read = (
        _map("HashMap", content, five=by_5) for content, by_5 in (({"a": 1}, False), ({"a": 1}, True), ({}, True))
    )
    for now, expected in ((read, True), (_map("HashMap", {"b": 1}, five=True), False), (five, True)):
        found = flat_losses(_type("HashMap"), old, five, now)
        assert found is not None
        assert found.agrees == expected


@pytest.mark.parametrize("name", _CLASSES)
@pytest.mark.parametrize("seed", range(4))
def test_by_their_bytes_flat_maps_have_lost_the_same(name: str, seed: int) -> None:
    type_, drawn = _type(name), random.Random(seed)
    values = (
        None,
        0,
        -1,
        63,
        2**62,
        -(2**63),
        1.5,
        -0.0,
        math.nan,
        5e-324,
        struct.unpack(">d", b"\1\0\0\0\0\0\xf8\x7f")[0],
    )
    for _ in range(150):
        names = sorted(drawn.sample(_NAMES, drawn.randrange(len(_NAMES))))
        entries = {key: drawn.choice(values) for key in names}
        old, five = (_map(name, entries, five=by_5) for by_5 in (False, True))
        decoded = _decoded(type_, old, False)
        read = misread(type_, old)
        present = {key: one for key, one in _entries(read).items() if drawn.random() < 0.7}
        present |= {key: drawn.choice(values) for key in drawn.sample(_NAMES, drawn.randrange(3))}
        now = _map(name, present, five=True)
        for stored in (now, None):
            flat = flat_losses(type_, old, five, stored)
            assert flat is not None, seed
            there = None if stored is None else _decoded(type_, stored, True)
            found = list(losses_of_gone(decoded, read) if stored is None else losses(decoded, read, there))
            assert flat.is_unread == is_unread(decoded, read, there), seed
            assert [(one.fate, one.is_there) for one in flat.losses] == [(one.fate, one.is_there) for one in found], (
                seed
            )
            wanted = [one for one in found if one.fate in (Fate.LOST, Fate.GONE)]
            old_places, places = map_places(type_, five), map_places(type_, now)
            assert old_places is not None
            assert places is not None
            made = put_back_gone(old_places, wanted) if stored is None else put_back(old_places, places, wanted)
            if wanted:
                one, other = (_texts(_decoded(type_, data, True)) for data in (flat.put_back(), made))
                assert one == other, seed


def _texts(value: KryoObject | None) -> dict[str, str]:
    return {} if value is None else {repr(key): repr(one) for key, one in value.value}
