"""A source that changes under a run, in place and to the same size: what was converted is what the snapshot read, or
the run says which file changed."""

# A fixture that comes from another module is imported, and an argument has its name.
# ruff: noqa: F401, F811

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import DamagedError, RefusedError, RejectedError
from flinkstate.metadata.bytes_read import HEADER, WHOLE, BytesRead
from flinkstate.metadata.file_names import METADATA
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.operator_changes import Conversion, OperatorChanges
from stateferry.cli import main
from stateferry.inventory.inventory import (
    CopiedFilesTask,
    InventoryTask,
    copied_files_tasks,
    inventory_tasks,
    take,
    total,
)
from stateferry.proof.checks import CheckResult, CheckTask, do_here, validate
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, TablesFacts
from stateferry.runs.report.report import Report
from stateferry.runs.report.source_check import NAME, check_source, note_metadata
from stateferry.steps import new_files
from tests.flink.judge import dumped
from tests.runs.test_transitions import World, asked, world
from tests.support.changes import conversion_of
from tests.support.in_process import interrupted, without_spark
from tests.support.legacy_states import LEGACY, NEW, LegacyState
from tests.support.verified_runs import plan_for

GOLDEN = Path(__file__).parents[1] / "savepoints"
CASES = (
    "legacy-files-and-inlined-1.20-rocksdb",
    "legacy-snappy-2.3-rocksdb",
    "legacy-ttl-1.20-rocksdb",
    "kinds-2.3-rocksdb",
    "operator-state-1.20-hashmap",
    "operator-state-2.3-rocksdb",
    "several-operators-2.3-hashmap",
    "windows-2.3-hashmap",
)


def snapshot_of(source: Savepoint) -> BytesRead:
    tasks: list[InventoryTask | CopiedFilesTask] = [
        task
        for operator in source.keyed_operators()
        for task in inventory_tasks(source, OperatorChanges.none(source, operator), target_bytes=4096, at_least=3)
    ]
    read = total(map(take, [*tasks, *copied_files_tasks(source)])).read
    note_metadata(source, read)
    return read


def validated(source: Savepoint, staged: Savepoint) -> tuple[list[Check], BytesRead]:
    read = BytesRead()

    def do(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
        for result in do_here(tasks):
            if result.read is not None:
                read.take(result.read)
            yield result

    checks = validate(source, staged, conversion_of(source), do=do, target_bytes=10_000)
    note_metadata(source, read)
    return checks, read


@pytest.mark.parametrize("case", CASES)
def test_snapshot_and_validation_read_the_same_bytes_all_of_them(case: str) -> None:
    source = Savepoint.open(str(GOLDEN / case))
    before = snapshot_of(source)
    checks, now = validated(source, source)
    check = check_source(json.loads(json.dumps(before.to_facts())), now)
    assert check.outcome is Outcome.PASSED
    assert {one.outcome for one in checks} == {Outcome.PASSED}
    assert before == now == BytesRead.of_facts(before.to_facts())
    files = {path.name for path in (GOLDEN / case).iterdir() if path.name != "expected.jsonl"}
    # One of a subtask without any key has nothing but a header, which nobody reads for its key groups.
    empty = {
        str(getattr(task.managed_keyed.stream, "path", ""))
        for operator in source.metadata.operators
        for task in operator.subtasks
        if task.managed_keyed is not None and not any(task.managed_keyed.offsets)
    }
    assert {name.rpartition("/")[2] for name in before.files} == files - empty


@pytest.mark.matrix(most=4)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_bit_that_changes_anywhere_is_found_by_its_file(case: str, tmp_path: Path) -> None:
    folder = tmp_path / case
    shutil.copytree(GOLDEN / case, folder)
    source = Savepoint.open(str(folder))
    facts = snapshot_of(source).to_facts()
    chosen = random.Random(case)
    found = 0
    for name in sorted(facts)[:6]:
        path = folder / name
        whole = path.read_bytes()
        for place in chosen.sample(range(len(whole)), min(8, len(whole))):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chosen.randrange(8)]) + whole[place + 1 :])
            try:
                changed = Savepoint.open(str(folder))
                check = check_source(facts, validated(changed, source)[1])
            except (DamagedError, RefusedError, RejectedError):
                continue
            finally:
                path.write_bytes(whole)
            assert check.outcome is Outcome.FAILED, f"{name}, byte {place}"
            assert name in check.actual
            assert "the source changed since the snapshot" in check.actual
            found += 1
    assert found


def change(path: Path, old: bytes, new: bytes) -> bytes:
    """In place, to the same size and with the same times; returns what was there."""
    whole, times = path.read_bytes(), path.stat()
    assert whole.count(old) == 1
    assert len(old) == len(new)
    with path.open("r+b") as file:
        file.seek(whole.index(old))
        file.write(new)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return whole


# One entry of the map {"a": 1, "b": 2}: a text, whether it is null, a number.
ENTRY, OTHER = b"\x02b\0" + (2).to_bytes(8, "big"), b"\x02b\0" + (9).to_bytes(8, "big")


