"""A key group that is gone through more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flinkstate.keyed import key_group_file
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.keyed_file import WINDOW, Section
from flinkstate.keyed.state import keyed_states
from flinkstate.metadata.chunks import plan_chunks
from flinkstate.reading import group_sections
from flinkstate.reading.group_sections import GroupSections
from flinkstate.reading.reader import Savepoint
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.tables import units as table_units
from stateferry.tables.units import units

DEMO = DemoState(keys=200, entries=5, migrated=0.5, ttl=None, now=0, parallelism=1, max_parallelism=2, seed=1)


def contents(group: GroupSections) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for state, section in group:
        entries = zip(section.starts.tolist(), section.key_ends.tolist(), section.ends.tolist(), strict=True)
        parts = [
            part for start, key_end, end in entries for part in (section.data[start:key_end], section.data[key_end:end])
        ]
        found[state.name] = found.get(state.name, b"") + b"".join(part.tobytes() for part in parts)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The key groups that are read."""
    asked: list[int] = []
    sections = KeyGroupFile.sections

    def ask(file: KeyGroupFile, key_group: int, window: Buffer) -> Iterator[Section]:
        asked.append(key_group)
        return sections(file, key_group, window)

    monkeypatch.setattr(KeyGroupFile, "sections", ask)
    return asked


@pytest.mark.parametrize(("window", "reads"), [(WINDOW, 1), (4096, 3)])
@pytest.mark.parametrize("compressed", [False, True])
def test_every_time_brings_the_same(
    tmp_path: Path, asked: list[int], window: int, reads: int, compressed: bool
) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), replace(DEMO, compressed=compressed))
    savepoint = Savepoint.open(str(tmp_path / "demo"))
    for file in savepoint.open_files(savepoint.operator("main")):
        states = keyed_states(file.header, file.name)
        for key_group in (0, 1):
            asked.clear()
            group = GroupSections(file, key_group, states, np.empty(window, np.uint8))
            first = contents(group)
            assert {*first} == {state.name for state in states}
            assert sum(map(len, first.values())) > 8192
            assert contents(group) == contents(group) == first
            assert len(asked) == reads


def test_a_key_group_larger_than_its_window_is_kept_if_somebody_asks_and_it_is_not_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    monkeypatch.setattr(key_group_file, "WINDOW", 4096)
    write_demo_savepoint(str(tmp_path / "demo"), DEMO)
    savepoint = Savepoint.open(str(tmp_path / "demo"))
    files = savepoint.open_files(savepoint.operator("main"))
    file = next(files)
    states, size, window = keyed_states(file.header, file.name), file.size_of(0), np.empty(4096, np.uint8)
    assert size > 8192

    def reads(most: int, keep: bool) -> int:
        monkeypatch.setattr(group_sections, "MOST_HELD", most)
        group = GroupSections(file, 0, states, window)
        if keep:
            group.keep()
        asked.clear()
        assert contents(group) == expected
        entries = 0
        for _, section in group:
            entries += len(section)
            # What is done with a section stays in the processor's cache, however large the room is.
            assert len(section.raw) < 2 * 4096
            assert (section.data is window) == (not keep or most < size)
        return len(asked) if entries else 0

    expected = contents(GroupSections(file, 0, states, np.empty(1 << 20, np.uint8)))
    entries = sum(len(section) for section in file.sections(0, np.empty(1 << 20, np.uint8)))
    assert reads(1 << 20, keep=False) == 2
    assert reads(1 << 20, keep=True) == 1
    assert reads(size - 1, keep=True) == 2
    # Where the entries lie takes room too.
    assert reads(size + 24 * entries, keep=True) == 1
    assert reads(size + 24 * entries - 1, keep=True) == 2


@pytest.mark.parametrize(("largest", "reads"), [(1 << 20, [0, 1]), (4096, [0, 1, 0, 1, 0, 1])])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_unit_is_read_once_if_there_is_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[int],
    largest: int,
    reads: list[int],
    compressed: bool,
) -> None:
    monkeypatch.setattr(key_group_file, "WINDOW", 4096)
    monkeypatch.setattr(table_units, "WINDOW", 4096)
    monkeypatch.setattr(table_units, "MOST_HELD", largest)
    write_demo_savepoint(str(tmp_path / "demo"), replace(DEMO, compressed=compressed))
    savepoint = Savepoint.open(str(tmp_path / "demo"))
    (chunk,) = plan_chunks(savepoint.operator("main"), savepoint.placed(savepoint.operator("main")))
    found: list[list[tuple[str, int, bytes]]] = [[], [], []]
    for unit in units(savepoint.folder, chunk):
        for again in found:
            again += [(state.name, section.key_group, section.raw.tobytes()) for state, section in unit]
    assert found[0] == found[1] == found[2]
    assert {group for _, group, _ in found[0]} == {0, 1}
    if not compressed:
        assert sorted(asked) == sorted(reads)


@pytest.mark.parametrize("kept", [False, True])
def test_a_large_section_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """What is made of a section takes several times its memory, however much of a key group is kept."""
    write_demo_savepoint(str(tmp_path / "demo"), replace(DEMO, migrated=0))
    savepoint = Savepoint.open(str(tmp_path / "demo"))
    for file in savepoint.open_files(savepoint.operator("main")):
        states = keyed_states(file.header, file.name)
        group = GroupSections(file, 0, states, np.empty(WINDOW, np.uint8))
        whole = [section for _, section in group]
        (largest,) = [len(section.raw) for section in whole if len(section) > 50]
        monkeypatch.setattr(group_sections, "WINDOW", 1000)
        again = GroupSections(file, 0, states, np.empty(WINDOW, np.uint8))
        if kept:
            again.keep()
        for _ in range(2):
            parts = [section for _, section in again]
            assert len(parts) > largest // 2000
            assert max(len(section.raw) for section in parts) < 2000
            assert b"".join(one.raw.tobytes() for one in parts) == b"".join(one.raw.tobytes() for one in whole)
            assert sum(section.last for section in parts) == sum(section.last for section in whole)
        (large,) = (section for section in whole if len(section) > 50)
        assert [len(one) for one in large.parts(1)] == [1] * len(large)
        assert list(large.parts(largest)) == [large]
