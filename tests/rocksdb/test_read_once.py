"""What a task has read of a file counts for it again: as long as the task goes on and nobody writes to the file."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.keyed.native_file import NativeFile
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.read_once import reading_once
from flinkstate.rocksdb.sst_file import SstFile
from tests.steps.test_nights_since import first_state
from tests.support.native_nights import NightlyDatabase
from tests.validation.test_catch_up import handle_of

SOME = Prefixes.of([b"\0\1"])


@pytest.fixture
def snapshots(tmp_path: Path) -> tuple[Path, Path]:
    """Two snapshots that have the same files."""
    database = NightlyDatabase(tmp_path)
    database.flush(first_state())
    return database.checkpoint(1), database.checkpoint(2)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each part of a file is read."""
    counted: Counter[str] = Counter()

    def count(part: str) -> None:
        read = getattr(SstFile, part)

        def counting(*arguments: object) -> object:
            counted[part] += 1
            return read(*arguments)

        monkeypatch.setattr(SstFile, part, counting)

    for part in ("_read_itself", "_identity", "_read_index"):
        count(part)
    return counted


def told(snapshot: Path, only: Prefixes = SOME) -> list[tuple[str, int, int]]:
    """What the first state's files say of themselves, and how many blocks may have these keys."""
    with NativeFile(Location.of(str(snapshot)), handle_of(snapshot), 128, 0) as file:
        return [
            (table.identity, table.entries, sum(map(len, table.indexes(b"", b"\xff" * 3, only))))
            for table in file.tables(0)
        ]


def test_both_snapshots_read_a_file_that_they_share_once(snapshots: tuple[Path, Path], reads: Counter[str]) -> None:
    first, second = snapshots
    with reading_once():
        assert told(first) == told(second) == told(second)
    assert set(reads.values()) == {1}
    # Other keys are in other blocks, though as many.
    with reading_once():
        other = Prefixes.of([b"\0\2"])
        told(first)
        told(first, other)
    assert reads == {"_read_itself": 2, "_identity": 2, "_read_index": 3}


def test_outside_of_it_and_in_the_next_one_all_is_read(snapshots: tuple[Path, Path], reads: Counter[str]) -> None:
    first, second = snapshots
    told(first)
    for number in range(2):
        with reading_once():
            told(second)
        assert set(reads.values()) == {2 + number}
    told(first)
    assert set(reads.values()) == {4}


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_file_that_was_written_to_is_read_again(snapshots: tuple[Path, Path], keeps_time: bool) -> None:
    first, second = snapshots
    with NativeFile(Location.of(str(first)), handle_of(first), 128, 0) as file:
        (path,) = (Path(table.name.removeprefix("file:")) for table in file.tables(0))
    with reading_once():
        told(first)
        before, data = path.stat(), bytearray(path.read_bytes())
        # In the index, of which the checksum is behind it.
        data[-200] ^= 1
        path.write_bytes(data)
        if keeps_time:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(DamagedError):
            told(second)
