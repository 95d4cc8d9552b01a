"""What the system and stores say: which file it is about, which of it may pass, and that the rest is final."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from flinkstate.errors import DamagedError, MissingHereError, StateferryError, TransientError
from flinkstate.files.os_errors import is_transient, own_error
from flinkstate.files.storage import Location
from flinkstate.files.stores import reaching
from flinkstate.writing.write_behind import WriteBehind
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, MAY_PASS, MISSING_HERE
from stateferry.cli import main

FULL, UNREADABLE = "/dev/full", "/proc/self/mem"


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (TimeoutError("timed out"), True),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), False),
        (OSError(errno.ENAMETOOLONG, "File name too long"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
        (ValueError("no error of the system"), False),
        # As Arrow passes on what the drivers of stores say.
        (
            OSError("When getting information for key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION: curlCode: 7"),
            True,
        ),
        (OSError("When reading: AWS Error SLOW_DOWN (HTTP status 503) during GetObject operation"), True),
        (OSError("AWS Error UNKNOWN (HTTP status 429) during PutObject operation"), True),
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body."), False),
        (OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation"), False),
        (OSError("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body."), True),
        (OSError("AWS Error UNKNOWN (HTTP status 400) during GetObject operation: "), True),
        (OSError("AWS Error UNKNOWN (HTTP status 400) during GetObject operation: The range is malformed."), False),
        (
            OSError("AWS Error UNKNOWN (HTTP status 400) during CompleteMultipartUpload operation: Unable to parse"),
            True,
        ),
        (
            OSError("AWS Error NO_SUCH_UPLOAD during CompleteMultipartUpload operation: The upload does not exist."),
            True,
        ),
        (OSError("AWS Error UNKNOWN (HTTP status 400) during PutObject operation: Bad Request"), False),
        (OSError("Unable to parse ExceptionName: ExpiredToken Message: The provided token has expired."), True),
        # As Arrow says of a file that is none of its kind: damage, however often it is read.
        (OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"), False),
        (OSError("Unexpected end of stream: Page was smaller (5) than expected (9)"), False),
        (OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"), True),
        (OSError("google::cloud::Status(PERMISSION_DENIED: caller does not have storage.objects.get)"), False),
    ],
)
def test_what_may_pass(error: Exception, passes: bool) -> None:
    assert is_transient(error) == passes
    assert isinstance(own_error(error, "s3://b/a"), TransientError) == passes
    assert str(own_error(error, "s3://b/a")).startswith("s3://b/a can't be reached: ")


def test_an_error_names_its_file_and_its_reason_once() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x")
    assert str(own_error(error)) == "/data/x can't be reached: No space left on device"
    assert str(own_error(error, "/data/x", "written")) == "/data/x can't be written: No space left on device"
    assert str(own_error(error, "/data", "written")) == "/data can't be written: /data/x: No space left on device"


def test_a_disk_that_is_full_is_named_and_may_pass() -> None:
    """A real one: nothing fits into /dev/full."""
    stream = Location.of(FULL).create()
    with pytest.raises(OSError, match="No space left") as full:
        stream.write(b"x" * (2 << 20))
    stream.close()
    assert full.value.filename == FULL


def test_a_file_that_cannot_be_read_is_named() -> None:
    """A real one: at the start of a process's memory there is nothing to read."""
    for name, argument in (("read", -1), ("read", 4), ("readinto", bytearray(1 << 19))):
        with pytest.raises(OSError, match="Input/output error") as caught, Location.of(UNREADABLE).open() as file:
            getattr(file, name)(argument)
        assert caught.value.filename == UNREADABLE
    with pytest.raises(TransientError, match=f"^{UNREADABLE} can't be read: Input/output error$"):
        Location.of(UNREADABLE).read()


def test_a_disk_that_fails_behind_a_writer_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    file = WriteBehind(Location.of(str(tmp_path / "state")), portion=10)
    file.write(b"0123456789")
    with pytest.raises(OSError, match="Input/output error") as caught:
        file.finish()
    assert str(caught.value.filename).startswith(str(tmp_path / "state"))
    file.close()


