"""Savepoints from before Flink 1.13: RocksDB's are read, the HashMap backend's are told apart and refused by name."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed import key_group_file
from flinkstate.keyed.compression import STREAM_START
from flinkstate.keyed.full_checkpoint import expect_canonical
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.key_group_extents import KeyGroupExtent
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.type_numbers import FULL_CHECKPOINT
from flinkstate.reading.entries import Entry, read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.inventory.inventory import inventory_tasks
from tests.flink.make_old_golden import lines
from tests.support.rewriting import rewrite
from tests.support.samples import UID, write_sample

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
ROCKSDB = ("old-1.12-rocksdb", "old-ttl-snappy-1.12-rocksdb")
HEAP = ("heap-1.12", "heap-ttl-snappy-1.12")
STATES = ("blob", "entries", "flag", "names", "_timer_state/processing_user-timers")


def contents(savepoint: Savepoint) -> list[str]:
    """What `OldSavepoints` put there; of those that expire without the time of their last use."""
    operator = savepoint.operator(UID)
    found = []
    for name in STATES:
        state = savepoint.state(operator, name)
        for entry in read_entries(savepoint, operator, state):
            timestamp = None if name == "blob" else entry.timestamp
            value = dict(entry.value) if isinstance(entry.value, list) and name == "blob" else entry.value
            found.append(said(name, replace(entry, value=value, timestamp=timestamp)))
    return sorted(found)


def said(name: str, entry: Entry) -> str:
    return repr((name, entry.key_group, entry.key, entry.user_key, entry.value, entry.timestamp))


def known() -> list[str]:
    entries = (
        (line["state"], Entry(line["key_group"], line["key"], None, line.get("user_key"), line.get("value")), line)
        for line in lines()
    )
    return sorted(said(name, replace(entry, timestamp=line.get("timestamp"))) for name, entry, line in entries)


@pytest.mark.parametrize("case", ROCKSDB)
def test_rocksdbs_savepoints_of_flink_1_12_are_read(case: str, tmp_path: Path) -> None:
    savepoint = Savepoint.open(str(SAVEPOINTS / case))
    handles = [subtask.managed_keyed for subtask in savepoint.operator(UID).subtasks]
    assert [handle and handle.type for handle in handles] == [FULL_CHECKPOINT[0]] * 2
    assert contents(savepoint) == known()
    # On another number of subtasks it is written as savepoints are since.
    layout = Layout(parallelism={savepoint.operator(UID).id: 3})
    rewrite(savepoint, str(tmp_path / "rewritten"), layout)
    rewritten = Savepoint.open(str(tmp_path / "rewritten"))
    handles = [subtask.managed_keyed for subtask in rewritten.operator(UID).subtasks]
    assert [handle and handle.type for handle in handles] == [7] * 3
    assert contents(rewritten) == known()


@pytest.mark.parametrize("case", HEAP)
def test_the_heap_backends_savepoints_of_flink_1_12_are_refused_by_name(case: str) -> None:
    savepoint = Savepoint.open(str(SAVEPOINTS / case))
    with pytest.raises(RefusedError, match=r"HashMap backend's own layout.* Flink 1\.13 or newer"):
        savepoint.keyed_states(savepoint.operator(UID))


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("max_parallelism", [8, 300])
def test_every_canonical_file_under_the_old_handle_is_read(
    compressed: bool, max_parallelism: int, tmp_path: Path
) -> None:
    sample = write_sample(tmp_path / "s", max_parallelism=max_parallelism, compressed=compressed, version=3, empty=(1,))
    operator = sample.operator(UID)
    before = [repr(entry) for state in sample.keyed_states(operator) for entry in read_entries(sample, operator, state)]
    old = replace(sample.metadata, operators=tuple(with_old_handles(sample)))
    (tmp_path / "s" / "_metadata").write_bytes(build_metadata(old))
    again = Savepoint.open(str(tmp_path / "s"))
    operator = again.operator(UID)
    assert before == [
        repr(entry) for state in again.keyed_states(operator) for entry in read_entries(again, operator, state)
    ]


def with_old_handles(sample: Savepoint) -> Iterator[Operator]:
    for operator in sample.metadata.operators:
        subtasks = tuple(
            replace(subtask, managed_keyed=subtask.managed_keyed and replace(subtask.managed_keyed, type=3))
            for subtask in operator.subtasks
        )
        yield replace(operator, subtasks=subtasks)


def group(body: bytes, key_group: int) -> tuple[io.BytesIO, list[KeyGroupExtent]]:
    return io.BytesIO(b"header" + body), [KeyGroupExtent(key_group, 6, 6 + len(body))]


def entry_in(key_group: int, key: bytes) -> bytes:
    return b"\0\0" + (1 + len(key)).to_bytes(4, "big") + bytes([key_group | 0x80]) + key + bytes(4) + b"\xff\xff"


def test_a_file_that_could_have_either_layout_is_refused() -> None:
    # Key group 0, state 2, no entries; or state 0, a key of 2 bytes in key group 0.
    both = b"\0\0\0\0\0\2" + bytes(2) + bytes(4) + b"\xff\xff"
    file, extents = group(both, 0)
    with pytest.raises(RefusedError, match="either of Flink's two layouts"):
        expect_canonical(file, "file", extents, 1, 1, compressed=False)
    # The HashMap backend gives each key group an offset.
    expect_canonical(file, "file", extents, 2, 1, compressed=False)
    file, extents = group(entry_in(0, b"\3k1\0"), 0)
    expect_canonical(file, "file", extents, 1, 1, compressed=False)


@pytest.mark.parametrize(
    ("body", "compressed"),
    [
        (b"", False),
        (entry_in(4, b"key"), False),
        (entry_in(3, b"key")[:-1], False),
        (entry_in(3, b""), False),
        (STREAM_START, False),
        (entry_in(3, b"key"), True),
        (STREAM_START[:-1], True),
        (b"\0\0\0\4" + STREAM_START, True),
    ],
)
def test_what_has_neither_layout_is_damage(body: bytes, compressed: bool) -> None:
    file, extents = group(body, 3)
    with pytest.raises(
        DamagedError, match=r"file, key group 3, offset 6: expected a key group in the layout of RocksDB"
    ):
        expect_canonical(file, "file", extents, 1, 1, compressed=compressed)


def test_the_layout_is_looked_at_once_and_not_by_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    savepoint = Savepoint.open(str(SAVEPOINTS / ROCKSDB[0]))
    operator = savepoint.operator(UID)
    asked: list[str] = []
    monkeypatch.setattr(key_group_file, "expect_canonical", lambda _, name, *__, **___: asked.append(name))
    files = sum(subtask.managed_keyed is not None for subtask in operator.subtasks)
    tasks = inventory_tasks(savepoint, OperatorChanges.none(savepoint, operator), target_bytes=1)
    assert len(tasks) > 1
    assert len(asked) == files
    for task in tasks:
        task.take()
    savepoint.keyed_states(operator)
    assert len(asked) == files


def test_damage_in_an_old_file_is_no_other_layout(tmp_path: Path) -> None:
    shutil.copytree(SAVEPOINTS / ROCKSDB[0], tmp_path / "s")
    savepoint = Savepoint.open(str(tmp_path / "s"))
    file = next(savepoint.open_files(savepoint.operator(UID)))
    place = min(extent.start for extent in file.extents.values())
    path = tmp_path / "s" / Path(file.name).name
    raw = bytearray(path.read_bytes())
    raw[place + 6] ^= 1
    path.write_bytes(raw)
    again = Savepoint.open(str(tmp_path / "s"))
    with pytest.raises(
        DamagedError, match=rf"key group \d, offset {place}: expected a key group in the layout of RocksDB"
    ):
        again.keyed_states(again.operator(UID))
