"""Native savepoints and incremental checkpoints of real Flink: every row is that of the canonical savepoint."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed import native_file
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint, has_native_state
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.scan import Scan
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.look.survey import bytes_to_read, survey
from tests.rocksdb.goldens import (
    CANONICAL,
    NATIVE,
    SAVEPOINTS,
    contents,
    expected_lines,
    metadata_of,
    opened,
    roots_of,
    rows,
    text_of,
)


@pytest.mark.matrix(most=5)
@pytest.mark.part
@pytest.mark.parametrize("name", NATIVE)
def test_every_row_has_the_bytes_of_the_canonical_savepoint(name: str) -> None:
    truth = contents(Savepoint.open(str(SAVEPOINTS / CANONICAL)))
    assert truth.total() > 300
    assert contents(opened(SAVEPOINTS / name)) == truth


@pytest.mark.matrix(most=4)
@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE)
def test_rows_come_in_the_order_of_their_keys(name: str) -> None:
    before: tuple[int, str, bytes] | None = None
    for key_group, state, key, _ in rows(opened(SAVEPOINTS / name)):
        if before is not None and before[:2] == (key_group, state):
            assert before[2] < key
        before = (key_group, state, key)
        assert key[0] == key_group


@pytest.mark.matrix(most=4)
@pytest.mark.part
@pytest.mark.parametrize("name", NATIVE)
def test_dump_prints_every_entry(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = SAVEPOINTS / name
    roots = [part for old, new in roots_of(folder).items() for part in ("--files-from", f"{old}={new}")]
    path = str(metadata_of(folder))
    assert main(["inspect", path, "--json", *roots]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["format"] == "native"
    (operator,) = (operator for operator in facts["operators"] if operator["keyed"])
    found: Counter[str] = Counter()
    for state in operator["keyed"]["states"]:
        assert main(["dump", path, "--operator", "kinds", "--state", state["name"], *roots]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(lines) == state["entries"]
        found.update(text_of({"state": state["name"], **line}) for line in lines)
    assert found == expected_lines(folder)


def test_the_snapshots_hold_what_makes_reading_them_hard() -> None:
    """Several runs of one state, deletions, merge operands, deleted ranges, key groups outside the handle's range."""
    found: Counter[str] = Counter()
    for name in NATIVE:
        savepoint = opened(SAVEPOINTS / name)
        for operator in savepoint.keyed_operators():
            for file in savepoint.open_files(operator):
                for family in file.database.families.values():  # type: ignore[attr-defined]
                    found["files above level 0"] += any(live.level for live in family.files.values())
                    found["several runs"] += len(family.files) > 1
                    low, high = file.handle.range.start, file.handle.range.end
                    outside = [
                        live for live in family.files.values() if live.smallest[0] < low or live.largest[0] > high
                    ]
                    found["key groups of others"] += len(outside)
                    for live in family.files.values():
                        with file.database._open(live, family) as table:  # type: ignore[attr-defined]
                            found["crc32c" if table.checksum == 1 else "XXH3"] += 1
                            found["deletions"] += table.deletions - table.range_deletions
                            found["operands"] += table.operands
                            found["deleted ranges"] += len(table.deleted_ranges())
    assert len(+found) == 8, found


