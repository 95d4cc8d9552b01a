"""Framed snappy streams: what cramjam writes, what other writers may, and what none may."""

from __future__ import annotations

import random

import cramjam
import numpy as np
import pyarrow as pa
import pytest

from stateferry.errors import DamagedError
from stateferry.savepoint.compression import LARGEST_CHUNK, STREAM_START, Content, PlainContent, SnappyContent, compress

NOISE = random.Random(4).randbytes(300_000)
TEXT = b"key group " * 40_000
BEFORE = b"what comes before"


def snappy(stream: bytes, behind: bytes = b"") -> SnappyContent:
    return SnappyContent(pa.BufferReader(BEFORE + stream + behind), "file", len(BEFORE), len(BEFORE) + len(stream))


def drained(source: Content, step: int = 50_000) -> bytes:
    out, buffer = bytearray(), np.empty(step, np.uint8)
    while got := source.fill(buffer):
        out += buffer[:got].tobytes()
    assert source.fill(buffer) == 0
    return bytes(out)


def crc(content: bytes) -> bytes:
    """The masked CRC32C of up to 64 KiB, as cramjam computes it."""
    return bytes(cramjam.snappy.compress(content))[len(STREAM_START) + 4 :][:4]


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def stored(content: bytes) -> bytes:
    return chunk(1, crc(content) + content)


@pytest.mark.parametrize("content", [b"", b"a", TEXT, NOISE, NOISE + TEXT, TEXT * 9], ids=len)
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_what_was_compressed_is_read_back(content: bytes, step: int) -> None:
    stream = bytes(cramjam.snappy.compress(content)) or STREAM_START
    assert drained(snappy(stream, b"what comes behind"), step) == content


def test_chunks_of_other_writers() -> None:
    stream = STREAM_START + stored(b"one ") + chunk(0x80, b"skipped") + chunk(0xFE, bytes(70_000)) + STREAM_START
    assert drained(snappy(stream + stored(b"two") + chunk(0x99, b""))) == b"one two"
    assert drained(snappy(STREAM_START + stored(NOISE[: 1 << 16]) + stored(b"rest"))) == NOISE[: 1 << 16] + b"rest"


def test_pieces_compressed_one_after_another_are_one_stream() -> None:
    first, second = np.frombuffer(NOISE, np.uint8), np.frombuffer(TEXT, np.uint8)
    stream = compress(first, first=True) + compress(second, first=False)
    assert stream.count(STREAM_START) == 1
    assert drained(snappy(stream)) == NOISE + TEXT


GOOD = STREAM_START + stored(b"content")


@pytest.mark.parametrize(
    ("stream", "expected", "at"),
    [
        (stored(b"content"), "the start of a snappy stream", 0),
        (chunk(0x80, b"content"), "the start of a snappy stream", 0),
        (b"\xff\x06\0\0sNaPpy", "the start of a snappy stream", 0),
        (b"\xff\x05\0\0sNaPp", "the start of a snappy stream", 0),
        (STREAM_START + chunk(2, b"content"), "of type 00, 01, ff or 80 to fe", 10),
        (STREAM_START + chunk(0x7F, b"content"), "of type 00, 01, ff or 80 to fe", 10),
        (STREAM_START + chunk(1, b"abc"), "with a checksum", 10),
        (STREAM_START + chunk(0, b""), "with a checksum", 10),
        (STREAM_START + chunk(1, bytes(LARGEST_CHUNK)), "at most", 10),
        (STREAM_START + b"\x00\xff\xff\xff", "at most", 10),
        (STREAM_START + chunk(1, bytes(4) + b"content"), "the checksum before it", 10),
        (GOOD + chunk(0, bytes(4) + b"\xff\xff\xff\xff\x0f"), "the checksum before it", len(GOOD)),
        (GOOD + stored(b"x") + chunk(1, bytes(4) + b"y") + stored(b"z"), "the checksum before it", len(GOOD) + 9),
        (STREAM_START + stored(NOISE[: 1 << 16])[:-1], "a snappy chunk of", 10),
        (GOOD[:-1], "a snappy chunk of", 10),
        (STREAM_START + b"\x01\x01", "a snappy chunk of", 10),
        (STREAM_START + chunk(1, crc(bytes(65_537)) + bytes(65_537)), "at most 64 KiB", 10),
    ],
)
def test_damage_is_named_with_its_chunk(stream: bytes, expected: str, at: int) -> None:
    with pytest.raises(DamagedError, match=expected) as caught:
        drained(snappy(stream))
    assert caught.value.file == "file"
    assert caught.value.offset == len(BEFORE) + at


def test_a_stream_of_next_to_nothing_is_decompressed_a_little_at_a_time() -> None:
    zeros = bytes(cramjam.snappy.compress(bytes(1 << 16)))[len(STREAM_START) :]
    source = snappy(STREAM_START + zeros * 300)
    buffer = np.empty(300 << 16, np.uint8)
    assert 0 < source.fill(buffer) <= 64 << 16
    assert drained(source) == bytes((300 << 16) - (64 << 16))


def test_a_plain_source_ends_where_it_is_told_and_misses_what_is_cut_off() -> None:
    file = pa.BufferReader(TEXT)
    assert drained(PlainContent(file, "file", 5, 200_000), 777) == TEXT[5:200_000]
    assert drained(PlainContent(file, "file", 5, 5)) == b""
    with pytest.raises(DamagedError, match=r"file, offset 400000: expected 1 more bytes, found the end"):
        drained(PlainContent(file, "file", 0, len(TEXT) + 1))
