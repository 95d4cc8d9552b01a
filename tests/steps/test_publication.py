"""The publication needs only what the run has staged: the source may be gone by then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stateferry.cli import main
from stateferry.runs.publications import Control
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.storage import Location
from tests.steps.test_steps_alone import PlanOf, control_of, plan_of, the_run
from tests.support.in_process import do_step, without_spark
from tests.support.kill_points import Picture, watched

__all__ = ["plan_of"]

BEFORE_PUBLICATION = ("snapshot", "migrate", "rescale", "validate")


def published_target(tmp_path: Path) -> str | None:
    with control_of(tmp_path) as control:
        standing = control.standing("orders")
    return None if standing is None else standing.record.target


def test_a_verified_run_is_published_without_its_source(tmp_path: Path, plan_of: PlanOf) -> None:
    plan = plan_of("one")
    for step in BEFORE_PUBLICATION:
        assert do_step(step, "--plan", plan) == 0
    shutil.rmtree(tmp_path / "source")
    assert do_step("cut_over", "--plan", plan) == 0
    assert the_run(tmp_path, "one").state is RunState.PUBLISHED
    assert published_target(tmp_path) == str(tmp_path / "one")
    assert (tmp_path / "one" / METADATA).exists()


@pytest.mark.slow
def test_a_run_that_was_killed_after_its_validation_needs_no_source(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_spark(monkeypatch)
    root = tmp_path / "world"
    plan = plan_of("one", home=str(root / "home"), target=str(root / "target"))
    for step in BEFORE_PUBLICATION:
        assert do_step(step, "--plan", plan) == 0
    with watched(root) as points:
        assert main(["run", "--plan", plan]) == 0
    assert len(points.pictures) > 5
    after = published(root)
    shutil.rmtree(tmp_path / "source")
    for number, picture in enumerate(points.pictures):
        picture.restore(root)
        free_the_lease(root)
        assert main(["run", "--plan", plan]) == 0, f"killed before {picture.effect}: {capsys.readouterr().err}"
        assert published(root) == after, f"killed before effect {number}, {picture.effect}"


def published(root: Path) -> tuple[object, ...]:
    with Control(f"sqlite:///{root}/home/catalog.db") as control:
        standing = control.standing("orders")
    assert standing is not None
    run = Run.open(Location.of(str(root / "home" / "runs" / "orders" / "one")))
    target = {name: data for name, data in Picture.of(root).content.items() if name.startswith("target/")}
    return standing.sequence, standing.record, run.state, target


def free_the_lease(root: Path) -> None:
    with Control(f"sqlite:///{root}/home/catalog.db") as control:
        if (held := control.lease_of("orders")) is not None:
            control.release(held)
