"""Files and folders on a real S3 server and a real HDFS."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location, side_by_side
from flinkstate.metadata.file_names import METADATA, complete_savepoints
from flinkstate.writing.write_behind import WriteBehind
from tests.stores.area import on_s3
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.slow
_MANY = 1_003


@pytest.fixture
def area(folder: str) -> Location:
    """A folder of the test's own, which need not be made."""
    return Location.of(folder)


def test_what_is_not_there(area: Location) -> None:
    assert (area.exists(), area.is_file(), area.is_folder(), area.entries()) == (False, False, False, [])
    area.remove()
    for place in (area, area.child("file")):
        with pytest.raises(DamagedError, match="expected a file, found none"):
            place.open()


def test_a_file_is_one_object_and_its_folder_is_there_with_it(area: Location) -> None:
    file = area.child("a folder").child("100% {odd} #name")
    before = int(time.time() * 1000)
    file.write_atomically(b"first")
    file.write_atomically(b"second")
    assert (file.read(), file.size(), file.is_file()) == (b"second", 6, True)
    assert before - 2_000 <= file.modified_at() <= before + 60_000
    assert area.is_folder()
    (folder,) = area.listed()
    assert (folder.location, folder.is_folder) == (area.child("a folder"), True)
    (listed,) = folder.location.listed()
    assert (listed.location, listed.is_folder, listed.size) == (file, False, 6)
    assert listed.location.read() == b"second"
    with pytest.raises(DamagedError, match="expected a file, found none"):
        area.open()
    area.remove()
    assert not file.exists()


@pytest.mark.matrix(most=1)
def test_more_objects_than_one_listing_tells_of(area: Location) -> None:
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda n: area.child(f"{n:04}").write_atomically(b"x" * (n % 7)), range(_MANY)))
    assert sorted(entry.name for entry in area.entries()) == [f"{n:04}" for n in range(_MANY)]
    assert sum(entry.size for entry in area.parent.listed(recursive=True) if area.path in entry.location.path) == sum(
        n % 7 for n in range(_MANY)
    )
    area.remove()
    assert area.entries() == []


def test_a_large_file_is_sent_in_parts_and_appears_when_it_is_whole(area: Location) -> None:
    file, data = area.child("large"), random.Random(1).randbytes(30 << 20)
    with file.create() as stream:
        for start in range(0, len(data), 3_000_001):
            stream.write(data[start : start + 3_000_001])
        assert not file.exists()
    assert file.read() == data
    assert area.entries() == [file]


@pytest.mark.parametrize("size", [5, 40 << 20])
def test_what_was_not_written_to_its_end_leaves_the_file_as_it_was(area: Location, size: int) -> None:
    file = area.child("file")
    file.write_atomically(b"whole")
    stream = WriteBehind(file)
    stream.write(bytes(size))
    stream.close()
    del stream
    output = file.create()
    output.write(bytes(size))
    output.__exit__(ZeroDivisionError)
    assert file.read() == b"whole"
    assert area.entries() == [file]


def test_a_draft_is_on_a_local_disk_until_it_gets_its_name(area: Location) -> None:
    file = area.child("file")
    stream = WriteBehind(file, stays_draft=True)
    stream.write(b"content")
    stream.finish()
    assert stream.place.is_local
    assert stream.place.read() == b"content"
    assert not file.exists()
    draft = stream.place
    stream.take_name()
    stream.close()
    assert (file.read(), stream.place, draft.exists()) == (b"content", file, False)


_CONTENT = random.Random(7).randbytes(6_000_011)


@pytest.fixture(scope="module")
def content(s3_server: S3Server) -> Location:
    with pytest.MonkeyPatch.context() as patch:
        s3_server.set_up(patch)
        file = Location.of(s3_server.uri("content"))
        file.write_atomically(_CONTENT)
        return file


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    expected=st.none() | st.tuples(st.integers(0, 6_000_011), st.integers(0, 7_000_000)),
    reads=st.lists(
        st.tuples(st.none() | st.integers(0, 6_100_000), st.integers(0, 5_000_000), st.booleans()), max_size=12
    ),
)
def test_any_order_of_reads_gives_the_bytes_of_the_file(
    s3: S3Server, content: Location, expected: tuple[int, int] | None, reads: list[tuple[int | None, int, bool]]
) -> None:
    with content.open() as file:
        if expected is not None:
            file.expect(*expected)
        at = 0
        for place, size, into in reads:
            if place is not None:
                at = file.seek(place)
            truth = _CONTENT[at : at + size]
            if into:
                buffer = bytearray(size)
                assert file.readinto(buffer) == len(truth)
                assert buffer[: len(truth)] == truth
            else:
                assert file.read(size) == truth
            at += len(truth)
            assert file.tell() == at


@on_s3
def test_a_place_travels_by_its_name_and_without_credentials(area: Location, s3: S3Server) -> None:
    sent = pickle.dumps(area.child("file"))
    assert pickle.loads(sent) == area.child("file")
    assert s3.secret.encode() not in sent
    assert s3.key.encode() not in sent


def test_several_answers_are_on_their_way_at_once_and_come_in_order(area: Location) -> None:
    meeting, begun = threading.Barrier(4, timeout=120), list[int]()

    def answer(number: int) -> int:
        begun.append(number)
        if number < 4:
            meeting.wait()
        return number

    answers = side_by_side(area, answer, iter(range(1_000)))
    assert [next(answers) for _ in range(5)] == [0, 1, 2, 3, 4]
    del answers
    assert len(begun) < 40


def test_complete_savepoints_are_found_side_by_side(area: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        area.child(f"savepoint-{number}").child(METADATA).write_atomically(b"x")
    area.child("savepoint-half").child("a file").write_atomically(b"x")
    area.child("no folder").write_atomically(b"x")
    meeting, look = threading.Barrier(4, timeout=120), Location.changed_at_if_file

    def met(self: Location) -> int | None:
        if self.parent.name[-1].isdigit():
            meeting.wait()
        return look(self)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "changed_at_if_file", met)
        found = {savepoint.name: at for at, savepoint in complete_savepoints(area)}
    assert sorted(found) == [f"savepoint-{number}" for number in range(4)]
    assert found["savepoint-0"] == area.child("savepoint-0").child(METADATA).modified_at() > 0
    among = [area.child("savepoint-1"), area.child("savepoint-half")]
    assert [savepoint.name for _, savepoint in complete_savepoints(area, among)] == ["savepoint-1"]


@on_s3
def test_both_names_of_a_store_are_one_place(area: Location) -> None:
    area.child("file").write_atomically(b"x")
    assert Location.of(f"s3a:{area.child('file').shown.removeprefix('s3:')}").read() == b"x"


@on_s3
def test_region_and_endpoint_are_set_once(area: Location, s3: S3Server) -> None:
    assert isinstance(area.filesystem, fs.S3FileSystem)
    assert area.filesystem.region == s3.region


def test_wrong_credentials_are_refused_in_one_line_without_them(s3: S3Server) -> None:
    command = [sys.executable, "-m", "stateferry.cli", "inspect", s3.uri("savepoint")]
    wrong = {"PATH": "/usr/bin:/bin", **s3.environment, "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=wrong)
    assert ran.returncode == 3
    assert ran.stderr.startswith(f"stateferry: {s3.uri('savepoint')}")
    assert len(ran.stderr.splitlines()) == 1
    assert "not-the-secret" not in ran.stderr
