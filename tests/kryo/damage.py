"""Values that Kryo wrote, damaged at random by a seed: bits flipped, bytes replaced, cut, spliced in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.kryo.examples import VERSIONS, Example, with_type

_MOST_BYTES = 4000


def damaged_examples(count: int, seed: int) -> Iterator[Example]:
    """Yields so many examples with damaged bytes."""
    chosen = random.Random(seed)
    whole = [one for version in VERSIONS for one in with_type(version) if len(one.written) <= _MOST_BYTES]
    sources = [one.written for one in whole]
    for _ in range(count):
        one = chosen.choice(whole)
        yield replace(one, written=damaged(chosen, one.written, sources))


def damaged(chosen: random.Random, written: bytes, others: list[bytes]) -> bytes:
    """Returns the bytes with damage, among it bytes of others."""
    raw = bytearray(written)
    for _ in range(chosen.choice((1, 1, 1, 2, 4))):
        place = chosen.randrange(len(raw) or 1)
        match chosen.randrange(6) if raw else 5:
            case 0:
                raw[place] ^= 1 << chosen.randrange(8)
            case 1:
                raw[place] = chosen.randrange(256)
            case 2:
                del raw[place : place + chosen.randrange(1, 9)]
            case 3:
                del raw[place:]
            case 4:
                other = chosen.choice(others)
                begin = chosen.randrange(len(other))
                raw[place : place + chosen.randrange(9)] = other[begin : begin + chosen.randrange(30)]
            case 5:
                raw[place:place] = bytes([chosen.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))]) * chosen.randrange(1, 4)
    return bytes(raw)
