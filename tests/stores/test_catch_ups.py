"""Catch-ups on S3: the job's checkpoints, the runs' folders and the targets are there, and S3 copies its own files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from flinkstate.errors import DamagedError, RefusedError, RejectedError, StateferryError
from flinkstate.files import storage
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from stateferry.cli import main
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.facts import HeldFiles
from stateferry.runs.record.held_checkpoint import hold, hold_newest
from stateferry.runs.record.run_list import find_run, runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report
from stateferry.steps import base_run
from tests.chaos.area import REPOSITORY, content_of
from tests.chaos.troubled_store import Request, TroubledStore
from tests.flink.judge import raw_entries as entries
from tests.steps.test_catch_up import NATIVE, check_when_read
from tests.steps.test_nights_since import NOW, first_state, run
from tests.stores.area import STATES, Area, on_s3
from tests.support.facts import kept_facts
from tests.support.native_nights import NightlyDatabase
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.slow


def ferried(
    area: Area, number: int, since: int | None = None, *, checkpoint: int = 0, job: str = "catch-up", **options: Any
) -> tuple[Report, Run]:
    """The run of this number reads the checkpoint of the same number, unless it is told of another."""
    of_store = {"home": area.at("home"), "catalog_uri": area.catalog, "target": area.at("target")}
    based = {} if since is None else {"since": f"{job}-{since}"}
    values = {**NATIVE, **of_store, **based, **options}
    return run(area.at(f"job/chk-{checkpoint or number}"), area.folder, number, job=job, **values)


@pytest.fixture
def checkpoints(area: Area) -> None:
    """Three checkpoints of a job."""
    database = NightlyDatabase(area.folder / "job", address=area.at("job"))
    database.flush(first_state())
    for number in (1, 2, 3):
        database.checkpoint(number)
        area.send(database.folder, "job")
        blobs = {**database.state.blobs, f"new-{number}": ({"u": 1}, NOW), f"key-{number}": ({"u0": -1}, NOW)}
        database.flush(database.state.with_changes(blobs={key: of for key, of in blobs.items() if key != "key-9"}))


@pytest.fixture
def chain(area: Area, checkpoints: None) -> None:
    """Three checkpoints of a job, of which the first two have a base and a catch-up."""
    assert ferried(area, 1)[0].is_green
    assert ferried(area, 2, 1)[0].is_green


@on_s3
def test_a_chain_of_catch_ups_is_as_a_conversion_of_everything(
    area: Area, chain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_when_read(monkeypatch, lambda: ferried(area, 3, 2, rehearse=False))
    whole = ferried(area, 3, job="whole", target=area.at("whole"))[1]
    assert entries(area.at("target")) == entries(whole.staged.shown)


@pytest.mark.full
@on_s3
def test_newer_files_are_joined_there(area: Area, chain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 1)
    report, joined = ferried(area, 3, 2)
    above = next(check.actual for check in report.checks if check.name == "main: above the base")
    assert above.endswith("with all that 1 newer file of the base had")
    whole = ferried(area, 3, job="whole")[1]
    assert entries(joined.staged.shown) == entries(whole.staged.shown)


@pytest.mark.full
@on_s3
def test_a_job_whose_checkpoints_alone_are_on_s3_is_caught_up_with(
    area: Area, checkpoints: None, tmp_path: Path
) -> None:
    on_disk: dict[str, Any] = {"home": str(tmp_path / "home"), "target": str(tmp_path / "target")}
    assert ferried(area, 1, **on_disk)[0].is_green
    assert ferried(area, 3, 1, rehearse=False, **on_disk)[0].is_green
    whole = ferried(area, 3, job="whole", **on_disk)[1]
    assert entries(on_disk["target"]) == entries(whole.staged.shown)


@pytest.mark.full
@on_s3
def test_a_catch_up_that_is_killed_leaves_nothing_half_and_goes_on(
    area: Area, checkpoints: None, s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it was about to ask S3 for: to take the newer file, or to copy one of the base."""
    options = ("--format", "native", "--no-timers", "--on-contradiction", "rows", "--now", str(NOW), "--job", "killed")
    for number in (1, 2):
        more = ("--since", runs_of(area.at("home"), "killed")[0].run_id) if number == 2 else ()
        source = ("run", "--savepoint", area.at(f"job/chk-{number}"), "--target", area.at("target"), *STATES)
        assert main([*source, *options, "--rehearse", *more]) == 0, capsys.readouterr().err
    base = runs_of(area.at("home"), "killed")[0].run_id

    def final(target: str, killed_at: str = "") -> tuple[int, list[Request]]:
        asked: list[Request] = []

        def choice(request: Request) -> None:
            asked.append(request)
            if killed_at and request.method == "PUT" and request.path.endswith(f"{target}/{killed_at}"):
                process.kill()
                process.wait()

        with TroubledStore(s3.port, choice) as store:
            source = ("run", "--savepoint", area.at("job/chk-3"), "--target", area.at(target), *STATES)
            command = [sys.executable, "-m", "tests.chaos.command", *source, *options, "--since", base]
            process = subprocess.Popen(command, env={**os.environ, "AWS_ENDPOINT_URL": store.url}, cwd=REPOSITORY)
            return process.wait(), asked

    def content(target: str) -> dict[str, bytes]:
        return {name: data.replace(target.encode(), b"") for name, data in content_of(area.at(target)).items()}

    code, asked = final("a-target")
    assert code == 0
    calm = content("a-target")
    tables = [one.path.rpartition("/")[2] for one in asked if one.method == "PUT" and one.path.endswith(".sst")]
    assert len(tables) == 3, "two files of the base, and what is new"
    for table in (tables[0], tables[-1]):
        target = f"target-{tables.index(table)}"
        assert final(target, table)[0] == -signal.SIGKILL
        # What S3 has of the killed request may go while it is listed.
        assert METADATA not in {one.name for one in Location.of(area.at(target)).entries()}
        assert final(target)[0] == 0
        assert content(target) == calm


