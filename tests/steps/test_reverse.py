"""The way back: a run in reverse goes through the whole pipeline, is published and can be undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from tests.steps.test_steps_alone import PlanOf, control_of, plan_of
from tests.support.in_process import do_steps
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

__all__ = ["plan_of"]

NEW_JOB = LegacyState(rows={"hot": {"a": (5, 0), "b": (6, 0)}, "cold": {"a": (1, 0)}}, flags={"hot": 0})
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over", "tables")


def maps_of(savepoint: Path) -> dict[str, dict[str, int]]:
    opened = Savepoint.open(str(savepoint))
    operator = opened.operator("main")
    (state,) = opened.keyed_states(operator)
    assert state.name == LEGACY
    return {entry.key: dict(entry.value) for entry in read_entries(opened, operator, state)}


def test_the_steps_go_back(tmp_path: Path, plan_of: PlanOf) -> None:
    forth = plan_of("forth")
    do_steps(STEPS, "--plan", forth)
    NEW_JOB.write(str(tmp_path / "later"))
    back = plan_of("back", source=str(tmp_path / "later"), reverse=True)
    do_steps(STEPS, "--plan", back)
    assert maps_of(tmp_path / "back") == {"hot": {"a": 5, "b": 6}, "cold": {"a": 1}}
    with control_of(tmp_path) as control:
        standing = control.standing("orders")
        assert standing is not None
        assert standing.record.target == str(tmp_path / "back")
        assert not control.are_tables_pending("orders", "back")


@pytest.fixture
def command(tmp_path: Path, home: Path) -> list[str]:
    NEW_JOB.write(str(tmp_path / "later"))
    names = ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG]
    places = ["--savepoint", str(tmp_path / "later"), "--target", str(tmp_path / "old")]
    return ["run", "--reverse", *names, *places]


def test_a_rehearsal_then_a_run_then_a_rollback(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--rehearse"]) == 0
    assert not (tmp_path / "old").exists()
    assert main(command) == 0
    said = capsys.readouterr()
    assert "one blob for each key" in said.out + said.err
    assert maps_of(tmp_path / "old") == {"hot": {"a": 5, "b": 6}, "cold": {"a": 1}}
    assert main(["rollback", "--job", "main"]) == 0


def test_a_reversed_savepoint_goes_forth_again(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    places = ["--savepoint", str(tmp_path / "old"), "--target", str(tmp_path / "new")]
    names = ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW]
    assert main(["run", *names, *places]) == 0
    # The savepoint of the old job has nothing to go back from.
    assert (
        main(["run", "--reverse", *names, "--savepoint", str(tmp_path / "old"), "--target", str(tmp_path / "x")]) != 0
    )
    assert f"{LEGACY} is a ValueState of a map already" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--keep-expired", "--ttl", "1d"], "its expired entries would live again"),
        (["--keep-legacy"], "--keep-legacy and reverse"),
        (["--lazy", "--share", "30%"], "lazy and reverse"),
        (["--on-contradiction", "rows"], "--on-contradiction and reverse"),
        (["--ttl", "1d"], "has no TTL"),
        (["--new-state", "nowhere"], "has no MapState 'nowhere', whose rows would become blobs"),
    ],
)
def test_nonsense_is_refused_by_name(
    options: list[str], said: str, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *options]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "old").exists()


def test_blobs_that_are_left_stop_the_run_unless_the_plan_drops_them(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    left = NEW_JOB.with_changes(blobs={"waits": ({"z": 9}, 0)})
    left.write(str(tmp_path / "left"))
    command[command.index("--savepoint") + 1] = str(tmp_path / "left")
    assert main(command) != 0
    assert "still has 1 blob beside the rows" in capsys.readouterr().err
    assert not (tmp_path / "old").exists()
    assert main([*command, "--drop-legacy-blobs"]) == 0
    assert maps_of(tmp_path / "old") == {"hot": {"a": 5, "b": 6}, "cold": {"a": 1}}


def test_a_flag_that_the_plan_does_not_name_stops_the_run(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    at = command.index("--flag-state")
    assert main(command[:at] + command[at + 2 :]) != 0
    said = capsys.readouterr().err
    assert f"--flag-state {FLAG}" in said
    assert "say of keys that have a blob again that they are moved" in said


def test_without_reverse_there_is_nothing_to_drop(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    without = [part for part in command if part != "--reverse"]
    assert main([*without, "--drop-legacy-blobs"]) != 0
    assert "--drop-legacy-blobs: only a run in reverse has it" in capsys.readouterr().err
