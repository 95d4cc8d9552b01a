"""Large local files, read past the page cache where the system can do that."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stateferry.errors import StateferryError
from stateferry.savepoint.passing_file import PassingFile
from stateferry.savepoint.storage import Location

_CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(_CONTENT)
    return path


def _read(path: Path, portion: int) -> bytes:
    buffer, found = bytearray(portion), b""
    with Location.of(str(path)).open() as opened:
        assert isinstance(opened, PassingFile)
        assert opened.size() == len(_CONTENT)
        while got := opened.readinto(buffer):
            found += buffer[:got]
            assert opened.tell() == len(found)
    return found


@pytest.mark.parametrize("portion", [1000, 1 << 18, (1 << 20) + 1, 1 << 22])
def test_what_is_read_is_what_is_there(file: Path, portion: int) -> None:
    assert _read(file, portion) == _CONTENT


@pytest.mark.parametrize("reason", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_systems_that_know_nothing_of_it_read_as_ever(file: Path, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "preadv", refuse)
    assert _read(file, 1 << 18) == _CONTENT


def test_a_disk_that_fails_is_not_asked_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        _read(file, 1 << 18)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("stateferry.savepoint.storage.PassingFile", refuse)
    with pytest.raises(StateferryError, match="file can't be read"):
        Location.of(str(path)).open()
