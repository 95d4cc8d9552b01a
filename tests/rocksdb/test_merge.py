"""Random databases, written byte by byte, are read as a plain dictionary says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.kernels import SLACK
from stateferry.proof.plain.plain_rocksdb import EVERYTHING, KeyRange, PlainDatabase
from tests.rocksdb import writing
from tests.rocksdb.writing import (
    DELETE,
    LZ4,
    MERGE,
    NONE,
    RANGE_DELETE,
    SINGLE_DELETE,
    SNAPPY,
    VALUE,
    ZLIB,
    ZSTD,
    Entry,
)

GROUPS = 4


def scanned(files: dict[str, bytes], low: int, high: int, size: int, rows: int) -> Iterator[tuple[bytes, bytes]]:
    """What a scan finds, through a buffer of so many bytes with room for so many rows."""
    database = Database(writing.stored(files), "the database")
    buffer, positions = np.zeros(size + SLACK, np.uint8), np.zeros((3, rows), np.int64)
    with database.scan("state", 1, low, high) as scan:
        for group in range(low, high):
            needed = 1
            while needed:
                if needed > len(buffer) - SLACK:
                    buffer = np.zeros(needed + SLACK, np.uint8)
                starts, key_ends, ends = positions
                found = scan.read(group + 1, buffer, 0, (starts, key_ends, ends))
                needed = found.needed
                assert found.rows or not needed or needed > len(buffer) - SLACK
                data = buffer.tobytes()
                for row in range(found.rows):
                    start, key_end, end = int(starts[row]), int(key_ends[row]), int(ends[row])
                    assert data[start : start + 4] == (key_end - start - 4).to_bytes(4, "big")
                    assert data[key_end : key_end + 4] == (end - key_end - 4).to_bytes(4, "big")
                    assert data[start + 4] == group
                    yield data[start + 4 : key_end], data[key_end + 4 : end]


def model(entries: Sequence[Entry], low: int, high: int) -> dict[bytes, bytes]:
    """The writes one after another, as a dictionary."""
    found: dict[bytes, bytes] = {}
    for key, _, kind, value in sorted(entries, key=lambda entry: entry[1]):
        if kind == VALUE:
            found[key] = value
        elif kind == MERGE:
            found[key] = found[key] + b"," + value if key in found else value
        elif kind == RANGE_DELETE:
            found = {other: content for other, content in found.items() if not key <= other < value}
        else:
            found.pop(key, None)
    return {key: found[key] for key in sorted(found) if low <= key[0] < high}


KEYS = st.builds(
    lambda group, rest: bytes([group]) + rest,
    st.integers(0, GROUPS - 1),
    st.one_of(
        st.binary(max_size=3), st.sampled_from([b"\1\0", b"\1" + bytes(7), b"k" * 40, b"k" * 40 + b"\1", b"k" * 2000])
    ),
)
VALUES = st.one_of(st.binary(max_size=12), st.just(b"v" * 300))
KINDS = st.sampled_from([VALUE, VALUE, VALUE, DELETE, SINGLE_DELETE, MERGE, MERGE])


@st.composite
def written(draw: st.DrawFn, kinds: st.SearchStrategy[int] = KINDS, ranges: bool = True) -> list[Entry]:
    """Writes in their order, each with its sequence number."""
    out: list[Entry] = []
    for sequence in range(1, draw(st.integers(1, 60)) + 1):
        if ranges and draw(st.integers(0, 9)) == 0:
            start, end = sorted((draw(KEYS), draw(KEYS)))
            if start < end:
                out.append((start, sequence, RANGE_DELETE, end))
        else:
            out.append((draw(KEYS), sequence, draw(kinds), draw(VALUES)))
    return out or [(b"\0", 1, VALUE, b"")]


def _runs(entries: list[Entry], cuts: list[int], several: bool) -> tuple[list[list[list[Entry]]], list[int]]:
    """Consecutive writes as runs from the newest to the oldest; the oldest may be two files of level 1."""
    places = sorted({0, len(entries), *(cut % (len(entries) + 1) for cut in cuts)})
    runs = [[entries[one:other]] for one, other in pairwise(places)][::-1]
    levels = [0] * len(runs)
    oldest = runs[-1][0]
    if several and all(entry[2] != RANGE_DELETE for entry in oldest):
        middle = sorted(entry[0] for entry in oldest)[len(oldest) // 2]
        parts = [[e for e in oldest if e[0] < middle], [e for e in oldest if e[0] >= middle]]
        runs[-1], levels[-1] = [part for part in parts if part], 1
    return runs, levels


@given(
    written(),
    st.lists(st.integers(0, 100), max_size=6),
    st.booleans(),
    st.sampled_from([NONE, SNAPPY, ZLIB, LZ4, ZSTD]),
    st.booleans(),
    st.tuples(st.integers(0, GROUPS - 1), st.integers(1, GROUPS)),
    st.sampled_from([20, 200, 100000]),
    st.sampled_from([1, 3, 1000]),
)
def test_runs_are_merged_as_a_dictionary_says(
    entries: list[Entry],
    cuts: list[int],
    several: bool,
    compression: int,
    two_levels: bool,
    groups: tuple[int, int],
    size: int,
    rows: int,
) -> None:
    runs, levels = _runs(entries, cuts, several)
    files = writing.database(runs, levels, compression=compression, two_levels=two_levels, user_keys=not two_levels)
    low, high = min(groups), max(groups)
    expected = model(entries, low, high)
    assert list(scanned(files, low, high, size, rows)) == list(expected.items())
    # Plain code is asked by first and last key.
    plain, own = PlainDatabase(writing.stored(files)), KeyRange(bytes([low]), bytes([high]))
    assert plain.rows("state", own if low < high else KeyRange(b"\1", b"\0")) == expected
    assert plain.rows("state", EVERYTHING) == model(entries, 0, GROUPS)
    drawn = plain.draw("state", own, Random(size)) if low < high else None
    if drawn is not None:
        keys, some = drawn
        assert some == {key: value for key, value in expected.items() if key in keys}
        assert some


@given(written(st.just(VALUE), ranges=False), st.booleans(), st.sampled_from([20, 100000]), st.sampled_from([1, 1000]))
def test_a_single_run_of_values_needs_no_merge(entries: list[Entry], delta_coded: bool, size: int, rows: int) -> None:
    files = writing.database([[entries]], [6], delta_coded=delta_coded)
    expected = model(entries, 0, GROUPS)
    assert list(scanned(files, 0, GROUPS, size, rows)) == list(expected.items())
    assert PlainDatabase(writing.stored(files)).rows("state", EVERYTHING) == expected


def test_a_deleted_range_counts_only_within_its_file() -> None:
    """An entry of the last level may be newer than a range of a level above, though its sequence number is gone."""

    def files(end: bytes) -> dict[str, bytes]:
        above = [(b"\0a", 5, VALUE, b"1"), (b"\0b", 7, RANGE_DELETE, end)]
        below = [(b"\0c", 0, VALUE, b"2"), (b"\0x", 0, VALUE, b"3")]
        return writing.database([[above], [below]], [1, 2])

    def plain(of: dict[str, bytes]) -> dict[bytes, bytes]:
        return PlainDatabase(writing.stored(of)).rows("state", EVERYTHING)

    assert dict(scanned(files(b"\0z"), 0, 1, 100, 9)) == plain(files(b"\0z")) == {b"\0a": b"1"}
    # The range in the file goes on to "z", but the MANIFEST says that the file ends at "m".
    repeated = files(b"\0m") | {name: data for name, data in files(b"\0z").items() if b"\0z" in data and ".sst" in name}
    assert dict(scanned(repeated, 0, 1, 100, 9)) == plain(repeated) == {b"\0a": b"1", b"\0x": b"3"}


def test_a_file_that_begins_where_a_deleted_range_was_cut_off() -> None:
    """RocksDB 8.10 may end a file there. The next one's first key in the MANIFEST then has the number of an entry that
    isn't in the file, and a type behind all others."""
    entries = [(b"\0b", 7, RANGE_DELETE, b"\0m"), (b"\0f", 9, VALUE, b"1"), (b"\0x", 8, VALUE, b"2")]
    below = [(b"\0a", 0, VALUE, b"3"), (b"\0c", 0, VALUE, b"4"), (b"\0d", 0, VALUE, b"5")]
    files = writing.database([[entries], [below]], [2, 6])
    told = [(b"\0c", 12, 24, b""), *entries[1:]]
    edits = [
        writing.varint(1) + writing.sized(b"leveldb.BytewiseComparator") + writing.numbers(100, 50),
        writing.varint(200) + writing.varint(1) + writing.varint(201) + writing.sized(b"state"),
    ]
    for number, level, like in ((11, 2, told), (10, 6, below)):
        new = writing.new_file(number, level, len(files[f"{number:06}.sst"]), like, sequences=[like[-1][1], like[1][1]])
        edits.append(writing.varint(200) + writing.varint(1) + new)
    files["MANIFEST-000001"] = writing.log(edits)
    expected = {b"\0a": b"3", b"\0f": b"1", b"\0x": b"2"}
    assert dict(scanned(files, 0, 1, 100, 9)) == expected
    assert PlainDatabase(writing.stored(files)).rows("state", EVERYTHING) == expected


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 70_000, 300_000, 1_000_000])
def test_entries_larger_than_every_buffer(size: int) -> None:
    entries: list[Entry] = [
        (b"\1" + b"k" * size, 1, VALUE, b"v" * size),
        (b"\1" + b"k" * size + b"a", 2, MERGE, b"w" * size),
        (b"\1" + b"k" * size + b"a", 3, MERGE, b"x" * size),
        (b"\2", 4, VALUE, b"y"),
    ]
    files = writing.database([[entries[2:]], [entries[:2]]], [0, 0], compression=NONE)
    assert list(scanned(files, 0, 3, 100, 2)) == list(model(entries, 0, 3).items())
    files = writing.database([[entries[:1] + entries[3:]]], [6])
    assert dict(scanned(files, 0, 3, 100, 2)) == {b"\1" + b"k" * size: b"v" * size, b"\2": b"y"}
