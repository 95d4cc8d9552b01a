"""Where savepoints lie: names of every kind, and stores that are no local disk."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import fs

from flinkstate.errors import DamagedError, StateferryError, TransientError, UsageError
from flinkstate.files import stores
from flinkstate.files.storage import Location
from flinkstate.metadata.metadata import AbsoluteFile
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.exit_codes import MISSING_HERE
from stateferry.cli import main
from stateferry.look.survey import survey
from tests.support.rewriting import rewrite
from tests.support.samples import UID, files_of, write_sample
from tests.support.servers import free_port

NAMES = ["plain", "with space", "per%20cent", "50%", "Größe 日本", "a+b#c?d"]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    location = Location.of(str(tmp_path / name))
    assert location.is_folder()
    assert location.is_local
    assert (location.name, location.shown) == (name, str(tmp_path / name))
    assert location.parent.path == str(tmp_path)
    location.child("file").write_atomically(b"content")
    assert (tmp_path / name / "file").read_bytes() == b"content"
    assert [entry.name for entry in location.entries()] == ["file"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_a_uri_is_unquoted(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / name).mkdir()
    quoted = (tmp_path / name).as_uri().removeprefix("file://")
    assert Location.of(form.format(quoted)).path == str(tmp_path / name)


def test_a_relative_path_is_one_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of("here").path == str(tmp_path / "here")


def test_what_cannot_be_reached_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="nope://somewhere/else is on a filesystem that can't be reached"):
        Location.of("nope://somewhere/else")


def test_what_is_not_there(tmp_path: Path) -> None:
    nothing = Location.of(str(tmp_path / "nothing"))
    assert (nothing.exists(), nothing.is_file(), nothing.is_folder(), nothing.entries()) == (False, False, False, [])
    nothing.remove()
    with pytest.raises(DamagedError, match="nothing: expected a file, found none"):
        nothing.read()


def test_an_atomic_write_replaces_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location.of(str(tmp_path / "file"))
    location.write_atomically(b"first")
    location.write_atomically(b"second")
    assert files_of(tmp_path) == {"file": b"second"}

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    for step in ("os.fsync", "os.replace"):
        with monkeypatch.context() as patched:
            patched.setattr(step, fail)
            with pytest.raises(TransientError, match=f"{location.shown} can't be written: no room"):
                location.write_atomically(b"third")
        assert files_of(tmp_path) == {"file": b"second"}


def test_a_file_elsewhere_is_found_by_its_uri(tmp_path: Path) -> None:
    (tmp_path / "else where").mkdir()
    (tmp_path / "else where" / "state").write_bytes(b"content")
    uri = (tmp_path / "else where" / "state").as_uri()
    file, name, size = open_stream(Location.of(str(tmp_path)), AbsoluteFile(uri, 7))
    with file:
        assert (file.read(), name, size) == (b"content", str(tmp_path / "else where" / "state"), 7)


def in_memory(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A store that has no disk beneath it."""
    store = fs._MockFileSystem()
    found = Location.of

    def of(name: str) -> Location:
        if name.startswith("store://"):
            return Location(store, name.removeprefix("store:/"), name)
        return found(name)

    monkeypatch.setattr(Location, "of", staticmethod(of))
    return of(f"store://{bucket}/area")


def below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A store whose paths are none of the disk's."""
    store = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    monkeypatch.setattr(Location, "of", staticmethod(lambda name: Location(store, name.removeprefix("store://"), name)))
    return Location.of("store://area")


