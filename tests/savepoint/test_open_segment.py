"""Segments of merged files are read like files of their own, and nothing around them is."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.metadata.metadata import EmptySegment, FileSegment
from flinkstate.metadata.streams import open_stream

CONTENT = bytes(range(1, 201))


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    (tmp_path / "merged").write_bytes(CONTENT)
    return tmp_path / "merged"


def test_it_behaves_as_a_file_of_these_bytes(merged: Path) -> None:
    chosen = random.Random(4)
    segment = FileSegment(f"file:{merged}", 50, 100, 0, "id")
    file, name, size = open_stream(Location.of(str(merged.parent)), segment)
    alone = io.BytesIO(CONTENT[50:150])
    assert (name, size, file.size()) == (f"{merged} (bytes 50 to 150)", 100, 100)
    with file:
        for _ in range(300):
            count, place = chosen.randrange(120), chosen.randrange(110)
            match chosen.randrange(5):
                case 0:
                    assert file.seek(place) == alone.seek(place)
                case 1:
                    assert file.seek(-3, io.SEEK_END) == alone.seek(-3, io.SEEK_END)
                case 2:
                    assert file.read(count) == alone.read(count)
                case 3:
                    one, other = bytearray(count), bytearray(count)
                    assert file.readinto(one) == alone.readinto(other)
                    assert one == other
                case 4:
                    assert file.read() == alone.read()
            assert file.tell() == alone.tell()


def test_an_empty_segment_has_no_bytes(tmp_path: Path) -> None:
    file, name, size = open_stream(Location.of(str(tmp_path)), EmptySegment())
    assert (file.read(), size) == (b"", 0)
    assert "empty segment" in name


def test_a_segment_must_be_in_its_file(merged: Path) -> None:
    folder = Location.of(str(merged.parent))
    with pytest.raises(DamagedError, match=r"bytes 150 to 201\).*at least 201 bytes in the merged file, found 200"):
        open_stream(folder, FileSegment(f"file:{merged}", 150, 51, 0, "id"))
    with pytest.raises(DamagedError, match=r"--files-from OLD=NEW"):
        open_stream(folder, FileSegment(f"file:{merged}-gone", 0, 1, 0, "id"))
