"""A key group that is gone through more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.grouped import GroupSections
from stateferry.savepoint.key_group_file import WINDOW, KeyGroupFile, Section
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.state import keyed_states

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


@pytest.mark.parametrize(("window", "reads"), [(WINDOW, 1), (4096, 3)])
@pytest.mark.parametrize("compressed", [False, True])
def test_every_time_brings_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, reads: int, compressed: bool
) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), replace(DEMO, compressed=compressed))
    savepoint = Savepoint.open(str(tmp_path / "demo"))
    asked: list[int] = []
    sections = KeyGroupFile.sections

    def ask(file: KeyGroupFile, key_group: int, window: Buffer) -> Iterator[Section]:
        asked.append(key_group)
        return sections(file, key_group, window)

    monkeypatch.setattr(KeyGroupFile, "sections", ask)
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
