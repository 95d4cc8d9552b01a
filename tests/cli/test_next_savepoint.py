"""`stateferry run --next-in`: what is told before the job stops, and which savepoint is the next one."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT, stops_job
from stateferry.basics.exit_codes import INTERRUPTED, REJECTED, USAGE
from stateferry.cli import engine, main
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.runs.catalog.lease import Lease
from stateferry.runs.catalog.publications import Control
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.steps.workers import InProcess
from tests.support.in_process import interrupted, without_spark

DAY = 24 * 3600 * 1000
STATES = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState")
OPTIONS = (*STATES, "--flag-state", "isMigratedState", "--ttl", "30d")
STOPPED = CANONICAL_SAVEPOINT.replace(b"t\x00\tSavepoint", b"t\x00\x11Suspend Savepoint")


def demo(savepoint: Path, properties: bytes = CANONICAL_SAVEPOINT) -> Path:
    write_demo_savepoint(str(savepoint), DemoState(20, 3, 0.5, 30 * DAY, 1_750_000_000_000, 2, 128, 1))
    file = savepoint / METADATA
    metadata = parse_metadata(file.read_bytes(), str(file))
    file.write_bytes(build_metadata(replace(metadata, properties=properties)))
    return savepoint


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the job's savepoints, with one of yesterday."""
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    (tmp_path / "savepoints").mkdir()
    demo(tmp_path / "savepoints" / "savepoint-old")
    return tmp_path / "savepoints"


class Flink:
    """Takes savepoints when the workers are there, as a person has it do; `happened` is what did, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.happened = folder, list[str]()
        self.does: Callable[[], object] = lambda: self.take("savepoint-new", STOPPED)
        self.thread = threading.Thread(target=self._do)

    @contextmanager
    def opened(self, *_: object) -> Iterator[InProcess]:
        self.happened.append("the workers are there")
        self.thread.start()
        yield InProcess()

    def _do(self) -> None:
        time.sleep(0.3)
        self.does()

    def take(self, name: str, properties: bytes) -> None:
        """The file `_metadata` is seen before it is whole."""
        written = demo(self.folder.parent / f"{name}-being-written", properties)
        shutil.copytree(written, self.folder / name, ignore=shutil.ignore_patterns(METADATA))
        (self.folder / name / METADATA).write_bytes((written / METADATA).read_bytes()[:99])
        time.sleep(0.3)
        self.happened.append(f"{name} is complete")
        shutil.copy(written / METADATA, self.folder / name / METADATA)


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Flink]:
    flink = Flink(folder)
    monkeypatch.setattr(engine, "local_workers", flink.opened)
    yield flink
    if flink.thread.ident is not None:
        flink.thread.join()


def run(folder: Path, *more: str) -> int:
    target = str(folder.parent / "target")
    return main(["run", "--next-in", str(folder), "--target", target, "--job", "orders", *OPTIONS, *more])


def test_the_savepoint_with_which_the_job_is_stopped_is_migrated(
    folder: Path, flink: Flink, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder) == 0
    assert flink.happened == ["the workers are there", "savepoint-new is complete"]
    said = capsys.readouterr().out
    assert f"the plan fits {folder}/savepoint-old" in said
    assert f"now stop the job with a savepoint in {folder}" in said
    assert f"{folder}/savepoint-new -> " in said
    # The same command again doesn't stop the job once more.
    assert run(folder) == USAGE
    assert "target" in capsys.readouterr().err


@pytest.mark.parametrize("is_planned", [True, False])
def test_the_same_command_twice_leaves_one_run(
    folder: Path, flink: Flink, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_planned: bool
) -> None:
    """The other command has planned its run when this one looks, or is about to."""
    home = str(tmp_path / "home")
    values = {"job": "orders", "source": f"{folder}/savepoint-new", "target": f"{tmp_path}/target", "home": home}
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": 30 * DAY}
    other = plan_of({**values, "operators": [{"operator": "main", "states": [state]}]})
    held = list[Lease]()

    def does() -> None:
        with Control(other.catalog_uri) as control:
            held.append(control.acquire(other.job, other.run_id))
        if is_planned:
            Run.create(other, 1_000)
        flink.take("savepoint-new", STOPPED)

    flink.does = does
    assert run(folder) == (USAGE if is_planned else REJECTED)
    (lease,) = held
    said = capsys.readouterr().err
    assert ("another command has begun run" if is_planned else "is being worked on by run") in said, said
    assert lease.run_id in said
    assert [one.run_id for one in runs_of(home, "orders")] == ([other.run_id] if is_planned else [])
    assert not (tmp_path / "target").exists()


def test_savepoints_of_a_job_that_goes_on_and_those_of_other_jobs_are_left_alone(
    folder: Path, flink: Flink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def does() -> None:
        flink.take("savepoint-running", CANONICAL_SAVEPOINT)
        another = folder.parent / "another"
        shutil.copytree(folder / "savepoint-old", another)
        data = (another / METADATA).read_bytes()
        metadata = parse_metadata(data, "")
        others = tuple(replace(one, id=bytes(16), uid=None, name="another") for one in metadata.operators)
        (another / METADATA).write_bytes(build_metadata(replace(metadata, operators=others, properties=STOPPED)))
        another.rename(folder / "savepoint-another")
        # This version doesn't know it.
        shutil.copytree(folder / "savepoint-old", folder.parent / "future")
        future = bytearray(data)
        future[4:8] = (99).to_bytes(4, "big")
        (folder.parent / "future" / METADATA).write_bytes(future)
        (folder.parent / "future").rename(folder / "savepoint-future")
        time.sleep(0.5)
        flink.take("savepoint-new", STOPPED)

    flink.does = does
    assert run(folder) == 0
    said = capsys.readouterr().out
    assert f"note: {folder}/savepoint-running isn't taken: the job was not stopped with it" in said
    assert f"note: {folder}/savepoint-another isn't taken: no operator has the id, uid or name 'main'" in said
    assert f"note: {folder}/savepoint-future isn't taken: " in said
    assert f"{folder}/savepoint-new -> " in said


def test_a_run_that_isnt_over_is_continued_by_its_savepoint_alone(
    folder: Path, flink: Flink, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody but a person knows whether the job has run since."""
    with monkeypatch.context() as patch:
        patch.setattr("stateferry.steps.new_files.begin", interrupted)
        assert run(folder) == INTERRUPTED
    its = f"{folder}/savepoint-new"
    assert f"continues where it stopped with --savepoint {its} instead of --next-in" in capsys.readouterr().err
    without_spark(monkeypatch)
    assert run(folder) == USAGE
    assert f"continue the run: give --savepoint {its} instead of --next-in" in capsys.readouterr().err
    target = str(folder.parent / "target")
    assert main(["run", "--savepoint", its, "--target", target, "--job", "orders", *OPTIONS]) == 0
    assert (folder.parent / "target" / METADATA).exists()


