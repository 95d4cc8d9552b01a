"""`stateferry catch-up`: newer checkpoints of a job that goes on, until one catch-up is short."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from flinkstate.metadata.savepoint_properties import NATIVE_SAVEPOINT
from stateferry.cli import main
from stateferry.runs.control import catching_up
from stateferry.runs.predict.estimates import prediction_lines
from stateferry.runs.predict.prediction import predicted_after
from stateferry.runs.record.catch_ups import CatchUps
from stateferry.runs.record.facts import ShownTimers
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.steps import Step
from tests.flink.judge import raw_entries
from tests.steps.test_nights_since import changed, first_state
from tests.support.facts import kept_facts
from tests.support.legacy_states import FLAG, LEGACY, NEW
from tests.support.native_nights import NightlyDatabase

pytestmark = pytest.mark.slow

UNSAID = NightlyDatabase.properties
CHECKPOINT = UNSAID + b"org.apache.flink.runtime.checkpoint.CheckpointType"


def ferried(source: Path, target: Path, *options: str, job: str = "orders") -> int:
    of_rows = ("--no-timers", "--on-contradiction", "rows")
    return run(target, "--savepoint", str(source), *of_rows, *options, job=job)


def run(target: Path, *options: str, job: str = "orders") -> int:
    wanted = ["run", "--target", str(target), "--format", "native", "--operator", "main", "--job", job]
    return main([*wanted, "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG, *options])


def rehearsed(source: Path, target: Path, home: Path, *options: str) -> Path:
    """The folder of a rehearsal, the first run of its job."""
    assert ferried(source, target, "--rehearse", *options) == 0
    (rehearsal,) = (home / "runs" / "orders").iterdir()
    return rehearsal


class LiveJob:
    """It completes a checkpoint whenever somebody waits for one, and retains that one alone."""

    def __init__(self, folder: Path, *, version: int = 6, kryo: int | None = None, properties: bytes = UNSAID) -> None:
        self.database = NightlyDatabase(folder, version=version, properties=properties)
        self.number, self.chosen = 1, random.Random(1)
        first = first_state(kryo=kryo)
        self.database.state = first.with_changes(blobs={})
        self.database.flush(first)
        self.newest = self.database.checkpoint(1)

    def kept(self) -> Path:
        """Its newest checkpoint, where it stays."""
        found = self.newest.with_name("kept")
        shutil.copytree(self.newest, found)
        return found

    def goes_on(self, *_: object) -> None:
        self.database.flush(changed(self.database.state, self.chosen, 5))
        self.number += 1
        before, self.newest = self.newest, self.database.checkpoint(self.number)
        shutil.rmtree(before)


def waits_by(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """The command alone waits so: other threads of this process go on with the clock's own `sleep`."""
    monkeypatch.setattr("stateferry.cli.commands.catch_up.time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveJob:
    live = LiveJob(tmp_path / "job")
    waits_by(monkeypatch, live.goes_on)
    return live


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def seconds(*of: float, copy: float = 100.0) -> None:
        left = iter(of)
        monkeypatch.setattr(catching_up, "catch_up_seconds", lambda _: next(left))
        monkeypatch.setattr(catching_up, "copy_seconds", lambda _: copy)

    return seconds


def test_it_catches_up_until_one_is_short_and_the_cut_over_goes_on_from_that(
    home: Path, job: LiveJob, take: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = rehearsed(job.kept(), tmp_path / "target", home, "--full-every", "7")
    take(60.0, 30.0, 4.0)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert re.findall(r"caught up with (\d+) changed keys in ([\d.]+) s", said)[-1][1] == "4.0"
    assert "enough: it took 4.0 s" in said
    assert "a cut-over is likely to keep the job still for" in said
    found = kept_facts(find_run(str(home), "orders", rehearsal.name), CatchUps)
    assert [one.seconds for one in found.done] == [60.0, 30.0, 4.0]
    last = find_run(str(home), "orders", found.done[-1].run_id)
    assert (last.plan.since, last.state, last.has_done(Step.TABLES)) == (found.done[1].run_id, RunState.STAGED, False)
    assert f"--since {last.plan.run_id} and that savepoint, without --rehearse and --full-every\n" in said
    # Right afterwards, there is nothing to do.
    assert main(arguments) == 0
    assert "a minute old at most" in capsys.readouterr().out
    job.goes_on()
    assert ferried(job.newest, tmp_path / "target", "--since", last.plan.run_id) == 0
    assert ferried(job.newest, tmp_path / "whole", job="whole") == 0
    assert raw_entries(tmp_path / "target") == raw_entries(tmp_path / "whole")


@pytest.mark.full
def test_it_catches_up_for_another_flink_without_a_migration(
    home: Path, take: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    live = LiveJob(tmp_path / "job", version=4, kryo=2)
    waits_by(monkeypatch, live.goes_on)

    def upgraded(source: Path, target: Path, *options: str, job: str = "orders") -> int:
        command = ["run", "--savepoint", str(source), "--target", str(target), "--format", "native", "--no-timers"]
        return main([*command, "--to", "flink-2", "--job", job, *options])

    assert upgraded(live.kept(), tmp_path / "target", "--rehearse") == 0
    (rehearsal,) = (home / "runs" / "orders").iterdir()
    take(4.0)
    assert main(["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"caught up with [1-9]\d* changed keys", said)
    (since,) = re.findall(r"--since (\S+)", said)
    live.goes_on()
    assert upgraded(live.newest, tmp_path / "target", "--since", since) == 0
    assert upgraded(live.newest, tmp_path / "whole", job="whole") == 0
    assert raw_entries(tmp_path / "target") == raw_entries(tmp_path / "whole")


@pytest.mark.full
def test_a_job_without_timers_on_the_heap_is_stopped_as_its_checkpoints_show(
    home: Path, take: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    live, target = LiveJob(tmp_path / "job", properties=CHECKPOINT), tmp_path / "target"
    waits_by(monkeypatch, live.goes_on)
    assert run(target, "--savepoint", str(live.kept()), "--rehearse") == 0
    (rehearsal,) = (home / "runs" / "orders").iterdir()
    take(4.0)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]
    assert main(arguments) == 0
    last = find_run(str(home), "orders", f"{rehearsal.name}.catch_up_1")
    since = ["--since", last.plan.run_id]
    told = f"with --since {last.plan.run_id}, that savepoint and --no-timers, without --rehearse\n"
    assert told in capsys.readouterr().out
    live.database.properties = NATIVE_SAVEPOINT
    live.goes_on()
    assert run(target, "--savepoint", str(live.newest), *since) == 2
    assert "plan again with --no-timers" in capsys.readouterr().err
    assert run(target, "--savepoint", str(live.newest), "--no-timers", *since) == 0
    # A native savepoint would lack them.
    last.keep(ShownTimers(in_native_savepoints=False))
    capsys.readouterr()
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "take a checkpoint, cancel the job" in said
    assert f"with --since {last.plan.run_id} and its newest checkpoint, without --rehearse; " in said


def test_what_a_stop_with_a_savepoint_has_flink_drop_is_no_base(
    home: Path, take: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    live = LiveJob(tmp_path / "job", properties=CHECKPOINT)
    waits_by(monkeypatch, live.goes_on)
    monkeypatch.setattr("stateferry.runs.record.held_checkpoint.hold", lambda checkpoint, *_: checkpoint)
    rehearsal = rehearsed(live.kept(), tmp_path / "target", home)
    take(4.0)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "/chk-2 isn't held beside run" in said
    assert "give the rehearsal's command with that savepoint, without --rehearse and --since\n" in said
    last = find_run(str(home), "orders", f"{rehearsal.name}.catch_up_1")
    last.keep(ShownTimers(in_native_savepoints=False))
    assert main(arguments) == 0
    assert "stop the job with a canonical savepoint, and give" in capsys.readouterr().out


def test_what_the_base_lacks_is_told_before_the_job_is_stopped(
    home: Path, job: LiveJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, target, savepoints = job.kept(), tmp_path / "target", tmp_path / "savepoints"
    rehearsal = rehearsed(kept, target, home)
    job.goes_on()
    shutil.copytree(job.newest, savepoints / "savepoint-1")
    wanted = ["--next-in", str(savepoints), "--wait", "1s", "--no-timers", "--since", rehearsal.name]
    assert run(target, *wanted, "--on-contradiction", "blob") == 3
    assert "its plan has another on_contradiction" in (said := capsys.readouterr()).err
    assert "now stop the job" not in said.out
    # The base itself is in order.
    assert run(target, *wanted, "--on-contradiction", "rows") == 2
    assert "now stop the job" in capsys.readouterr().out
    shutil.rmtree(kept)
    assert run(target, *wanted, "--on-contradiction", "rows") == 3
    assert "isn't there any more as it was" in (said := capsys.readouterr()).err
    assert "now stop the job" not in said.out


def test_where_converting_everything_is_as_fast_it_says_so_and_how(
    home: Path, job: LiveJob, take: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = rehearsed(job.kept(), tmp_path / "target", home)
    take(21.0, copy=7.5)
    assert main(["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]) == 0
    said = capsys.readouterr().out
    assert "enough: it took 21.0 s, longer than the copy" in said
    assert "the last catch-up took 21.0 s, more than the 7.5 s in which the copy converted everything" in said
    assert "give the rehearsal's command with that savepoint, without --rehearse and --since" in said
    expected = predicted_after(find_run(str(home), "orders", rehearsal.name))
    assert prediction_lines(expected)[0] in said


def test_without_a_newer_checkpoint_it_ends_and_says_what_to_name(
    home: Path, job: LiveJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = rehearsed(job.newest, tmp_path / "target", home)
    waits_by(monkeypatch, lambda _: None)
    assert main(["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job"), "--wait", "50ms"]) == 3
    assert "got no checkpoint newer than 1 within 50ms" in capsys.readouterr().err


def test_only_a_rehearsal_with_native_files_is_caught_up_with(
    home: Path, job: LiveJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ferried(job.newest, tmp_path / "target") == 0
    (published,) = (home / "runs" / "orders").iterdir()
    assert main(["catch-up", published.name, "--checkpoints", str(tmp_path / "job")]) == 2
    assert "is no rehearsal with native files" in capsys.readouterr().err


def test_what_was_removed_is_named_with_what_to_do(
    home: Path, job: LiveJob, take: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = rehearsed(job.kept(), tmp_path / "target", home)
    take(4.0)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]
    assert main(arguments) == 0
    (last,) = (one for one in (home / "runs" / "orders").iterdir() if one != rehearsal)
    shutil.rmtree(last)
    assert main(arguments) == 3
    assert "was removed" in (said := capsys.readouterr().err)
    assert "rehearse anew, and catch up with that rehearsal" in said


def test_what_is_refused_ends_the_command_as_it_ends_a_run(
    home: Path, job: LiveJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = rehearsed(job.newest, tmp_path / "target", home)
    # Flink drops it, as nobody holds it.
    assert main(["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]) == 3
    said = capsys.readouterr()
    assert "isn't there any more as it was" in said.err
    assert "rehearse anew, and catch up with that rehearsal" in said.out


def test_one_whose_checkpoint_was_dropped_is_made_anew_with_the_newest(
    home: Path, job: LiveJob, take: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = rehearsed(job.kept(), tmp_path / "target", home)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]

    def cut_short(*_: object) -> int:
        job.goes_on()
        return 75

    with monkeypatch.context() as patch:
        # It can't be held there.
        patch.setattr("stateferry.runs.record.held_checkpoint.hold", lambda checkpoint, *_: checkpoint)
        patch.setattr("stateferry.cli.shared_steps.without_tables", cut_short)
        assert main(arguments) == 75
    dropped = find_run(str(home), "orders", f"{rehearsal.name}.catch_up_1")
    assert not Path(dropped.plan.source).exists()
    take(4.0)
    # The beginning of its id means the rehearsal.
    assert main(["catch-up", rehearsal.name[:9], *arguments[2:]]) == 0
    made = find_run(str(home), "orders", dropped.plan.run_id)
    assert (made.plan.source, made.state) == (made.held.shown, RunState.STAGED)


def test_one_that_was_killed_once_it_was_validated_is_made_anew_if_its_checkpoint_is_gone(
    home: Path, job: LiveJob, take: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = rehearsed(job.kept(), tmp_path / "target", home)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]
    take(4.0, 4.0)
    with monkeypatch.context() as patch:
        patch.setattr("stateferry.runs.record.held_checkpoint.hold", lambda checkpoint, *_: checkpoint)
        assert main(arguments) == 0
    find_run(str(home), "orders", rehearsal.name).file_of(CatchUps).remove()
    job.goes_on()
    assert main(arguments) == 0
    made = find_run(str(home), "orders", f"{rehearsal.name}.catch_up_1")
    assert made.plan.source == made.held.shown


def test_one_that_was_killed_as_it_was_planned_goes_on(
    home: Path, job: LiveJob, take: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = rehearsed(job.kept(), tmp_path / "target", home)
    arguments = ["catch-up", rehearsal.name, "--checkpoints", str(tmp_path / "job")]
    with monkeypatch.context() as patch:
        patch.setattr("stateferry.cli.shared_steps.without_tables", lambda *_: 75)
        assert main(arguments) == 75
    made = find_run(str(home), "orders", f"{rehearsal.name}.catch_up_1")
    made.state_file.remove()
    take(4.0)
    assert main(arguments) == 0
    assert [one.state for one in made.changes()][:2] == [RunState.PLANNED, RunState.RUNNING]
