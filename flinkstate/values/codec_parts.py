"""The building blocks of codecs for single values: checked reads and fixed layouts.

A decoder gets bytes, the position where the value begins, and a limit within the bytes that it may not cross. The
offset in an error is a position in those bytes. A caller that knows where they are in a file adds that by
`DamagedError.located`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from flinkstate.errors import DamagedError, RefusedError

Decode = Callable[[bytes, int, int], tuple[Any, int]]
Encode = Callable[[Any], bytes]

_I32 = struct.Struct(">i")

# The bytes that follow say nothing about a count of values without bytes: this limit keeps it from filling the memory.
MOST_WITHOUT_BYTES = 1 << 20


class Codec(NamedTuple):
    """`decode(data, position, limit)` returns a value and its end; `least` is the fewest bytes that a value has."""

    decode: Decode
    encode: Encode
    least: int


def cut_short(position: int, count: int, limit: int, what: str) -> DamagedError:
    """Returns the error for a value that needs `count` bytes and has fewer until the limit."""
    found = f"{limit - position} bytes until the end"
    return DamagedError(f"{count} bytes of {what}", found, offset=position)


def read_i32(data: bytes, position: int, limit: int, what: str) -> int:
    """Reads a big-endian i32."""
    if position + 4 > limit:
        raise cut_short(position, 4, limit, what)
    return int(_I32.unpack_from(data, position)[0])


def read_count(data: bytes, position: int, limit: int, what: str, least: int) -> int:
    """Reads a count of parts with at least `least` bytes each. A wrong count is refused before it costs memory."""
    count = read_i32(data, position, limit, what)
    room = limit - position - 4
    if count < 0 or count * least > room:
        most = f", at most {room // least} fit into the bytes that follow" if least else ""
        raise DamagedError(f"{what} (not negative{most})", f"{count}", offset=position)
    return count


def read_flag(data: bytes, position: int, limit: int, what: str) -> bool:
    """Reads a byte that must be 0 or 1."""
    return read_tag(data, position, limit, what, 0)


def read_tag(data: bytes, position: int, limit: int, what: str, other: int) -> bool:
    """Reads a byte that must be 1 or the other tag."""
    if position >= limit:
        raise cut_short(position, 1, limit, what)
    byte = data[position]
    if byte not in (1, other):
        first, last = sorted((1, other))
        raise DamagedError(f"{what}: {first} or {last}", f"{byte}", offset=position)
    return byte == 1


def as_list(items: Any) -> Any:
    """Returns the items of a list. Refuses what else Python iterates over: a text's characters, a mapping's keys."""
    if type(items) not in (list, tuple) and isinstance(items, (str, bytes, bytearray, Mapping)):
        raise ValueError(f"expected a list, found a {type(items).__name__}")
    return items


def as_pairs(items: Any) -> Any:
    """Returns the pairs of a map, which may be given as a mapping."""
    return list(items.items()) if isinstance(items, Mapping) else items


def by_names(values: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns the values of an object's fields in the order of these names. Refuses further ones."""
    if len(values) > len(names):
        raise ValueError(f"expected the fields {', '.join(names) or 'none'}, found {', '.join(values)}")
    return tuple(values[name] for name in names)


def number(layout: str, what: str) -> Codec:
    """Returns the codec of a number, by its format in Python's `struct`."""
    packer = struct.Struct(">" + layout)
    size, unpack, pack = packer.size, packer.unpack_from, packer.pack

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        end = position + size
        if end > limit:
            raise cut_short(position, size, limit, what)
        return unpack(data, position)[0], end

    def encode(value: Any) -> bytes:
        # To Python these are the numbers 1 and 0.
        if value is True or value is False:
            raise ValueError(f"{what} is a number")
        return pack(value)

    return Codec(decode, encode, size)


def fields(
    layout: str,
    what: str,
    make: Callable[..., Any],
    parts: Callable[[Any], tuple[int, ...]],
    null: tuple[int, ...] | None = None,
) -> Codec:
    """Returns the codec of fixed fields; `null` are the fields of a null, `make` returns None for invalid fields."""
    packer = struct.Struct(">" + layout)
    null_bytes = packer.pack(*null) if null else None
    size = packer.size

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        end = position + size
        if end > limit:
            raise cut_short(position, size, limit, what)
        raw = data[position:end]
        if raw == null_bytes:
            return None, end
        found = packer.unpack(raw)
        value = make(*found)
        if value is None:
            raise DamagedError(what, _shown(found), offset=position)
        return value, end

    def encode(value: Any) -> bytes:
        if value is None and null_bytes is not None:
            return null_bytes
        found = parts(value)
        raw = packer.pack(*found)
        # What was packed, as the parts may be numbers of numpy.
        if raw == null_bytes or bool in map(type, found) or make(*packer.unpack(raw)) is None:
            raise ValueError(f"expected {what}, found {_shown(found)}")
        return raw

    return Codec(decode, encode, size)


