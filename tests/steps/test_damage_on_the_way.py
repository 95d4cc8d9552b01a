"""What is damaged after the snapshot has read it, while keys go to key groups of another max parallelism."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.runs.record.runs import Run, run_folder
from stateferry.steps.workers import InProcess
from tests.support.in_process import do_step
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

MANY = LegacyState(blobs={f"key {number}": ({"a": number, "b": None}, 0) for number in range(300)})
DAMAGED = 3


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    """The plan of a run that has come as far as the rescale step, from max parallelism 128 to 256."""
    MANY.write(str(tmp_path / "many"))
    values = {
        "job": "orders",
        "run_id": "first",
        "now": 0,
        "source": str(tmp_path / "many"),
        "target": str(tmp_path / "target"),
        "home": str(tmp_path / "home"),
        "max_parallelism": 256,
        "nulls": "keep",
        "operators": [{"operator": "main", "states": [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]}],
    }
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(values))
    for step in ("snapshot", "migrate"):
        assert do_step(step, "--plan", str(plan)) == 0
    return plan


def the_run(plan: Path) -> Run:
    return Run.open(run_folder(str(plan.parent / "home"), "orders", "first"))


def ends_well(plan: Path) -> None:
    """Once the bytes are as they were, the same command mends it."""
    for step in ("rescale", "validate", "cut_over"):
        assert do_step(step, "--plan", str(plan)) == 0
    assert not the_run(plan).folder.child("exchange").exists()
    target = Savepoint.open(str(plan.parent / "target"))
    assert target.operator("main").max_parallelism == 256
    assert [state.name for state in target.keyed_states(target.operator("main"))] == [NEW]


def test_a_source_that_is_damaged_after_the_snapshot(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = migrated.parent / "many"
    handle = Savepoint.open(str(source)).operator("main").subtasks[0].managed_keyed
    assert handle is not None
    key_group = next(number for number in range(60, 128) if handle.offsets[number])
    # Behind the state's number: the length of the key group's first key.
    place = handle.offsets[key_group] + 2
    data = next(file for file in source.iterdir() if file.name != "_metadata")
    whole = data.read_bytes()
    for damaged, said in (
        (whole[:place] + b"\xff" * 4 + whole[place + 4 :], rf"{data}, key group {key_group}, offset {place}: expected"),
        (whole[:place], f"{data}: expected {len(whole)} bytes, as _metadata says, found {place}"),
    ):
        data.write_bytes(damaged)
        assert do_step("rescale", "--plan", str(migrated)) == DAMAGED
        assert re.search(said, capsys.readouterr().err)
        assert the_run(migrated).state.value == "failed"
    data.write_bytes(whole)
    ends_well(migrated)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 100, -1])
def test_what_is_on_its_way_and_is_cut(migrated: Path, capsys: pytest.CaptureFixture[str], cut: int) -> None:
    def cut_it(file: Path) -> None:
        file.write_bytes(file.read_bytes()[:cut])

    damaging = Damaging(run=the_run(migrated), damage=cut_it)
    assert do_step("rescale", "--plan", str(migrated), workers=damaging) == DAMAGED
    assert re.search(rf"{damaging.damaged[0]}, offset \d+: expected .*, found", capsys.readouterr().err)
    ends_well(migrated)


@pytest.mark.slow
def test_what_is_on_its_way_and_says_something_else(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change_it(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    damaging = Damaging(run=the_run(migrated), damage=change_it)
    assert do_step("rescale", "--plan", str(migrated), workers=damaging) == DAMAGED
    said = rf"{damaging.damaged[0]}, (key group \d+, )?offset \d+: expected .* as (it was|they were)"
    assert re.search(said, capsys.readouterr().err)
    ends_well(migrated)


@dataclass(frozen=True, kw_only=True)
class Damaging(InProcess):
    """Damages a file between those who send and those who receive."""

    run: Run
    damage: Callable[[Path], object]
    damaged: list[Path] = field(default_factory=list)

    def do(self, step: str, work: Sequence[Any], fn: Callable[[Any], Any], *measure: Any) -> list[Any]:
        done = super().do(step, work, fn, *measure)
        if step == "rescale: send":
            self.damaged.extend(Path(self.run.folder.path).glob("exchange/0/000000-*"))
            self.damage(self.damaged[0])
        return done
