"""Measures framed snappy, in which key groups of a compressed savepoint are stored."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from benchmarks.measuring import Rate, Scale, Subject, expect, timed
from benchmarks.sections import demo, made_up
from stateferry.savepoint.compression import Buffer, SnappyContent, compress

_AT_ONCE = 1 << 20


def content(scale: Scale) -> Buffer:
    """The bytes of a legacy savepoint's first file."""
    savepoint = made_up(scale, "blobs-0", demo(scale))
    file = min(path for path in (scale.folder / "blobs-0").iterdir() if path.name != "_metadata")
    expect(savepoint.folder.child(file.name).is_file(), True, "file")
    return np.fromfile(file, np.uint8)


def write(data: Buffer) -> list[bytes]:
    """The compressed frames of the data."""
    return [compress(data[first : first + _AT_ONCE], first=first == 0) for first in range(0, len(data), _AT_ONCE)]


def read(framed: bytes, buffer: Buffer) -> int:
    """Decompresses the frames and returns the size of the content."""
    source = SnappyContent(io.BytesIO(framed), "memory", 0, len(framed))
    size = 0
    while got := source.fill(buffer):
        size += got
    return size


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for writing and one for reading."""
    data = content(scale)
    framed = b"".join(write(data))
    buffer = np.empty(4 << 20, np.uint8)
    ratio = len(data) / len(framed)

    def work() -> int:
        write(data)
        return len(data)

    yield Rate(f"write, content per compressed byte {ratio:.1f}", "bytes", timed(len(data), work, scale.rounds))
    yield Rate("read", "bytes", timed(len(data), lambda: read(framed, buffer), scale.rounds))


SUBJECT = Subject("Framed snappy, bytes of content", measure)
