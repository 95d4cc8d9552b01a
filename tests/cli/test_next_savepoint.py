"""`stateferry run --next-in`: what may wait before the job stops, and which savepoint is the next one."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stateferry.cli import engine, main
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.exit_codes import INTERRUPTED, USAGE
from stateferry.savepoint.file_names import METADATA
from stateferry.steps.workers import InProcess
from tests.support.in_process import without_spark

DAY = 24 * 3600 * 1000
STATES = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState")
OPTIONS = (*STATES, "--flag-state", "isMigratedState", "--ttl", "30d")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the job's savepoints, with one of yesterday."""
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    made = tmp_path / "savepoints"
    made.mkdir()
    demo(made / "savepoint-old")
    return made


def demo(savepoint: Path) -> None:
    write_demo_savepoint(str(savepoint), DemoState(20, 3, 0.5, 30 * DAY, 1_750_000_000_000, 2, 128, 1))


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> Iterator[list[str]]:
    """Flink takes the savepoint when the workers are there, as a person has it do; gives what happened, in order."""
    happened: list[str] = []
    demo(tmp_path / "being-written")

    def taken() -> None:
        time.sleep(0.3)
        target = folder / "savepoint-new"
        shutil.copytree(tmp_path / "being-written", target, ignore=shutil.ignore_patterns(METADATA))
        (target / METADATA).write_bytes(b"")
        time.sleep(0.3)
        happened.append("the savepoint is complete")
        shutil.copy(tmp_path / "being-written" / METADATA, target / METADATA)

    flink = threading.Thread(target=taken)

    @contextmanager
    def opened(*_: object) -> Iterator[InProcess]:
        happened.append("the workers are there")
        flink.start()
        yield InProcess()

    monkeypatch.setattr(engine, "local_workers", opened)
    yield happened
    if flink.ident is not None:
        flink.join()


def run(folder: Path, *more: str) -> int:
    target = str(folder.parent / "target")
    return main(["run", "--next-in", str(folder), "--target", target, "--job", "orders", *OPTIONS, *more])


def test_the_savepoint_that_is_completed_next_is_migrated(
    folder: Path, stop: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder) == 0
    assert stop == ["the workers are there", "the savepoint is complete"]
    said = capsys.readouterr().out
    assert f"now stop the job with a savepoint in {folder}" in said
    assert f"{folder}/savepoint-new -> " in said
    # The same command again waits for nothing.
    assert run(folder) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_stopped_run_goes_on_with_the_savepoint_that_it_has_begun_with(
    folder: Path, stop: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("stateferry.steps.pipeline.Pipeline.rescale", interrupted)
        assert run(folder) == INTERRUPTED
    assert "continues where it stopped when the same command is given again" in capsys.readouterr().err
    # Nobody takes another savepoint of a job that has been stopped.
    without_spark(monkeypatch)
    assert run(folder, "--wait", "0s") == 0
    assert f"{folder}/savepoint-new -> " in capsys.readouterr().out
    assert (folder.parent / "target" / METADATA).exists()


def test_a_rehearsal_waits_for_a_savepoint_of_its_own(
    folder: Path, stop: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--rehearse") == 0
    without_spark(monkeypatch)
    capsys.readouterr()
    assert run(folder, "--rehearse", "--wait", "1s") == USAGE
    within = f"no savepoint of the job was completed in {folder} within 1s"
    assert (
        f"{within}. To use the newest one before that, give --savepoint {folder}/savepoint-" in capsys.readouterr().err
    )


def test_a_savepoint_of_another_job_is_left_alone(
    folder: Path, stop: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--operator", "another", "--wait", "2s") == USAGE
    # Neither is the earlier one of use.
    assert capsys.readouterr().err.endswith(f"no savepoint of the job was completed in {folder} within 2s\n")
    assert len(stop) == 2


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--savepoint", "/sp"), "takes the place of --savepoint"),
        (("--wait", "soon"), "expected a duration"),
        # That it doesn't fit is seen from the job's earlier savepoint.
        (("--parallelism", "200"), "parallelism"),
        (("--legacy-state", "anotherState", "--new-state", "another"), "anotherState"),
    ],
)
def test_a_mistake_is_told_before_the_job_is_stopped(
    folder: Path, stop: list[str], more: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, *more) == USAGE
    assert why in capsys.readouterr().err
    assert stop == []


def test_a_job_that_is_migrated_already_isnt_stopped(
    folder: Path, stop: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--legacy-state", "anotherState") == 0
    assert "nothing to do: anotherState of main is already migrated" in capsys.readouterr().out
    assert stop == []


def test_a_target_that_is_taken_is_told_before_the_job_is_stopped(
    folder: Path, stop: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "target").mkdir()
    (folder.parent / "target" / "something").touch()
    assert run(folder) == USAGE
    assert "target" in capsys.readouterr().err
    assert stop == []


def test_a_job_needs_a_name(folder: Path, stop: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--next-in", str(folder), "--target", str(folder.parent / "target"), *OPTIONS]) == USAGE
    assert "--next-in needs --job" in capsys.readouterr().err
    assert main(["run", "--next-in", str(folder / "no"), "--job", "orders", "--target", "/t", *OPTIONS]) == USAGE
    assert f"there is no folder {folder}/no" in capsys.readouterr().err
    assert stop == []
