"""The plain reader of RocksDB's files, part by part: numbers, blocks, indexes, and which rows are drawn."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, NoReturn

import cramjam
import pytest

from flinkstate.errors import DamagedError
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile
from stateferry.proof.plain import plain_rocksdb
from stateferry.proof.plain.plain_rocksdb import (
    EVERYTHING,
    KeyRange,
    PlainDatabase,
    _end_of_entries,
    _entries,
    _handle,
    _PlainBlocks,
    _PlainIndex,
    _PlainTable,
    _standing,
    _varint,
)
from tests.rocksdb import writing
from tests.rocksdb.writing import DELETE, MERGE, NONE, RANGE_DELETE, SINGLE_DELETE, VALUE, ZLIB, ZSTD, Entry, varint

SNAPPY = writing.SNAPPY


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 255, 16383, 16384, 2**31, 2**40 + 128])
def test_a_number_of_varying_length(value: int) -> None:
    data = b"xy" + varint(value) + b"z"
    assert _varint(data, 2) == (value, len(data) - 1)
    assert _handle(b"x" + varint(value) + varint(5) + b"z", 1) == ((value, 5), len(varint(value)) + 2)


@pytest.mark.parametrize(
    ("versions", "value"),
    [
        ([], None),
        ([(1, VALUE, b"a")], b"a"),
        ([(2, VALUE, b"b"), (1, VALUE, b"a")], b"b"),
        ([(3, MERGE, b"c"), (2, MERGE, b"b"), (1, VALUE, b"a")], b"a,b,c"),
        ([(3, MERGE, b"c"), (2, MERGE, b"b")], b"b,c"),
        ([(3, MERGE, b"c"), (2, DELETE, b""), (1, VALUE, b"a")], b"c"),
        ([(2, SINGLE_DELETE, b""), (1, VALUE, b"a")], None),
        ([(2, DELETE, b""), (3, VALUE, b"")], b""),
    ],
)
def test_what_stands_of_all_versions(versions: list[tuple[int, int, bytes]], value: bytes | None) -> None:
    assert _standing(versions) == value


@pytest.mark.parametrize("restart", [1, 2, 16])
def test_entries_of_a_block(restart: int) -> None:
    pairs = [(b"k%03d" % number, b"v" * (number % 5)) for number in range(40)]
    block = writing.block(pairs, restart)
    assert list(_entries(block)) == pairs
    assert _end_of_entries(block) == len(block) - 4 - 4 * (-(-40 // restart))


# Blocks.


class Stub:
    """A table that has read these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.asked = data, (0, 0)

    def read(self, file: object, offset: int, size: int) -> bytes:
        self.asked = offset, size
        return self.data


def content_of(kind: int, data: bytes) -> bytes:
    stub: Any = Stub(data + bytes([kind]))
    content: bytes = _PlainBlocks(None, stub).block(7, len(data))
    assert stub.asked == (7, len(data) + 1)
    return content


def deflated(content: bytes) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()


LONG = b"some content " * 50


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (NONE, LONG),
        (SNAPPY, bytes(cramjam.snappy.compress_raw(LONG))),
        (ZLIB, varint(len(LONG)) + deflated(LONG)),
        (writing.LZ4, varint(len(LONG)) + bytes(cramjam.lz4.compress_block(LONG, store_size=False))),
        (5, varint(len(LONG)) + bytes(cramjam.lz4.compress_block(LONG, store_size=False))),
        (ZSTD, varint(len(LONG)) + bytes(cramjam.zstd.compress(LONG))),
    ],
)
def test_the_content_of_a_block(kind: int, data: bytes) -> None:
    assert content_of(kind, data) == LONG


def test_a_block_says_no_larger_size_than_it_can_have() -> None:
    """The libraries would get so much memory before they look at the content."""
    small = deflated(LONG)
    most = (len(small) + 3) * 1040 + 64
    assert content_of(ZLIB, varint(most) + small) == LONG
    with pytest.raises(ValueError, match=f"^{most + 1} bytes of content in a block of {len(small) + 3}$"):
        content_of(ZLIB, varint(most + 1) + small)
    noise = Random(1).randbytes(70_000)
    packed = bytes(cramjam.zstd.compress(noise))
    assert content_of(ZSTD, varint(1 << 31) + packed) == noise
    with pytest.raises(ValueError, match="bytes of content"):
        content_of(ZSTD, varint((1 << 31) + 1) + packed)


