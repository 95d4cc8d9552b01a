"""Where the entries are in a map that Kryo 5 wrote, so that entries can be cut out of one map and put into another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from flinkstate.errors import RefusedError
from flinkstate.serializers.binary import varint
from flinkstate.serializers.types import KryoType, simple_name
from flinkstate.values.kryo_class_names import MAPS
from flinkstate.values.kryo_reader import KryoReader
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import known_classes

# The class tags of boxed numbers: all registered classes of Kryo itself but for String, whose mark follows.
_STRING_TAG, _STRING, _NEW = 3, "java.lang.String", 1
_OF_KRYO = range(2, 11)
# Longer ASCII Strings are written with their length.
_LONGEST = 32


class EntryPlace(NamedTuple):
    """Where an entry's key begins, its value begins, and both end."""

    key: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class MapPlaces:
    """A value that is a map: the object, its bytes, where its number of entries is, and its entries."""

    found: KryoObject
    data: bytes
    count: int
    entries: tuple[EntryPlace, ...]

    def entry(self, index: int) -> bytes:
        """Returns bytes of an entry that mean the same in any place of any map; raises an error if none do."""
        place, (key, value) = self.entries[index], self.found.value[index]
        return self._flat(place.key, place.value, key) + self._flat(place.value, place.end, value)

    def _flat(self, begin: int, end: int, part: KryoObject | None) -> bytes:
        if part is not None and part.class_name == _STRING and self.data[begin] == _STRING_TAG:
            # It may be a reference to another one in the map.
            return bytes([_STRING_TAG, _NEW]) + _string(part.value)
        self._expect_flat(begin)
        return self.data[begin:end]

    def value(self, index: int) -> bytes:
        """Returns the bytes of a value by which one may be replaced: a number or null, which has no mark."""
        place = self.entries[index]
        if self.data[place.value] == _STRING_TAG:
            raise self._not_flat(place.value)
        self._expect_flat(place.value)
        return self.data[place.value : place.end]

    def _expect_flat(self, position: int) -> None:
        tag = self.data[position]
        if tag != 0 and tag not in _OF_KRYO:
            raise self._not_flat(position)

    def _not_flat(self, position: int) -> RefusedError:
        return RefusedError(
            f"single entries of this {simple_name(self.found.class_name)} can't be put into another map: only numbers "
            f"and Strings can (offset {position} of the value)"
        )

    def with_entries(self, replaced: dict[int, bytes], added: list[bytes]) -> bytes:
        """Returns the map with other values at these entries, and with further entries at its end."""
        count, behind = read_varint(self.data, self.count)
        parts = [self.data[: self.count], varint(count + len(added))]
        for index, place in enumerate(self.entries):
            parts += [self.data[behind : place.value], replaced.get(index, self.data[place.value : place.end])]
            behind = place.end
        return b"".join((*parts, self.data[behind:], *added))

    def with_these(self, entries: list[bytes]) -> bytes:
        """Returns a map of the same class with these entries alone."""
        _, behind = read_varint(self.data, self.count)
        first = self.entries[0].key if self.entries else behind
        return b"".join((self.data[: self.count], varint(len(entries) + 1), self.data[behind:first], *entries))


def _string(text: str) -> bytes:
    """Returns a String as Kryo 5 writes it: short ones with a bit at their end, others behind their length."""
    units = text.encode("utf-16-le", "surrogatepass")
    size = len(units) // 2
    if text.isascii() and 1 < size <= _LONGEST:
        short = text.encode("ascii")
        return short[:-1] + bytes([short[-1] | 0x80])
    length = size + 1
    head = bytes([0x80 | length]) if length < 0x40 else bytes([0xC0 | length & 0x3F]) + varint(length >> 6)
    each = (chr(int.from_bytes(units[at : at + 2], "little")) for at in range(0, len(units), 2))
    return head + b"".join(one.encode("utf-8", "surrogatepass") for one in each)


def map_places(type_: KryoType, data: bytes) -> MapPlaces | None:
    """Returns the places in a whole value of Kryo 5; None if it is null, or not a map with a number of entries."""
    reader = _PlaceReader(True, *known_classes(type_), type_.classes, data, 0, len(data))
    found = reader.whole()
    if found is None or found.form not in MAPS or reader.count_at < 0:
        return None
    keys, values = reader.parts[0::2], reader.parts[1::2]
    entries = tuple(EntryPlace(key[0], value[0], value[1]) for key, value in zip(keys, values, strict=True))
    return MapPlaces(found, data, reader.count_at, entries)


class _PlaceReader(KryoReader):
    """Keeps where the parts of the outermost map are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.count_at = -1
        self.parts: list[tuple[int, int]] = []

    def pairs(self, name: str) -> Any:
        if self._depth == 1:
            self.count_at = self.position
        return super().pairs(name)

    def object(self) -> KryoObject | None:
        begin, is_part = self.position, self._depth == 1
        found = super().object()
        if is_part:
            self.parts.append((begin, self.position))
        return found


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and where it ends."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return number, position
