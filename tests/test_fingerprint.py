"""A savepoint's fingerprint: of its bytes alone, wherever they lie, and of every one of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stateferry.migration.staging import with_absolute_files
from stateferry.runs import fingerprint
from stateferry.runs.fingerprint import fingerprint_of
from stateferry.savepoint.metadata import InlineBytes, Metadata, RelativeFile
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.storage import Location
from stateferry.survey import bytes_to_read

GOLDEN = Path(__file__).parent / "savepoints"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_AT_ONCE", 1000)


def copied(tmp_path: Path, case: str) -> Savepoint:
    return Savepoint.open(str(shutil.copytree(GOLDEN / case, tmp_path / case)))


def test_a_copy_is_the_same_and_so_is_a_description_from_elsewhere(tmp_path: Path) -> None:
    original = Savepoint.open(str(GOLDEN / "operator-state-2.3-rocksdb"))
    copy = copied(tmp_path, "operator-state-2.3-rocksdb")
    read: list[int] = []
    there, here = fingerprint_of(original), fingerprint_of(copy, read.append)
    assert here.path != there.path
    assert here.is_same_content(there)
    assert sum(read) > bytes_to_read(copy)
    elsewhere = Savepoint(Location.of(str(tmp_path)), with_absolute_files(copy.metadata, copy.folder))
    assert fingerprint_of(elsewhere).is_same_content(there)
    assert {name.split("-", 1)[1] for name in here.files if name != "_metadata"} >= {"keyed-00000", "operator-00002"}


@pytest.mark.parametrize("case", ["legacy-2.3-rocksdb", "legacy-ttl-inlined-2.3-hashmap"])
def test_a_byte_changed_anywhere_is_seen(tmp_path: Path, case: str) -> None:
    savepoint = copied(tmp_path, case)
    before = fingerprint_of(savepoint)
    rng = np.random.default_rng(5)
    for name in before.files:
        handles = [
            subtask.managed_keyed
            for operator in savepoint.metadata.operators
            for subtask in operator.subtasks
            if name == f"{operator.hex_id}-keyed-{subtask.index:05d}"
        ]
        if not handles or handles[0] is None or not isinstance(handles[0].stream, RelativeFile):
            continue
        file = Path(savepoint.folder.path) / handles[0].stream.path
        data = bytearray(file.read_bytes())
        for position in [0, len(data) - 1, *rng.integers(0, len(data), 20).tolist()]:
            data[position] ^= 1
            file.write_bytes(data)
            after = fingerprint_of(savepoint)
            assert {one for one in before.files if before.files[one] != after.files[one]} == {name}, position
            data[position] ^= 1
        file.write_bytes(data)
    assert fingerprint_of(savepoint).is_same_content(before)


def changed(metadata: Metadata, what: str) -> Metadata:
    (first, main) = metadata.operators
    if what == "max parallelism":
        return replace(metadata, operators=(replace(first, max_parallelism=256), main))
    if what == "checkpoint id":
        return replace(metadata, checkpoint_id=9)
    if what == "inlined":
        subtask = main.subtasks[0]
        assert subtask.managed_keyed is not None
        assert isinstance(subtask.managed_keyed.stream, InlineBytes)
        data = bytearray(subtask.managed_keyed.stream.data)
        data[-1] ^= 1
        handle = replace(subtask.managed_keyed, stream=InlineBytes(subtask.managed_keyed.stream.name, bytes(data)))
        subtasks = (replace(subtask, managed_keyed=handle), *main.subtasks[1:])
        return replace(metadata, operators=(first, replace(main, subtasks=subtasks)))
    raise ValueError(what)


@pytest.mark.parametrize("what", ["max parallelism", "checkpoint id", "inlined"])
def test_a_change_in_metadata_is_seen(what: str) -> None:
    savepoint = Savepoint.open(str(GOLDEN / "legacy-ttl-inlined-2.3-hashmap"))
    other = replace(savepoint, metadata=changed(savepoint.metadata, what))
    before, after = fingerprint_of(savepoint), fingerprint_of(other)
    assert before.files["_metadata"] != after.files["_metadata"]
    assert not before.is_same_content(after)
