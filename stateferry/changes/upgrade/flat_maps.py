"""What an upgrade lost of a flat map, by its bytes alone: a map whose keys and values are numbers and Strings.

Most maps are flat. `lost_entries` says the same of any value by its objects, in ten times the time. The two Kryos write
numbers and Strings in as many bytes, which differ in their order, and in the form of a String of 33 to 63 characters.
So what Flink 2 has read, and writes again, are the bytes of Kryo 2.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from flinkstate.serializers.binary import varint
from flinkstate.serializers.types import KryoType
from flinkstate.values.kryo_map_places import read_varint
from flinkstate.values.kryo_values import known_classes
from stateferry.changes.upgrade.lost_entries import Fate

_HASHED = tuple(f"java.util.{name}" for name in ("HashMap", "LinkedHashMap", "concurrent.ConcurrentHashMap"))
_SORTED = "java.util.TreeMap"
# A null, or a number or an ASCII String with its class tag.
_TOKEN = re.compile(
    rb"\x00|\x03\x01[\x00-\x7f]+[\x80-\xff]|\x09(?:[\x80-\xff]{8}.|[\x80-\xff]{0,7}[\x00-\x7f])"
    rb"|\x02[\x80-\xff]{0,4}[\x00-\x7f]|\x0a.{8}|\x04.{4}|[\x05\x06].|[\x07\x08]..",
    re.DOTALL,
)
_OTHER_STRING = b"\x03\x01"
# Numbers of several bytes, which Flink 2 reads in the other order.
_FLOAT, _CHARACTER, _SHORT, _DOUBLE = b"\x04", b"\x07", b"\x08", b"\x0a"
_SWAPPED = (_FLOAT, _CHARACTER, _SHORT, _DOUBLE)
_NAN = {_FLOAT: struct.pack("<i", 0x7FC00000), _DOUBLE: struct.pack("<q", 0x7FF8000000000000)}


class FlatMap(NamedTuple):
    """A flat map: what is before the number of its entries, what is behind it, and its entries."""

    head: bytes
    comparator: bytes
    entries: list[tuple[bytes, bytes]]

    def with_entries(self, entries: list[tuple[bytes, bytes]]) -> bytes:
        """Returns the value of Kryo 5 that has these entries."""
        flat = [part for entry in entries for part in entry]
        return b"".join((self.head, varint(len(entries) + 1), self.comparator, *flat))


class FlatLoss(NamedTuple):
    """One entry, and what became of it; `is_there` says that it has a value now."""

    fate: Fate
    key: bytes
    old: bytes
    is_there: bool


class FlatLosses(NamedTuple):
    """What was lost of a map.

    `agrees` says that an entry is as it was, or the map is just what Flink 2 has read, `is_unread` that an entry is as
    it was which Flink 2 has not read so.
    """

    losses: list[FlatLoss]
    agrees: bool
    is_unread: bool
    now: FlatMap

    def put_back(self) -> bytes:
        """Returns the map that is there with what was lost."""
        entries = dict(self.now.entries)
        for one in self.losses:
            if one.fate in (Fate.LOST, Fate.GONE):
                entries[one.key] = one.old
        return self.now.with_entries(list(entries.items()))


def flat_losses(type_: KryoType, old: bytes, five: bytes, now: bytes | None) -> FlatLosses | None:
    """Returns what was lost of a map, None if not all of its forms are flat.

    `old` is what Kryo 2 wrote, `five` the same as Kryo 5 writes it, `now` what is there; None if the row is gone.
    """
    by_2, by_5 = flat_map(type_, old, five=False), flat_map(type_, five, five=True)
    if by_2 is None or by_5 is None:
        return None
    there = by_5._replace(entries=[]) if now is None else flat_map(type_, now, five=True)
    if there is None or there.head != by_5.head:
        return None
    lost = Fate.GONE if now is None else Fate.LOST
    present, last = dict(there.entries), 0 if _heads(type_)[by_2.head] else len(by_5.entries) - 1
    found, agrees, is_unread, all_read = list[FlatLoss](), False, False, dict[bytes, bytes]()
    for number, ((key, value), (_, read)) in enumerate(zip(by_5.entries, by_2.entries, strict=True)):
        if key[:1] in _SWAPPED:
            return None
        seen = _written_again(read, value) if number < last else None
        if seen is not None:
            all_read[key] = seen
        is_now = present.get(key)
        agrees = agrees or is_now == value
        is_unread = is_unread or seen != value == is_now
        if is_now is None:
            found.append(FlatLoss(lost if seen is None else Fate.REMOVED, key, value, False))
        elif value not in (seen, is_now):
            found.append(FlatLoss(Fate.LOST if is_now == seen else Fate.OVERWRITTEN, key, value, True))
    return FlatLosses(found, agrees or present == all_read, is_unread, there)


def _written_again(read: bytes, value: bytes) -> bytes:
    """What Flink 2 writes of a value that it has read; `value` is the right one."""
    kind = read[:1]
    if kind not in _SWAPPED:
        return value
    if kind in _NAN:
        number = struct.unpack("<f" if kind == _FLOAT else "<d", read[1:])[0]
        return read if number == number else kind + _NAN[kind]
    return read


def flat_map(type_: KryoType, data: bytes, *, five: bool) -> FlatMap | None:
    """Returns a value of Kryo 5, or of Kryo 2, as a flat map; None if it is none."""
    head = next((head for head in _heads(type_) if data.startswith(head)), None)
    if head is None:
        return None
    is_sorted, position, comparator = _heads(type_)[head], len(head), b""
    try:
        if is_sorted and not five:
            comparator, position = data[position : position + 1], position + 1
        count, position = read_varint(data, position)
        if is_sorted and five:
            comparator, position = data[position : position + 1], position + 1
        parts = list(_parts(data, position, 2 * (count - five)))
    except (IndexError, ValueError):
        return None
    if (is_sorted and comparator != b"\0") or count < five or sum(map(len, parts)) != len(data) - position:
        return None
    return FlatMap(head, comparator, list(zip(parts[0::2], parts[1::2], strict=True)))


def _parts(data: bytes, position: int, number: int) -> Iterator[bytes]:
    for _ in range(number):
        found = _TOKEN.match(data, position)
        end = found.end() if found is not None else _end_of_string(data, position)
        yield data[position:end]
        position = end


def _end_of_string(data: bytes, position: int) -> int:
    """Where a String with its length before it ends; raises a `ValueError` for anything else."""
    if not data.startswith(_OTHER_STRING, position):
        raise ValueError
    length, position = data[position + 2] & 0x3F, position + 3
    if data[position - 1] & 0x40:
        more, position = read_varint(data, position)
        length |= more << 6
    if length == 0:
        raise ValueError
    for _ in range(length - 1):
        first = data[position]
        position += 1 if first < 0x80 else 2 if first >> 5 == 0b110 else 3
    return position


@lru_cache(maxsize=64)
def _heads(type_: KryoType) -> dict[bytes, bool]:
    """What is before the number of entries of a map, and whether it is sorted: class tag, and mark of a new object."""
    ids, own = known_classes(type_)
    found: dict[bytes, bool] = {}
    for name in (*_HASHED, _SORTED):
        if name not in own:
            tags = [varint(number + 2) for number, known in ids.items() if known == name]
            by_name = name.encode("ascii")
            tags.append(b"\x01\x00" + by_name[:-1] + bytes([by_name[-1] | 0x80]))
            found |= {tag + b"\x01": name == _SORTED for tag in tags}
    return found