@pytest.mark.parametrize("kind", ["memory", "below"])
@pytest.mark.parametrize("compressed", [False, True])
def test_savepoints_on_other_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, compressed: bool
) -> None:
    sample = write_sample(tmp_path / "local", compressed=compressed)
    truth = [
        repr(entry)
        for state in sample.keyed_states(sample.operator(UID))
        for entry in read_entries(sample, sample.operator(UID), state)
    ]
    area = in_memory(tmp_path.name, monkeypatch) if kind == "memory" else below(tmp_path, monkeypatch)
    assert not area.is_local
    source = area.child("source")
    source.make_folder()
    for name, data in files_of(tmp_path / "local").items():
        source.child(name).write_atomically(data)
    savepoint = Savepoint.open(source.shown)
    assert survey(savepoint)[0].keyed is not None
    rewrite(savepoint, area.child("target").shown, Layout(max_parallelism=200))
    back = area.child("back").shown
    rewrite(Savepoint.open(area.child("target").shown), back, Layout(max_parallelism=8))
    found = Savepoint.open(f"{back}/_metadata")
    operator = found.operator(UID)
    lines = [repr(entry) for state in found.keyed_states(operator) for entry in read_entries(found, operator, state)]
    assert sorted(lines) == sorted(truth)
    with pytest.raises(UsageError, match="already holds a savepoint"):
        rewrite(savepoint, back, Layout())
    area.child("source").remove()
    with pytest.raises(UsageError, match="no such folder"):
        Savepoint.open(source.shown)


def test_a_file_uri_says_a_path_as_flink_writes_it_or_as_people_escape_it(tmp_path: Path) -> None:
    literal, spaced = tmp_path / "a%20b", tmp_path / "c d"
    for folder in (literal, spaced):
        folder.mkdir()
    assert Location.of(f"file:{literal}").path == str(literal)
    assert Location.of(f"file://{tmp_path}/c%20d").path == str(spaced)
    assert Location.of(f"file:{spaced}").path == str(spaced)
    assert Location.of(f"file://localhost{spaced}").path == str(spaced)


def test_no_name_is_no_place() -> None:
    with pytest.raises(UsageError, match="found an empty text"):
        Location.of("")
    with pytest.raises(UsageError, match="no path has a null character"):
        Location.of("file:/a%00b")


def test_a_store_without_its_driver_is_told_in_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["inspect", "hdfs://127.0.0.1:1/savepoint"]) == MISSING_HERE
    assert capsys.readouterr().err == (
        "stateferry: hdfs://127.0.0.1:1/ can't be reached: HDFS needs the Python package hdfs-native. Install "
        "stateferry[hdfs], on Spark's workers too\n"
    )


def test_what_a_driver_says_is_said_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_uri(_: str) -> None:
        raise pa.ArrowException("no token\n" * 999)

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    with pytest.raises(StateferryError, match=r"^gs://b/x can't be reached: no token no token [^\n]*\.\.\.$") as caught:
        Location.of("gs://b/x")
    assert len(str(caught.value)) < 400


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens there.
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(TransientError, match=r"^s3://unanswered/x can't be reached: .*bucket 'unanswered'") as caught:
        Location.of("s3://unanswered/x").exists()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["s3://key:secret@bucket/x", "abfss://box:secret@a.dfs.core.windows.net/x"])
def test_credentials_in_a_name_are_refused_and_not_told(name: str) -> None:
    with pytest.raises(UsageError, match="has a password in it, which would be in plans and logs") as caught:
        Location.of(name)
    assert "secret" not in str(caught.value)


def test_options_in_a_name_are_refused() -> None:
    """A file below it would have the options in the middle of its name."""
    with pytest.raises(UsageError, match="set them in the environment instead"):
        Location.of("s3://bucket/x?region=eu-central-1")


def test_a_store_alone_is_no_place() -> None:
    with pytest.raises(UsageError, match="without a folder in it"):
        Location.of("s3://")


def test_a_folder_that_another_process_makes_meanwhile_is_listed(tmp_path: Path) -> None:
    asked: list[str] = []

    def told(selector: fs.FileSelector) -> list[fs.FileInfo]:
        """As pyarrow, which looks for the folder a second time before it says that there is none."""
        asked.append(selector.base_dir)
        if len(asked) == 1:
            (tmp_path / "made").mkdir()
            (tmp_path / "made" / "file").touch()
            raise FileNotFoundError(errno.ENOENT, "Cannot list directory")
        return list(fs.LocalFileSystem().get_file_info(selector))

    place = str(tmp_path / "made")
    location = Location(SimpleNamespace(get_file_info=told), place, place)
    assert [entry.name for entry in location.entries()] == ["file"]
    assert asked == [place, place]


def test_another_endpoint_in_the_environment_is_another_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = []
    for port in (1, 2, 1):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        found.append(stores.store_of("s3://bucket/folder")[0])
    assert found[0] is found[2]
    assert not found[0].equals(found[1])
