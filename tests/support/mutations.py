"""Changes the bytes of results at random, also so that their checksums fit: then only the meaning shows it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from random import Random

from flinkstate.errors import DamagedError
from tests.rocksdb.writing import masked_crc32c

Kind = Callable[[bytearray, Random], bytearray]

_FOOTER, _TRAILER = 53, 5
_BLOCK, _HEADER = 1 << 15, 7


def mutated(data: bytes, kind: Kind, random: Random) -> bytes:
    """The content of a file after a change of that kind, which is never the same as before."""
    while True:
        changed = kind(bytearray(data), random)
        if changed != data:
            return bytes(changed)


def flip(data: bytearray, random: Random) -> bytearray:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return data


def cut(data: bytearray, random: Random) -> bytearray:
    return data[: random.randrange(len(data))]


def splice(data: bytearray, random: Random) -> bytearray:
    at = random.randrange(len(data))
    data[at : at + random.randrange(20)] = random.randbytes(random.randrange(20))
    return data


def rubbish(data: bytearray, random: Random) -> bytearray:
    for _ in range(5):
        data[random.randrange(len(data))] = random.randrange(256)
    return data


def in_a_block(data: bytearray, random: Random) -> bytearray:
    """A byte of any block of an SST file, which gets the checksum of what it is then."""
    begin, size = random.choice(_blocks(bytes(data)))
    data[begin + random.randrange(size + 1)] = random.randrange(256)
    data[begin + size + 1 : begin + size + _TRAILER] = masked_crc32c(bytes(data[begin : begin + size + 1]))
    return data


def in_the_footer(data: bytearray, random: Random) -> bytearray:
    data[len(data) - 1 - random.randrange(_FOOTER)] = random.randrange(256)
    return data


@cache
def _blocks(data: bytes) -> list[tuple[int, int]]:
    """Offset and size of the blocks: they lie one behind the other, and the checksum says where one ends."""
    blocks, begin = [], 0
    while begin < len(data) - _FOOTER:
        for end in range(begin + 1, len(data) - _FOOTER - 3):
            if masked_crc32c(data[begin:end]) == data[end : end + 4]:
                blocks.append((begin, end - 1 - begin))
                break
        else:
            raise DamagedError("a block with its checksum", "none", offset=begin)
        begin = end + 4
    return blocks


def in_a_record(data: bytearray, random: Random) -> bytearray:
    """A byte of any record of a MANIFEST, with the checksum of what the record is then."""
    position, records = 0, []
    while position + _HEADER <= len(data):
        (length,) = struct.unpack_from("<H", data, position + 4)
        records.append((position, length))
        position += _HEADER + length
    assert position < _BLOCK
    begin, length = random.choice(records)
    data[begin + 6 + random.randrange(length + 1)] = random.randrange(256)
    data[begin : begin + 4] = masked_crc32c(bytes(data[begin + 6 : begin + _HEADER + length]))
    return data


PLAIN: tuple[Kind, ...] = (flip, cut, splice, rubbish)
# What no checksum shows, by how the file's name ends.
HIDDEN: dict[str, tuple[Kind, ...]] = {
    ".sst": (in_a_block, in_a_block, in_a_block, in_the_footer),
    "MANIFEST": (in_a_record, in_a_record, in_a_record),
}
