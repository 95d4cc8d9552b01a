"""Several attempts at the same work, some of them thought dead: none of them removes or spoils what another wrote."""

# A fixture that comes from another module is imported, and an argument has its name.
# ruff: noqa: F401, F811

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from flinkstate.errors import PlanError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA, drafts
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.write_behind import WriteBehind
from stateferry.basics.exit_codes import MAY_PASS
from stateferry.changes import staging
from stateferry.cli import main
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.control.target_metadata import TargetMetadata, digest_of_metadata
from stateferry.runs.plan.plan_json import plan_of_json
from stateferry.runs.record.facts import Claim
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.steps import Step
from stateferry.steps import migrate, new_files
from stateferry.tables.chunk import WrittenChunk, write_chunk
from stateferry.tables.iceberg.files import DataFile
from stateferry.tables.update import advance_main, commit_update
from tests.flink.judge import dumped
from tests.runs.test_transitions import World, asked, world
from tests.support.in_process import without_spark
from tests.support.legacy_states import LEGACY, NEW, LegacyState
from tests.support.table_nights import Nights

KEYED = "075411a2d1ef617c7b2ad2770050b24f-keyed-00000"


def files_of(chunk: WrittenChunk) -> list[Path]:
    return [Path(file.removeprefix("file://")) for file in (chunk.entries, chunk.ledger) if file]


def test_attempts_at_a_chunk_write_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights = Nights(tmp_path, chunks=1)
    state = LegacyState({f"key {number}": ({"a": number}, 0) for number in range(20)})
    savepoint = state.write(str(tmp_path / "savepoint-one"))
    step = nights.plan("one", savepoint, nights.rules(savepoint))
    (chunk,) = step.chunks
    first = write_chunk(chunk)
    contents = {file: file.read_bytes() for file in files_of(first)}
    zombie = write_chunk(chunk)
    assert not contents.keys() & set(files_of(zombie))
    write = DataFile.write

    def fails_when_it_has_written(self: DataFile, table: Any) -> None:
        write(self, table)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(DataFile, "write", fails_when_it_has_written)
        with pytest.raises(OSError, match="Input/output error"):
            write_chunk(chunk)
    there = set((tmp_path / "warehouse").rglob("*.parquet"))
    assert there == contents.keys() | set(files_of(zombie))
    commit_update(step, [first])
    assert advance_main(nights.home, step.tables, "one")
    # The one that counts is named by its facts, and nobody has touched it.
    assert {file: file.read_bytes() for file in contents} == contents
    assert nights.current(state, "one") == state.migrated(nights.rules(savepoint))


def writers_beside_the_step(
    monkeypatch: pytest.MonkeyPatch, target: Location, first: Callable[[], None] = lambda: None
) -> list[WriteBehind]:
    """Another writer of the same file, which begins when the step begins to write."""
    writers: list[WriteBehind] = []
    assemble = staging.assemble

    def beside(*arguments: Any) -> Any:
        first()
        writers.append(WriteBehind(target.child(KEYED)))
        return assemble(*arguments)

    monkeypatch.setattr(migrate, "assemble", beside)
    return writers


