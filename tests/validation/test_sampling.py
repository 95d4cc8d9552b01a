"""Which keys are read a second time: those with the smallest hashes, all of them where there are few."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.proof.expected.sampling import EVERYTHING, KeySample, Row, SampleSpec, seed_of
from tests.support.sections import Rows
from tests.validation.test_checks import GOLDEN

SEED, FACTOR, MASK = 7, 0x9E3779B97F4A7C15, 2**64 - 1


def hash_of(key: int) -> int:
    return (key ^ SEED) * FACTOR & MASK


def seen(
    sample: KeySample, keys: list[int], *, state: str = "rows", size: int = 3, group: int = 5, prefix: int = 1
) -> None:
    rows = Rows(group, prefix, [(b"key %d" % key, b"v" * size) for key in keys])
    sample.see(state, rows, np.array(keys, np.uint64))  # type: ignore[arg-type]


def test_few_keys_are_all_kept_with_the_bytes_of_their_rows() -> None:
    sample = KeySample(SampleSpec(SEED, 1.0), "blobs", False)
    for prefix in (1, 2):
        seen(sample, [1, 2, 1], group=prefix, prefix=prefix)
    assert sample.keys == {
        hash_of(key): [Row("rows", group, b"key %d" % key, b"vvv") for group in (1, 2) for _ in range(times)]
        for key, times in ((1, 2), (2, 1))
    }
    assert (sample.below, sample.too_large) == (EVERYTHING, [])


@pytest.mark.parametrize("at_once", [1, 7, 100, 200, 10_000])
@pytest.mark.parametrize(("share", "whole", "most"), [(0.01, 200, 75), (0.001, 32, 40)])
def test_of_many_keys_those_with_the_smallest_hashes_are_kept(
    at_once: int, share: float, whole: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample's share of 6,000, or of 32 at least, and up to a quarter more; before it is cut, the share of 20,000."""
    one_by_one: list[int] = []
    keep = KeySample._keep

    def noted(self: KeySample, state: str, section: Any, chosen: Any, hashes: Any) -> None:
        one_by_one.append(len(chosen))
        keep(self, state, section, chosen, hashes)

    monkeypatch.setattr(KeySample, "_keep", noted)
    sample = KeySample(SampleSpec(SEED, share), "blobs", False)
    keys = [key for key in range(5_000) for _ in range(2)]
    if at_once != 7:
        Random(1).shuffle(keys)
    sizes = []
    for start in range(0, len(keys), at_once):
        seen(sample, keys[start : start + at_once])
        sizes.append(sum(map(len, sample.keys.values())))
        assert sample._work == sizes[-1]
        assert not sample.keys or max(sample.keys) < sample.below
    smallest = sorted(map(hash_of, range(5_000)))
    assert sorted(sample.keys) == [hash_ for hash_ in smallest if hash_ < sample.below]
    assert all(len(rows) == 2 for rows in sample.keys.values())
    assert max(one_by_one) <= whole
    assert sizes[-1] >= 26
    if at_once == 1 and share == 0.01:
        cuts = [pair for pair in pairwise(sizes) if pair[1] < pair[0]]
        assert (cuts[0], set(cuts[1:])) == ((200, 60), {(75, 60), (75, 59)})


def test_a_state_of_its_share_of_twenty_thousand_is_kept_whole() -> None:
    for count, is_whole in ((200, True), (201, False)):
        sample = KeySample(SampleSpec(SEED, 0.01), "blobs", False)
        for key in range(count):
            seen(sample, [key])
        assert (sample.below == EVERYTHING, len(sample.keys) == count) == (is_whole, is_whole)


@pytest.mark.parametrize("at_once", [1, 500])
def test_a_key_with_many_rows_stays_whole(at_once: int) -> None:
    sample = KeySample(SampleSpec(SEED, 0.001), "blobs", False)
    for _ in range(0, 1000, at_once):
        seen(sample, [3] * at_once)
    assert {hash_: len(rows) for hash_, rows in sample.keys.items()} == {hash_of(3): 1000}


def test_of_a_key_that_is_cut_off_no_later_row_is_kept() -> None:
    small, large = sorted((1, 2), key=hash_of)
    sample = KeySample(SampleSpec(SEED, 0.001), "blobs", False)
    seen(sample, [small] + [large] * 20)
    seen(sample, [large] * 20)
    assert (sample.below, set(sample.keys)) == (hash_of(large), {hash_of(small)})


def test_a_key_whose_hash_is_the_largest_stays_whole() -> None:
    key = pow(FACTOR, -1, 1 << 64) * MASK & MASK ^ SEED
    sample = KeySample(SampleSpec(SEED, 0.001), "blobs", False)
    seen(sample, [key] * 1000)
    assert (sample.below, {hash_: len(rows) for hash_, rows in sample.keys.items()}) == (EVERYTHING, {MASK: 1000})


