"""Measures the framed streams in which key groups of a savepoint are stored: compressed by snappy, and as they are."""

from __future__ import annotations

import io
from collections.abc import Iterator

import cramjam
import numpy as np

from benchmarks.measuring import Rate, Scale, Subject, expect, timed
from benchmarks.sections import demo, made_up
from flinkstate.keyed.compression import Buffer, Compression, SnappyContent, new_stream

_AT_ONCE = 1 << 20


def content(scale: Scale) -> tuple[Buffer, float]:
    """The bytes of a file whose entries are rows, and how many there are for each entry."""
    state = demo(scale, migrated=1)
    savepoint = made_up(scale, "rows", state)
    files = sorted(path for path in (scale.folder / "rows").iterdir() if path.name != "_metadata")
    expect(savepoint.folder.child(files[0].name).is_file(), True, "file")
    size = sum(path.stat().st_size for path in files)
    return np.fromfile(files[0], np.uint8), size / (state.keys * state.entries)


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
    data, per_entry = content(scale)
    entries = int(len(data) / per_entry)
    buffer = np.empty(4 << 20, np.uint8)
    for compression in (Compression.SNAPPY, Compression.STORED):
        framed = write(data, compression)

        def written(compression: Compression = compression) -> int:
            return entries if write(data, compression) else 0

        def was_read(framed: bytes = framed) -> int:
            return entries if read(framed, buffer) == len(data) else 0

        sizes = f"{per_entry:.0f} bytes an entry, {per_entry * len(framed) / len(data):.0f} written"
        yield Rate(f"write {compression}, {sizes}", "entries", timed(entries, written, scale.rounds))
        yield Rate(f"read {compression}", "entries", timed(entries, was_read, scale.rounds))
    yield from _of_snappy_itself(data, entries, scale)


def _of_snappy_itself(data: Buffer, entries: int, scale: Scale) -> Iterator[Rate]:
    """The rates of the library alone, with a buffer for its result, and without our reader and writer."""
    pieces = [data[first : first + _AT_ONCE] for first in range(0, len(data), _AT_ONCE)]
    out = np.empty(2 * _AT_ONCE, np.uint8)

    def compress() -> int:
        return entries if all(cramjam.snappy.compress_into(piece.data, out.data) for piece in pieces) else 0

    yield Rate("compress, the library alone", "entries", timed(entries, compress, scale.rounds))
    framed = [bytes(cramjam.snappy.compress(piece.data)) for piece in pieces]

    def decompress() -> int:
        return entries if all(cramjam.snappy.decompress_into(one, out.data) for one in framed) else 0

    yield Rate("decompress, the library alone", "entries", timed(entries, decompress, scale.rounds))


SUBJECT = Subject("Framed streams, map entries", measure)
