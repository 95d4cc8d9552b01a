"""The kernels of the validation, each held against the same in plain Python."""

from __future__ import annotations

import faulthandler
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateferry.proof.expected import kernels

_ALL = (1 << 64) - 1
_K1, _K2, _K3 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9FB21C651E98DF25
_NULL = 0xD1B54A32D192ED03
DATA = bytes(np.random.default_rng(5).integers(0, 256, 60, np.uint8))
SEEDS = (0, 0xFEDCBA9876543210, _ALL)


def mix(word: int) -> int:
    word = (word ^ word >> 30) * _K1 & _ALL
    word = (word ^ word >> 27) * _K2 & _ALL
    return word ^ word >> 31


def hash_of(part: bytes, seed: int) -> int:
    state = (seed + len(part) * _K3) & _ALL
    whole = len(part) // 8 * 8
    for start in range(0, whole, 8):
        state = (state ^ int.from_bytes(part[start : start + 8], "little")) * _K1 & _ALL
        state ^= state >> 31
    if rest := part[whole:]:
        state = (state ^ int.from_bytes(rest.rjust(8, b"\0"), "little")) * _K3 & _ALL
        state ^= state >> 27
    return mix(state)


def hash_of_value(part: bytes, null: int, bytes_of_null: bytes, stamp: int | None, group: int, pair: int) -> int:
    seed = mix(pair ^ group * _K3 & _ALL)
    if stamp is not None:
        seed = mix(seed ^ stamp * _K1 & _ALL)
    if null == kernels.NULL_BYTES:
        return hash_of(bytes_of_null, seed)
    return hash_of(part, seed ^ _NULL if null == kernels.NULL else seed)


def positions(*values: int) -> Any:
    return np.array(values, np.int64)


def words(*values: int) -> Any:
    return np.array(values, np.uint64)


# In the middle of the data, at its begin and up to its end, of every length up to 19.
RANGES = [(start, start + size) for size in range(20) for start in (0, 7, len(DATA) - size)]


@pytest.mark.parametrize("seed", SEEDS)
def test_hashes_of_ranges(seed: int) -> None:
    starts, ends = (positions(*part) for part in zip(*RANGES, strict=True))
    out = np.zeros(len(RANGES), np.uint64)
    kernels.hash_ranges(np.frombuffer(DATA, np.uint8), starts, ends, words(*[seed] * len(RANGES)), out)
    assert out.tolist() == [hash_of(DATA[start:end], seed) for start, end in RANGES]


def test_nothing_behind_the_data_is_read(tmp_path: Path) -> None:
    """The page behind the data can't be read: the file ends before it."""
    page, file = mmap.PAGESIZE, tmp_path / "pages"
    file.write_bytes(DATA.rjust(page, b"\0") + bytes(page))
    child = os.fork()
    if not child:
        status = 1
        try:
            # A failure is told by the child's status alone.
            faulthandler.disable()
            with file.open("r+b") as opened:
                whole = mmap.mmap(opened.fileno(), 2 * page)
                opened.truncate(page)
            data, out = np.frombuffer(whole, np.uint8, page), np.zeros(1, np.uint64)
            kernels.hash_ranges(data, positions(page - 5), positions(page), words(7), out)
            status = int(out[0]) != hash_of(DATA[-5:], 7)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("stamps", [(), (0, -1, 1 << 40, 5, 6)])
def test_hashes_of_values(stamps: tuple[int, ...]) -> None:
    ranges, nulls, null = [(0, 8), (8, 21), (3, 3), (5, 6), (5, 6)], [0, 1, 1, 2, 0], b"\x80nothing at all"
    groups, pairs = (0, 3, 200, 3, 32767), (1, _ALL, 5, 0, 1 << 63)
    out = np.zeros(len(ranges), np.uint64)
    kernels.hash_values(
        np.frombuffer(DATA, np.uint8),
        *(positions(*part) for part in zip(*ranges, strict=True)),
        np.array(nulls, np.uint8),
        np.frombuffer(null, np.uint8),
        positions(*stamps),
        positions(*groups),
        words(*pairs),
        out,
    )
    assert out.tolist() == [
        hash_of_value(DATA[start:end], nulls[at], null, stamps[at] if stamps else None, groups[at], pairs[at])
        for at, (start, end) in enumerate(ranges)
    ]


def test_of_one_stamp_the_hash_depends_too() -> None:
    data, out = np.frombuffer(DATA, np.uint8), np.zeros(1, np.uint64)
    none, group, pair = np.zeros(1, np.uint8), positions(3), words(5)
    kernels.hash_values(data, positions(0), positions(9), none, none[:0], positions(77), group, pair, out)
    assert out.tolist() == [hash_of_value(DATA[:9], 0, b"", 77, 3, 5)]


def test_chosen_hashes_are_added_and_taken_off() -> None:
    sums, counts = words(1, 2, 3), positions(10, 20, 30)
    groups, hashes, chosen = positions(2, 0, 2, 1), words(5, 7, _ALL, 9), np.array([1, 1, 1, 0], np.bool_)
    kernels.add_up(groups, hashes, chosen, sums, counts)
    assert (sums.tolist(), counts.tolist()) == ([8, 2, 7], [11, 20, 32])
    kernels.take_off(groups[:1], hashes[:1], chosen[:1], sums, counts)
    kernels.take_off(groups[3:], hashes[3:], chosen[3:], sums, counts)
    assert (sums.tolist(), counts.tolist()) == ([8, 2, 2], [11, 20, 31])


def test_timestamps_are_read_where_they_are() -> None:
    stamps = (0, -1, 1 << 62, -(1 << 63), 0x0123456789ABCDEF)
    data = np.frombuffer(b"xyz" + b"|".join(struct.pack(">q", one) for one in stamps) + b"|behind", np.uint8)
    out = np.zeros(len(stamps), np.int64)
    kernels.read_timestamps(data, positions(*range(3, 3 + 9 * len(stamps), 9)), out)
    assert out.tolist() == list(stamps)
