"""Files of tables' metadata on a real S3 server and a real HDFS, as pyiceberg asks for them."""

from __future__ import annotations

import pytest

from flinkstate.files.storage import Location
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.remote_io import RemoteIO

pytestmark = pytest.mark.slow


@pytest.fixture
def place(folder: str) -> Location:
    return Location.of(folder).child("00000-a.metadata.json")


def test_a_file_appears_when_it_is_closed_and_is_not_read_again(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RemoteIO()
    output = files.new_output(place.shown)
    with output.create() as stream:
        stream.write(b"content")
        assert not place.exists()
    assert place.read() == b"content"
    with monkeypatch.context() as patch:
        patch.setattr(Location, "open_if_there", None)
        patch.setattr(Location, "_info", None)
        with files.new_input(place.shown).open() as read:
            assert read.read() == b"content"
        assert (len(output), len(files.new_input(place.shown)), output.exists()) == (7, 7, True)
    files.delete(place.shown)
    assert not files.new_input(place.shown).exists()
    with pytest.raises(FileNotFoundError, match="00000-a"):
        files.new_input(place.shown).open()


def test_what_its_writer_gave_up_does_not_appear(place: Location) -> None:
    def fail() -> None:
        with RemoteIO().new_output(place.shown).create() as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    stream = RemoteIO().new_output(place.shown).create()
    stream.write(b"half")
    del stream
    assert not place.exists()


def test_files_of_rows_are_read_in_parts(place: Location) -> None:
    rows = place.parent.child("rows.parquet")
    rows.write_atomically(bytes(range(200)))
    file = RemoteIO().new_input(rows.shown)
    with file.open() as opened:
        opened.seek(100)
        assert opened.read(3) == bytes((100, 101, 102))
    assert len(file) == 200


def test_only_tables_on_a_store_are_read_this_way(place: Location) -> None:
    for warehouse, expected in ((place.shown, True), ("/a/folder", False)):
        assert ("py-io-impl" in TableHome("sqlite://", warehouse)._properties) is expected