@pytest.mark.slow
def test_a_twin_that_is_still_writing_when_the_step_ends_can_end_as_well(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.pictures[RunState.RUNNING].restore(world.root)
    target = Location.of(str(world.root / "target"))
    twins = writers_beside_the_step(monkeypatch, target)
    world.do("migrate", "rescale", "validate", "cut_over")
    (twin,) = twins
    whole = (world.root / "target" / KEYED).read_bytes()
    assert drafts(target) == []
    twin.write(whole)
    twin.finish()
    twin.close()
    assert drafts(target) == []
    assert (world.root / "target" / KEYED).read_bytes() == whole


def test_a_driver_that_lost_the_lease_removes_nothing_of_the_next_ones(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.pictures[RunState.RUNNING].restore(world.root)
    target = Location.of(str(world.root / "target"))

    def rob() -> None:
        with world.control as control:
            control.acquire("orders", "one", force=True)

    heirs = writers_beside_the_step(monkeypatch, target, rob)
    assert asked(world, "migrate") == MAY_PASS
    (heir,) = heirs
    assert len(drafts(target)) == 1
    heir.close()
    assert not world.run.has_done(Step.MIGRATE)


@pytest.mark.slow
def test_what_drivers_before_left_behind_goes_before_the_step_writes_anything(
    world: World,
) -> None:
    world.pictures[RunState.RUNNING].restore(world.root)
    target = Location.of(str(world.root / "target"))
    # As a driver that was killed in the middle of the step leaves it.
    world.run.keep(Claim(target.path))
    target.make_folder()
    Path(target.child(KEYED).draft().path).write_bytes(b"half of it")
    sent = world.run.folder.child("exchange").child("0")
    sent.make_folder()
    Path(sent.child("000000-abc").path).write_bytes(b"on its way")
    world.do("migrate", "rescale", "validate", "cut_over")
    assert drafts(target) == []
    assert not world.run.folder.child("exchange").exists()


def test_cleaning_removes_drafts_that_nobody_has_written_to_for_long(
    world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.pictures[RunState.PUBLISHED].restore(world.root)
    target = Location.of(str(world.root / "target"))
    before = {entry.name for entry in target.entries()}
    old, young = (target.child(name).draft() for name in (KEYED, METADATA))
    for draft in (old, young):
        Path(draft.path).write_bytes(b"half of it")
    os.utime(old.path, (1_700_000_000, 1_700_000_000))
    assert main(["clean", "--dry-run"]) == 0
    assert f"would remove draft {old.shown}" in capsys.readouterr().out
    assert main(["clean"]) == 0
    assert {entry.name for entry in target.entries()} == {*before, young.name}


def test_cleaning_asks_no_store_where_something_was_published_once() -> None:
    """It may be gone by now, and has no drafts."""
    never_asked = fs.S3FileSystem.__new__(fs.S3FileSystem)
    assert drafts(Location(never_asked, "bucket/savepoint", "s3://bucket/savepoint")) == []


def test_two_that_roll_a_publication_forward_at_once_both_end_well(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.pictures[RunState.PUBLISHED].restore(world.root)
    metadata = Location.of(str(world.root / "target" / METADATA))
    whole = metadata.read()
    metadata.remove()
    replace, others = Location.replace, [lambda: TargetMetadata(world.run).roll_forward(digest_of_metadata(whole))]

    def while_another_does(self: Location, other: Location) -> None:
        if others:
            others.pop()()
        replace(self, other)

    monkeypatch.setattr(Location, "replace", while_another_does)
    TargetMetadata(world.run).roll_forward(digest_of_metadata(whole))
    assert metadata.read() == whole
    assert drafts(metadata.parent) == []


def test_what_was_not_written_to_its_end_takes_no_name_on_an_object_store() -> None:
    """There a stream that is closed is a file."""
    closed: list[str] = []

    class Stream:
        def write(self, data: bytes) -> None:
            pass

        def close(self) -> None:
            closed.append("by who gave up")

        def __del__(self) -> None:
            closed.append("as garbage")

    store = SimpleNamespace(open_output_stream=lambda _: Stream())
    location = Location(store, "bucket/savepoint/file", "s3://bucket/savepoint/file")
    stream = WriteBehind(location)
    stream.write(b"half of it")
    stream.close()
    del stream
    assert closed == []
    whole = WriteBehind(location)
    whole.finish()
    whole.close()
    assert closed[0] == "by who gave up"


@pytest.fixture
def linked(tmp_path: Path) -> Callable[[str, str], str]:
    """A symbolic link's path, by its name and what it leads to."""

    def link(name: str, to: str) -> str:
        (tmp_path / name).symlink_to(to)
        return str(tmp_path / name)

    return link


@pytest.mark.slow
@pytest.mark.parametrize("where", ["when the target was looked at", "when the first is about to write"])
def test_two_runs_of_different_homes_do_not_write_into_one_target(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their files have the same names: the one that is later would overwrite what the other has published."""
    without_spark(monkeypatch)
    target = tmp_path / "target"
    codes: list[int] = []
    for name, value in (("first", 1), ("second", 2)):
        LegacyState({f"{name} key": ({"a": value}, 0)}).write(str(tmp_path / name))

    def ferry(name: str) -> int:
        command = [
            "run",
            "--savepoint",
            str(tmp_path / name),
            "--target",
            str(target),
            "--home",
            f"{tmp_path}/of-{name}",
        ]
        return main([*command, "--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW])

    looks = where.startswith("when the target")
    module, function = (new_files, "target_content" if looks else "SavepointWriter")
    do = getattr(module, function)

    def after_the_other(*arguments: Any, **named: Any) -> Any:
        found = do(*arguments, **named)
        monkeypatch.setattr(module, function, do)
        codes.append(ferry("second"))
        return found

    monkeypatch.setattr(module, function, after_the_other)
    codes.append(ferry("first"))
    assert sorted(codes) == [0, 2]
    said = capsys.readouterr().err
    assert re.search("give each run its own target|holds state files of another run|already holds", said)
    green = "second" if codes[0] == 0 else "first"
    assert [line["key"] for line in dumped(target, "main", NEW)] == [f"{green} key"]
    assert {entry.name for entry in target.iterdir()} == {METADATA, KEYED}


@pytest.mark.parametrize("inside", ["", "/target", "/deeper/target"])
def test_a_target_that_leads_into_the_source_is_refused_before_anything_is_written(
    world: World,
    linked: Callable[[str, str], str],
    inside: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.pictures[RunState.PLANNED].restore(world.root)
    source = world.root.parent / "source"
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    alias = linked("alias", str(source))
    states = ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]
    command = ["run", "--savepoint", str(source), "--target", f"{alias}{inside}", "--job", "links", *states]
    capsys.readouterr()
    assert main(command) == 2
    assert "symbolic links or mounts make the one contain the other" in capsys.readouterr().err
    # And the other way round.
    command[2:5] = [alias, "--target", str(source.parent)]
    assert main(command) == 2
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before


def test_a_mount_of_the_source_is_no_target(
    world: World,
    linked: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a mount the same folder has another path, which leads nowhere else: so has a link that isn't followed."""
    source = world.root.parent / "source"
    mount = linked("mount", str(source))
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    plan = plan_of_json(Path(world.plan).read_bytes()).model_copy(update={"source": str(source)})
    for target in (mount, f"{mount}/deeper/target"):
        with pytest.raises(PlanError, match="symbolic links or mounts make the one contain the other"):
            check_separate_places(plan.model_copy(update={"target": target}))
    check_separate_places(plan.model_copy(update={"target": f"{mount}-beside"}))


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_home_in_the_source_is_refused_before_anything_is_written(
    world: World,
    linked: Callable[[str, str], str],
    through_a_link: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = world.root.parent / "source"
    before = sorted(source.rglob("*"))
    monkeypatch.setenv("STATEFERRY_HOME", f"{linked('alias', str(source)) if through_a_link else source}/home")
    states = ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]
    target = str(source.parent / "a target")
    assert main(["run", "--savepoint", str(source), "--target", target, "--job", "links", *states]) == 2
    assert f"which lies in the source {source}" in capsys.readouterr().err
    assert sorted(source.rglob("*")) == before


@pytest.mark.parametrize("step", ["migrate", "cut_over"])
def test_a_link_that_comes_later_is_found_before_anything_is_written_there(
    world: World,
    tmp_path: Path,
    step: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.pictures[RunState.RUNNING if step == "migrate" else RunState.VERIFIED].restore(world.root)
    source, target = world.root.parent / "source", world.root / "target"
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    if target.exists():
        target.rename(tmp_path / "elsewhere")
    target.symlink_to(source)
    try:
        assert asked(world, step) == 2
    finally:
        target.unlink()
    assert "symbolic links or mounts make the one contain the other" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before


def test_a_source_named_by_a_link_beside_the_target_is_fine(
    world: World,
    linked: Callable[[str, str], str],
) -> None:
    world.pictures[RunState.PLANNED].restore(world.root)
    latest = linked("latest", str(world.root.parent / "source"))
    values = ["--savepoint", latest, "--target", str(world.root / "own"), "--job", "links", "--flag-state"]
    states = ["isMigratedState", "--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]
    assert main(["run", *values, *states]) == 0
    Savepoint.open(str(world.root / "own"))
