"""Writing: the bytes of key groups, what is refused, and that nothing is a savepoint before it is complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError, StateferryError, UsageError
from flinkstate.hashing.key_groups import KeyGroupRange, range_for_operator_index
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.header import BackendKind, KeyedHeader, build_header
from flinkstate.metadata.metadata import AbsoluteFile, InlineBytes, KeyedHandle, Metadata, Operator, Subtask
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.writing.operator_rewrite import Layout
from flinkstate.writing.writer import KeyedFileWriter, SavepointWriter
from tests.support.rewriting import rewrite
from tests.support.samples import (
    METAS,
    PROPERTIES,
    STRING,
    UID,
    entry,
    files_of,
    keys_of,
    sample_rows,
    together,
    write_sample,
)

GOLDEN = Path(__file__).parents[1] / "savepoints"
ID = "0" * 32
HEADER = KeyedHeader(False, STRING, METAS)
HEAD = build_header(HEADER)
ONE, TWO, THREE = (entry(bytes([5]) + name, b"v") for name in (b"one", b"two", b"three"))


def last(row: bytes) -> bytes:
    return row[:4] + bytes([row[4] | 0x80]) + row[5:]


def open_file(folder: Path, key_groups: KeyGroupRange = KeyGroupRange(4, 7)) -> KeyedFileWriter:  # noqa: B008
    return SavepointWriter(str(folder)).keyed_file(ID, 0, HEADER, key_groups)


def test_entries_come_with_their_flags_and_in_their_order(tmp_path: Path) -> None:
    with open_file(tmp_path) as file:
        file.entries(5, 2, *together([ONE, TWO]))
        file.entries(5, 2, *together([THREE]))
        file.entries(5, 0, *together([ONE]))
        file.entries(7, 1, *together([TWO]))
        handle = file.close()
    five = b"\0\2" + ONE + TWO + last(THREE) + b"\0\0" + last(ONE) + b"\xff\xff"
    seven = b"\0\1" + last(TWO) + b"\xff\xff"
    assert files_of(tmp_path) == {f"{ID}-keyed-00000": HEAD + five + seven}
    assert handle.offsets == (0, len(HEAD), 0, len(HEAD) + len(five))
    assert handle.range == KeyGroupRange(4, 7)


def test_what_is_passed_in_is_left_as_it_is(tmp_path: Path) -> None:
    data, start = together([ONE, TWO])
    before = data.tobytes()
    with open_file(tmp_path) as file:
        file.entries(5, 0, data, start)
        file.close()
    assert data.tobytes() == before


def test_a_file_without_entries_has_its_header(tmp_path: Path) -> None:
    with open_file(tmp_path) as file:
        handle = file.close()
    assert files_of(tmp_path) == {f"{ID}-keyed-00000": HEAD}
    assert handle.offsets == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("key_group", "state", "expected"),
    [
        (3, 0, "after 5, found 3"),
        (8, 0, r"of \[4, 7\] after 5, found 8"),
        (4, 0, "after 5, found 4"),
        (5, 1, "state 1 is not in the header or was written before in key group 5"),
        (5, 5, "state 5 is not in the header"),
        (6, -1, "state -1 is not in the header"),
    ],
)
def test_wrong_use_is_refused(tmp_path: Path, key_group: int, state: int, expected: str) -> None:
    with open_file(tmp_path) as file:
        file.entries(5, 1, *together([ONE]))
        file.entries(5, 2, *together([ONE]))
        with pytest.raises(UsageError, match=expected):
            file.entries(key_group, state, *together([ONE]))


@pytest.mark.parametrize("compressed", [False, True])
def test_portions_of_any_size_give_the_same_bytes(tmp_path: Path, compressed: bool) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (3000, 1000), np.uint8)
    rows = [entry(bytes([5]) + number.to_bytes(4, "big"), noise[number].tobytes()) for number in range(3000)]
    written: set[bytes] = set()
    for portion in (1, 7, 1000, 3000):
        folder = tmp_path / f"{portion}"
        header = KeyedHeader(compressed, STRING, METAS)
        with SavepointWriter(str(folder)).keyed_file(ID, 0, header, KeyGroupRange(5, 5)) as file:
            for first in range(0, len(rows), portion):
                file.entries(5, 0, *together(rows[first : first + portion]))
            file.close()
        written.update(files_of(folder).values())
    assert len(written) == 1


@pytest.mark.parametrize(
    "layout", [Layout(), Layout(max_parallelism=300), Layout(compression=Compression.SNAPPY)], ids=str
)
def test_the_same_work_gives_the_same_bytes(tmp_path: Path, layout: Layout) -> None:
    for case in ("legacy-ttl-2.3-rocksdb", "several-operators-2.3-hashmap"):
        source = Savepoint.open(str(GOLDEN / case))
        for run in ("first", "second"):
            rewrite(source, str(tmp_path / case / run), layout)
        assert files_of(tmp_path / case / "first") == files_of(tmp_path / case / "second")


def test_handles_cover_exactly_the_ranges_of_their_subtasks(tmp_path: Path) -> None:
    source = write_sample(tmp_path / "s", max_parallelism=20, empty=range(12))
    for parallelism, max_parallelism in ((1, 20), (3, 20), (20, 20), (7, 128), (7, 129)):
        target = str(tmp_path / f"{parallelism}-{max_parallelism}")
        (operator,) = source.metadata.operators
        rewrite(source, target, Layout({operator.id: parallelism}, max_parallelism))
        (found,) = Savepoint.open(target).metadata.operators
        assert (found.parallelism, found.max_parallelism) == (parallelism, max_parallelism)
        handles = [subtask.managed_keyed for subtask in found.subtasks]
        assert [handle.range for handle in handles if handle] == [
            range_for_operator_index(max_parallelism, parallelism, index) for index in range(parallelism)
        ]


def test_no_savepoint_before_its_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = write_sample(tmp_path / "s"), tmp_path / "t"

    def fail(self: SavepointWriter, metadata: Metadata) -> None:
        raise StateferryError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(SavepointWriter, "commit", fail)
        with pytest.raises(StateferryError, match="stopped"):
            rewrite(source, str(target), Layout())
    assert all(name != "_metadata" for name in files_of(target))
    with pytest.raises(DamagedError, match="a folder without one"):
        Savepoint.open(str(target))
    # What was begun is the same work's own, and is begun again.
    rewrite(source, str(target), Layout())
    assert files_of(target) == files_of(tmp_path / "s")


def test_targets_that_hold_something_are_refused(tmp_path: Path) -> None:
    source = write_sample(tmp_path / "s")
    before = files_of(tmp_path / "s")
    with pytest.raises(UsageError, match="already holds a savepoint"):
        rewrite(source, str(tmp_path / "s"), Layout())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"content")
    with pytest.raises(UsageError, match="holds file, which is not part of a savepoint"):
        rewrite(source, str(tmp_path / "other"), Layout())
    with pytest.raises(UsageError, match="is a file: expected a folder for the savepoint"):
        rewrite(source, str(tmp_path / "other" / "file"), Layout())
    assert files_of(tmp_path / "s") == before
    assert files_of(tmp_path / "other") == {"file": b"content"}


def test_files_are_carried_over_byte_for_byte(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    (tmp_path / "state").write_bytes(content)
    writer = SavepointWriter(str(tmp_path / "target"))
    elsewhere = AbsoluteFile((tmp_path / "state").as_uri(), len(content))
    ranges = KeyGroupRange(0, 0)
    subtask = Subtask(
        3,
        managed_keyed=KeyedHandle(ranges, (9,), elsewhere),
        raw_keyed=KeyedHandle(ranges, (9,), elsewhere, 12, "the id"),
    )
    carried = writer.carry_over(writer.folder, ID, subtask)
    assert carried.managed_keyed is None
    assert carried.raw_keyed is not None
    assert carried.raw_keyed.id == "the id"
    assert files_of(tmp_path / "target") == {f"{ID}-raw-keyed-00003": content}
    inlined = Subtask(0, raw_keyed=KeyedHandle(ranges, (9,), InlineBytes("name", b"data")))
    assert writer.carry_over(writer.folder, ID, inlined) == inlined
    cut = Subtask(0, raw_keyed=KeyedHandle(ranges, (9,), AbsoluteFile(elsewhere.uri, 1)))
    with pytest.raises(DamagedError, match="expected 1 bytes"):
        writer.carry_over(writer.folder, ID, cut)


def test_asynchronous_state_is_copied_and_never_hashed_anew(tmp_path: Path) -> None:
    header = KeyedHeader(False, STRING, (replace(METAS[2], kind=BackendKind.KEY_VALUE_V2),))
    writer = SavepointWriter(str(tmp_path / "s"))
    with writer.keyed_file(operator_id(UID).hex(), 0, header, KeyGroupRange(0, 7)) as file:
        file.entries(5, 0, *together([ONE, TWO]))
        subtask = Subtask(0, managed_keyed=file.close())
    operator = Operator(operator_id(UID), 1, 8, UID, UID, subtasks=(subtask,))
    writer.commit(Metadata(6, 1, (operator,), (), PROPERTIES))
    source = Savepoint.open(str(tmp_path / "s"))
    rewrite(source, str(tmp_path / "t"), Layout())
    assert files_of(tmp_path / "t") == files_of(tmp_path / "s")
    with pytest.raises(RefusedError, match=r"operator main: flag is asynchronous \(V2\) state"):
        rewrite(source, str(tmp_path / "u"), Layout(max_parallelism=16))
    assert not (tmp_path / "u").exists()


def test_samples_are_what_they_say() -> None:
    for key_group in range(3):
        assert len(set(keys_of(key_group, 3, 9))) == 9
    assert sorted(sample_rows(1, 8, 4)) == list(range(len(METAS)))
    assert UID == "main"
