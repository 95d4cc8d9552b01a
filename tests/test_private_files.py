"""Who may read what a run writes: its user alone, or the group that is let in. A published savepoint may be read by
whoever may read its source."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from flinkstate.reading.reader import Savepoint
from stateferry.cli import main, step
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.facts import Claim
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.runs.record.target_access import TargetAccess, _let_pass
from stateferry.spark_jobs.workers import _Task
from tests.runs.test_runs import plan_at
from tests.steps.test_killed import World
from tests.support.in_process import do_step, interrupted, without_spark


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    with umask(0o022):
        yield


@contextmanager
def umask(wanted: int) -> Iterator[None]:
    before = os.umask(wanted)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "world" / "home"))
    return World.of(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(root: Path) -> set[tuple[str, int]]:
    """Of folders and files."""
    found = [root, *root.rglob("*")]
    return {("folder" if path.is_dir() else "file", mode(path)) for path in found}


def home(world: World) -> Path:
    return world.root / "home"


def source(world: World) -> Path:
    return world.folder / world.source


def set_modes(folder: Path, of_folder: int, of_files: int, of_metadata: int) -> None:
    for file in folder.iterdir():
        file.chmod(of_metadata if file.name == METADATA else of_files)
    folder.chmod(of_folder)


def has_modes(folder: Path, of_folder: int, of_files: int, of_metadata: int) -> bool:
    files = {mode(file) for file in folder.iterdir() if file.name != METADATA}
    return (mode(folder), files, mode(folder / METADATA)) == (of_folder, {of_files}, of_metadata)


@pytest.mark.slow
@pytest.mark.parametrize(
    "further", [(), ("--rehearse",), ("--max-parallelism", "300")], ids=["run", "rehearsal", "moved"]
)
def test_nobody_else_reads_runs_tables_and_catalog(world: World, further: tuple[str, ...]) -> None:
    assert main(world.night("monday", "target", *further).command) == 0
    assert {path.name for path in home(world).iterdir()} == {"catalog.db", "runs", "warehouse"}
    assert list(home(world).rglob("*.parquet"))
    assert modes(home(world)) == {("folder", 0o700), ("file", 0o600)}


def test_a_group_may_be_let_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_UMASK", "007")
    assert main(world.command) == 0
    assert modes(home(world)) == {("folder", 0o770), ("file", 0o660)}


@pytest.mark.parametrize("given", ["0x3f", "700", "0100", "rw", "-22", "0088"])
def test_a_wrong_umask_is_wrong_usage(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_UMASK", given)
    assert main(["runs"]) == 2
    assert "expected STATEFERRY_UMASK to be three octal digits" in capsys.readouterr().err


def test_airflow_s_processes_write_no_more_openly(tmp_path: Path) -> None:
    """They call the library, and have a umask of their own."""
    run = Run.create(plan_at(tmp_path / "home"), 1)
    run.keep(SnapshotFacts())
    with Control(f"sqlite:///{tmp_path}/home/catalog.db"):
        pass
    assert modes(tmp_path / "home") == {("folder", 0o700), ("file", 0o600)}


def test_a_process_has_its_own_umask_again_afterwards() -> None:
    main(["runs"])
    assert os.umask(0o022) == 0o022


def test_what_a_user_asks_for_has_the_user_s_own_umask(tmp_path: Path) -> None:
    with umask(0o002):
        assert main(["demo-savepoint", str(tmp_path / "demo"), "--keys", "10"]) == 0
    assert modes(tmp_path / "demo") == {("folder", 0o775), ("file", 0o664)}


@pytest.mark.slow
@pytest.mark.parametrize("given", [(0o755, 0o644, 0o644), (0o750, 0o640, 0o600), (0o700, 0o600, 0o600)])
def test_whoever_may_read_the_source_may_read_what_is_published(world: World, given: tuple[int, int, int]) -> None:
    set_modes(source(world), *given)
    night = world.night("monday", "new/folders/target")
    assert main(night.command) == 0
    assert has_modes(world.root / "new" / "folders" / "target", *given)
    # Flink has to get there.
    assert {mode(world.root / "new"), mode(world.root / "new" / "folders")} == {given[0]}


def test_a_folder_is_open_to_its_owner_though_the_source_s_is_read_only(world: World) -> None:
    """Else its `_metadata` couldn't be written any more, and the publication would be on record."""
    set_modes(source(world), 0o555, 0o444, 0o444)
    read = Savepoint.open(str(source(world)))
    access = TargetAccess.like(read.folder, read.metadata, Location.of(str(world.root / "target")), None)
    assert (access.folder.mode, access.files.mode, access.metadata.mode) == (0o755, 0o444, 0o444)


