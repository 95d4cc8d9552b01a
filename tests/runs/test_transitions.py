"""Every state of a run and everything that may be asked of it: what goes on, what is refused, and that what is refused
has no effect. A person's no is final, whoever comes first."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RejectedError
from flinkstate.files.storage import Location
from stateferry.cli import main
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control, RunEndedError
from stateferry.runs.control.rejecting import approve, reject
from stateferry.runs.plan.plan_json import plan_of_json
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.steps import new_files
from tests.support.in_process import do_step, without_spark
from tests.support.kill_points import Picture
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

STATE = LegacyState(blobs={"cold": ({"a": 1, "b": 2}, 0)}, rows={"hot": {"a": (5, 0)}}, flags={"hot": 0})
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over", "tables")
GOES_ON, NO = 0, 1


@dataclass(frozen=True, slots=True)
class World:
    """A run's home and target, with pictures of them in every state of the run."""

    root: Path
    pictures: dict[RunState, Picture]

    @property
    def plan(self) -> str:
        return str(self.root.parent / "plan.json")

    @property
    def run(self) -> Run:
        return Run.open(Location.of(str(self.root / "home" / "runs" / "orders" / "one")))

    @property
    def control(self) -> Control:
        return Control(f"sqlite:///{self.root}/home/catalog.db")

    def begin(self) -> None:
        Run.create(plan_of_json(Path(self.plan).read_bytes()), 0)

    def do(self, *steps: str) -> None:
        for name in steps:
            assert do_step(name, "--run", self.run.folder.path) == 0

    def effects(self) -> dict[str, Any]:
        """All that there is, but for who had the lease, and which temporary folder."""
        files = Picture.of(self.root).content
        found: dict[str, Any] = {
            name: data
            for name, data in files.items()
            if not name.startswith("home/catalog.db") and Path(name).name not in ("state.lock", "temporary.json")
        }
        with self.control as control:
            found["publications"], found["stands"] = control.history("orders"), control.standing("orders")
            found["rejected"] = control.rejection("orders", "one")
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("transitions")
    STATE.write(str(folder / "source"))
    values = {
        "job": "orders",
        "run_id": "one",
        "now": 0,
        "source": str(folder / "source"),
        "target": str(folder / "world" / "target"),
        "home": str(folder / "world" / "home"),
        "operators": [{"operator": "main", "states": [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]}],
    }
    (folder / "plan.json").write_text(json.dumps(values))
    world = World(folder / "world", {})
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        patch.setenv("STATEFERRY_HOME", str(folder / "world" / "home"))
        _take_pictures(world)
        yield world


def _take_pictures(world: World) -> None:
    def take(state: RunState) -> None:
        assert world.run.state is state
        world.pictures[state] = Picture.of(world.root)

    with_run: dict[RunState, Callable[[], object]] = {
        RunState.PLANNED: world.begin,
        RunState.RUNNING: lambda: world.do("snapshot"),
        RunState.STAGED: lambda: world.do("migrate", "rescale"),
        RunState.VERIFIED: lambda: world.do("validate"),
        RunState.PUBLISHED: lambda: world.do("cut_over"),
        RunState.ROLLED_BACK: lambda: main(["rollback", "--job", "orders"]),
    }
    for state, bring in with_run.items():
        bring()
        take(state)
    others: dict[RunState, Callable[[Control], None]] = {
        RunState.APPROVED: lambda control: approve(world.run, control, 1, "approved by ada"),
        RunState.REJECTED: lambda control: reject(world.run, control, "rejected by ada"),
        RunState.FAILED: lambda _: world.run.enter(RunState.FAILED, 1, "no room"),
    }
    for state, enter in others.items():
        world.pictures[RunState.VERIFIED].restore(world.root)
        with world.control as control:
            enter(control)
        take(state)


def asked(world: World, command: str) -> int:
    """The exit code of a command, or of a person's answer."""
    if command in STEPS:
        return do_step(command, "--run", world.run.folder.path)
    if command == "run":
        return main(["run", "--plan", world.plan])
    if command == "clean":
        return main(["clean", "--keep", "0", "--older-than", "1ms"])
    if command == "rollback":
        return main(["rollback", "--job", "orders"])
    try:
        with world.control as control:
            if command == "approve":
                approve(world.run, control, 2, "approved by bob")
            else:
                reject(world.run, control, "rejected by bob")
    except RejectedError:
        return NO
    return GOES_ON