@pytest.mark.parametrize(
    ("size", "times", "is_too_large"),
    [(3, 4000, False), (3, 4001, True), (128 * 3999, 1, False), (128 * 4000, 1, True)],
)
def test_a_key_with_very_much_state_is_left_out(size: int, times: int, is_too_large: bool) -> None:
    """More than 4,000 rows, 128 bytes of keys and values counting as one more."""
    sample = KeySample(SampleSpec(SEED, 1.0), "blobs", False)
    size -= 9 if size > 3 else 0
    for _ in range(times):
        seen(sample, [3], size=size)
    assert sample.too_large == ([hash_of(3)] if is_too_large else [])
    assert (hash_of(3) in sample.keys) == (not sample.too_large)
    assert sample.below == EVERYTHING


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize(
    ("count", "length", "work"),
    [(-5, 3, 1), (0, 3, 1), (1, 3, 1), (2, 3, 2), (2, 0, 2), (13, 0, 4), (9, 5000, 40), (3999, 5000, 3999),
     (1 << 30, 3, 7)],
)  # fmt: skip
def test_a_blob_counts_by_its_entries(stamped: bool, count: int, length: int, work: int) -> None:
    """By as many as it states, but no more than it has bytes, whatever comes behind it."""
    before = bytes(8) if stamped else b""
    value = before + struct.pack(">i", count) + bytes(length)
    for state, expected in (("blobs", work), ("flags", 1 + (len(value) + 4) // 128)):
        sample = KeySample(SampleSpec(SEED, 1.0), "blobs", stamped)
        rows = Rows(5, 1, [(b"", value), (b"next", bytes(9999))])
        sample.see(state, rows, np.array([3], np.uint64))  # type: ignore[arg-type]
        if stamped and expected in (4, 7):
            expected += 8
        assert sample._work == expected
    for short in (b"", before + b"\0\0\0"):
        sample = KeySample(SampleSpec(SEED, 1.0), "blobs", stamped)
        sample.see("blobs", Rows(5, 1, [(b"key", short)]), np.array([3], np.uint64))  # type: ignore[arg-type]
        assert sample._work == 1


def test_a_key_that_is_too_large_leaves_the_others_their_room() -> None:
    """Its own rows no longer count, and those of keys behind it are kept."""
    assert hash_of(SEED) < hash_of(4)
    sample = KeySample(SampleSpec(SEED, 1.0), "blobs", False)
    seen(sample, [SEED] * 4001 + [4])
    assert (sample.too_large, set(sample.keys), sample._work) == ([0], {hash_of(4)}, 2)
    seen(sample, [4, SEED, 4])
    assert (sample.too_large, len(sample.keys[hash_of(4)]), sample._work) == ([0], 3, 4)
    assert sum(kept.work for kept in sample._kept.values()) == 4


def test_room_is_made_down_to_the_smallest_hash() -> None:
    """Of many rows of one key, those of the key whose hash is the next one are left out."""
    one = 3
    following = (hash_of(one) + 1) * pow(FACTOR, -1, 1 << 64) & MASK ^ SEED
    assert hash_of(following) == hash_of(one) + 1
    sample = KeySample(SampleSpec(SEED, 0.001), "blobs", False)
    seen(sample, [one] * 4001 + [following])
    assert (sample.below, sample.too_large, sample.keys) == (hash_of(one) + 1, [hash_of(one)], {})


def test_of_large_blobs_no_more_are_held_at_once_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    entries = KeySample._entries

    def noted(self: KeySample, blob: memoryview) -> int:
        held.append(self._work)
        return entries(self, blob)

    monkeypatch.setattr(KeySample, "_entries", noted)
    sample = KeySample(SampleSpec(SEED, 0.001), "blobs", False)
    rows = Rows(5, 1, [(b"key %d" % key, struct.pack(">i", 1000) + bytes(1000)) for key in range(30)])
    sample.see("blobs", rows, np.arange(30, dtype=np.uint64))  # type: ignore[arg-type]
    assert (held, list(sample.keys)) == ([0, 1000], [min(map(hash_of, range(30)))])


def test_the_rows_of_a_key_stay_in_their_order() -> None:
    sample = KeySample(SampleSpec(SEED, 1.0), "blobs", False)
    rows = Rows(5, 1, [(b"key", b"%d" % number) for number in range(500)])
    sample.see("rows", rows, np.array([number % 3 for number in range(500)], np.uint64))  # type: ignore[arg-type]
    assert [int(row.value) for row in sample.keys[hash_of(1)]] == list(range(1, 500, 3))


def test_a_source_has_a_seed_of_64_bits_that_other_sources_do_not_have() -> None:
    one, other = (seed_of(Savepoint.open(str(GOLDEN / case))) for case in ("legacy-2.3-rocksdb", "legacy-1.20-hashmap"))
    assert one != other
    assert max(one, other) < 2**64
    assert seed_of(Savepoint.open(str(Path(GOLDEN / "legacy-2.3-rocksdb")))) == one
