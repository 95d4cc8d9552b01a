"""Which keys a lazy run moves, worked out one key at a time: a second form of `lazy_cut` in plain Python."""

from __future__ import annotations

import math

from stateferry.changes.lazy_cut import LazyCut, Order

_MASK = (1 << 64) - 1
_SEED = 0x5851F42D4C957F2D
_K1, _K2, _K3 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F


def is_moved(cut: LazyCut, key: bytes, blob: bytes) -> bool:
    """Whether a key (with its namespace) that has this blob is moved."""
    rank = key_hash(key)
    if cut.order is Order.LARGEST:
        rank = (4095 - _place(max(len(blob), 1))) << 52 | rank >> 12
    return rank <= cut.last


def _place(size: int) -> int:
    """The place of a size on a scale with 64 steps from each power of two to the next."""
    exponent = size.bit_length() - 1
    return 64 * exponent + math.floor((size / (1 << exponent) - 1) * 64)


def key_hash(key: bytes) -> int:
    """The first hash of a key: a chain over words of eight bytes, the least significant byte first."""
    state = _SEED ^ len(key) * _K1 & _MASK
    whole = len(key) // 8 * 8
    for start in range(0, whole, 8):
        state = (state ^ int.from_bytes(key[start : start + 8], "little")) * _K2 & _MASK
        state ^= state >> 29
    word = (state ^ int.from_bytes(key[whole:], "little")) * _K1 & _MASK
    word ^= word >> 32
    word = word * _K2 & _MASK
    word ^= word >> 29
    word = word * _K3 & _MASK
    return word ^ word >> 32