def _shown(found: tuple[Any, ...]) -> str:
    return f"the fields {', '.join(map(str, found))}"


def constant(raw: bytes, value: object, what: str) -> Codec:
    """Returns the codec of a value that always has the same bytes."""

    def decode(data: bytes, position: int, limit: int) -> tuple[object, int]:
        end = position + len(raw)
        if end > limit:
            raise cut_short(position, len(raw), limit, what)
        if data[position:end] != raw:
            raise DamagedError(f"{what}: {raw.hex()}", data[position:end].hex(), offset=position)
        return value, end

    def encode(given: object) -> bytes:
        if given != value:
            raise ValueError(f"{given!r} is not {value!r}")
        return raw

    return Codec(decode, encode, len(raw))


def boolean(what: str) -> Codec:
    """Returns the codec of a byte that is 0 or 1."""

    def decode(data: bytes, position: int, limit: int) -> tuple[bool, int]:
        return read_flag(data, position, limit, what), position + 1

    def encode(value: Any) -> bytes:
        # Whether anything else is true, such as null or a text, doesn't say that it was meant.
        if value is not True and value is not False and not isinstance(value, np.bool_):
            raise ValueError(f"{what} is True or False")
        return b"\x01" if value else b"\x00"

    return Codec(decode, encode, 1)


def byte_array(what: str) -> Codec:
    """Returns the codec of an i32 length and that many bytes."""

    def decode(data: bytes, position: int, limit: int) -> tuple[bytes, int]:
        start = position + 4
        end = start + read_count(data, position, limit, f"the length of {what}", 1)
        return data[start:end], end

    def encode(value: Any) -> bytes:
        raw = bytes(value)
        if len(raw) != len(value):
            raise ValueError(f"{len(value)} elements of more than one byte")
        return _I32.pack(len(raw)) + raw

    return Codec(decode, encode, 4)


def sequence(parts: tuple[Codec, ...]) -> Codec:
    """Returns the codec of several values one after another, as a tuple."""
    decoders = tuple(part.decode for part in parts)

    def decode(data: bytes, position: int, limit: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for decode_part in decoders:
            value, position = decode_part(data, position, limit)
            values.append(value)
        return tuple(values), position

    def encode(values: Any) -> bytes:
        return b"".join(part.encode(value) for part, value in zip(parts, as_list(values), strict=True))

    return Codec(decode, encode, sum(part.least for part in parts))


def counted(item: Codec, what: str) -> Codec:
    """Returns the codec of a list: i32 count, then that many items."""

    def decode(data: bytes, position: int, limit: int) -> tuple[list[Any], int]:
        count = read_count(data, position, limit, f"the size of {what}", item.least)
        if item.least == 0 and count > MOST_WITHOUT_BYTES:
            raise RefusedError(
                f"{what} of {count} elements that may have no bytes at all: "
                f"more than {MOST_WITHOUT_BYTES} of them are not read"
            )
        position += 4
        items = []
        for _ in range(count):
            value, position = item.decode(data, position, limit)
            items.append(value)
        return items, position

    def encode(items: Any) -> bytes:
        return _I32.pack(len(items)) + b"".join(map(item.encode, as_list(items)))

    return Codec(decode, encode, 4)


def present(inner: Codec) -> Codec:
    """Returns a codec that refuses null, for a value that a flag before it announces."""

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        value, end = inner.decode(data, position, limit)
        if value is None:
            raise DamagedError("a value, because the flag before it says that there is one", "null", offset=position)
        return value, end

    return inner._replace(decode=decode)


def converted(inner: Codec, to_value: Callable[[Any], Any], from_value: Callable[[Any], Any]) -> Codec:
    """Returns a codec whose values are converted from and to those of another codec."""

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        value, end = inner.decode(data, position, limit)
        return to_value(value), end

    return Codec(decode, lambda value: inner.encode(from_value(value)), inner.least)


def flagged(inner: Codec, null_flag: int, what: str, padding: int = 0) -> Codec:
    """Returns the codec of one flag byte, then the value, or for a null `padding` zeros."""
    decode_present = present(inner).decode
    null, not_null = bytes([null_flag]) + bytes(padding), bytes([1 - null_flag])

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        if read_flag(data, position, limit, what) != null_flag:
            return decode_present(data, position + 1, limit)
        end = position + len(null)
        if end > limit:
            raise cut_short(position + 1, padding, limit, "padding behind a null")
        if padding and data[position:end] != null:
            raise DamagedError("zeros behind a null", data[position + 1 : end].hex(), offset=position + 1)
        return None, end

    def encode(value: Any) -> bytes:
        return null if value is None else not_null + inner.encode(value)

    return Codec(decode, encode, 1 + min(padding, inner.least))
