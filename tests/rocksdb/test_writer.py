"""What the writer of databases writes, against plain code that reads RocksDB's files, and against our own scan."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import KeyTwiceError, UsageError
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.keyed.key_group_check import Membership
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.stored_files import stored_files
from flinkstate.metadata.metadata import NativeHandle, RelativeFile
from flinkstate.rocksdb import write_family, write_sst_file
from flinkstate.rocksdb.merge import Found
from flinkstate.rocksdb.scan import Scan
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing import native_writer
from flinkstate.writing.native_writer import NativeFiles, NativeFileWriter
from flinkstate.writing.write_behind import WriteBehind
from stateferry.proof.plain.plain_rocksdb import EVERYTHING, PlainDatabase

Row = tuple[bytes, bytes]
BYTES = simple_snapshot(Scalar.STRING)
STATES = ("one", "two", "without rows")


def header() -> KeyedHeader:
    serializers = ((VALUE_SERIALIZER, BYTES), (NAMESPACE_SERIALIZER, BYTES))
    options = ((KEYED_STATE_TYPE, "MAP"),)
    metas = tuple(StateMeta(name, BackendKind.KEY_VALUE, options, serializers) for name in STATES)
    return KeyedHeader(True, BYTES, metas)


def section(rows: Sequence[Row]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    parts = (struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value for key, value in rows)
    return np.frombuffer(b"".join(parts), np.uint8)


def files_in(folder: Path, groups: KeyGroupRange) -> NativeFiles:
    return NativeFiles(Location.of(str(folder)), "x", groups, 7, None)


Given = Sequence[tuple[int, int, Sequence[Row]]]


def written(folder: Path, given: Given, groups: KeyGroupRange, *, is_compressed: bool = True) -> NativeHandle:
    """A database of the rows of key groups and states, in the order given."""
    folder.mkdir(exist_ok=True)
    with NativeFileWriter(files_in(folder, groups), header(), 1, is_compressed=is_compressed) as out:
        for key_group, state, rows in given:
            out.entries(key_group, state, section(rows), 0)
        return out.close()


def check(folder: Path, handle: NativeHandle, given: Given) -> PlainDatabase:
    """All that was given is there once, in order, for two readers that share nothing."""
    files = stored_files(Location.of(str(folder)), handle)
    names = {file.stream.path for file in handle.files if isinstance(file.stream, RelativeFile)}
    assert {file.name for file in folder.iterdir()} == {*names, "x-meta"}
    plain = PlainDatabase(files)
    expected: dict[int, dict[bytes, bytes]] = {state: {} for state in range(len(STATES))}
    for _, state, rows in given:
        expected[state].update(rows)
    for state, name in enumerate(STATES):
        assert plain.rows(name, EVERYTHING) == expected[state]
    found: Counter[tuple[int, bytes, bytes]] = Counter()
    with NativeFile(Location.of(str(folder)), handle, 128, 0) as file:
        assert [meta.name for meta in file.header.states] == list(STATES)
        assert not file.header.compressed
        # The keys here are of no type.
        file.membership = AnyMember(file.header, 128, 1)
        for state, key, value in rows_of(file):
            found[state, key, value] += 1
    assert found == Counter((state, key, value) for state, rows in expected.items() for key, value in rows.items())
    return plain


class AnyMember(Membership):
    def check(self, *_: object) -> None:
        pass


def rows_of(file: NativeFile) -> Iterator[tuple[int, bytes, bytes]]:
    before: dict[int, bytes] = {}
    for key_group in file.handle.range:
        for found in file.sections(key_group):
            data = found.data.tobytes()
            for start, key_end, end in zip(
                found.starts.tolist(), found.key_ends.tolist(), found.ends.tolist(), strict=True
            ):
                key = data[start + 4 : key_end]
                assert before.get(found.state, b"") < key
                before[found.state] = key
                yield found.state, key, data[key_end + 4 : end]


def maps(chance: random.Random, key_group: int, keys: int) -> list[Row]:
    """Rows as blobs become: those of a key stand together, in no order among each other."""
    out = []
    for key in sorted({bytes([key_group]) + chance.randbytes(chance.choice((2, 8, 20))) for _ in range(keys)}):
        user_keys = {chance.randbytes(chance.choice((0, 1, 7, 8, 9, 30))) for _ in range(chance.randrange(40))}
        # A key that another one begins with would have that one's rows among its own.
        rows = [(key + b"\xff" + user, chance.randbytes(chance.choice((0, 8, 9, 200)))) for user in user_keys]
        chance.shuffle(rows)
        out += rows
    return list(dict(out).items())


ORDERS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "in order": sorted,
    "backwards": lambda rows: sorted(rows, reverse=True),
    "by maps": list,
    "shuffled": lambda rows: random.Random(5).sample(rows, len(rows)),
}


@pytest.mark.matrix(most=4)
@pytest.mark.parametrize("portion", [write_family.PORTION, 3000], ids=["at once", "in portions"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_row_is_there_once_and_in_order(
    order: str, portion: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_writer, "PORTION", portion)
    monkeypatch.setattr(write_sst_file, "FILE", 5000)
    for seed in range(4):
        chance = random.Random(seed)
        given: list[tuple[int, int, list[Row]]] = []
        for key_group in (3, 4, 9):
            for state in chance.sample((0, 1), 2):
                rows = ORDERS[order](maps(chance, key_group, 12))
                given += [(key_group, state, rows[at : at + 25]) for at in range(0, len(rows), 25)]
        folder = tmp_path / f"{seed}"
        handle = written(folder, given, KeyGroupRange(3, 9))
        check(folder, handle, given)
        # Written again, it has the same bytes.
        again = written(tmp_path / f"{seed} again", given, KeyGroupRange(3, 9))
        assert again == handle
        for file in folder.iterdir():
            assert file.read_bytes() == (tmp_path / f"{seed} again" / file.name).read_bytes()


def test_rows_of_all_sizes(tmp_path: Path) -> None:
    chance = random.Random(2)
    sizes = (0, 1, 127, 128, 4095, 4096, 70_000, 3_000_000)
    rows = [(b"\x05" + bytes([number]) + chance.randbytes(sizes[number % 7]), bytes(size)) for number, size in
            enumerate(sizes * 2)]  # fmt: skip
    rows += [(b"\x05\xff", chance.randbytes(5_000_000))]
    given = [(5, 0, rows)]
    check(tmp_path / "db", written(tmp_path / "db", given, KeyGroupRange(5, 5)), given)


def test_a_database_without_rows(tmp_path: Path) -> None:
    handle = written(tmp_path / "db", [], KeyGroupRange(0, 3))
    check(tmp_path / "db", handle, [])
    assert [file.name for file in handle.private] == ["MANIFEST-000001", "CURRENT"]


def test_files_end_at_their_size_and_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_sst_file, "FILE", 1 << 20)
    chance = random.Random(1)
    rows = [(b"\x01" + number.to_bytes(4, "big"), chance.randbytes(100)) for number in range(60_000)]
    given = [(1, 0, rows[at : at + 10_000]) for at in range(0, len(rows), 10_000)]
    handle = written(tmp_path / "db", given, KeyGroupRange(1, 1))
    check(tmp_path / "db", handle, given)
    sizes = [file.stream.size for file in handle.private if file.name.endswith(".sst")]
    assert len(sizes) > 3
    assert all(size > 1 << 20 for size in sizes[:-1])


def test_while_a_file_is_written_only_one_before_it_is_on_its_way_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[WriteBehind] = []
    on_their_way: list[int] = []

    class Watched(WriteBehind):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            on_their_way.append(sum(stream.is_on_its_way for stream in streams))
            super().__init__(*arguments, **options)
            streams.append(self)

    monkeypatch.setattr(native_writer, "WriteBehind", Watched)
    monkeypatch.setattr(write_sst_file, "FILE", 1 << 12)
    chance = random.Random(1)
    given = [(group, 0, [(bytes([group]), chance.randbytes(5_000))]) for group in range(6)]
    handle = written(tmp_path / "db", given, KeyGroupRange(0, 5))
    check(tmp_path / "db", handle, given)
    # Six tables, and then the MANIFEST and two small files.
    assert on_their_way[:6] == [0, 1, 1, 1, 1, 1]
    assert len(streams) == 9
    assert not any(stream.is_on_its_way for stream in streams)


def test_files_of_many_small_key_groups_end_at_their_size_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_sst_file, "FILE", 1 << 16)
    chance = random.Random(1)
    given = [(group, 0, [(bytes([group]), chance.randbytes(6000))]) for group in range(100)]
    handle = written(tmp_path / "db", given, KeyGroupRange(0, 99))
    check(tmp_path / "db", handle, given)
    sizes = [file.stream.size for file in handle.private if file.name.endswith(".sst")]
    assert len(sizes) > 8
    assert max(sizes) < 3 << 16


def test_blocks_that_are_not_to_be_compressed(tmp_path: Path) -> None:
    given = [(1, 0, [(b"\x01" + number.to_bytes(4, "big"), bytes(50)) for number in range(1000)])]
    sizes = {}
    for is_compressed in (True, False):
        handle = written(tmp_path / f"{is_compressed}", given, KeyGroupRange(1, 1), is_compressed=is_compressed)
        check(tmp_path / f"{is_compressed}", handle, given)
        sizes[is_compressed] = handle.size
    assert sizes[False] > 50_000 > 2 * sizes[True]


@pytest.mark.parametrize("portion", [write_family.PORTION, 100])
def test_a_key_that_is_there_twice_is_damage(portion: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_writer, "PORTION", portion)
    rows = [(b"\x01" + bytes([number]), bytes(60)) for number in (1, 3, 2, 5, 4, 3)]
    with pytest.raises(KeyTwiceError, match=r"each key of a state once.* found in state one, 0103 "):
        written(tmp_path / "db", [(1, 0, [row]) for row in rows], KeyGroupRange(1, 1))
    # What isn't complete has no name of its own.
    assert not [file for file in (tmp_path / "db").iterdir() if file.name.endswith("CURRENT")]


def test_portions_of_a_large_key_group_wait_in_few_open_files_of_sparks_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PORTION", "_MOST_OPEN"):
        monkeypatch.setattr(write_family, name, 4)
    monkeypatch.setattr(native_writer, "PORTION", 4)
    (tmp_path / "spark").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'spark'},/nowhere")
    rows = [(b"\0" + bytes([255 - number]), b"value") for number in range(200)]
    most_open = 0

    class Watched(Scan):
        def read(self, *args: Any) -> Found:
            nonlocal most_open
            found = super().read(*args)
            names = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
            most_open = max(most_open, sum(name.startswith(f"{tmp_path / 'spark'}/") for name in names))
            return found

    monkeypatch.setattr(write_family, "Scan", Watched)
    (tmp_path / "target").mkdir()
    with NativeFileWriter(files_in(tmp_path / "target", KeyGroupRange(0, 0)), header(), 1) as out:
        for row in rows:
            out.entries(0, 0, section([row]), 0)
        assert len(list((tmp_path / "spark").glob("stateferry-*/*.sst"))) > 100
        handle = out.close()
    assert most_open <= 1
    assert not list((tmp_path / "spark").iterdir())
    database = PlainDatabase(stored_files(Location.of(str(tmp_path / "target")), handle))
    assert database.rows("one", EVERYTHING) == dict(rows)


@pytest.mark.parametrize("first_ends", [True, False], ids=["in turn", "one after the other"])
def test_two_attempts_at_the_same_files_leave_each_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_ends: bool
) -> None:
    """Each merges a key group with what it wrote of it before, whatever the other has finished or removed."""
    monkeypatch.setattr(write_family, "PORTION", 4)
    monkeypatch.setattr(native_writer, "PORTION", 4)
    given = [(0, 0, [(b"\0" + key, b"value of " + key)]) for key in (b"b", b"c", b"d", b"a", b"e")]
    given += [(1, 0, [(b"\1a", b"")]), (2, 0, [(b"\2" + key, b"") for key in (b"a", b"b")])]
    handles: list[NativeHandle] = []
    attempts = [NativeFileWriter(files_in(tmp_path, KeyGroupRange(0, 2)), header(), 1) for _ in range(2)]
    for key_group, state, rows in given[:4]:
        for attempt in attempts:
            attempt.entries(key_group, state, section(rows), 0)
    for attempt in attempts if first_ends else reversed(attempts):
        for key_group, state, rows in given[4:]:
            attempt.entries(key_group, state, section(rows), 0)
        handles.append(attempt.close())
    for attempt in attempts:
        attempt.__exit__(None, None, None)
    assert handles[0] == handles[1]
    check(tmp_path, handles[0], given)


def test_an_attempt_that_is_interrupted_in_a_large_key_group_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_family, "PORTION", 4)
    monkeypatch.setattr(native_writer, "PORTION", 4)
    attempt = NativeFileWriter(files_in(tmp_path, KeyGroupRange(0, 2)), header(), 1)
    with attempt:
        for key in (b"b", b"c", b"a", b"d"):
            attempt.entries(0, 0, section([(b"\0" + key, b"value")]), 0)
        assert len(list(tmp_path.glob("*.draft"))) == len(list(tmp_path.iterdir())) > 0
    assert not list(tmp_path.iterdir())


def test_states_and_key_groups_out_of_turn(tmp_path: Path) -> None:
    for given, expected in (
        ([(2, 0, [(b"\2a", b"")]), (1, 0, [(b"\1a", b"")])], "expected a key group"),
        ([(2, 0, [(b"\2a", b"")]), (9, 0, [(b"\x09a", b"")])], "expected a key group"),
        ([(2, 0, [(b"\2a", b"")]), (2, 1, [(b"\2a", b"")]), (2, 0, [(b"\2b", b"")])], "was written before"),
        ([(2, 3, [(b"\2a", b"")])], "not in the header"),
    ):
        with pytest.raises(UsageError, match=expected):
            written(tmp_path / "db", given, KeyGroupRange(0, 5))
