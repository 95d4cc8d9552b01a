"""A published native savepoint of which the new job may claim a second set of links."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from flinkstate.errors import PlanError
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, NativeHandle, RelativeFile
from flinkstate.reading.reader import Savepoint
from stateferry.proof.metadata_check import _compare_formats
from stateferry.runs.control.claimable import offer_links, offered_claimable
from stateferry.runs.record.runs import Run
from tests.flink.judge import raw_entries
from tests.steps.test_catch_up import base, caught_up, two

pytestmark = pytest.mark.slow


def published(folder: Path) -> Run:
    """A run with a base: some of its files have a further name there, too."""
    first, second = two(folder)
    base(first, folder, 1)
    report, run = caught_up(second, folder, 2, 1, rehearse=False, claimable=True)
    assert report.is_green
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_links_are_the_same_savepoint_and_only_its_tables_are_shared(tmp_path: Path) -> None:
    run = published(tmp_path)
    target, claimable = Path(run.plan.target), Path(f"{run.plan.target}-claimable")
    assert offered_claimable(run) is not None
    assert {file.name for file in claimable.iterdir()} == {file.name for file in target.iterdir()}
    same = {file.name for file in target.iterdir() if file.samefile(claimable / file.name)}
    assert {file.name for file in target.iterdir()} - same == {METADATA}
    assert raw_entries(claimable) == raw_entries(target)
    # Flink, which may be another user, deletes in the one as it may read the other.
    assert stat.S_IMODE(claimable.stat().st_mode) == stat.S_IMODE(target.stat().st_mode)
    opened, checkpoint = Savepoint.open(str(claimable)), Savepoint.open(str(target)).metadata.checkpoint_id
    for operator in opened.keyed_operators():
        assert not list(_compare_formats(operator, operator, checkpoint, is_native=True))
        for subtask in operator.subtasks:
            handle = subtask.native_keyed
            assert isinstance(handle, NativeHandle)
            assert handle.shared
            assert all(file.name.endswith(".sst") for file in handle.shared)
            places = {file.stream.name for file in handle.shared if isinstance(file.stream, AbsoluteFile)}
            assert {Path(name.removeprefix("file:")).parent for name in places} == {claimable}
            assert len(places) == len(handle.shared)
            assert all(isinstance(file.stream, RelativeFile) for file in handle.private)
            assert not any(file.name.endswith(".sst") for file in handle.private)


def test_what_a_job_deletes_of_the_links_the_target_still_has(tmp_path: Path) -> None:
    run = published(tmp_path)
    before = contents(Path(run.plan.target))
    shutil.rmtree(f"{run.plan.target}-claimable")
    assert contents(Path(run.plan.target)) == before
    assert offered_claimable(run) is None


def test_links_that_a_kill_left_unfinished_are_completed(tmp_path: Path) -> None:
    run = published(tmp_path)
    claimable = Path(f"{run.plan.target}-claimable")
    whole = contents(claimable)
    for file in (METADATA, min(name for name in whole if name.endswith(".sst"))):
        (claimable / file).unlink()
    assert offered_claimable(run) is None
    assert offer_links(run) == ""
    assert contents(claimable) == whole
    # Once more changes nothing.
    assert offer_links(run) == ""
    assert contents(claimable) == whole


def test_a_run_is_published_though_there_can_be_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(source: str, link: str) -> None:
        raise OSError(18, "Invalid cross-device link", source)

    first, _ = two(tmp_path)
    monkeypatch.setattr(os, "link", refuses)
    report, run = base(first, tmp_path, 1, rehearse=False, claimable=True)
    assert report.is_green
    assert "can't have hard links" in offer_links(run)
    assert offered_claimable(run) is None
    assert (Path(run.plan.target) / METADATA).exists()


def test_another_savepoint_in_the_place_of_the_links_stays(tmp_path: Path) -> None:
    run = published(tmp_path)
    claimable = Path(f"{run.plan.target}-claimable")
    (claimable / METADATA).write_bytes((Path(run.plan.target) / METADATA).read_bytes())
    before = contents(claimable)
    assert offer_links(run) == f"{claimable} is another savepoint"
    assert offered_claimable(run) is None
    assert contents(claimable) == before


def test_it_needs_files_of_rocksdb_and_a_disk_or_s3(tmp_path: Path) -> None:
    first, _ = two(tmp_path)
    with pytest.raises(PlanError, match="only RocksDB's own files can be claimed: give format native"):
        base(first, tmp_path, 1, output_format="canonical", claimable=True)
    with pytest.raises(PlanError, match="is on a store that copies no files itself"):
        base(first, tmp_path, 1, target="hdfs://name/new", claimable=True)
