"""Nights on incremental checkpoints that lie on S3, while everything that Stateferry keeps does too."""

from __future__ import annotations

import shutil

import pytest

from flinkstate.files.storage import Location
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.runs.record.run_list import find_run, runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.stores.area import STATES, Area
from tests.support.legacy_states import LegacyState
from tests.support.native_nights import NightlyDatabase

pytestmark = pytest.mark.slow
KEYS = 300


def state(first: int) -> LegacyState:
    return LegacyState(blobs={f"key {key}": ({"a": key, "b": first if key == 7 else 0}, 0) for key in range(KEYS)})


def night(area: Area, database: NightlyDatabase, number: int) -> Run:
    database.checkpoint(number)
    area.send(database.folder, "job")
    command = ["run", "--savepoint", area.at(f"job/chk-{number}"), "--target", area.at("target"), *STATES, "--rehearse"]
    moved = f"{database.folder}={area.at('job')}"
    assert main([*command, "--job", "main", "--no-timers", "--files-from", moved]) == 0
    return find_run(area.at("home"), "main", runs_of(area.at("home"), "main")[0].run_id)


@pytest.mark.full
def test_the_second_night_reads_what_has_changed(area: Area, capsys: pytest.CaptureFixture[str]) -> None:
    database = NightlyDatabase(area.folder / "job")
    database.flush(state(1))
    first = night(area, database, 1)
    assert "nothing is published" in capsys.readouterr().out
    database.flush(state(2))
    second = night(area, database, 2)
    notes = [facts.notes for run in (first, second) if (facts := run.facts(SnapshotFacts)) is not None]
    assert [any("have changed since run" in note for note in of_night) for of_night in notes] == [False, True]


def test_a_file_that_the_job_has_deleted_is_named_and_nothing_is_written(
    area: Area, capsys: pytest.CaptureFixture[str]
) -> None:
    database = NightlyDatabase(area.folder / "job")
    database.flush(state(1))
    database.checkpoint(1)
    area.send(database.folder, "job")
    name = database.path_of(database.files[0]).name
    Location.of(area.at("job")).child("shared").child(name).remove()
    shutil.rmtree(database.folder)
    command = ["run", "--savepoint", area.at("job/chk-1"), "--target", area.at("target"), *STATES, "--no-timers"]
    assert main([*command, "--files-from", f"{database.folder}={area.at('job')}"]) == DAMAGED_OR_REFUSED
    assert name in capsys.readouterr().err
    assert not Location.of(area.at("target")).exists()
