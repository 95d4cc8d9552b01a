"""Compiled loops over the blocks of a framed stream; `compression.py` has their layout.

A block has a CRC-32C, of which `crc32c.py` computes a word at a time.

The instruction takes three cycles, but the processor can begin one in each. So a whole block of 64 KiB is computed in
four lanes at once, which are put together at the end.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flinkstate.basics.compiling import compiled, inlined, kernel_of
from flinkstate.basics.words import load32, load64, store32, store64
from flinkstate.hashing import crc32c
from flinkstate.hashing.crc32c import MASK_DELTA, TABLES, with_word

_ALL_ONES = np.uint64(0xFFFFFFFF)
_BYTE = np.uint64(0xFF)
_LANE = np.int64(1 << 14)
_LANES = 4

# A stored chunk: type, length, checksum, and at most so much content.
HEAD, BLOCK = 8, 1 << 16

_kernel = kernel_of(__file__, crc32c.__file__)


def _lane_tables() -> npt.NDArray[np.uint64]:
    """Tables, for each byte of a CRC, of what it becomes behind a lane of zeros."""
    # What each of its bits becomes behind one byte of zeros, then behind 2, 4 and so on.
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    becomes = bits >> 8 ^ TABLES[0].astype(np.uint32)[bits & 0xFF]
    for _ in range(int(_LANE).bit_length() - 1):
        becomes = _added_up(becomes, becomes)
    numbers = np.arange(256, dtype=np.uint32)
    tables = [_added_up(becomes, numbers << np.uint32(8 * byte)) for byte in range(4)]
    return np.array(tables, np.uint32).astype(np.uint64)


def _added_up(becomes: npt.NDArray[np.uint32], crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    is_set = (crcs[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.bool_)
    return np.asarray(np.bitwise_xor.reduce(np.where(is_set, becomes, np.uint32(0)), axis=1), np.uint32)


_BEHIND_LANE = _lane_tables()


@inlined
def _behind_lane(crc):
    return (
        _BEHIND_LANE[0, crc & _BYTE]
        ^ _BEHIND_LANE[1, crc >> np.uint64(8) & _BYTE]
        ^ _BEHIND_LANE[2, crc >> np.uint64(16) & _BYTE]
        ^ _BEHIND_LANE[3, crc >> np.uint64(24)]
    )


@inlined
def _masked_crc32c(data, start, end):
    """Returns the CRC-32C of `data[start:end]`, masked as the format says."""
    crc = _ALL_ONES
    position = np.int64(start)
    while end - position >= _LANES * _LANE:
        second = third = fourth = np.uint64(0)
        behind = position + _LANE
        while position < behind:
            crc = with_word(crc, load64(data, position))
            second = with_word(second, load64(data, position + _LANE))
            third = with_word(third, load64(data, position + 2 * _LANE))
            fourth = with_word(fourth, load64(data, position + 3 * _LANE))
            position += 8
        crc = _behind_lane(_behind_lane(_behind_lane(crc) ^ second) ^ third) ^ fourth
        position += (_LANES - 1) * _LANE
    while end - position >= 8:
        crc = with_word(crc, load64(data, position))
        position += 8
    while position < end:
        crc = crc >> np.uint64(8) ^ TABLES[0, (crc ^ np.uint64(data[np.uint64(position)])) & _BYTE]
        position += 1
    crc = crc ^ _ALL_ONES
    return ((crc >> np.uint64(15) | crc << np.uint64(17)) + MASK_DELTA) & _ALL_ONES


@_kernel
def head_blocks(chunks, filled):
    """Writes the heads of stored chunks, of which each has a block of content behind room for its head.

    There are `filled` bytes of content. Returns where the chunks end.
    """
    begin = np.int64(0)
    while filled > 0:
        size = min(np.int64(BLOCK), filled)
        crc = _masked_crc32c(chunks, begin + HEAD, begin + HEAD + size)
        chunks[begin] = np.uint8(1)
        for index in range(3):
            chunks[begin + 1 + index] = np.uint8((size + 4) >> (8 * index) & 0xFF)
        store32(chunks, begin + 4, crc)
        begin += HEAD + size
        filled -= size
    return begin


@_kernel
def is_whole(content, checksum):
    """Whether the content has this masked checksum of 4 bytes."""
    crc = _masked_crc32c(content, 0, len(content))
    return crc == load32(checksum, 0)


@_kernel
def unframe_groups(data, begins, limits, start):
    """Puts the content of framed key groups in the place of their streams, each from its `begins` to its `limits`.

    A stream begins with the bytes `start`. This sets `limits` to the ends of the contents. It stops at a stream that
    has other than stored chunks, or isn't sound, and returns how many come before it.
    """
    for group in range(len(begins)):
        end = _unframe(data, begins[group], limits[group], start)
        if end < 0:
            return group
        limits[group] = end
    return len(begins)


@compiled
def _unframe(data, begin, limit, start):
    """Returns the end of the content, or -1 if the stream is to be read by other code."""
    if limit - begin < len(start):
        return np.int64(-1)
    for index in range(len(start)):
        if data[begin + index] != start[index]:
            return np.int64(-1)
    position, out = begin + len(start), begin
    while position < limit:
        if limit - position < HEAD or data[position] != 1:
            return np.int64(-1)
        size = np.int64(data[position + 1]) | np.int64(data[position + 2]) << 8 | np.int64(data[position + 3]) << 16
        size -= 4
        content = position + HEAD
        if size < 0 or size > BLOCK or size > limit - content:
            return np.int64(-1)
        if load32(data, position + 4) != _masked_crc32c(data, content, content + size):
            return np.int64(-1)
        # The content lies far enough behind its new place to be moved by whole words.
        moved = np.int64(0)
        while size - moved >= 8:
            store64(data, out + moved, load64(data, content + moved))
            moved += 8
        while moved < size:
            data[np.uint64(out + moved)] = data[np.uint64(content + moved)]
            moved += 1
        out += size
        position = content + size
    return np.int64(out)
