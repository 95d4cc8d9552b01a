"""Reads and writes the bytes of a key group: as they are, or as a framed snappy stream.

A framed stream is the chunk `ff 06 00 00 "sNaPpY"`, then chunks of a type byte, a 3-byte little-endian length and
that many bytes: type 00 is compressed, 01 is not (both start with a masked CRC32C of at most 64 KiB of content), 80
to fe may be skipped.
"""

from __future__ import annotations

from typing import Any, Protocol

import cramjam
import numpy as np
import numpy.typing as npt

from stateferry.errors import DamagedError

Buffer = npt.NDArray[np.uint8]

STREAM_START = b"\xff\x06\x00\x00sNaPpY"
_BLOCK = 1 << 16
# The largest chunk: 64 KiB of content that snappy couldn't compress, its checksum, and snappy's own overhead.
LARGEST_CHUNK = _BLOCK + _BLOCK // 6 + 64
_READ = 1 << 20
# Decompress at most this many chunks at once: a small damaged stream can't make this allocate more than some megabytes.
_MOST_CHUNKS = 64


class Content(Protocol):
    """Bytes that arrive in order."""

    def fill(self, buffer: Buffer) -> int:
        """Puts the next bytes into the buffer, as many as fit or are available. Returns their number; 0 is the end."""


class PlainContent:
    """The bytes `start` to `end` of a file. All bytes that are read go into `hasher`."""

    def __init__(self, file: Any, name: str, start: int, end: int, hasher: Any = None) -> None:
        self._file, self._name, self._position, self._end, self._hasher = file, name, start, end, hasher
        file.seek(start)

    def fill(self, buffer: Buffer) -> int:
        wanted = min(len(buffer), self._end - self._position)
        if wanted == 0:
            return 0
        got = int(self._file.readinto(buffer[:wanted].data))
        if got == 0:
            raise DamagedError(
                f"{self._end - self._position} more bytes", "the end", file=self._name, offset=self._position
            )
        if self._hasher is not None:
            self._hasher.update(buffer[:got].data)
        self._position += got
        return got


class SnappyContent:
    """The content of the framed snappy stream in the bytes `start` to `end` of a file. These bytes go into `hasher`."""

    def __init__(self, file: Any, name: str, start: int, end: int, hasher: Any = None) -> None:
        self._input = PlainContent(file, name, start, end, hasher)
        self._name, self._base = name, start
        self._buffer = np.empty(_READ + LARGEST_CHUNK, np.uint8)
        self._begin = self._end = 0
        self._started = self._exhausted = False
        self._content = np.empty(0, np.uint8)

    def fill(self, buffer: Buffer) -> int:
        if len(self._content) == 0:
            self._content = self._next_content()
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size

    def _next_content(self) -> Buffer:
        """Returns the content of the next whole chunks; it is empty at the end of the stream."""
        while True:
            self._read_more()
            blocks = self._whole_chunks()
            if blocks:
                return self._decompress(blocks)
            if self._exhausted and self._begin == self._end:
                return np.empty(0, np.uint8)

    def _read_more(self) -> None:
        if self._begin:
            rest = self._buffer[self._begin : self._end].copy()
            self._buffer[: len(rest)] = rest
            self._base += self._begin
            self._begin, self._end = 0, len(rest)
        while self._end < _READ and not self._exhausted:
            got = self._input.fill(self._buffer[self._end : _READ])
            self._exhausted = got == 0
            self._end += got

    def _whole_chunks(self) -> list[tuple[int, int]]:
        """Returns where the next whole data chunks begin and end, and moves the position behind them."""
        chunks: list[tuple[int, int]] = []
        while self._begin < self._end and len(chunks) < _MOST_CHUNKS:
            here = self._end - self._begin
            head = self._buffer[self._begin : self._begin + 4].tolist()
            size = 4 + (head[1] | head[2] << 8 | head[3] << 16) if here >= 4 else 4
            kind = head[0]
            self._check_chunk(kind, size, here)
            if here < size:
                if self._exhausted:
                    raise self._damaged(f"a snappy chunk of {size} bytes", f"{here} bytes")
                break
            if kind == 0xFF:
                self._check_start(size)
            elif kind in (0, 1):
                chunks.append((self._begin, self._begin + size))
            self._begin += size
        return chunks

    def _check_chunk(self, kind: int, size: int, here: int) -> None:
        if not self._started and kind != 0xFF:
            raise self._damaged("the start of a snappy stream", f"a chunk of type {kind:02x}")
        if 2 <= kind < 0x80:
            raise self._damaged("a snappy chunk of type 00, 01, ff or 80 to fe", f"type {kind:02x}")
        if here >= 4 and size - 4 > LARGEST_CHUNK - 4:
            raise self._damaged(f"a snappy chunk of at most {LARGEST_CHUNK} bytes", f"{size}")
        if here >= 4 and kind in (0, 1) and size < 8:
            raise self._damaged("a snappy chunk with a checksum", f"{size - 4} bytes")

    def _check_start(self, size: int) -> None:
        if self._buffer[self._begin : self._begin + size].tobytes() != STREAM_START:
            raise self._damaged("the start of a snappy stream", "other bytes")
        self._started = True

    def _decompress(self, chunks: list[tuple[int, int]]) -> Buffer:
        framed = b"".join((STREAM_START, *(self._buffer[start:end].tobytes() for start, end in chunks)))
        content = np.empty(len(chunks) * _BLOCK, np.uint8)
        try:
            size = cramjam.snappy.decompress_into(framed, content.data)
        except cramjam.DecompressionError as error:
            for chunk in chunks if len(chunks) > 1 else ():
                self._decompress([chunk])
            expected = "a snappy chunk with content of at most 64 KiB and the checksum before it"
            raise self._damaged(expected, str(error), chunks[0][0]) from None
        return content[: int(size)]

    def _damaged(self, expected: str, found: str, position: int | None = None) -> DamagedError:
        offset = self._base + (self._begin if position is None else position)
        return DamagedError(expected, found, file=self._name, offset=offset)


def compress(data: Buffer, *, first: bool) -> bytes:
    """Compresses data into the next chunks of a framed stream, with the stream's start before the first ones."""
    framed = bytes(cramjam.snappy.compress(data.data))
    return framed if first else framed[len(STREAM_START) :]