def test_every_errand_to_a_folder_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    inside, long = Location.of(str(tmp_path / "file" / "inside")), Location.of(str(tmp_path / ("x" * 300)))
    for place in (inside, long):
        for errand in (
            place.make_folder,
            place.create,
            lambda place=place: place.write_atomically(b"x"),
            place.sync_file,
            place.sync_folder,
            lambda place=place: Location.of(str(tmp_path / "file")).replace(place),
        ):
            with pytest.raises(StateferryError, match=f"^{place.shown}") as caught:
                errand()
            assert not isinstance(caught.value, (TransientError, DamagedError))


def test_a_store_s_error_names_the_file_that_its_driver_does_not(tmp_path: Path) -> None:
    class Fails:
        closed = False

        def size(self) -> int:
            return 1

        def read_at(self, *_: int) -> bytes:
            raise OSError("curlCode: 28, Timeout was reached")

        def write(self, _: bytes) -> int:
            raise OSError("curlCode: 28, Timeout was reached")

        def close(self) -> None:
            pass

    class Store(fs.SubTreeFileSystem):  # type: ignore[misc]
        def open_input_file(self, _: str) -> Fails:
            return Fails()

        def open_output_stream(self, _: str) -> Fails:
            return Fails()

    (tmp_path / "state").write_bytes(b"x")
    place = Location(Store(str(tmp_path), fs.LocalFileSystem()), "state", "s3://b/state")
    with pytest.raises(TransientError, match=r"^s3://b/state can't be read: curlCode: 28"):
        place.read()
    with pytest.raises(TransientError, match=r"^s3://b/state: curlCode: 28"), reaching():
        place.open().read(4)
    with pytest.raises(TransientError, match=r"^s3://b/state can't be written: curlCode: 28"):
        place.write_atomically(b"y")


def test_a_short_answer_of_a_store_is_no_damage() -> None:
    """It has told the file's size before, so another try may get all of it."""

    class Short:
        def size(self) -> int:
            return 10

        def read_at(self, *_: int) -> bytes:
            return b"half"

        def close(self) -> None:
            pass

    store = SimpleNamespace(open_input_file=lambda _: Short())
    with pytest.raises(TransientError, match=r"^s3://b/state can't be read: expected 10 bytes, got 4"):
        Location(store, "b/state", "s3://b/state").read()


@pytest.mark.parametrize(
    ("error", "code", "ends"),
    [
        (TransientError("a store is away"), MAY_PASS, "Give the same command again: it continues where it stopped"),
        (MissingHereError("no Java"), MISSING_HERE, "no Java"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), MAY_PASS, "it continues where it stopped"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), DAMAGED_OR_REFUSED, "/data/x can't be reached"),
    ],
)
def test_each_has_its_exit_code(
    error: Exception, code: int, ends: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("flinkstate.reading.reader.Savepoint.open", fails)
    assert main(["inspect", "/anywhere"]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert ends in said


@pytest.mark.parametrize("answer", ["HeadObject operation: No response body.", "GetObject operation:"])
def test_expired_credentials_are_named_where_the_store_does_not_say_so(answer: str) -> None:
    error = OSError(f"AWS Error UNKNOWN (HTTP status 400) during {answer}\n")
    assert str(own_error(error, "s3://b/a")).endswith(f"{answer} Its credentials may have expired")


@pytest.mark.parametrize(
    ("reached", "what"),
    [
        (lambda folder: Location.of(str(folder)).entries(), "listed"),
        (lambda folder: Location.of(f"{folder}/x\udcff").exists(), "reached"),
        (lambda folder: Location.of(str(folder)).child("a\ud800b").open(), "reached"),
    ],
)
def test_a_name_that_is_not_utf_8(reached: Callable[[Path], object], what: str, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
    with pytest.raises(StateferryError, match=f"^{tmp_path}.* can't be {what}: .*name that isn't UTF-8"):
        reached(tmp_path)


def test_another_name_of_a_symbolic_link_is_one_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert Location.of(f"{tmp_path}/link").link_to(Location.of(f"{tmp_path}/other"))
    assert not (tmp_path / "other").is_symlink()
    assert (tmp_path / "other").samefile(tmp_path / "file")
