"""Files that go to disk while they are written."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Event

import pytest

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from flinkstate.writing.write_behind import WriteBehind


@pytest.mark.parametrize("portion", [1, 5, 64, 1 << 20])
def test_the_file_holds_what_was_written_whatever_the_portions(tmp_path: Path, portion: int) -> None:
    path = tmp_path / "file"
    stream = WriteBehind(Location.of(str(path)), portion)
    written = b""
    for size in (3, 0, 4, 100, 1, 7):
        stream.write(bytes([size]) * size)
        written += bytes([size]) * size
        assert stream.position == len(written)
    stream.finish()
    stream.close()
    assert path.read_bytes() == written


def test_whole_portions_are_synced_before_the_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    stream = WriteBehind(Location.of(str(tmp_path / "file")), 10)
    for _ in range(5):
        stream.write(b"12345")
    stream.close()
    assert len(synced) == 2
    assert synced[0] >= 10
    assert synced[1] >= 20


def test_a_disk_that_fails_is_told_to_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    stream = WriteBehind(Location.of(str(tmp_path / "file")), 1)
    stream.write(b"a")
    with pytest.raises(OSError, match="No space left"):
        stream.finish()
    stream.close()


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"of an earlier attempt")
    stream = WriteBehind(Location.of(str(path)), 1)
    stream.write(b"ab")
    assert path.read_bytes() == b"of an earlier attempt"
    stream.finish()
    stream.close()
    assert path.read_bytes() == b"ab"
    assert list(tmp_path.iterdir()) == [path]


def test_an_attempt_that_comes_late_leaves_a_published_file_as_open_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab")
    path.chmod(0o644)
    before = os.umask(0o077)
    try:
        for name, mode in (("file", 0o644), ("new", 0o600)):
            stream = WriteBehind(Location.of(str(tmp_path / name)))
            stream.write(b"ab")
            stream.finish()
            stream.close()
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_file_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    stream = WriteBehind(Location.of(str(tmp_path / "file")))
    stream.write(b"ab")
    stream.close()
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_is_gone_is_no_matter_if_the_whole_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for before in (b"ab", b"another size", None):
        if before is not None:
            path.write_bytes(before)
        stream = WriteBehind(Location.of(str(path)))
        stream.write(b"ab")
        (draft,) = tmp_path.glob("*.draft")
        draft.unlink()
        if before == b"ab":
            stream.finish()
        else:
            with pytest.raises(StateferryError, match="No such file"):
                stream.finish()
        stream.close()
        path.unlink(missing_ok=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_ended_gets_its_name_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, synced = Event(), []

    def sync(descriptor: int) -> None:
        assert may_sync.wait(60)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", sync)
    path = tmp_path / "file"
    stream = WriteBehind(Location.of(str(path)))
    stream.write(b"ab")
    stream.end()
    assert (stream.is_on_its_way, stream.place.read(), path.exists(), synced) == (True, b"ab", False, [])
    may_sync.set()
    stream.finish()
    assert (stream.is_on_its_way, path.read_bytes(), synced) == (False, b"ab", [2])
    stream.close()


def test_a_disk_that_fails_at_the_end_is_told_to_who_finishes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    stream = WriteBehind(Location.of(str(tmp_path / "file")))
    stream.end()
    with pytest.raises(StateferryError, match="No space left"):
        stream.finish()
    stream.close()
    assert list(tmp_path.iterdir()) == []


def test_closing_again_does_nothing(tmp_path: Path) -> None:
    stream = WriteBehind(Location.of(str(tmp_path / "file")))
    stream.close()
    stream.close()