def alter(place: Location) -> None:
    """Puts another object of the same size there."""
    data = bytearray(place.read())
    data[100] ^= 1
    place.write_atomically(bytes(data))


@pytest.mark.full
@on_s3
def test_an_object_that_was_altered_is_found(area: Area, chain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    base = find_run(area.at("home"), "catch-up", "catch-up-2").staged
    table = next(one for one in base.entries() if one.name.endswith(".sst"))
    content, identity = table.read(), Location.identity

    def then(self: Location) -> str:
        found = identity(self)
        if self == table and table.read() == content:
            alter(table)
        return found

    # S3 is asked for the identity, then the object is altered and copied.
    with monkeypatch.context() as patch:
        patch.setattr(Location, "identity", then)
        with pytest.raises(DamagedError, match="bytes that were validated"):
            ferried(area, 3, 2, rehearse=False)
    # It stays so.
    with pytest.raises(DamagedError, match="bytes that were validated"):
        ferried(area, 4, 2, checkpoint=3, rehearse=False, target=area.at("second"))
    table.write_atomically(content)

    def before_publication(plan: MigrationPlan) -> None:
        held = kept_facts(find_run(area.at("home"), "catch-up", "catch-up-5"), HeldFiles)
        alter(Location.of(area.at("third")).child(next(iter(held.files))))
        check_separate_places(plan)

    monkeypatch.setattr("stateferry.steps.cut_over.check_separate_places", before_publication)
    with pytest.raises(RejectedError, match="not those that were validated, so nothing"):
        ferried(area, 5, 2, checkpoint=3, rehearse=False, target=area.at("third"))
    assert not any(Location.of(area.at(name)).child(METADATA).is_file() for name in ("target", "second", "third"))


@pytest.mark.full
@on_s3
def test_what_can_not_be_is_refused_before_anything_is_written(
    area: Area, chain: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, target in enumerate((str(tmp_path / "target"), "hdfs://127.0.0.1:1/target"), 3):
        with pytest.raises(RefusedError, match="must both be on disks, or both on S3"):
            ferried(area, number, 2, checkpoint=3, target=target)
    with monkeypatch.context() as patch:
        patch.setattr(base_run, "MOST_COPIED_BY_S3", 1000)
        with pytest.raises(RefusedError, match=r"S3 copies no file of more than 1,000 bytes: .*\.sst: leave --since"):
            ferried(area, 5, 2, checkpoint=3)
    # What the job doesn't retain any more: a file that a compaction replaced, or the whole checkpoint.
    table = Location.of(area.at("job")).child("shared").entries()[0]
    content = table.read()
    table.remove()
    with pytest.raises(StateferryError, match=re.escape(table.name)):
        ferried(area, 6, 2, checkpoint=3, rehearse=False)
    table.write_atomically(content)
    Location.of(area.at("job/chk-2")).remove()
    with pytest.raises(RefusedError, match=r"/chk-2 isn't there any more as it was \(.*num-retained says\): leave"):
        ferried(area, 7, 2, checkpoint=3, rehearse=False)
    assert not Location.of(area.at("target")).exists()


@on_s3
def test_a_checkpoint_that_flink_drops_is_held_by_copies_of_s3(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    database = NightlyDatabase(area.folder / "job", address=area.at("job"))
    for number in (1, 2):
        state = first_state()
        database.flush(state.with_changes(blobs={**state.blobs, "new": ({"a": number}, NOW)}))
        database.checkpoint(number)
    area.send(database.folder, "job")
    before, job = entries(area.at("job/chk-2")), Location.of(area.at("job"))
    held, copied, give = Location.of(area.at("held")), list[str](), Location.give_to
    said: list[str] = []

    def counted(self: Location, other: Location) -> str | None:
        copied.append(self.name)
        return give(self, other)

    monkeypatch.setattr(Location, "give_to", counted)
    # In the middle, Flink drops the first one, of which the newest has nearly all files.
    job.child("chk-1").child("meta").remove()
    with pytest.raises(DamagedError, match="Flink has dropped it"):
        hold(job.child("chk-1"), held, said.append)
    assert hold_newest(lambda: f"{job.shown}/chk-1", held, said.append) == held
    tables = [one.name for one in job.child("shared").entries()]
    assert sorted(name for name in copied if name in tables) == sorted(tables), "each is copied once"
    job.remove()
    assert before
    assert entries(held.shown) == before
    # Another try finds it, though the checkpoint is gone.
    assert hold(Location.of(area.at("job/chk-2")), held, said.append) == held
    on_disk, copy = Location.of(str(area.folder / "held")), held.child("chk-2")
    for file in held.entries():
        file.give_to(copy.child(file.name))
    assert said == []
    assert hold_newest(lambda: copy.shown, on_disk, said.append) == copy
    assert said[0].startswith(f"{copy.shown} can't be held beside the run, so let the job retain more checkpoints")
    assert not on_disk.exists()
    monkeypatch.setattr(storage, "copy_object", denied)
    assert hold(copy, Location.of(area.at("other")), said.append) == copy
    assert "Access Denied" in said[1]


def denied(*_: object) -> None:
    raise OSError("AWS Error ACCESS_DENIED during CopyObject operation: Access Denied")


@on_s3
def test_s3_copies_into_another_bucket_and_has_time_for_a_large_object(
    area: Area, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Location.of(area.at("one"))
    one.write_atomically(b"content")
    fs.S3FileSystem(endpoint_override=s3.url, region=s3.region, allow_bucket_creation=True).create_dir("second-bucket")
    copies: list[Request] = []

    def late(request: Request) -> float | None:
        if request.method != "PUT":
            return None
        copies.append(request)
        # The driver's own patience is three seconds.
        return 5.0

    with TroubledStore(s3.port, late) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        other = Location.of("s3://second-bucket/folder/100% {odd} #name")
        assert Location.of(area.at("one")).give_to(other) == one.identity()
        assert other.read() == b"content"
    assert len(copies) == 1


@on_s3
def test_a_file_that_flink_removes_while_it_is_read_is_missing(
    area: Area, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Location.of(area.at("file"))
    there.write_atomically(b"content")

    def removing(request: Request) -> None:
        if request.method == "GET":
            there.remove()

    with TroubledStore(s3.port, removing) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        assert Location.of(area.at("file")).read_if_there() is None
