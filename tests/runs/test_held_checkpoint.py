"""A checkpoint that is held outlives what its job does with it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from stateferry.runs.record.held_checkpoint import hold
from tests.flink.judge import raw_entries
from tests.rocksdb.goldens import SAVEPOINTS
from tests.steps.test_native_source import placed


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return placed(SAVEPOINTS / "rounds-checkpoint-2.3-rocksdb", tmp_path / "job")


def test_what_flink_drops_is_read_as_it_was(checkpoint: Path, tmp_path: Path) -> None:
    before, completed = raw_entries(checkpoint), (checkpoint / "_metadata").stat().st_mtime
    folder = Location.of(str(tmp_path / "held"))
    assert hold(Location.of(str(checkpoint)), folder, print) == folder
    assert len([*Path(folder.path).iterdir()]) > 2
    shutil.rmtree(tmp_path / "job")
    assert before
    assert raw_entries(tmp_path / "held") == before
    assert abs(Path(folder.path, "_metadata").stat().st_mtime - completed) < 0.01
    assert Savepoint.open(folder.shown).metadata.checkpoint_id > 0
    # Another try finds it, though the checkpoint is gone.
    assert hold(Location.of(str(checkpoint)), folder, print) == folder


def test_a_checkpoint_that_is_dropped_meanwhile_is_not_held(checkpoint: Path, tmp_path: Path) -> None:
    next((tmp_path / "job" / "shared").iterdir()).unlink()
    folder = Location.of(str(tmp_path / "held"))
    with pytest.raises(DamagedError, match="Flink has dropped it"):
        hold(Location.of(str(checkpoint)), folder, print)
    assert not folder.child("_metadata").exists()


def test_on_another_disk_the_checkpoint_itself_is_read(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("os.link", link)
    place = Location.of(str(checkpoint))
    said: list[str] = []
    assert hold(place, Location.of(str(tmp_path / "held")), said.append) == place
    (line,) = said
    assert "can't be held beside the run" in line
    assert line.endswith("can't be linked")
    assert not (tmp_path / "held").exists()