@pytest.mark.matrix(most=4)
@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE)
def test_a_key_group_is_read_alone(name: str) -> None:
    savepoint = opened(SAVEPOINTS / name)
    (operator,) = savepoint.keyed_operators()
    for state in savepoint.keyed_states(operator):
        whole = list(read_entries(savepoint, operator, state))
        groups = sorted({entry.key_group for entry in whole})
        for group in (groups[0], groups[len(groups) // 2], groups[-1]):
            alone = list(read_entries(savepoint, operator, state, group))
            assert alone == [entry for entry in whole if entry.key_group == group]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["backwards", "with gaps", "again"])
def test_key_groups_are_read_in_any_order(order: str) -> None:
    savepoint = opened(SAVEPOINTS / NATIVE[4])
    (operator,) = savepoint.keyed_operators()
    for file in savepoint.open_files(operator):
        groups = list(file.handle.range)
        chosen = {"backwards": groups[::-1], "with gaps": groups[::3], "again": [*groups[:9], *groups]}[order]

        def read(group: int, file=file) -> list[tuple[int, bytes]]:  # type: ignore[no-untyped-def]
            return [(section.state, section.raw.tobytes()) for section in file.sections(group)]

        truth = {group: read(group) for group in groups}
        assert any(truth.values())
        assert [read(group) for group in chosen] == [truth[group] for group in chosen]


@pytest.mark.matrix(most=2)
@pytest.mark.slow
@pytest.mark.parametrize("name", [NATIVE[0], NATIVE[4]])
@pytest.mark.parametrize("size", [17, 1000])
def test_the_window_may_be_small(name: str, size: int) -> None:
    savepoint, window = opened(SAVEPOINTS / name), np.empty(size, np.uint8)
    (operator,) = savepoint.keyed_operators()
    for file in savepoint.open_files(operator):
        for group in file.handle.range:
            small = [(section.state, section.raw.tobytes()) for section in file.sections(group, window)]
            large = [(section.state, section.raw.tobytes()) for section in file.sections(group)]
            assert _joined(small) == _joined(large)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("name", [NATIVE[0], NATIVE[4]])
def test_many_runs_share_the_buffers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little a run may read at a time, and however few runs may keep what they have read."""
    truth = contents(opened(SAVEPOINTS / name))
    monkeypatch.setattr(native_file, "_BUFFERS", 1)
    monkeypatch.setattr(native_file, "_LEAST_PORTION", 64)
    monkeypatch.setattr(native_file, "_MOST_RUNS", 4)
    monkeypatch.setattr(native_file, "_MOST_OPEN", 0)
    scan, close = Database.scan, Scan.close
    kept: dict[int, int] = {}
    most, settings_seen = [0], set()

    def opening(database: Database, *wanted: Any, **settings: Any) -> Scan:
        most[0] = max(most[0], sum(kept.values()))
        found = scan(database, *wanted, **settings)
        kept[id(found)] = found.runs
        if settings:
            settings_seen.add((wanted[-1], settings["keep_open"]))
        return found

    def closing(of: Scan) -> None:
        kept.pop(id(of), None)
        close(of)

    monkeypatch.setattr(Database, "scan", opening)
    monkeypatch.setattr(Scan, "close", closing)
    assert contents(opened(SAVEPOINTS / name)) == truth
    assert settings_seen == {(64, False)}
    assert 0 < most[0] <= 4
    assert not kept


def _joined(sections: list[tuple[int, bytes]]) -> dict[int, bytes]:
    out: dict[int, bytes] = {}
    for state, data in sections:
        out[state] = out.get(state, b"") + data
    return out


@pytest.mark.parametrize("name", NATIVE)
def test_the_progress_ends_with_what_was_announced(name: str) -> None:
    savepoint = opened(SAVEPOINTS / name)
    steps: list[int] = []
    survey(savepoint, steps.append)
    assert sum(steps) == bytes_to_read(savepoint)


@pytest.mark.parametrize("name", NATIVE)
def test_metadata_is_written_as_it_was_read(name: str) -> None:
    file = metadata_of(SAVEPOINTS / name)
    metadata = parse_metadata(file.read_bytes(), "_metadata")
    assert any(map(has_native_state, metadata.operators))
    assert build_metadata(metadata) == file.read_bytes()


def test_a_checkpoint_whose_shared_files_are_gone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(SAVEPOINTS / NATIVE[2], folder)
    gone = sorted((folder / "shared").iterdir())[0]
    roots = [f"--files-from={old}={folder}" for old in roots_of(folder)]
    gone.unlink()
    assert main(["inspect", str(metadata_of(folder)), *roots]) == DAMAGED_OR_REFUSED
    error = capsys.readouterr().err
    assert f"{gone}: expected a file at the absolute address that _metadata has, found none" in error
    assert "a running job has removed it" in error
    assert main(["inspect", str(metadata_of(folder))]) == DAMAGED_OR_REFUSED
    assert "--files-from OLD=NEW" in capsys.readouterr().err


def test_files_of_another_subtask_are_told_apart() -> None:
    savepoint = opened(SAVEPOINTS / NATIVE[0])
    index, operator = next(
        (index, operator) for index, operator in enumerate(savepoint.metadata.operators) if has_native_state(operator)
    )
    one, other = operator.subtasks
    assert one.native_keyed is not None
    assert other.native_keyed is not None
    # The whole database of another subtask: its keys are of other key groups, so there is nothing of this one's.
    exchanged = replace(
        one,
        native_keyed=replace(one.native_keyed, shared=other.native_keyed.shared, private=other.native_keyed.private),
    )
    operators = list(savepoint.metadata.operators)
    operators[index] = replace(operator, subtasks=(exchanged, other))
    wrong = Savepoint(savepoint.folder, replace(savepoint.metadata, operators=tuple(operators)))
    with pytest.raises(DamagedError, match="key groups"):
        contents(wrong)
    # Single files.
    for place, file in enumerate(one.native_keyed.files):
        files = list(one.native_keyed.files)
        same = [their for their in other.native_keyed.files if their.name == file.name]
        files[place] = replace(file, stream=same[0].stream) if same else files[place]
        if not same or file.name in ("CURRENT",) or file.name.startswith("OPTIONS"):
            continue
        exchanged = replace(one, native_keyed=replace(one.native_keyed, shared=(), private=tuple(files)))
        operators[index] = replace(operator, subtasks=(exchanged, other))
        wrong = Savepoint(savepoint.folder, replace(savepoint.metadata, operators=tuple(operators)))
        with pytest.raises(DamagedError):
            contents(wrong)


def test_the_range_of_the_handle_is_that_of_its_subtask(tmp_path: Path) -> None:
    file = metadata_of(SAVEPOINTS / NATIVE[0])
    metadata = parse_metadata(file.read_bytes(), "_metadata")
    operators = []
    for operator in metadata.operators:
        subtasks = [
            replace(task, native_keyed=task.native_keyed and replace(task.native_keyed, range=KeyGroupRange(0, 3)))
            for task in operator.subtasks
        ]
        operators.append(replace(operator, subtasks=tuple(subtasks)))
    (tmp_path / "_metadata").write_bytes(build_metadata(replace(metadata, operators=tuple(operators))))
    with pytest.raises(DamagedError, match="the key groups"):
        Savepoint.open(str(tmp_path))
