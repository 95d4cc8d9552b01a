"""Blocks of an SST file: their checksums, their compression, and the entries of small ones.

| part | bytes |
|---|---|
| entries | varints for the bytes shared with the key before, a key's other bytes, a value's bytes; then these bytes |
| restart points | u32 each: the positions of entries that share nothing; u32 their number |
| trailer | u8 compression of all the above; u32 checksum |
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import cramjam
import numpy as np
from xxhash import xxh3_64_intdigest

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.coding import Coded
from flinkstate.rocksdb.files import refused
from flinkstate.rocksdb.kernels import SLACK

TRAILER = 5
CRC32C, XXH3 = 1, 4
_LAST_BYTE, _LOW = np.uint64(0x6B9083D9), np.uint64(0xFFFFFFFF)
_NONE, _SNAPPY, _ZLIB, _LZ4, _LZ4HC, _ZSTD = 0, 1, 2, 4, 5, 7
# How many bytes of content there can be behind one compressed byte at the most, by the type of compression.
_UNKNOWN = -(1 << 32)
_MOST_RATIO = np.full(256, _UNKNOWN, np.int64)
_MOST_RATIO[[_NONE, _SNAPPY, _ZLIB, _LZ4, _LZ4HC, _ZSTD]] = 1, 22, 1040, 256, 256, 1 << 15
_OTHER_COMPRESSION = {3: "by bzip2", 6: "by Xpress"}
_LEAST_CONTENT = 64
_LARGEST_BLOCK = 1 << 31
_HASH_INDEX = 1 << 31


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a block is, without the trailer behind it."""

    offset: int
    size: int


def check_blocks(
    checksum: int, name: str, data: Bytes, begins: Positions, sizes: Positions, offsets: Positions
) -> None:
    """Checks the checksums of blocks, which are at these offsets of the file."""
    mismatch = kernels.crc_mismatch if checksum == CRC32C else _xxh3_mismatch
    wrong = mismatch(data, begins, sizes)
    if wrong >= 0:
        raise DamagedError(
            f"a block of {sizes[wrong]} bytes that its checksum fits", "another",
            file=name, offset=int(offsets[wrong]),
        )  # fmt: skip


def _xxh3_mismatch(data: Bytes, begins: Positions, sizes: Positions) -> int:
    """Returns the index of the first block whose XXH3 isn't the one behind it, or -1.

    Behind a block are a byte for its compression, which is folded in, and the lower four bytes of the checksum.
    """
    content = data.data
    blocks = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
    hashes = np.array([xxh3_64_intdigest(content[begin:end]) for begin, end in blocks], np.uint64)
    trailers = data[(begins + sizes)[:, None] + np.arange(TRAILER)]
    expected = np.ascontiguousarray(trailers[:, 1:]).view("<u4")[:, 0]
    wrong = np.flatnonzero((hashes ^ trailers[:, 0] * _LAST_BYTE) & _LOW != expected)
    return int(wrong[0]) if len(wrong) else -1


def content_sizes(
    name: str, data: Bytes, begins: Positions, sizes: Positions, kinds: Bytes, offsets: Positions
) -> Positions:
    """Returns the number of bytes that each block has uncompressed, which has been compared with its size."""
    contents = np.zeros(len(begins), np.int64)
    # RocksDB writes the size before the content, as snappy itself does.
    kernels.content_sizes(data, begins, sizes, contents)
    most = np.minimum(sizes * _MOST_RATIO[kinds] + _LEAST_CONTENT, _LARGEST_BLOCK)
    for wrong in np.flatnonzero((contents < 0) | (contents > most))[:1]:
        kind, offset = int(kinds[wrong]), int(offsets[wrong])
        if _MOST_RATIO[kind] == _UNKNOWN:
            how = _OTHER_COMPRESSION.get(kind, "in a way")
            raise refused(name, f"a block compressed {how} (type {kind}) that isn't read")
        expected, found = f"at most {most[wrong]} bytes in a block of {sizes[wrong]}", f"{contents[wrong]}"
        raise DamagedError(expected, found, file=name, offset=offset)
    return contents


def decompress_each(
    name: str,
    data: Bytes,
    begins: Positions,
    sizes: Positions,
    kinds: Bytes,
    out: Bytes,
    ends: Positions,
    offsets: Positions,
) -> None:
    """Puts the contents of blocks one behind the other into `out`, where they must end at `ends`."""
    source, target, at = data.data, out.data, 0
    blocks = zip(begins.tolist(), sizes.tolist(), kinds.tolist(), ends.tolist(), offsets.tolist(), strict=True)
    for begin, size, kind, end, offset in blocks:
        try:
            got = _decompress(kind, source[begin : begin + size], target[at:end])
        except (cramjam.DecompressionError, OSError, ValueError, zlib.error, EOFError) as error:
            raise DamagedError("a compressed block", str(error), file=name, offset=offset) from None
        if got != end - at:
            raise DamagedError(f"{end - at} bytes in a block", f"{got}", file=name, offset=offset)
        at = end


def _decompress(kind: int, data: memoryview, out: memoryview) -> int:
    if kind == _SNAPPY:
        return int(cramjam.snappy.decompress_raw_into(data, out))
    if kind == _NONE:
        out[:] = data
        return len(data)
    # The size, which has been read.
    start = next(at for at, byte in enumerate(data) if byte < 0x80) + 1
    if kind in (_LZ4, _LZ4HC):
        return int(cramjam.lz4.decompress_block_into(data[start:], out, output_len=len(out)))
    if kind == _ZSTD:
        return int(cramjam.zstd.decompress_into(data[start:], out))
    content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(bytes(data[start:]), len(out) + 1)
    if len(content) == len(out):
        out[:] = content
    return len(content)


def entries_end(block: Bytes, size: int, name: str, offset: int) -> int:
    """Returns where the entries of a block of `size` bytes end and the positions of some of them begin."""
    count = int.from_bytes(block[size - 4 : size].tobytes(), "little") if size >= 4 else -1
    if count >= _HASH_INDEX:
        raise refused(name, f"a block with a hash index (offset {offset})")
    end = size - 4 - 4 * count
    if count < 1 or end < 0:
        raise DamagedError("a block with restart points", f"{count} in {size} bytes", file=name, offset=offset)
    return end


def entries(block: Bytes, name: str, offset: int) -> list[tuple[bytes, bytes]]:
    """Returns keys and values of a small block, whose restart points must be right: RocksDB searches by them."""
    size = len(block) - SLACK
    end = entries_end(block, size, name, offset)
    restarts, alone = block[end : size - 4].view("<u4").tolist(), []
    coded = Coded(block[:end].tobytes(), name, offset)
    found, key = [], b""
    while not coded.at_end():
        at = coded.position
        sizes = coded.data[at : at + 3]
        if len(sizes) == 3 and max(sizes) < 0x80:
            (shared, own, value), coded.position = sizes, at + 3
        else:
            shared, own, value = (coded.varint(what) for what in ("shared bytes", "a key's bytes", "a value's bytes"))
        if shared > len(key):
            raise coded.damaged(f"at most {len(key)} shared bytes", f"{shared}")
        alone += [] if shared else [at]
        key = key[:shared] + coded.take(own, "a key")
        found.append((key, coded.take(value, "a value")))
    if found and (not set(restarts) <= set(alone) or restarts != sorted({0, *restarts})):
        expected = "restart points in order, at entries that share no bytes"
        raise DamagedError(expected, f"{restarts}", file=name, offset=offset)
    return found
