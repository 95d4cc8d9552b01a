"""Catch-ups on S3: the job's checkpoints, the runs' folders and the targets are there, and S3 copies its own files."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import DamagedError, RefusedError, RejectedError, StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.facts import HeldFiles
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts
from stateferry.runs.report.report import Report
from stateferry.steps import base_run, cut_over
from tests.flink.judge import raw_entries
from tests.steps.test_catch_up import NATIVE, hashed
from tests.steps.test_nights_since import NOW, first_state, run
from tests.stores.area import Area, on_s3
from tests.support.native_nights import NightlyDatabase

pytestmark = pytest.mark.slow


def ferried(
    area: Area, number: int, since: int | None = None, *, checkpoint: int = 0, job: str = "catch-up", **options: Any
) -> tuple[Report, Run]:
    """The run of this number reads the checkpoint of the same number, unless it is told of another."""
    of_store = {"home": area.at("home"), "catalog_uri": area.catalog, "target": area.at("target")}
    based = {} if since is None else {"since": f"{job}-{since}"}
    values = {**NATIVE, **of_store, **based, **options}
    return run(area.at(f"job/chk-{checkpoint or number}"), area.folder, number, job=job, **values)


def entries(area: Area, of: Run) -> Counter[Any]:
    return raw_entries(of.staged.shown if of.plan.rehearse else of.plan.target)


@pytest.fixture
def chain(area: Area) -> NightlyDatabase:
    """Three checkpoints of a job, of which the first two have a base and a catch-up."""
    database = NightlyDatabase(area.folder / "job", address=area.at("job"))
    database.flush(first_state())
    for number in (1, 2, 3):
        database.checkpoint(number)
        area.send(database.folder, "job")
        blobs = {**database.state.blobs, f"new-{number}": ({"u": 1}, NOW), f"key-{number}": ({"u0": -1}, NOW)}
        database.flush(database.state.with_changes(blobs={key: of for key, of in blobs.items() if key != "key-9"}))
    assert ferried(area, 1)[0].is_green
    assert ferried(area, 2, 1)[0].is_green
    return database


@on_s3
def test_a_chain_of_catch_ups_is_as_a_conversion_of_everything(
    area: Area, chain: NightlyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = hashed(monkeypatch)
    published: list[list[str]] = []
    check = cut_over.check_published

    def then(*of: Any) -> None:
        published.append(list(names))
        check(*of)

    monkeypatch.setattr("stateferry.steps.tables.check_published", then)
    report, since = ferried(area, 3, 2, rehearse=False)
    assert report.is_green, report.failed
    whole = ferried(area, 3, job="whole", target=area.at("whole"))
    assert whole[0].is_green
    assert entries(area, since) == entries(area, whole[1])
    newer, held = since.facts(MigrateFacts), since.facts(HeldFiles)
    assert newer is not None
    assert newer.newer is not None
    # What a catch-up has read right before isn't read again: but for the newer file that it wrote.
    assert names.count("taken over") == 1
    assert held is not None
    assert len(held.files) == 2
    (before,) = published
    assert not set(held.files) & set(before)
    assert set(held.files) < set(names), "they are read once more after the publication"


def alter(place: Location) -> None:
    """Puts another object of the same size there."""
    data = bytearray(place.read())
    data[100] ^= 1
    place.write_atomically(bytes(data))


@on_s3
def test_an_object_that_was_altered_is_found(
    area: Area, chain: NightlyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = find_run(area.at("home"), "catch-up", "catch-up-2").staged
    table = next(one for one in base.entries() if one.name.endswith(".sst"))
    content, identity, check = table.read(), Location.identity, cut_over.check_separate_places
    alter(table)
    with pytest.raises(DamagedError, match="bytes that were validated"):
        ferried(area, 3, 2, rehearse=False)
    table.write_atomically(content)

    def then(self: Location) -> str:
        found = identity(self)
        if self == table and table.read() == content:
            alter(table)
        return found

    # The next one: S3 is asked for the identity, then the object is altered and copied.
    with monkeypatch.context() as patch:
        patch.setattr(Location, "identity", then)
        with pytest.raises(DamagedError, match="bytes that were validated"):
            ferried(area, 4, 2, checkpoint=3, rehearse=False, target=area.at("second"))
    assert table.read() != content
    table.write_atomically(content)

    def before_publication(plan: MigrationPlan) -> None:
        held = find_run(area.at("home"), "catch-up", "catch-up-5").facts(HeldFiles)
        assert held is not None
        alter(Location.of(area.at("third")).child(next(iter(held.files))))
        check(plan)

    monkeypatch.setattr("stateferry.steps.cut_over.check_separate_places", before_publication)
    with pytest.raises(RejectedError, match="not those that were validated, so nothing"):
        ferried(area, 5, 2, checkpoint=3, rehearse=False, target=area.at("third"))
    assert not any(Location.of(area.at(name)).child(METADATA).is_file() for name in ("target", "second", "third"))


@on_s3
def test_what_can_not_be_is_refused_before_anything_is_written(
    area: Area, chain: NightlyDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    with pytest.raises(RefusedError, match="/chk-2 isn't there any more as it was: leave --since out"):
        ferried(area, 7, 2, checkpoint=3, rehearse=False)
    assert not Location.of(area.at("target")).exists()