@pytest.mark.slow
def test_files_permit_what_all_of_the_source_s_files_permit(world: World) -> None:
    first, *_ = sorted(file for file in source(world).iterdir() if file.name != METADATA)
    first.chmod(0o640)
    assert main(world.command) == 0
    assert has_modes(world.root / world.target, 0o755, 0o640, 0o644)


@pytest.mark.slow
def test_a_folder_that_was_there_is_opened_too(world: World) -> None:
    (world.root / world.target).mkdir(0o700)
    assert main(world.command) == 0
    assert has_modes(world.root / world.target, 0o755, 0o644, 0o644)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_it_belongs_to_whom_the_source_belongs(world: World) -> None:
    for path in (source(world), *source(world).iterdir()):
        os.chown(path, 12345, 23456)
    assert main(world.command) == 0
    target = world.root / world.target
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (target, *target.iterdir())} == {(12345, 23456)}


def test_until_it_is_published_nobody_else_reads_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TargetMetadata, "roll_forward", interrupted)
        assert main(world.night("monday", "above/target").command) == 130
    above = world.root / "above"
    assert modes(above) == {("folder", 0o700), ("file", 0o600)}
    # What the source permits was noted when the target was claimed.
    set_modes(source(world), 0o700, 0o600, 0o600)
    assert main(world.night("monday", "above/target").command) == 0
    assert mode(above) == 0o755
    assert has_modes(above / "target", 0o755, 0o644, 0o644)


@pytest.mark.slow
def test_what_is_published_stays_as_it_was_made_by_others(world: World) -> None:
    assert main(world.command) == 0
    set_modes(world.root / world.target, 0o711, 0o604, 0o640)
    assert main(world.command) == 0
    assert has_modes(world.root / world.target, 0o711, 0o604, 0o640)


@pytest.mark.slow
def test_a_publication_of_an_earlier_version_is_rolled_forward(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TargetMetadata, "roll_forward", interrupted)
        assert main(world.command) == 130
    (one,) = runs_of(str(home(world)), "clicks")
    assert one.plan is not None
    run = Run(one.plan, one.folder)
    run.keep(Claim(run.plan.target))
    set_modes(world.root / world.target, 0o755, 0o644, 0o644)
    assert main(world.command) == 0
    assert has_modes(world.root / world.target, 0o755, 0o644, 0o644)


@pytest.mark.slow
def test_a_home_lets_through_to_what_is_published_in_it_and_to_nothing_else(world: World) -> None:
    night = world.night("monday", "home/savepoints/clicks/first")
    assert main(night.command) == 0
    assert mode(home(world)) == 0o711
    assert {mode(home(world) / "savepoints"), mode(home(world) / "savepoints" / "clicks")} == {0o755}
    assert has_modes(home(world) / "savepoints" / "clicks" / "first", 0o755, 0o644, 0o644)
    assert modes(home(world) / "runs") | modes(home(world) / "warehouse") == {("folder", 0o700), ("file", 0o600)}
    assert mode(home(world) / "catalog.db") == 0o600


@pytest.mark.slow
def test_a_home_in_which_something_else_is_open_stays_closed(world: World) -> None:
    home(world).mkdir(0o700)
    (home(world) / "of an earlier version").mkdir(0o755)
    assert main(world.night("monday", "home/savepoints/first").command) == 0
    assert mode(home(world)) == 0o700


@pytest.mark.slow
def test_an_old_home_goes_on_as_it_is(world: World) -> None:
    home(world).mkdir(0o755)
    (home(world) / "catalog.db").touch(0o644)
    assert main(world.command) == 0
    assert mode(home(world)) == 0o755
    assert mode(home(world) / "catalog.db") == 0o644
    assert mode(home(world) / "runs") == 0o700


def test_tasks_write_as_privately_wherever_they_run(tmp_path: Path) -> None:
    nothing_is_counted: Any = None
    task = _Task(write, None, nothing_is_counted, 1, 0o077)
    assert pickle.loads(task(pickle.dumps(str(tmp_path / "file")))) == 5
    assert mode(tmp_path / "file") == 0o600


def write(name: str) -> int:
    return Path(name).write_text("state")


def test_steps_of_their_own_are_as_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def looked(_: object) -> None:
        seen.append(os.umask(0o077))
        raise KeyboardInterrupt

    monkeypatch.setattr(step, "_run_of", looked)
    assert do_step("snapshot", "--run", str(tmp_path)) == 130
    assert seen == [0o077]


def test_an_entry_that_is_removed_meanwhile_hinders_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "lock").touch(0o600)
    found = list(os.scandir(tmp_path))
    (tmp_path / "lock").unlink()
    monkeypatch.setattr(os, "scandir", lambda _: found)
    _let_pass(tmp_path, tmp_path / "target", 0o011)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o711
