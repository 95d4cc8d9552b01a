"""Maps as Kryo 2 or 5 writes them, for tests.

Keys and values are texts, numbers of Java's boxed classes, null, and objects as their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CLASSES = {"int": 2, "float": 4, "byte": 6, "short": 8, "long": 9, "double": 10}
_STRING, _HASH_MAP, _NEW_OBJECT = 3, 0x57, 1
_FIXED = {"float": "f", "byte": "b", "short": "h", "double": "d"}


@dataclass(frozen=True)
class Boxed:
    """A number of one of Java's boxed classes, by the name of its primitive type."""

    kind: str
    value: float


def kryo_map(content: Mapping[Any, object] | None, five: bool) -> bytes:
    """Returns the bytes of a HashMap; plain numbers in it are longs."""
    if content is None:
        return b"\0"
    parts = [kryo_object(part, five) for entry in content.items() for part in entry]
    return bytes([_HASH_MAP, _NEW_OBJECT]) + varint(len(content) + five) + b"".join(parts)


def kryo_object(value: object, five: bool) -> bytes:
    """Returns the bytes of an object with its class tag."""
    match value:
        case None:
            return b"\0"
        case bytes():
            return value
        case str():
            return bytes([_STRING, _NEW_OBJECT]) + _text(value, five)
        case int():
            return kryo_object(Boxed("long", value), five)
        case Boxed(("int" | "long") as kind, int() as number):
            return bytes([_CLASSES[kind]]) + varint(number << 1 if number >= 0 else ~(number << 1))
        case Boxed(kind, number):
            return bytes([_CLASSES[kind]]) + struct.pack(f"{'<' if five else '>'}{_FIXED[kind]}", number)
    raise TypeError(f"not for tests: {value!r}")


def varint(number: int) -> bytes:
    """Returns a number that isn't negative, 7 bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _text(text: str, five: bool) -> bytes:
    data = text.encode("utf-8")
    if text.isascii() and 1 < len(text) <= (32 if five else 63):
        return data[:-1] + bytes([data[-1] | 0x80])
    assert max(map(ord, text), default=0) < 0x10000
    units = len(text) + 1
    if units < 0x40:
        return bytes([0x80 | units]) + data
    return bytes([0xC0 | units & 0x3F]) + varint(units >> 6) + data
