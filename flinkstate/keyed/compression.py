"""Reads and writes the bytes of a key group: as they are, or as a framed snappy stream.

A framed stream is the chunk `ff 06 00 00 "sNaPpY"`, then chunks of a type byte, a 3-byte little-endian length and
that many bytes: type 00 is compressed, 01 is stored as it is (both start with a masked CRC32C of at most 64 KiB of
content), 80 to fe may be skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import cramjam
import numpy as np

from flinkstate.basics.array_types import Bytes
from flinkstate.errors import DamagedError
from flinkstate.keyed import frame_kernels

Buffer = Bytes

STREAM_START = b"\xff\x06\x00\x00sNaPpY"
_BLOCK, _HEAD = frame_kernels.BLOCK, frame_kernels.HEAD
_BLOCKS_AT_ONCE = 16
# The largest chunk: 64 KiB of content that snappy couldn't compress, its checksum, and snappy's own overhead.
LARGEST_CHUNK = _BLOCK + _BLOCK // 6 + 64
_READ = 1 << 20
# Fill a buffer from at most this many chunks at once, so that small damaged streams don't fill large buffers.
_MOST_CHUNKS = 64


class Compression(StrEnum):
    """How the key groups of a new savepoint are written.

    A file says only whether its key groups are framed, and a stream may have chunks of both types. So Flink and this
    reader need not be told which. What an operator's files have is NONE, STORED or SNAPPY.
    """

    AUTO = "auto"  # snappy if the operator's key groups have that, else stored; all snappy if the state is large
    SNAPPY = "snappy"  # framed, in compressed chunks
    STORED = "stored"  # framed, in stored chunks
    NONE = "none"  # as they are, without checksums
    SOURCE = "source"  # as the operator's key groups are

    def of(self, found: Compression) -> Compression:
        """Returns how to write key groups that come from such as were found."""
        if self is Compression.AUTO:
            return Compression.SNAPPY if found is Compression.SNAPPY else Compression.STORED
        return found if self is Compression.SOURCE else self


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
    """The content of the framed snappy stream in the bytes `start` to `end` of a file. These bytes go into `hasher`.

    Every checksum is verified.
    """

    def __init__(self, file: Any, name: str, start: int, end: int, hasher: Any = None) -> None:
        self._input = PlainContent(file, name, start, end, hasher)
        self._name, self._base = name, start
        self._buffer = np.empty(_READ + LARGEST_CHUNK, np.uint8)
        self._begin = self._end = 0
        self._started = self._exhausted = False
        # What of the last chunk didn't fit into the buffer that was to be filled.
        self._content = np.empty(0, np.uint8)
        self._block: Buffer | None = None

    def fill(self, buffer: Buffer) -> int:
        filled = self._take(buffer)
        for _ in range(_MOST_CHUNKS):
            if filled == len(buffer):
                break
            chunk = self._next_chunk()
            if chunk is None:
                break
            filled += self._open(chunk, buffer[filled:])
        return filled

    def _take(self, buffer: Buffer) -> int:
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size

    def _next_chunk(self) -> tuple[int, int] | None:
        """Returns where the next data chunk begins and ends in the buffer, or None at the end of the stream.

        The buffer may be filled anew, so the content of the chunk before must have been taken.
        """
        while True:
            here = self._end - self._begin
            size = 4
            if here >= 4:
                kind, low, middle, high = self._buffer[self._begin : self._begin + 4].tolist()
                size += low | middle << 8 | high << 16
                self._check_chunk(kind, size)
            if here < size and not self._exhausted:
                self._read_more()
            elif here == 0:
                return None
            elif here < size:
                raise self._cut_off(size, here)
            else:
                chunk = self._begin, self._begin + size
                if kind == 0xFF:
                    self._check_start(size)
                self._begin += size
                if kind in (0, 1):
                    return chunk

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

    def _check_chunk(self, kind: int, size: int) -> None:
        if not self._started and kind != 0xFF:
            raise self._damaged("the start of a snappy stream", f"a chunk of type {kind:02x}")
        if 2 <= kind < 0x80:
            raise self._damaged("a snappy chunk of type 00, 01, ff or 80 to fe", f"type {kind:02x}")
        if size - 4 > LARGEST_CHUNK - 4:
            raise self._damaged(f"a snappy chunk of at most {LARGEST_CHUNK} bytes", f"{size}")
        if kind in (0, 1) and size < 8:
            raise self._damaged("a snappy chunk with a checksum", f"{size - 4} bytes")

    def _cut_off(self, size: int, here: int) -> DamagedError:
        kind = int(self._buffer[self._begin])
        if not self._started and kind != 0xFF:
            return self._damaged("the start of a snappy stream", f"a chunk of type {kind:02x}")
        return self._damaged(f"a snappy chunk of {size} bytes", f"{here} bytes")

    def _check_start(self, size: int) -> None:
        if self._buffer[self._begin : self._begin + size].tobytes() != STREAM_START:
            raise self._damaged("the start of a snappy stream", "other bytes")
        self._started = True

    def _open(self, chunk: tuple[int, int], buffer: Buffer) -> int:
        """Puts a chunk's content into the buffer, and keeps what doesn't fit. Returns how much was put there."""
        begin, end = chunk
        data = self._buffer[begin + _HEAD : end]
        if self._buffer[begin]:
            self._check(data, begin)
            self._content = data
            return self._take(buffer)
        has_room = len(buffer) >= _BLOCK
        if not has_room and self._block is None:
            self._block = np.empty(_BLOCK, np.uint8)
        out = buffer[:_BLOCK] if has_room else self._block
        content = self._decompressed(data, out, begin)
        self._check(content, begin)
        if has_room:
            return len(content)
        self._content = content
        return self._take(buffer)

    def _decompressed(self, data: Buffer, out: Any, begin: int) -> Buffer:
        try:
            size = int(cramjam.snappy.decompress_raw_into(data.data, out.data))
        except cramjam.DecompressionError as error:
            raise self._bad_content(str(error), begin) from None
        content: Buffer = out[:size]
        return content

    def _check(self, content: Buffer, begin: int) -> None:
        if len(content) > _BLOCK:
            raise self._bad_content(f"{len(content)} bytes", begin)
        if not frame_kernels.is_whole(content, self._buffer[begin + 4 : begin + _HEAD]):
            raise self._bad_content("content with another checksum", begin)

    def _bad_content(self, found: str, begin: int) -> DamagedError:
        expected = "a snappy chunk with content of at most 64 KiB and the checksum before it"
        return self._damaged(expected, found, begin)

    def _damaged(self, expected: str, found: str, position: int | None = None) -> DamagedError:
        offset = self._base + (self._begin if position is None else position)
        return DamagedError(expected, found, file=self._name, offset=offset)


def begins_stored(file: Any, start: int) -> bool:
    """Whether the first chunk is stored of the framed stream that begins at `start`."""
    file.seek(start + len(STREAM_START))
    return bytes(file.read(1)) == b"\1"


class Stream(Protocol):
    """A key group's bytes on their way to a file. The same content always gives the same bytes."""

    def add(self, content: Buffer | bytes) -> None:
        """Adds content; it may be changed afterwards."""

    def end(self) -> None:
        """Ends the key group; the next one begins with the content that is added next."""