@pytest.fixture
def source(world: World) -> Iterator[Path]:
    """The state file, which is as it was when the test is over."""
    (file,) = (world.root.parent / "source").glob("*-keyed-*")
    whole = file.read_bytes()
    yield file
    file.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("after", ["snapshot", "migrate", "rescale"])
def test_a_source_that_changes_between_two_steps_turns_the_report_red(
    world: World, source: Path, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pictures[RunState.PLANNED].restore(world.root)
    steps = ("snapshot", "migrate", "rescale")
    world.do(*steps[: steps.index(after) + 1])
    change(source, ENTRY, OTHER)
    world.do(*steps[steps.index(after) + 1 :])
    capsys.readouterr()
    assert asked(world, "validate") == 1
    said = capsys.readouterr().err
    assert f"the source changed since the snapshot, in 1 place; the first is {source.name}, key group" in said
    assert "start a new run" in said
    report = Report.read(world.run.report)
    (check,) = (one for one in report.failed if one.name == NAME)
    assert len(check.key_groups) == 1
    assert f"key group {check.key_groups[0]}" in check.samples[0]
    if after == "snapshot":
        # All else fits: the result is what the source is by now.
        assert report.failed == (check,)
    assert world.run.state is RunState.FAILED
    assert asked(world, "cut_over") == 1
    assert asked(world, "run") == 1
    assert not (world.root / "target" / METADATA).exists()


@pytest.mark.slow
def test_of_a_change_after_the_publication_only_the_tables_know(world: World, source: Path) -> None:
    world.pictures[RunState.RUNNING].restore(world.root)
    world.do("migrate", "rescale", "validate", "cut_over")
    change(source, ENTRY, OTHER)
    assert asked(world, "run") == 1
    report = Report.read(world.run.report)
    assert (report.is_green, report.tables_pending) == (True, True)
    assert [one.name for one in report.tables] == ["main/newMainState: as the tables say"]
    # The savepoint is what the source was, so it stays published; the tables stay where they were.
    assert world.run.state is RunState.PUBLISHED
    assert world.run.facts(TablesFacts) is None


@pytest.mark.slow
def test_a_change_in_the_middle_of_one_command_is_found_too(
    world: World, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the snapshot was taken while Spark started."""
    world.pictures[RunState.PLANNED].restore(world.root)
    copy = new_files.copy

    def changed(*arguments: Any) -> Any:
        change(source, ENTRY, OTHER)
        return copy(*arguments)

    monkeypatch.setattr(new_files, "copy", changed)
    assert main(["run", "--plan", world.plan]) == 1
    assert "the source changed since the snapshot" in capsys.readouterr().err
    assert not (world.root / "target" / METADATA).exists()


@pytest.mark.slow
def test_metadata_that_changes_between_two_steps_turns_the_report_red(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pictures[RunState.RUNNING].restore(world.root)
    file = world.root.parent / "source" / METADATA
    whole = file.read_bytes()
    checkpoint = Savepoint.open(str(file.parent)).metadata.checkpoint_id
    place = whole.index(checkpoint.to_bytes(8, "big"))
    try:
        file.write_bytes(whole[:place] + (checkpoint + 1).to_bytes(8, "big") + whole[place + 8 :])
        world.do("migrate", "rescale")
        assert asked(world, "validate") == 1
    finally:
        file.write_bytes(whole)
    assert "the source changed since the snapshot, in 1 place; the first is _metadata" in capsys.readouterr().err


def _run(folder: Path, *options: str) -> int:
    names = ("--job", "orders", "--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW)
    return main(["run", "--savepoint", str(folder / "newest"), "--target", str(folder / "target"), *names, *options])


@pytest.fixture
def newest(tmp_path: Path, home: Path) -> Path:
    """A link to a savepoint, and another savepoint beside it."""
    state = LegacyState({"a": ({"x": 1}, 0), "b": ({"x": 2}, 0)})
    state.write(str(tmp_path / "monday"))
    more = {**state.blobs, "late": ({"x": 3}, 0)}
    state.with_changes(blobs=more, checkpoint_id=2).write(str(tmp_path / "tuesday"))
    link = tmp_path / "newest"
    link.symlink_to(tmp_path / "monday")
    return link


def _leads_to(link: Path, to: str) -> None:
    link.unlink()
    link.symlink_to(link.parent / to)


@pytest.mark.slow
def test_the_same_command_about_another_savepoint_at_the_same_path_does_not_count_as_done(
    newest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path) == 0
    assert _run(tmp_path) == 0
    assert "nothing to do: run " in capsys.readouterr().out
    _leads_to(newest, "tuesday")
    assert _run(tmp_path) == 1
    said = capsys.readouterr().err
    assert f"has read another savepoint at {newest} than the one that is there now" in said
    assert "give another --target" in said
    # A source that is gone was published all the same.
    newest.unlink()
    assert _run(tmp_path) == 0


@pytest.mark.slow
def test_a_rehearsal_of_another_savepoint_at_the_same_path_is_a_new_one(newest: Path, tmp_path: Path) -> None:
    assert _run(tmp_path, "--rehearse") == 0
    assert _run(tmp_path, "--rehearse") == 0
    (one,) = runs_of(str(tmp_path / "home"))
    _leads_to(newest, "tuesday")
    assert _run(tmp_path, "--rehearse") == 0
    new, before = runs_of(str(tmp_path / "home"))
    assert before.plan == one.plan
    assert {line["key"] for line in dumped(Path(Run.open(new.folder).staged.path), "main", NEW)} == {"a", "b", "late"}


@pytest.mark.slow
def test_a_rehearsal_with_a_run_id_is_not_green_for_a_savepoint_that_it_has_not_read(
    newest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path, "--rehearse") == 0
    (one,) = runs_of(str(tmp_path / "home"))
    again = ["run", "--plan", str(one.folder.child("plan.json").path)]
    assert main(again) == 0
    _leads_to(newest, "tuesday")
    assert main(again) == 1
    assert "give another run_id, or none, to rehearse the savepoint that is there now" in capsys.readouterr().err


def test_a_command_that_finds_the_job_taken_removes_no_folder_that_was_there_before(
    newest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(plan_for(newest, tmp_path / "target", run_id="night", now=0, flag=None).to_json())
    with Control(f"sqlite:///{tmp_path}/home/catalog.db") as control:
        other = control.acquire("orders", "other")
        assert main(["run", "--plan", str(plan)]) == 1
        assert runs_of(str(tmp_path / "home")) == []
        create, made = Run.create, list[Run]()

        def late(plan: MigrationPlan, now: int) -> Run:
            """The other process has made the folder since this one looked."""
            made.append(create(plan, now))
            return create(plan, now)

        monkeypatch.setattr(Run, "create", late)
        assert main(["run", "--plan", str(plan)]) == 1
        assert len(made) == len(runs_of(str(tmp_path / "home"))) == 1
        # The two have made the folder at once, and the other one has the lease.
        made[0].folder.remove()
        monkeypatch.setattr(Run, "create", create)
        control.release(other)
        held = control.acquire("orders", "night")
        monkeypatch.setattr(Process, "this", lambda: Process(os.getppid(), Process.parse(held.holder).host, 0))
        assert main(["run", "--plan", str(plan)]) == 1
        assert len(runs_of(str(tmp_path / "home"))) == 1


@pytest.mark.slow
def test_a_rollback_names_the_savepoint_that_was_read(
    newest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path) == 0
    _leads_to(newest, "tuesday")
    assert main(["status"]) == 0
    assert f"a rollback brings back: {tmp_path / 'monday'} (the source)" in capsys.readouterr().out
    back = ["rollback", "--job", "orders"]
    monday, read = tmp_path / "monday", tmp_path / "read"
    monday.rename(read)
    shutil.copytree(tmp_path / "tuesday", monday)
    assert main(back) == 1
    assert f"has read checkpoint 1 at {monday}, and checkpoint 2 is there now, from wh" in capsys.readouterr().err
    shutil.rmtree(monday)
    read.rename(monday)
    assert main(back) == 0
    assert f"restore the job from {monday}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_publication_is_completed_though_another_savepoint_is_at_its_source_by_now(
    newest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TargetMetadata, "roll_forward", interrupted)
        assert _run(tmp_path) == 130
    _leads_to(newest, "tuesday")
    assert _run(tmp_path) == 1
    assert "and is published, without its tables: a job may start from there. To migrate" in capsys.readouterr().err
    assert (tmp_path / "target" / METADATA).is_file()


def test_the_report_has_the_check_and_not_the_digests(world: World) -> None:
    world.pictures[RunState.PUBLISHED].restore(world.root)
    report = Report.read(world.run.report)
    (check,) = (one for one in report.checks if one.name == NAME)
    assert (check.outcome, check.expected) == (
        Outcome.PASSED,
        "2 files with 2 key groups as the snapshot read them",
    )
    assert "read" not in report.facts["snapshot"]


def test_what_is_read_twice_must_be_the_same() -> None:
    read, other = BytesRead({"a": {HEADER: "1", 5: "2"}}), BytesRead({"a": {5: "2"}, "b": {WHOLE: "3"}})
    read.take(other)
    assert read.files == {"a": {HEADER: "1", 5: "2"}, "b": {WHOLE: "3"}}
    with pytest.raises(DamagedError, match="a, key group 5: expected the same bytes as when it was read before"):
        read.add("a", 5, "4")
    unread = check_source(read.to_facts(), BytesRead({"a": {HEADER: "1"}, "b": {WHOLE: "3"}}))
    assert (unread.outcome, unread.actual) == (
        Outcome.COULD_NOT_TELL,
        "1 place was not read again; the first is a, key group 5",
    )
