"""Java's `DataInput` and `DataOutput`, as far as headers need them; errors name the place in the file.

| value | bytes |
|---|---|
| i8, i16, i32, i64 | two's complement, big endian |
| bool | one byte, 0 or 1 |
| utf | u16 length + modified UTF-8: NUL is `c0 80`, characters beyond the BMP are two 3-byte surrogates |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from flinkstate.errors import DamagedError

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


def decode_modified_utf8(data: bytes) -> str:
    """Returns the text of `data`; raises `ValueError` if Java's `writeUTF` doesn't write such bytes."""
    if data.isascii() and 0 not in data:
        return data.decode("ascii")
    units = bytearray()
    position, end = 0, len(data)
    while position < end:
        first = data[position]
        if first < 0x80:
            if first == 0:
                raise ValueError("a NUL byte")
            unit, width = first, 1
        elif first >> 5 == 0b110 and position + 1 < end and data[position + 1] >> 6 == 0b10:
            unit, width = (first & 0x1F) << 6 | data[position + 1] & 0x3F, 2
            if 0 < unit < 0x80:
                raise ValueError("an overlong character")
        elif (
            first >> 4 == 0b1110
            and position + 2 < end
            and data[position + 1] >> 6 == 0b10
            and data[position + 2] >> 6 == 0b10
        ):
            unit, width = (first & 0x0F) << 12 | (data[position + 1] & 0x3F) << 6 | data[position + 2] & 0x3F, 3
            if unit < 0x800:
                raise ValueError("an overlong character")
        else:
            raise ValueError(f"the byte {first:02x}")
        units += unit.to_bytes(2, "little")
        position += width
    return units.decode("utf-16-le", "surrogatepass")


def encode_modified_utf8(text: str) -> bytes:
    """Returns the bytes that Java's `writeUTF` writes for the text, without the length."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    encoded = text.encode("utf-16-le", "surrogatepass")
    out = bytearray()
    for position in range(0, len(encoded), 2):
        unit = encoded[position] | encoded[position + 1] << 8
        if 0 < unit < 0x80:
            out.append(unit)
        elif unit < 0x800:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)


class ByteReader:
    """Reads values from `data`, which is at `base` in `file`; every read is checked against `limit`."""

    def __init__(self, data: bytes, file: str, *, position: int = 0, limit: int | None = None, base: int = 0) -> None:
        self.data = data
        self.file = file
        self.position = position
        self.limit = len(data) if limit is None else limit
        self.base = base

    def damaged(self, expected: str, found: str, *, position: int | None = None) -> DamagedError:
        """Returns a `DamagedError` for a position, by default the current one."""
        offset = self.base + (self.position if position is None else position)
        return DamagedError(expected, found, file=self.file, offset=offset)

    def take(self, count: int, what: str) -> bytes:
        """Reads `count` bytes."""
        if count < 0:
            raise self.damaged(f"the length of {what}", f"{count}")
        if count > self.limit - self.position:
            raise self.damaged(f"{count} bytes of {what}", f"{self.limit - self.position} bytes until the end")
        start = self.position
        self.position = start + count
        return self.data[start : self.position]

    def i8(self, what: str) -> int:
        return self._unpacked(_I8, 1, what)

    def i16(self, what: str) -> int:
        return self._unpacked(_I16, 2, what)

    def i32(self, what: str) -> int:
        return self._unpacked(_I32, 4, what)

    def i64(self, what: str) -> int:
        return self._unpacked(_I64, 8, what)

    def _unpacked(self, kind: struct.Struct, size: int, what: str) -> int:
        start = self.position
        if start + size > self.limit:
            self.take(size, what)
        self.position = start + size
        value: int = kind.unpack_from(self.data, start)[0]
        return value

    def i64s(self, count: int, what: str) -> tuple[int, ...]:
        """Reads so many values of i64, one behind the other."""
        return struct.unpack(f">{count}q", self.take(8 * count, what))

    def count(self, what: str, least_size: int) -> int:
        """Reads an i32 count of items of at least `least_size` bytes; refuses a count that doesn't fit the rest."""
        start = self.position
        value = self.i32(what)
        if value < 0 or value * least_size > self.limit - self.position:
            room = f"at most {(self.limit - self.position) // max(least_size, 1)} fit into the bytes that follow"
            raise self.damaged(f"{what} ({room})", f"{value}", position=start)
        return value

    def boolean(self, what: str) -> bool:
        start = self.position
        value = self.take(1, what)[0]
        if value > 1:
            raise self.damaged(f"{what}: 0 or 1", f"{value}", position=start)
        return value == 1

    def utf(self, what: str) -> str:
        start = self.position
        begin = start + 2
        end = begin + (self.data[start] << 8 | self.data[start + 1]) if begin <= self.limit else begin
        data = self.data[begin:end]
        if end <= self.limit and data.isascii() and 0 not in data:
            self.position = end
            return data.decode("ascii")
        length = int(_U16.unpack(self.take(2, what))[0])
        data = self.take(length, what)
        try:
            return decode_modified_utf8(data)
        except ValueError as error:
            raise self.damaged(f"{what} in Java's modified UTF-8", str(error), position=start) from None

    def expect_i32(self, expected: int, what: str) -> None:
        """Reads an i32 that must have this value."""
        start = self.position
        found = self.i32(what)
        if found != expected:
            raise self.damaged(f"{what} = {expected}", f"{found}", position=start)

    def at_end(self) -> bool:
        return self.position == self.limit


class ByteWriter:
    """Writes what `ByteReader` reads."""

    def __init__(self) -> None:
        self.data = bytearray()

    def raw(self, data: bytes) -> ByteWriter:
        self.data += data
        return self

    def i8(self, value: int) -> ByteWriter:
        self.data.append(value & 0xFF)
        return self

    def i16(self, value: int) -> ByteWriter:
        self.data += _I16.pack(value)
        return self

    def i32(self, value: int) -> ByteWriter:
        self.data += _I32.pack(value)
        return self

    def i64(self, value: int) -> ByteWriter:
        self.data += _I64.pack(value)
        return self

    def i64s(self, values: Sequence[int]) -> ByteWriter:
        self.data += struct.pack(f">{len(values)}q", *values)
        return self

    def boolean(self, value: bool) -> ByteWriter:
        self.data.append(1 if value else 0)
        return self

    def utf(self, text: str) -> ByteWriter:
        encoded = encode_modified_utf8(text)
        self.data += _U16.pack(len(encoded)) + encoded
        return self

    def bytes(self) -> bytes:
        return bytes(self.data)


def varint(value: int) -> bytes:
    """Returns a number in 7 bits a byte, the lowest first; all bytes but the last have the bit 0x80."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