class PlainStream:
    """Writes content as it is."""

    def __init__(self, write: Callable[[Buffer | bytes], None]) -> None:
        self.add = write

    def end(self) -> None:
        """There is nothing to end."""


class _FramedStream:
    """Frames content. It writes whole blocks until the key group ends."""

    def __init__(self, write: Callable[[Buffer | bytes], None], blocks: Buffer) -> None:
        """`blocks` is a row for each block of content; the content is at the end of each row."""
        self._write, self._blocks = write, blocks
        self._filled, self._has_begun = 0, False

    def add(self, content: Buffer | bytes) -> None:
        data = content if isinstance(content, np.ndarray) else np.frombuffer(content, np.uint8)
        taken, most = 0, len(self._blocks) * _BLOCK
        while taken < len(data):
            block, begin = divmod(self._filled, _BLOCK)
            part = data[taken : taken + _BLOCK - begin]
            row = self._blocks[block]
            begin += len(row) - _BLOCK
            row[begin : begin + len(part)] = part
            taken += len(part)
            self._filled += len(part)
            if self._filled == most:
                self._flush()

    def end(self) -> None:
        if self._filled:
            self._flush()
        self._has_begun = False

    def _flush(self) -> None:
        if not self._has_begun:
            self._write(STREAM_START)
        self._has_begun = True
        self._write(self._framed())
        self._filled = 0

    def _framed(self) -> Buffer:
        """Returns the chunks of the content; they are valid until more is added."""
        raise NotImplementedError


class StoredStream(_FramedStream):
    """Writes content in stored chunks."""

    def __init__(self, write: Callable[[Buffer | bytes], None]) -> None:
        super().__init__(write, np.empty((_BLOCKS_AT_ONCE, _HEAD + _BLOCK), np.uint8))

    def _framed(self) -> Buffer:
        chunks: Buffer = self._blocks.reshape(-1)
        return chunks[: frame_kernels.head_blocks(chunks, self._filled)]


class SnappyStream(_FramedStream):
    """Writes content in chunks that snappy has compressed."""

    def __init__(self, write: Callable[[Buffer | bytes], None]) -> None:
        super().__init__(write, np.empty((_BLOCKS_AT_ONCE, _BLOCK), np.uint8))
        self._chunks = np.empty(len(STREAM_START) + _BLOCKS_AT_ONCE * LARGEST_CHUNK, np.uint8)

    def _framed(self) -> Buffer:
        content = self._blocks.reshape(-1)[: self._filled]
        size = int(cramjam.snappy.compress_into(content.data, self._chunks.data))
        return self._chunks[len(STREAM_START) : size]


_STREAMS: dict[Compression, Callable[[Callable[[Buffer | bytes], None]], Stream]] = {
    Compression.NONE: PlainStream,
    Compression.STORED: StoredStream,
    Compression.SNAPPY: SnappyStream,
}


def new_stream(compression: Compression, write: Callable[[Buffer | bytes], None]) -> Stream:
    """Returns a stream that hands key groups to `write` in this form, which must not be `auto` or `source`."""
    return _STREAMS[compression](write)
