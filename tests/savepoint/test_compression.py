"""Framed snappy streams: what cramjam writes, what other writers may, and what none may."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cramjam
import numpy as np
import pyarrow as pa
import pytest

from flinkstate.errors import DamagedError
from flinkstate.keyed import frame_kernels
from flinkstate.keyed.compression import (
    LARGEST_CHUNK,
    STREAM_START,
    Buffer,
    Compression,
    Content,
    PlainContent,
    SnappyContent,
    new_stream,
)

NOISE = random.Random(4).randbytes(300_000)
TEXT = b"key group " * 40_000
BEFORE = b"what comes before"
CONTENTS = [b"", b"a", TEXT[: 1 << 16], TEXT, NOISE, NOISE + TEXT, TEXT * 9]


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


@pytest.mark.parametrize("content", CONTENTS, ids=len)
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_what_was_compressed_is_read_back(content: bytes, step: int) -> None:
    stream = bytes(cramjam.snappy.compress(content)) or STREAM_START
    assert drained(snappy(stream, b"what comes behind"), step) == content


def test_chunks_of_other_writers() -> None:
    stream = STREAM_START + stored(b"one ") + chunk(0x80, b"skipped") + chunk(0xFE, bytes(70_000)) + STREAM_START
    assert drained(snappy(stream + stored(b"two") + chunk(0x99, b""))) == b"one two"
    assert drained(snappy(STREAM_START + stored(NOISE[: 1 << 16]) + stored(b"rest"))) == NOISE[: 1 << 16] + b"rest"


@pytest.mark.parametrize("compression", [Compression.SNAPPY, Compression.STORED, Compression.NONE])
@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_a_key_group_has_the_same_bytes_whatever_the_pieces_it_is_added_in(
    compression: Compression, content: bytes
) -> None:
    pieces = random.Random(5)
    in_pieces, at_once = bytearray(), bytearray()
    one, other = (new_stream(compression, write_to(out)) for out in (in_pieces, at_once))
    for _ in range(2):
        other.add(content)
        other.end()
        taken = 0
        while taken < len(content):
            size = pieces.choice((1, 3000, 70_000))
            one.add(np.frombuffer(content[taken : taken + size], np.uint8))
            taken += size
        one.end()
    assert in_pieces == at_once
    first, second = at_once[: len(at_once) // 2], at_once[len(at_once) // 2 :]
    assert first == second
    assert drained(content_of(compression, bytes(first))) == content


def write_to(out: bytearray) -> Callable[[Buffer | bytes], None]:
    def write(data: Buffer | bytes) -> None:
        out.extend(bytes(data))

    return write


def content_of(compression: Compression, written: bytes) -> Content:
    if compression is Compression.NONE:
        return PlainContent(pa.BufferReader(written), "file", 0, len(written))
    return snappy(written)


def framed(content: bytes) -> bytes:
    """The content in stored chunks, put together by hand."""
    blocks = (content[at : at + (1 << 16)] for at in range(0, len(content), 1 << 16))
    return STREAM_START + b"".join(map(stored, blocks))


@pytest.mark.parametrize("content", CONTENTS[1:], ids=len)
def test_stored_chunks_are_as_the_format_has_them(content: bytes) -> None:
    out = bytearray()
    stream = new_stream(Compression.STORED, write_to(out))
    stream.add(content)
    stream.end()
    assert bytes(out) == framed(content)
    # Another reader of framed streams reads them too.
    assert bytes(cramjam.snappy.decompress(bytes(out))) == content


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4095, 16383, 16384, 65535, 65536, 131072 + 11])
def test_a_checksum_is_the_one_that_other_code_computes(size: int) -> None:
    content = NOISE[3 : 3 + size]
    data = np.frombuffer(b"ab" + content + b"c", np.uint8)[2 : 2 + size]
    assert frame_kernels.is_whole(data, np.frombuffer(plain_crc(content), np.uint8))
    assert not frame_kernels.is_whole(data, np.frombuffer(plain_crc(content + b"x"), np.uint8))


def plain_crc(content: bytes) -> bytes:
    """The masked CRC32C, bit by bit."""
    rest = 0xFFFFFFFF
    for byte in content:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    rest ^= 0xFFFFFFFF
    return ((rest >> 15 | rest << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


@pytest.mark.full
@pytest.mark.slow
def test_a_processor_without_the_instruction_computes_the_same_checksums(tmp_path: Path) -> None:
    """numba compiles for a processor of this name, which has none; in a cache of its own."""
    program = (
        "import sys, numpy\n"
        "from flinkstate.hashing.crc32c import has_instruction\n"
        "from flinkstate.keyed.compression import StoredStream\n"
        "out = bytearray()\n"
        "stream = StoredStream(out.extend)\n"
        "stream.add(sys.stdin.buffer.read())\n"
        "stream.end()\n"
        "assert not has_instruction()\n"
        "sys.stdout.buffer.write(out)"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    content = NOISE + TEXT[:12_345]
    ran = subprocess.run(
        [sys.executable, "-c", program], input=content, env=environment, capture_output=True, check=True
    )
    assert ran.stdout == framed(content)


def test_every_flipped_bit_of_a_stored_chunk_is_found_with_its_offset() -> None:
    stream = STREAM_START + stored(b"key group 1") + stored(TEXT[:1000])
    for at in range(len(STREAM_START), len(stream)):
        for bit in range(8):
            damaged = bytearray(stream)
            damaged[at] ^= 1 << bit
            if damaged[at] >= 0x80 and at in CHUNKS and damaged[at] != 0xFF:
                continue  # This chunk may be skipped.
            with pytest.raises(DamagedError) as caught:
                drained(snappy(bytes(damaged)))
            assert caught.value.offset is not None
            assert caught.value.offset - len(BEFORE) in (*CHUNKS, at)


CHUNKS = (len(STREAM_START), len(STREAM_START) + 8 + 11)


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
