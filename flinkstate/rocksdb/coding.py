"""RocksDB's numbers and texts. Fixed numbers are little endian; a varint has 7 bits in each byte, the lowest first."""

from __future__ import annotations

from flinkstate.errors import DamagedError

_MOST_BITS, _MOST_BYTES = 64, 10


class Coded:
    """Reads values from `data`, which begins at `base` in `file`; every read is checked against the end."""

    def __init__(self, data: bytes, file: str, base: int = 0) -> None:
        self.data, self.file, self.base = data, file, base
        self.position = 0

    def damaged(self, expected: str, found: str, position: int | None = None) -> DamagedError:
        """Returns a `DamagedError` for a position, by default the current one."""
        offset = self.base + (self.position if position is None else position)
        return DamagedError(expected, found, file=self.file, offset=offset)

    def take(self, count: int, what: str) -> bytes:
        """Reads `count` bytes."""
        if count > len(self.data) - self.position:
            raise self.damaged(f"{count} bytes of {what}", f"{len(self.data) - self.position} bytes until the end")
        self.position += count
        return self.data[self.position - count : self.position]

    def fixed(self, size: int, what: str) -> int:
        """Reads a number of `size` bytes."""
        return int.from_bytes(self.take(size, what), "little")

    def varint(self, what: str) -> int:
        """Reads an unsigned number of at most 64 bits."""
        # A MANIFEST has millions of them, so most are read without a call.
        start, value, shift = self.position, 0, 0
        for end, byte in enumerate(self.data[start : start + _MOST_BYTES], start + 1):
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << _MOST_BITS:
                self.position = end
                return value
            shift += 7
        if len(self.data) - start < _MOST_BYTES:
            self.position = len(self.data)
            self.take(1, what)
        raise self.damaged(f"{what}: a number of at most 64 bits", "a larger one", start)

    def bytes(self, what: str) -> bytes:
        """Reads bytes with their number before them."""
        begin = self.position + 1
        if begin <= len(self.data) and (size := self.data[begin - 1]) < 0x80 and begin + size <= len(self.data):
            self.position = begin + size
            return self.data[begin : self.position]
        return self.take(self.varint(f"the length of {what}"), what)

    def text(self, what: str) -> str:
        """Reads a text with the number of its bytes before it."""
        start = self.position
        try:
            return self.bytes(what).decode()
        except UnicodeDecodeError:
            raise self.damaged(f"{what} in UTF-8", "other bytes", start) from None

    def at_end(self) -> bool:
        return self.position == len(self.data)
