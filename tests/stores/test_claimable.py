"""What a new job may claim on S3: copies that S3 makes, of all but the newest tables while the old job still runs."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, RelativeFile
from flinkstate.reading.reader import Savepoint
from stateferry.runs.control.claimable import offered_claimable
from stateferry.runs.record.runs import Run
from stateferry.steps import claimable_copies
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import InProcess
from tests.flink.judge import raw_entries as entries
from tests.stores.area import Area, on_s3
from tests.stores.test_catch_ups import alter, checkpoints, ferried

pytestmark = [pytest.mark.slow, on_s3]
__all__ = ["checkpoints"]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The files of which S3 was asked for a copy that a job may claim, since this was cleared."""
    found, give = Counter[str](), Location.give_to

    def counted(self: Location, other: Location) -> str | None:
        found.update([other.name] if other.parent.name.endswith("-claimable") else [])
        return give(self, other)

    monkeypatch.setattr(Location, "give_to", counted)
    return found


def tables_of(run: Run) -> set[str]:
    """The tables that the new job is offered, which are where it is told, as are all other files."""
    folder = offered_claimable(run)
    assert folder is not None
    assert entries(folder.shown) == entries(run.plan.target)
    tables, others = set[str](), {METADATA}
    for operator in Savepoint.open(folder.shown).metadata.operators:
        for subtask in operator.subtasks:
            assert subtask.native_keyed is not None
            tables |= {one.stream.uri for one in subtask.native_keyed.shared if isinstance(one.stream, AbsoluteFile)}
            others |= {one.path for one in subtask.streams() if isinstance(one, RelativeFile)}
    assert {one.uri for one in folder.entries()} == tables | {folder.child(name).uri for name in others}
    return {table.rpartition("/")[2] for table in tables}


def test_only_what_is_newer_is_copied_after_the_publication(
    area: Area, checkpoints: None, copied: Counter[str]
) -> None:
    ferried(area, 1, job="nights", claimable=True, full_every=3)
    assert not copied
    ferried(area, 1, claimable=True)
    ferried(area, 2, 1, claimable=True)
    ahead = {*copied}
    assert len(ahead) == copied.total() == 2
    copied.clear()
    _, final = ferried(area, 3, 2, rehearse=False, claimable=True)
    tables = tables_of(final)
    assert len(tables - ahead) == 1
    assert {name for name in copied if name.endswith(".sst")} == tables - ahead
    assert ahead < tables
    # What the job deletes, the target still has.
    before = entries(area.at("target"))
    Location.of(area.at("target-claimable")).remove()
    assert entries(area.at("target")) == before
    assert offered_claimable(final) is None


def test_a_copy_that_was_altered_is_made_again(area: Area, checkpoints: None, copied: Counter[str]) -> None:
    ferried(area, 1, claimable=True)
    (ahead,) = copied
    alter(Location.of(area.at("target-claimable")).child(ahead))
    ferried(area, 2, 1, claimable=True)
    assert copied[ahead] == 2
    alter(Location.of(area.at("target-claimable")).child(ahead))
    copied.clear()
    _, final = ferried(area, 3, 2, rehearse=False, claimable=True)
    assert copied[ahead] == 1
    assert tables_of(final)


@pytest.mark.full
def test_tables_that_were_joined_meanwhile_are_removed(
    area: Area, checkpoints: None, copied: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 1)
    for number in (1, 2, 3):
        ferried(area, number, number - 1 or None, claimable=True)
    _, final = ferried(area, 4, 3, checkpoint=3, rehearse=False, claimable=True)
    assert len({name for name in copied if name.endswith(".sst")} - tables_of(final)) == 1


class KilledError(BaseException):
    """Ends the process, as far as the library can tell."""


def kill(*_: object) -> None:
    raise KilledError


def test_copies_that_a_kill_left_unfinished_are_completed(
    area: Area, checkpoints: None, copied: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ferried(area, 1, claimable=True)
    copied.clear()
    with monkeypatch.context() as patch:
        # S3 has copied it, and nobody has read it.
        patch.setattr(claimable_copies.CopyTask, "_is_right", kill)
        with pytest.raises(KilledError):
            ferried(area, 2, 1, claimable=True)
    (newer,) = copied
    ferried(area, 2, 1, claimable=True)
    assert copied[newer] == 1, "it is only read"
    _, final = ferried(area, 3, 2, rehearse=False, claimable=True)
    tables, folder = tables_of(final), Location.of(area.at("target-claimable"))
    assert newer in tables
    for gone in (METADATA, min(tables)):
        folder.child(gone).remove()
    assert offered_claimable(final) is None
    work = cast("RunAtWork", SimpleNamespace(run=final, workers=InProcess(), say=lambda _: None))
    for _ in range(2):
        assert claimable_copies.offer_copies(work) == ""
        assert tables_of(final) == tables


def test_another_savepoint_there_stays(area: Area, checkpoints: None, copied: Counter[str]) -> None:
    other = Location.of(area.at("target-claimable")).child(METADATA)
    other.write_atomically(b"another")
    ferried(area, 1, claimable=True)
    _, final = ferried(area, 3, 1, rehearse=False, claimable=True)
    assert offered_claimable(final) is None
    assert [one.name for one in other.parent.entries()] == [METADATA]
    assert not copied
    assert Location.of(area.at("target")).child(METADATA).is_file()


def test_what_a_job_has_claimed_stays(area: Area, checkpoints: None, copied: Counter[str]) -> None:
    """A job that has claimed a folder has deleted its _metadata, and goes on using its tables."""
    _, first = ferried(area, 1, rehearse=False, claimable=True)
    folder = Location.of(area.at("target-claimable"))
    used = tables_of(first)
    folder.child(METADATA).remove()
    Location.of(area.at("target")).remove()
    copied.clear()
    _, second = ferried(area, 2, rehearse=False, claimable=True, run_id="second")
    assert offered_claimable(second) is None
    assert used <= {one.name for one in folder.entries()}
    assert not copied


def test_what_no_run_has_put_there_stays(area: Area, checkpoints: None, copied: Counter[str]) -> None:
    notes = Location.of(area.at("target-claimable")).child("notes.txt")
    notes.write_atomically(b"mine")
    ferried(area, 1, claimable=True)
    _, final = ferried(area, 2, 1, rehearse=False, claimable=True)
    assert offered_claimable(final) is None
    assert [one.name for one in notes.parent.entries()] == ["notes.txt"]
    assert not copied


def test_a_copy_that_takes_too_long_is_not_waited_for(
    area: Area, checkpoints: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimable_copies, "_MOST_SECONDS", 0.2)
    monkeypatch.setattr(claimable_copies, "_copied", lambda *_, **__: time.sleep(3))
    began = time.monotonic()
    _, run = ferried(area, 1, rehearse=False, claimable=True)
    assert offered_claimable(run) is None
    work = cast("RunAtWork", SimpleNamespace(run=run, workers=InProcess(), say=lambda _: None))
    assert "within 0.2 seconds" in claimable_copies.offer_copies(work)
    assert Location.of(area.at("target")).child(METADATA).is_file()
    assert time.monotonic() - began < 60


def test_everything_is_copied_of_what_has_no_base(area: Area, checkpoints: None, tmp_path: Path) -> None:
    """The home may be anywhere then."""
    _, run = ferried(area, 1, rehearse=False, claimable=True, home=str(tmp_path / "home"))
    assert len(tables_of(run)) == 1