# Indexes.

SIZES = [100, 90, 250, 250, 3, 70, 70, 70, 1000, 5]


def index_of(keys: Sequence[bytes], restart: int, is_delta: bool, trailer: int) -> tuple[_PlainIndex, list[Any]]:
    """An index of neighbouring blocks, in which later entries say only by how much their block is larger."""
    out, restarts, before, offset, handles = bytearray(), [], b"", 0, []
    for number, key in enumerate(keys):
        full, size, shared = key + bytes(trailer), SIZES[number], 0
        if number % restart:
            while shared < min(len(full), len(before)) and full[shared] == before[shared]:
                shared += 1
        else:
            restarts.append(len(out))
        out += varint(shared) + varint(len(full) - shared)
        handle = varint(offset) + varint(size)
        if is_delta and shared:
            difference = size - SIZES[number - 1]
            handle = varint(difference * 2 if difference >= 0 else -difference * 2 - 1)
        if not is_delta:
            out += varint(len(handle))
        out += full[shared:] + handle
        handles.append((key, (offset, size)))
        before, offset = full, offset + size + 5
    block = bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    return _PlainIndex(block, is_delta, trailer), handles


KEYS = [b"k%d" % (number * 10) for number in range(1, 10)]


@pytest.mark.parametrize("trailer", [0, 8])
@pytest.mark.parametrize("is_delta", [False, True])
@pytest.mark.parametrize("restart", [1, 2, 3, 16])
def test_entries_of_an_index(restart: int, is_delta: bool, trailer: int) -> None:
    index, handles = index_of(KEYS, restart, is_delta, trailer)
    assert list(index.entries_from(b"")) == handles
    assert [index._key(number) for number in range(-(-9 // restart))] == KEYS[::restart]
    for place, key in enumerate(KEYS):
        assert list(index.entries_from(key)) == handles[place:]
        assert list(index.entries_from(key + b"\0")) == handles[place + 1 :]


def test_an_index_is_read_from_the_restart_before(monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = index_of(KEYS, 3, True, 0)
    begun: list[int] = []
    entries = _PlainIndex._entries

    def noted(self: _PlainIndex, at: int) -> Any:
        begun.append(at)
        return entries(self, at)

    monkeypatch.setattr(_PlainIndex, "_entries", noted)
    for key in (b"k10", b"k40", b"k41", b"k70", b"k99"):
        list(index.entries_from(key))
    assert [index._restarts.index(at) for at in begun] == [0, 0, 1, 1, 2]


def test_an_empty_index_has_no_blocks() -> None:
    index = _PlainIndex(struct.pack("<2I", 0, 1), True, 0)
    assert list(index.entries_from(b"")) == []
    assert index.draw(EVERYTHING, Random(1)) is None


class Drawing:
    """Says which number is drawn, and remembers among which."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def randrange(self, first: int, after: int) -> int:
        self.ranges.append((first, after))
        return after - 1


@pytest.mark.parametrize(
    ("within", "among"),
    [
        (EVERYTHING, (0, 9)),
        (KeyRange(b"k30", None), (1, 9)),
        (KeyRange(b"k31", b"k60"), (2, 6)),
        (KeyRange(b"k31", b"k61"), (2, 7)),
        (KeyRange(b"", b"k10"), (0, 1)),
        (KeyRange(b"", b"k90"), (0, 9)),
        (KeyRange(b"", b"z"), (0, 9)),
        (KeyRange(b"k91", None), (8, 9)),
    ],
)
def test_a_block_is_drawn_among_those_that_may_have_keys(within: KeyRange, among: tuple[int, int]) -> None:
    index, handles = index_of(KEYS, 1, True, 0)
    chance: Any = Drawing()
    assert index.draw(within, chance) == handles[among[1] - 1][1]
    assert chance.ranges == [among]


# Databases.


def values(*keys: bytes) -> list[Entry]:
    return [(key, number + 1, VALUE, b"v%d" % number) for number, key in enumerate(keys)]


def opened(runs: list[list[list[Entry]]], **options: Any) -> PlainDatabase:
    files = writing.database(runs, range(len(runs)), compression=NONE, **options)
    return PlainDatabase(writing.stored(files))


def test_only_files_that_may_have_keys_are_read() -> None:
    database = opened([[values(b"\0b", b"\0d")]])
    whole = database.size("state", EVERYTHING)
    assert whole > 100
    for within, is_read in (
        (KeyRange(b"\0d", None), True),
        (KeyRange(b"\0d\0", None), False),
        (KeyRange(b"", b"\0b"), False),
        (KeyRange(b"", b"\0b\0"), True),
        (KeyRange(b"\0c", b"\0c\0"), True),
    ):
        assert database.size("state", within) == (whole if is_read else 0)
    assert database.size("another", EVERYTHING) == 0
    assert database.rows("another", EVERYTHING) == {}
    two = opened([[values(b"\0b")], [values(b"\0c")]])
    assert two.size("state", EVERYTHING) == sum(two.size("state", KeyRange(key, None)) for key in (b"\0b", b"\0c")) - (
        two.size("state", KeyRange(b"\0c", None))
    )


def test_an_entry_as_old_as_a_deleted_range_stands() -> None:
    """In a file that was ingested, all have the same number; the entries come after the ranges."""
    entries: list[Entry] = [(b"\0a", 7, VALUE, b"1"), (b"\0b", 6, VALUE, b"2"), (b"\0c", 8, VALUE, b"3")]
    ranges: list[Entry] = [(b"\0a", 7, RANGE_DELETE, b"\0c")]
    assert opened([[[*entries, *ranges]]]).rows("state", EVERYTHING) == {b"\0a": b"1", b"\0c": b"3"}
    from_there: list[Entry] = [(b"\0b", 7, RANGE_DELETE, b"\0c"), (b"\0d", 0, VALUE, b"4")]
    wanted = {b"\0a": b"1", b"\0c": b"3", b"\0d": b"4"}
    assert opened([[[*entries, *from_there]]]).rows("state", EVERYTHING) == wanted
    at_the_end: list[Entry] = [entries[0], (b"\0c", 3, VALUE, b"3")]
    assert opened([[[*at_the_end, *ranges]]]).rows("state", EVERYTHING) == {b"\0a": b"1", b"\0c": b"3"}
    older: list[Entry] = [(b"\0a", 5, RANGE_DELETE, b"\0c")]
    assert opened([[[*entries, *ranges, *older]]]).rows("state", EVERYTHING) == {b"\0a": b"1", b"\0c": b"3"}


KEYS_OF_GROUP = [b"\0k%02d" % number for number in range(30)]


@pytest.mark.parametrize("two_levels", [False, True])
def test_rows_are_drawn_from_one_key_to_the_end_of_its_block(two_levels: bool) -> None:
    entries = values(*KEYS_OF_GROUP)
    expected = {key: value for key, _, _, value in entries}
    one_each = opened([[entries]], block_bytes=1, two_levels=two_levels)
    firsts = set()
    for seed in range(150):
        drawn = one_each.draw("state", EVERYTHING, Random(seed))
        assert drawn is not None
        (key,) = drawn[1]
        assert drawn == (KeyRange(key, key + b"\0"), {key: expected[key]})
        firsts.add(key)
    assert len(firsts) > 20
    together = opened([[entries]], block_bytes=1 << 20, two_levels=two_levels)
    firsts = set()
    for seed in range(150):
        drawn = together.draw("state", EVERYTHING, Random(seed))
        assert drawn is not None
        first = drawn[0].first
        rest = {key: value for key, value in expected.items() if key >= first}
        assert drawn == (KeyRange(first, KEYS_OF_GROUP[-1] + b"\0"), rest)
        firsts.add(first)
    assert len(firsts) > 20


def test_rows_are_drawn_as_far_as_one_block_of_each_file_goes() -> None:
    long = values(*KEYS_OF_GROUP)
    short = [(key, 100 + number, VALUE, b"new") for number, key in enumerate(KEYS_OF_GROUP[::10])]
    database = opened([[short], [long]], block_bytes=60)
    for seed in range(60):
        drawn = database.draw("state", EVERYTHING, Random(seed))
        assert drawn is not None
        keys, rows = drawn
        ends = []
        for run in (short, long):
            alone = opened([[run]], block_bytes=60)
            (table,) = map(alone._table, alone._live("state", EVERYTHING))
            end = table.end_of_block(keys.first)
            ends += [] if end is None else [end]
        assert keys.after == min(ends)
        assert rows == database.rows("state", keys)


def test_rows_are_drawn_within_the_range() -> None:
    database = opened([[values(*KEYS_OF_GROUP)]], block_bytes=1)
    within = KeyRange(KEYS_OF_GROUP[10], KEYS_OF_GROUP[12])
    drawn = [database.draw("state", within, Random(seed)) for seed in range(60)]
    found = [one[0].first for one in drawn if one is not None]
    # Other blocks are drawn as well; then it is tried again, but not for ever.
    assert len(found) >= 45
    assert set(found) == {KEYS_OF_GROUP[10], KEYS_OF_GROUP[11]}
    wide = opened([[values(*KEYS_OF_GROUP)]], block_bytes=1 << 20)
    alone = KeyRange(KEYS_OF_GROUP[10], KEYS_OF_GROUP[10] + b"\0")
    assert wide.draw("state", alone, Random(1)) == (alone, {KEYS_OF_GROUP[10]: b"v10"})
    for seed in range(20):
        one = wide.draw("state", within, Random(seed))
        assert one is not None
        assert one[0].after == within.after
        assert set(one[1]) == {key for key in KEYS_OF_GROUP[10:12] if key >= one[0].first}


def test_nothing_is_drawn_where_nothing_is() -> None:
    assert opened([[values(b"\0b")]]).draw("another", EVERYTHING, Random(1)) is None
    deleted: list[Entry] = [(b"\0b", 9, DELETE, b"")]
    assert opened([[deleted], [values(b"\0b")]]).draw("state", EVERYTHING, Random(1)) is None
    assert opened([[values(b"\0b", b"\0f")]]).draw("state", KeyRange(b"\0c", b"\0d"), Random(1)) is None


def test_it_is_drawn_again_where_a_key_was_deleted() -> None:
    entries = values(*KEYS_OF_GROUP)
    gone: list[Entry] = [(key, 900, DELETE, b"") for key in KEYS_OF_GROUP[1:]]
    database = opened([[gone], [entries]], block_bytes=1)
    drawn = [database.draw("state", EVERYTHING, Random(seed)) for seed in range(60)]
    found = [one for one in drawn if one is not None]
    assert 0 < len(found) < 60
    assert all(set(rows) == {KEYS_OF_GROUP[0]} for _, rows in found)


def test_a_very_large_block_is_not_read_to_draw_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    database = opened([[values(*KEYS_OF_GROUP)]], block_bytes=1 << 20)
    (table,) = map(database._table, database._live("state", EVERYTHING))
    ((_, (_, size)),) = table._index.entries_from(b"")
    monkeypatch.setattr(plain_rocksdb, "_LARGEST_DRAWN", size)
    assert database.draw("state", EVERYTHING, Random(1)) is not None
    monkeypatch.setattr(plain_rocksdb, "_LARGEST_DRAWN", size - 1)
    assert database.draw("state", EVERYTHING, Random(1)) is None


@pytest.mark.parametrize("two_levels", [False, True])
def test_the_end_of_the_block_with_a_key(two_levels: bool) -> None:
    database = opened(
        [[values(b"\0b", b"\0d", b"\0f", b"\0h", b"\0j")]],
        block_bytes=1,
        two_levels=two_levels,
        user_keys=not two_levels,
    )
    (table,) = map(database._table, database._live("state", EVERYTHING))
    ends = [table.end_of_block(key) for key in (b"", b"\0b", b"\0c", b"\0d", b"\0j", b"\0j\0")]
    assert ends == [b"\0b\0", b"\0b\0", b"\0d\0", b"\0d\0", b"\0j\0", None]


# Damage.


def damaged_at(place: int, kind: int) -> tuple[PlainDatabase, int]:
    """A database whose block of that number has another type of compression; where the block begins."""
    files = writing.database([[values(b"\0b", b"\0d", b"\0f", b"\0h")]], [0], compression=NONE, block_bytes=1)
    (name,) = (name for name in files if name.endswith(".sst"))
    database = PlainDatabase(writing.stored(files))
    (table,) = map(database._table, database._live("state", EVERYTHING))
    offset, size = [handle for _, handle in table._index.entries_from(b"")][place]
    data = bytearray(files[name])
    data[offset + size] = kind
    return PlainDatabase(writing.stored({**files, name: bytes(data)})), offset


def test_blocks_behind_the_range_are_not_read() -> None:
    database, _ = damaged_at(2, 99)
    assert set(database.rows("state", KeyRange(b"", b"\0d"))) == {b"\0b"}
    assert set(database.rows("state", KeyRange(b"\0h", None))) == {b"\0h"}
    with pytest.raises(DamagedError):
        database.rows("state", KeyRange(b"", b"\0d\0"))


def test_damage_is_named_with_file_and_place() -> None:
    database, offset = damaged_at(2, 99)
    with pytest.raises(DamagedError) as caught:
        database.rows("state", EVERYTHING)
    assert offset > 0
    assert (caught.value.expected, caught.value.found) == ("a table of RocksDB", "KeyError: 99")
    assert (caught.value.file, caught.value.offset) == ("000010.sst", offset)


def test_an_entry_of_another_type_is_damage() -> None:
    odd: list[Entry] = [*values(b"\0b", b"\0d"), (b"\0f", 9, 3, b"")]
    files = writing.database([[odd]], [0], compression=NONE, block_bytes=1)
    with pytest.raises(DamagedError) as caught:
        PlainDatabase(writing.stored(files)).rows("state", EVERYTHING)
    assert (caught.value.expected, caught.value.found) == ("an entry of type 0, 1, 2 or 7", "3")
    assert caught.value.file == "000010.sst"
    assert caught.value.offset


def test_a_file_without_room_for_a_footer_is_damage() -> None:
    files = writing.database([[values(b"\0b")]], [0])
    short = files | {name: data[:20] for name, data in files.items() if name.endswith(".sst")}
    with pytest.raises(DamagedError) as caught:
        PlainDatabase(writing.stored(short)).rows("state", EVERYTHING)
    assert (caught.value.file, caught.value.offset) == ("000010.sst", 0)


def test_a_file_that_cannot_be_opened_is_named() -> None:
    files = writing.stored(writing.database([[values(b"\0b")]], [0]))

    def gone() -> NoReturn:
        raise DamagedError("a file", "nothing")

    without = {name: replace(file, open=gone) if name.endswith(".sst") else file for name, file in files.items()}
    with pytest.raises(DamagedError) as caught:
        PlainDatabase(without).rows("state", EVERYTHING)
    assert (caught.value.file, caught.value.offset) == ("000010.sst", 0)


# Deleted ranges, as far as a file's own keys go.

END = struct.pack("<Q", (2**56 - 1) << 8 | RANGE_DELETE)


@pytest.mark.parametrize(
    ("first", "last", "ends_with_range", "found"),
    [
        (b"a", b"z", False, (b"bbbb", b"ffff", 7)),
        (b"bbbb", b"ffff", True, (b"bbbb", b"ffff", 7)),
        (b"cccccccccc", b"z", False, (b"cccccccccc", b"ffff", 7)),
        (b"a", b"d", False, (b"bbbb", b"d\0", 7)),
        (b"a", b"dddddddddd", True, (b"bbbb", b"dddddddddd", 7)),
        (b"ffff", b"z", False, None),
        (b"a", b"bbbb", True, None),
        (b"a", b"bbbb", False, (b"bbbb", b"bbbb\0", 7)),
        (b"a", b"aaaa", False, None),
    ],
)
def test_a_deleted_range_within_the_keys_of_its_file(
    first: bytes, last: bytes, ends_with_range: bool, found: tuple[bytes, bytes, int] | None
) -> None:
    table = object.__new__(_PlainTable)
    tag = struct.pack("<Q", 9 << 8 | VALUE)
    table._live = LiveFile(1, 0, 1, first + tag, last + (END if ends_with_range else tag))
    table._ranges = [(b"bbbb" + struct.pack("<Q", 7 << 8 | RANGE_DELETE), b"ffff")]
    assert list(table.deleted_ranges()) == ([] if found is None else [found])


def test_tables_of_old_versions_do_not_say_how_their_index_is_written() -> None:
    entries = values(*KEYS_OF_GROUP)
    table = writing.Table(compression=NONE, block_bytes=1, user_keys=False, delta_coded=False, old=True)
    data = table.write(entries)
    assert b"rocksdb.index.key.is.user.key" not in data
    first, last = writing.bounds(entries)
    family = ColumnFamily(1, "state", {1: LiveFile(1, 0, len(data), first, last)})
    database = PlainDatabase(writing.stored({"000001.sst": data}), {"state": family})
    assert database.rows("state", EVERYTHING) == {key: value for key, _, _, value in entries}
    (opened_table,) = map(database._table, database._live("state", EVERYTHING))
    assert opened_table.end_of_block(KEYS_OF_GROUP[3]) == KEYS_OF_GROUP[3] + b"\0"