COMMANDS = (*STEPS, "run", "approve", "reject", "rollback")
# One line for each state, in the order of the commands: a step comes after those before it, an approval after a
# validation, and nothing comes after a no, or after a rollback.
TABLE = {
    RunState.PLANNED: (0, 1, 1, 1, 1, 1, 0, 1, 0, 1),
    RunState.RUNNING: (0, 0, 1, 1, 1, 1, 0, 1, 0, 1),
    RunState.STAGED: (0, 0, 0, 0, 1, 1, 0, 1, 0, 1),
    RunState.VERIFIED: (0, 0, 0, 0, 0, 1, 0, 0, 0, 1),
    RunState.APPROVED: (0, 0, 0, 0, 0, 1, 0, 0, 0, 1),
    RunState.FAILED: (0, 0, 0, 0, 0, 1, 0, 0, 0, 1),
    RunState.REJECTED: (1, 1, 1, 1, 1, 1, 1, 1, 0, 1),
    RunState.PUBLISHED: (0, 0, 0, 0, 0, 0, 0, 1, 1, 0),
    RunState.ROLLED_BACK: (1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
}


def test_the_table_knows_every_state() -> None:
    assert TABLE.keys() == set(RunState)
    assert all(len(answers) == len(COMMANDS) for answers in TABLE.values())


@pytest.mark.matrix(most=2)
@pytest.mark.part
@pytest.mark.parametrize("state", RunState)
def test_what_is_refused_has_no_effect_and_all_else_goes_on(
    world: World, state: RunState, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pictures[state].restore(world.root)
    before = world.effects()
    for command, answer in zip(COMMANDS, TABLE[state], strict=True):
        world.pictures[state].restore(world.root)
        code = asked(world, command)
        said = capsys.readouterr()
        assert code == answer, f"{command} of a run that is {state.value}: {said.err}"
        after = world.effects()
        if answer != GOES_ON:
            assert after == before, f"{command} of a run that is {state.value}"
        published = after["stands"] is not None
        assert (
            published == (world.root / "target" / "_metadata").exists()
            or state is RunState.ROLLED_BACK
            or (command == "rollback")
        )
        assert not (published and after["rejected"])


@pytest.mark.part
@pytest.mark.parametrize("state", RunState)
def test_cleaning_leaves_what_was_published_and_what_is_at_work(world: World, state: RunState) -> None:
    world.pictures[state].restore(world.root)
    before = world.effects()
    # Between two steps the lease stays with the run.
    at_work = state in (RunState.RUNNING, RunState.STAGED)
    assert asked(world, "clean") == (NO if at_work else GOES_ON)
    after = world.effects()
    if at_work:
        assert after == before
    published = state in (RunState.PUBLISHED, RunState.ROLLED_BACK)
    for name in before:
        if name.startswith("target/"):
            assert (name in after) == (published or at_work)


def test_a_no_between_two_steps_lets_the_lease_go_if_its_holder_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ended in (True, False):
        world.pictures[RunState.STAGED].restore(world.root)
        with monkeypatch.context() as patch, world.control as control:
            held = control.lease_of("orders")
            assert held is not None
            patch.setattr(Process, "is_over", ended)
            reject(world.run, control, "rejected by ada")
            assert control.lease_of("orders") == (None if ended else held)


def test_a_run_that_was_rolled_back_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Not that its target, which it has published, holds another savepoint."""
    world.pictures[RunState.ROLLED_BACK].restore(world.root)
    capsys.readouterr()
    assert asked(world, "run") == 1
    said = capsys.readouterr().err
    assert "run one of job orders was rolled back at" in said
    assert "start a new run: give another --target" in said


@pytest.mark.slow
def test_a_rejected_run_says_who_rejected_it_and_how_to_go_on(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.pictures[RunState.REJECTED].restore(world.root)
    capsys.readouterr()
    assert asked(world, "run") == 1
    said = capsys.readouterr().err
    assert "run one of job orders was rejected at" in said
    assert "rejected by ada. It does not continue and is not published." in said
    # Without a run_id of its own the same work is the same run, and another target makes another run of it.
    values = json.loads(Path(world.plan).read_text())
    del values["run_id"]
    again = world.root.parent / "again.json"
    again.write_text(json.dumps(values))
    assert main(["run", "--plan", str(again)]) == 1
    assert "was rejected at" in capsys.readouterr().err
    assert main(["run", "--plan", str(again), "--target", str(world.root / "another")]) == 0
    assert (world.root / "another" / "_metadata").exists()
    assert not (world.root / "target" / "_metadata").exists()


def test_a_no_while_the_run_is_being_published_wins_or_comes_too_late(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person answers at the last moment: when the driver has looked at the run's state for the last time."""
    world.pictures[RunState.VERIFIED].restore(world.root)
    publish = Control.publish

    def rejected_first(self: Control, *arguments: Any, **more: Any) -> Any:
        with world.control as control:
            reject(world.run, control, "rejected by ada")
        return publish(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Control, "publish", rejected_first)
        assert asked(world, "cut_over") == 1
    assert "was rejected (rejected by ada): nothing is published" in capsys.readouterr().err
    assert world.effects()["publications"] == ()
    assert not (world.root / "target" / "_metadata").exists()
    last = world.run.changes()[-1]
    assert (last.state, last.reason) == (RunState.REJECTED, "rejected by ada")

    def too_late(self: Control, *arguments: Any, **more: Any) -> Any:
        published = publish(self, *arguments, **more)
        with world.control as control, pytest.raises(RunEndedError, match="it is published already"):
            reject(world.run, control, "rejected by ada")
        return published

    world.pictures[RunState.VERIFIED].restore(world.root)
    with monkeypatch.context() as patch:
        patch.setattr(Control, "publish", too_late)
        assert asked(world, "cut_over") == 0
    assert world.run.state is RunState.PUBLISHED
    assert world.effects()["rejected"] is None


def test_a_no_whose_process_was_killed_before_the_folder_said_so_counts(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("snapshot", "cut_over", "run", "approve"):
        world.pictures[RunState.VERIFIED].restore(world.root)
        with world.control as control:
            control.reject("orders", "one", "rejected by ada")
        assert asked(world, command) == 1
        assert world.run.state is RunState.REJECTED
        assert not (world.root / "target" / "_metadata").exists()


def test_a_run_that_an_earlier_version_published_after_its_rejection_can_be_rolled_back(world: World) -> None:
    world.pictures[RunState.PUBLISHED].restore(world.root)
    world.run.note(RunState.REJECTED, 1, "rejected by ada")
    assert asked(world, "rollback") == 0
    assert world.run.state is RunState.ROLLED_BACK


def test_a_driver_that_lost_the_lease_does_not_say_how_the_run_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pictures[RunState.RUNNING].restore(world.root)

    def robbed(*_: object) -> None:
        with world.control as control:
            control.acquire("orders", "another-run", force=True)
        raise RejectedError("what it did for nothing has failed")

    monkeypatch.setattr(new_files, "copy", robbed)
    assert asked(world, "migrate") == 75
    assert world.run.state is RunState.RUNNING


@pytest.mark.slow
def test_of_two_that_write_the_states_at_once_neither_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.pictures[RunState.VERIFIED].restore(world.root)
    run, write, writing, go_on = world.run, Location.write_atomically, threading.Event(), threading.Event()

    def slow(self: Location, data: bytes) -> None:
        if not writing.is_set():
            writing.set()
            go_on.wait(1)
        write(self, data)

    monkeypatch.setattr(Location, "write_atomically", slow)
    failing = threading.Thread(target=run.enter, args=(RunState.FAILED, 5, "no room"))
    failing.start()
    assert writing.wait(10)
    rejecting = threading.Thread(target=run.enter, args=(RunState.REJECTED, 6, "rejected by ada"))
    rejecting.start()
    failing.join()
    rejecting.join()
    assert [change.state for change in run.changes()][-2:] == [RunState.FAILED, RunState.REJECTED]
