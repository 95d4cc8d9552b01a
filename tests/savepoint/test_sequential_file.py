"""Large local files, read and written past the page cache where the system can do that."""

from __future__ import annotations

import contextlib
import errno
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from flinkstate.errors import StateferryError
from flinkstate.files.sequential_file import SequentialFile, SequentialOutput
from flinkstate.files.storage import Location

_CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(_CONTENT)
    return path


def _read(path: Path, portion: int) -> bytes:
    buffer, found = bytearray(portion), b""
    with Location.of(str(path)).open() as opened:
        assert isinstance(opened, SequentialFile)
        assert opened.size() == len(_CONTENT)
        while got := opened.readinto(buffer):
            found += buffer[:got]
            assert opened.tell() == len(found)
    return found


@pytest.mark.parametrize("portion", [1000, 1 << 18, (1 << 20) + 1, 1 << 22])
def test_what_is_read_is_what_is_there(file: Path, portion: int) -> None:
    assert _read(file, portion) == _CONTENT


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("size", [1, 1000, 1 << 18])
def test_a_read_at_a_position_needs_no_seek(file: Path, size: int, passes: bool) -> None:
    buffer = bytearray(size)
    with SequentialFile(str(file)) as opened:
        opened._passes = opened._passes and passes
        for position in (len(_CONTENT) // 2, 3, len(_CONTENT) - 1, len(_CONTENT)):
            got = opened.readinto_at(buffer, position)
            assert buffer[:got] == _CONTENT[position : position + size]


def test_a_small_read_that_fails_names_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with SequentialFile(str(file)) as opened, pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        opened.readinto_at(bytearray(10), 0)
    assert caught.value.filename == str(file)


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

    monkeypatch.setattr("flinkstate.files.storage.SequentialFile", refuse)
    with pytest.raises(StateferryError, match="file can't be read"):
        Location.of(str(path)).open()


@pytest.mark.parametrize(
    "sizes", [(0,), (1, 2, 3), (1 << 20, 1), (5, 1 << 20, (1 << 20) - 5, 7), (3 << 20, 0, 1 << 21)]
)
@pytest.mark.parametrize("reason", [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_what_is_written_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], reason: int | None
) -> None:
    def refuse(*_: object) -> int:
        assert reason is not None
        raise OSError(reason, os.strerror(reason))

    if reason is not None:
        monkeypatch.setattr(os, "pwritev", refuse)
    path, written = tmp_path / "file", b""
    output = SequentialOutput(str(path))
    for number, size in enumerate(sizes):
        part = bytes([number]) * size
        output.write(np.frombuffer(part, np.uint8) if number % 2 else part)
        written += part
    output.flush()
    assert path.read_bytes() == written
    output.write(b"the end")
    output.close()
    output.close()
    assert path.read_bytes() == written + b"the end"


def test_a_disk_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", fail)
    output = SequentialOutput(str(tmp_path / "file"))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        output.write(bytes(1 << 20))
    with contextlib.suppress(OSError):
        output.close()


def test_writing_goes_on_after_half_a_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, views, at, flags: whole(file, [views[0][:1000]], at))
    content = np.random.default_rng(1).bytes((1 << 20) + 10)
    output = SequentialOutput(str(tmp_path / "file"))
    output.write(content)
    output.close()
    assert (tmp_path / "file").read_bytes() == content


def test_files_that_were_written_take_no_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        written = [SequentialOutput(str(tmp_path / f"{number}")) for number in range(8)]
        for output in written:
            output.write(b"content")
            output.close()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"content"}
    for output in written:
        output.close()
