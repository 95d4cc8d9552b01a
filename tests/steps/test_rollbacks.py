"""A rollback goes back to what the undone run has read, whatever has become of an earlier target."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flinkstate.errors import TransientError
from flinkstate.metadata.file_names import METADATA
from stateferry.cli import main
from stateferry.runs.control.target_metadata import TargetMetadata
from tests.steps.test_publication import BEFORE_PUBLICATION, published_target
from tests.steps.test_steps_alone import STATE, PlanOf, plan_of, the_run
from tests.support.in_process import do_steps

pytestmark = pytest.mark.usefixtures("home")

__all__ = ["plan_of"]

BACK = ["rollback", "--job", "orders"]


def publish(plan: str) -> None:
    do_steps((*BEFORE_PUBLICATION, "cut_over"), "--plan", plan)


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a link to itself", "no store"])
def test_an_earlier_target_that_is_gone_keeps_nobody_from_going_back(
    left: str, tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second, first = tmp_path / "second", tmp_path / "one"
    STATE.with_changes(checkpoint_id=STATE.checkpoint_id + 1).write(str(second))
    publish(plan_of("one"))
    publish(plan_of("two", source=str(second)))
    shutil.rmtree(first)
    if left == "an empty folder":
        first.mkdir()
    elif left == "a link to itself":
        first.symlink_to(first)
    elif left == "no store":
        monkeypatch.setattr(TargetMetadata, "roll_forward", unreachable)
    capsys.readouterr()
    assert main(BACK) == 0
    said = capsys.readouterr().out
    assert "note: of what stands again: " in said
    assert said.endswith(f"restore the job from {second}\n")
    assert published_target(tmp_path) == str(first)
    assert not (first / METADATA).exists()
    # What the undone run has lost since doesn't keep anybody from going back further.
    the_run(tmp_path, "two").state_file.remove()
    assert main(BACK) == 0
    assert published_target(tmp_path) is None


def unreachable(*_: object) -> None:
    raise TransientError("no answer")


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_a_target_whose_files_are_gone_does_not_become_a_savepoint_again(
    left: str, tmp_path: Path, plan_of: PlanOf, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of("one")
    publish(plan)
    shutil.rmtree(tmp_path / "one")
    if left == "an empty folder":
        (tmp_path / "one").mkdir()
    capsys.readouterr()
    assert main(["run", "--plan", plan]) == 1
    said = capsys.readouterr().err
    assert f"run one: 1 file of {tmp_path / 'one'} is gone, such as " in said
    assert "start no job from there. Roll the publication back (stateferry rollback --job orders)" in said
    assert not (tmp_path / "one" / METADATA).exists()
