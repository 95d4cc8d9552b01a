"""What is damaged after the snapshot has read it, while keys go to key groups of another max parallelism."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.runs import Run
from tests.support.in_process import do_step, do_steps, without_spark
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

MANY = LegacyState(blobs={f"key {number}": ({"a": number, "b": None}, 0) for number in range(300)})
DAMAGED = 3


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The plan of a run that has come as far as the migrate step, from max parallelism 128 to 256."""
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
    assert do_step("snapshot", "--plan", str(plan)) == 0
    return plan


def the_run(plan: Path) -> Run:
    return Run.open(run_folder(str(plan.parent / "home"), "orders", "first"))


def ends_well(plan: Path) -> None:
    """Once the bytes are as they were, the same command mends it."""
    do_steps(("migrate", "rescale", "validate", "cut_over"), "--plan", str(plan))
    assert not the_run(plan).folder.child("exchange").exists()
    target = Savepoint.open(str(plan.parent / "target"))
    assert target.operator("main").max_parallelism == 256
    assert [state.name for state in target.keyed_states(target.operator("main"))] == [NEW]


def test_a_source_that_is_damaged_after_the_snapshot(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = begun.parent / "many"
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
        assert do_step("migrate", "--plan", str(begun)) == DAMAGED
        assert re.search(said, capsys.readouterr().err)
        assert the_run(begun).state.value == "failed"
    data.write_bytes(whole)
    ends_well(begun)


@pytest.mark.matrix(most=2)
@pytest.mark.slow
@pytest.mark.parametrize("which", ["000000-*", "directory-*", "../written"])
@pytest.mark.parametrize("cut", [None, 0, 10, -1])
def test_what_was_sent_and_is_cut_or_gone_is_sent_again(
    begun: Path, capsys: pytest.CaptureFixture[str], which: str, cut: int | None
) -> None:
    assert do_step("migrate", "--plan", str(begun)) == 0
    file = sent(begun, which)
    if cut is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:cut])
    capsys.readouterr()
    code, said = do_step("rescale", "--plan", str(begun)), capsys.readouterr().err
    if cut is None or which.startswith("0"):
        assert code == 1
        assert "rescale comes after migrate, whose files are not what it has written: do that first" in said
    else:
        # Of these files the size isn't kept, but the digest.
        assert code == DAMAGED
        assert f"{file.name}: expected the file with digest" in said
    assert do_step("rescale", "--plan", str(begun)) == 1
    ends_well(begun)


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize("which", ["000000-*", "directory-*", "../written"])
def test_what_was_sent_and_says_something_else_is_sent_again(
    begun: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    assert do_step("migrate", "--plan", str(begun)) == 0
    file = sent(begun, which)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert do_step("rescale", "--plan", str(begun)) == DAMAGED
    said = capsys.readouterr().err
    expected = "the file with digest|.* as (it was|they were)"
    assert re.search(rf"{file.name}(, key group \d+)?(, offset \d+)?: expected ({expected})", said)
    ends_well(begun)


@pytest.mark.slow
def test_the_same_command_sends_again_what_is_gone(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    assert do_step("migrate", "--plan", str(begun)) == 0
    sent(begun, "directory-*").unlink()
    assert main(["run", "--plan", str(begun)]) == 0
    assert the_run(begun).state.value == "published"
    assert not the_run(begun).folder.child("exchange").exists()


def sent(plan: Path, which: str) -> Path:
    """One of the files that go from the migrate step to the rescale step."""
    (folder,) = (one for one in Path(the_run(plan).exchange.path).iterdir() if one.is_dir())
    return next(folder.glob(which)) if not which.startswith("..") else folder.parent / which[3:]
