"""Measures the framed streams in which key groups of a savepoint are stored: compressed by snappy, and as they are."""

from __future__ import annotations

import io
from collections.abc import Iterator

import cramjam
import numpy as np

from benchmarks.measuring import Rate, Scale, Subject, expect, timed
from benchmarks.sections import demo, made_up
from stateferry.savepoint.compression import Buffer, Compression, SnappyContent, new_stream

_AT_ONCE = 1 << 20


def content(scale: Scale) -> Buffer:
    """The bytes of a legacy savepoint's first file."""
    savepoint = made_up(scale, "blobs-0", demo(scale))
    file = min(path for path in (scale.folder / "blobs-0").iterdir() if path.name != "_metadata")
    expect(savepoint.folder.child(file.name).is_file(), True, "file")
    return np.fromfile(file, np.uint8)


def write(data: Buffer, compression: Compression) -> bytes:
    """The framed stream of the data."""
    out = bytearray()
    stream = new_stream(compression, out.extend)
    for first in range(0, len(data), _AT_ONCE):
        stream.add(data[first : first + _AT_ONCE])
    stream.end()
    return bytes(out)


def read(framed: bytes, buffer: Buffer) -> int:
    """Reads the stream and returns the size of the content."""
    source = SnappyContent(io.BytesIO(framed), "memory", 0, len(framed))
    size = 0
    while got := source.fill(buffer):
        size += got
    return size


def measure(scale: Scale) -> Iterator[Rate]:
    """A rate for writing and one for reading, of either kind; and snappy's own."""
    data = content(scale)
    buffer = np.empty(4 << 20, np.uint8)
    for compression in (Compression.SNAPPY, Compression.STORED):
        framed = write(data, compression)
        ratio = len(data) / len(framed)

        def written(compression: Compression = compression) -> int:
            return len(write(data, compression)) and len(data)

        def was_read(framed: bytes = framed) -> int:
            return read(framed, buffer)

        named = f"{compression}, content per byte {ratio:.1f}"
        yield Rate(f"write {named}", "bytes", timed(len(data), written, scale.rounds))
        yield Rate(f"read {named}", "bytes", timed(len(data), was_read, scale.rounds))
    yield from _of_snappy_itself(data, scale)


def _of_snappy_itself(data: Buffer, scale: Scale) -> Iterator[Rate]:
    """The rates of the library alone, with a buffer for its result, and without our reader and writer."""
    pieces = [data[first : first + _AT_ONCE] for first in range(0, len(data), _AT_ONCE)]
    out = np.empty(2 * _AT_ONCE, np.uint8)

    def compress() -> int:
        for piece in pieces:
            cramjam.snappy.compress_into(piece.data, out.data)
        return len(data)

    yield Rate("the library alone: compress", "bytes", timed(len(data), compress, scale.rounds))
    framed = [bytes(cramjam.snappy.compress(piece.data)) for piece in pieces]

    def decompress() -> int:
        return sum(int(cramjam.snappy.decompress_into(one, out.data)) for one in framed)

    yield Rate("the library alone: decompress", "bytes", timed(len(data), decompress, scale.rounds))


SUBJECT = Subject("Framed streams, bytes of content", measure)
