"""Scans that read only some keys: what they give of these is what a scan of everything gives."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from flinkstate.basics.array_types import Bytes
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.rocksdb import kernels, sorted_run
from flinkstate.rocksdb import scan as scans
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.files import (
    StoredFile,
    read_pieces,
)
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.prefixes import EVERY_KEY, Prefixes
from tests.rocksdb.writing import DELETE, MERGE, SINGLE_DELETE, SNAPPY, VALUE, Entry, database, stored, varint

GROUPS = 4


def rows(opened: Database, only: Prefixes | None) -> Iterator[tuple[bytes, bytes]]:
    out = np.zeros(1 << 14, np.uint8)
    positions = (np.zeros(64, np.int64), np.zeros(64, np.int64), np.zeros(64, np.int64))
    with opened.scan("state", 1, 0, GROUPS, 300, only=only) as scan:
        needed = 1
        while needed:
            found = scan.read(GROUPS, out, 0, positions)
            starts, key_ends, ends = (places[: found.rows] for places in positions)
            chosen = np.ones(found.rows, np.bool_) if only is None else only.rows_of(out, starts, key_ends)
            for start, key_end, end in zip(starts[chosen], key_ends[chosen], ends[chosen], strict=True):
                yield out[start + 4 : key_end].tobytes(), out[key_end + 4 : end].tobytes()
            needed = found.needed


def key(chosen: random.Random) -> bytes:
    return bytes([chosen.randrange(GROUPS)]) + b"key-%02d" % chosen.randrange(30) + b"/%d" % chosen.randrange(4)


def run_of(chosen: random.Random, entries: int, sequence: int) -> list[Entry]:
    kinds = [VALUE, VALUE, VALUE, DELETE, SINGLE_DELETE, MERGE]
    keys = {key(chosen) for _ in range(entries)}
    return [
        (one, sequence + at, chosen.choice(kinds), bytes([chosen.randrange(256)]) * chosen.randrange(60))
        for at, one in enumerate(sorted(keys))
    ]


def split(entries: list[Entry], files: int) -> list[list[Entry]]:
    bounds = [len(entries) * at // files for at in range(files + 1)]
    return [entries[begin:end] for begin, end in itertools.pairwise(bounds) if begin < end]


@pytest.mark.parametrize("seed", range(40))
def test_a_scan_of_some_keys_gives_what_a_scan_of_all_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_run, "_MOST_BETWEEN", seed % 3 * 150)
    chosen = random.Random(seed)
    runs = [run_of(chosen, 60, 2000), run_of(chosen, 100, 1000), run_of(chosen, 300, 1)][seed % 3 :]
    levels = [0, 0, 1][seed % 3 :]
    options = {"compression": SNAPPY * (seed % 2), "two_levels": seed % 5 == 0, "user_keys": seed % 7 != 0}
    opened = Database(
        stored(
            database([split(run, 1 + 2 * level) for run, level in zip(runs, levels, strict=True)], levels, **options)
        ),
        "it",
    )
    everything = list(rows(opened, None))
    wanted = [one[: chosen.choice([1, 5, 7, 9])] for one in (key(chosen) for _ in range(chosen.randrange(8)))]
    only = Prefixes.of(wanted)
    assert list(rows(opened, only)) == [row for row in everything if row[0].startswith(tuple(wanted))]


@pytest.mark.parametrize("width", [1, 2])
def test_those_of_some_key_groups_are_found(width: int) -> None:
    some = [bytes(width - 1) + one for one in (b"\0a", b"\0b", b"\1", b"\3a", b"\3b")]
    for first, last in itertools.combinations_with_replacement(range(5), 2):
        found = Prefixes.of(some).within(KeyGroupRange(first, last), width)
        within = [found.keys[start:end].tobytes() for start, end in itertools.pairwise(found.bounds.tolist())]
        assert within == [one for one in some if first <= one[width - 1] <= last]
    assert EVERY_KEY.within(KeyGroupRange(1, 2), width).has_every_key


def test_blocks_without_a_wanted_key_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_run, "_MOST_BETWEEN", 0)
    entries = [(b"\0key-%04d" % number, 1, VALUE, bytes(50)) for number in range(1000)]
    opened = Database(stored(database([[entries]], [1], compression=0)), "it")
    read = 0

    def counting(file: Any, stored_file: StoredFile, pieces: Sequence[tuple[int, int]], slack: int) -> Bytes:
        nonlocal read
        read += sum(size for _, size in pieces)
        return read_pieces(file, stored_file, pieces, slack)

    monkeypatch.setattr(sorted_run, "read_pieces", counting)
    assert [one for one, _ in rows(opened, Prefixes.of([b"\0key-0007", b"\0key-0500"]))] == [
        b"\0key-0007", b"\0key-0500",
    ]  # fmt: skip
    assert 0 < read < 1500


def test_all_entries_of_a_file_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "PORTION", 256)
    entries = [*run_of(random.Random(1), 200, 1), (b"\x01large", 5, VALUE, bytes(5000))]
    opened = Database(stored(database([[sorted(entries)]], [0])), "it")
    found = [
        data[start + 4 : end].tobytes()
        for table in opened.files("state", 1, 1, 3)
        for data, starts, ends in scans.entries_of(table, 1, 1, 3)
        for start, end in zip(starts, ends, strict=True)
    ]
    assert found == [one for one, *_ in sorted(entries) if 1 <= one[0] < 3]


def index_block(keys: Sequence[bytes], handles: Sequence[tuple[int, int]], interval: int, delta: bool) -> bytes:
    """An index with a restart point for each so many entries; `delta` says whether handles follow from those before."""
    out, restarts = bytearray(), list[int]()
    for number, (one, (offset, size)) in enumerate(zip(keys, handles, strict=True)):
        shared, before = 0, keys[number - 1] if number else b""
        if number % interval:
            pairs = enumerate(zip(one, before, strict=False))
            shared = next((at for at, (a, b) in pairs if a != b), min(len(one), len(before)))
        else:
            restarts.append(len(out))
        handle = varint(offset) + varint(size)
        if delta and shared:
            change = size - handles[number - 1][1]
            handle = varint(change << 1 if change >= 0 else (-change << 1) - 1)
        out += varint(shared) + varint(len(one) - shared) + (b"" if delta else varint(len(handle)))
        out += one[shared:] + handle
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


@pytest.mark.parametrize("seed", range(60))
def test_of_an_index_only_what_may_have_a_prefix_is_read(seed: int) -> None:
    chosen = random.Random(seed)
    trailer, interval, delta = 8 * (seed % 2), chosen.choice([1, 1, 2, 16]), chosen.random() < 0.7
    plain = sorted(
        {b"\0key-%03d" % chosen.randrange(400) + b"/" * chosen.randrange(3) for _ in range(chosen.randrange(1, 200))}
    )
    keys = [one + bytes([7]) * trailer for one in plain]
    handles, offset = list[tuple[int, int]](), 0
    for _ in keys:
        handles.append((offset, chosen.randrange(10, 400)))
        offset += handles[-1][1] + 5
    block = index_block(keys, handles, interval, delta)
    restarts = int.from_bytes(block[-4:], "little")
    data = np.frombuffer(block + bytes(SLACK), np.uint8).copy()
    some = [chosen.choice(plain)[: chosen.randrange(1, 10)] for _ in range(chosen.randrange(4))]
    only = Prefixes.of([*some, *(b"\0key-%03d" % chosen.randrange(400) for _ in range(chosen.randrange(20)))])
    prefixes = [only.keys[start:end].tobytes() for start, end in itertools.pairwise(only.bounds.tolist())]

    def read(every: bool) -> tuple[list[tuple[bytes, int, int]], bool, bool]:
        found, bounds = np.zeros(20_000, np.uint8), np.zeros(len(keys) + 2, np.int64)
        places, result, failure = np.zeros((2, len(bounds)), np.int64), np.zeros(3, np.int64), np.zeros(3, np.int64)
        count = kernels.index_entries(
            data, len(block) - 4 - 4 * restarts, restarts, delta, trailer, every, only.keys, only.bounds, found, bounds,
            places[0], places[1], result, failure,
        )  # fmt: skip
        assert count >= 0, failure
        each = itertools.pairwise(bounds[: count + 1].tolist())
        entries = [
            (found[a:b].tobytes(), offset, size)
            for (a, b), offset, size in zip(each, *places[:, :count].tolist(), strict=True)
        ]
        return entries, bool(result[1]), bool(result[2])

    everything = [(one, *handle) for one, handle in zip(keys, handles, strict=True)]
    assert read(every=True) == (everything, True, True)

    def may_have(number: int, prefix: bytes) -> bool:
        is_before = number > 0 and prefix < plain[number - 1] and not plain[number - 1].startswith(prefix)
        return not is_before and (prefix <= plain[number] or plain[number].startswith(prefix))

    wanted = [number for number in range(len(keys)) if any(may_have(number, prefix) for prefix in prefixes)]
    expected = [everything[number] for number in wanted], 0 in wanted, len(keys) - 1 in wanted
    assert read(every=False) == expected