def test_a_command_that_was_killed_before_it_has_found_the_savepoint_says_how_to_go_on(
    folder: Path, flink: Flink, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(folder / "savepoint-stopped", STOPPED)
    flink.does = lambda: None
    assert run(folder, "--wait", "1s") == USAGE
    said = capsys.readouterr()
    assert f"If it hasn't run since, give --savepoint {folder}/savepoint-stopped instead" in said.out
    assert f"the job was not stopped with a savepoint in {folder} within 1s" in said.err


def test_each_rehearsal_waits_for_a_savepoint_of_its_own(
    folder: Path, flink: Flink, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flink.does = lambda: flink.take("savepoint-new", CANONICAL_SAVEPOINT)
    assert run(folder, "--rehearse", "--format", "native", "--claimable") == 0
    said = capsys.readouterr().out
    assert "now take a savepoint of the job" in said
    assert "; nothing is published, so --claimable had no effect\n" in said
    without_spark(monkeypatch)
    assert run(folder, "--rehearse", "--wait", "1s") == USAGE


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--savepoint", "/sp"), "takes the place of --savepoint"),
        (("--wait", "soon"), "expected a duration"),
        # That it doesn't fit is seen from the job's earlier savepoint.
        (("--parallelism", "200"), "parallelism"),
        (("--legacy-state", "anotherState", "--new-state", "another"), "anotherState"),
        (
            ("--legacy-state", "anotherState"),
            "nothing shows that it was migrated before: mainState may have been meant",
        ),
        (("--new-state", "newMainStat"), "did you mean --new-state newMainState?"),
        (("--operator", "mian"), "no operator has the id, uid or name 'mian'"),
        (("--next-in", "/no/folder"), "/no/folder is no folder with savepoints of the job"),
    ],
)
def test_a_mistake_is_told_before_the_job_is_stopped(
    folder: Path, flink: Flink, more: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, *more) == USAGE
    assert why in capsys.readouterr().err
    assert flink.happened == []


def test_what_stands_in_the_way_is_told_before_the_job_is_stopped(
    folder: Path, flink: Flink, capsys: pytest.CaptureFixture[str]
) -> None:
    with Control(f"sqlite:///{folder.parent}/home/catalog.db") as control:
        held = control.acquire("orders", "another run")
        assert run(folder) == REJECTED
        assert "another run" in capsys.readouterr().err
        control.release(held)
    (folder.parent / "target").mkdir()
    (folder.parent / "target" / "something").touch()
    assert run(folder) == USAGE
    assert "target" in capsys.readouterr().err
    below_file = folder.parent / "target" / "something" / "new"
    assert run(folder, "--target", str(below_file)) == USAGE
    assert f"target {below_file} can't be made: {below_file.parent} is no folder" in capsys.readouterr().err
    shutil.rmtree(folder / "savepoint-old")
    assert run(folder, "--target", "/t") == USAGE
    assert f"{folder} has no savepoint yet. The plan is checked on a savepoint of the job" in capsys.readouterr().err
    assert flink.happened == []


def test_whose_savepoint_it_is_must_be_known(folder: Path, flink: Flink, capsys: pytest.CaptureFixture[str]) -> None:
    of_folder = ["run", "--next-in", str(folder), "--target", str(folder.parent / "target")]
    assert main([*of_folder, *OPTIONS]) == USAGE
    assert "--next-in needs --job" in capsys.readouterr().err
    assert main([*of_folder, "--job", "orders", "--parallelism", "4"]) == USAGE
    assert "--next-in needs --operator" in capsys.readouterr().err
    assert flink.happened == []


@pytest.mark.parametrize("properties", [STOPPED, STOPPED.replace(b"\x11Suspend", b"\x13Terminate")])
def test_flink_says_whether_a_job_was_stopped_with_a_savepoint(tmp_path: Path, properties: bytes) -> None:
    def metadata(properties: bytes) -> bool:
        file = Location.of(str(demo(tmp_path / "one", properties))).child(METADATA)
        return stops_job(parse_metadata(file.read(), file.shown))

    assert metadata(properties)
    shutil.rmtree(tmp_path / "one")
    assert not metadata(CANONICAL_SAVEPOINT)
