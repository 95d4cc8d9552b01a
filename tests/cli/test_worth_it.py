"""`stateferry worth-it`: by sizes, and measured on the RocksDB in Flink's own jar."""

from __future__ import annotations

import ctypes
import json
import zipfile
from pathlib import Path

import pytest

from flinkstate.basics.closing import Closing
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.look import access_times
from stateferry.look.access_times import MapSize, measure
from tests.cli.test_cli import GOLDEN
from tests.flink import jars
from tests.support.terminal import Terminal

NOW, DAY = 1_800_000_000_000, 86_400_000


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(50, 40, 0, 30 * DAY, NOW, 2, 128, 1))
    return tmp_path / "demo"


@pytest.mark.full
@pytest.mark.parametrize("version", jars.VERSIONS)
@pytest.mark.flink
def test_accesses_are_timed_on_flinks_rocksdb(version: str, savepoint: Path, terminal: Terminal) -> None:
    (jar,) = [
        found
        for folder in jars.class_path(version).split(":")
        for found in Path(folder.removesuffix("*")).glob("frocksdbjni-*.jar")
    ]
    measured = ("worth-it", savepoint, "--measure", "--jar", jar, "--seconds", "0.3")
    (state,) = json.loads(terminal.says(*measured, "--json"))["states"]
    assert (state["state"], state["worth_it"]) == ("main/mainState", True)
    assert [(one["access"], one["threads"]) for one in state["measured"]] == [
        ("a read with a cold block cache", 1),
        ("a change", 1),
        ("a change", 2),
    ]
    assert all(one["whole_map_us"] > 0 and one["one_entry_us"] > 0 for one in state["measured"])


def test_bytes_of_a_change_are_made_before_it_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[dict[bytes, int]] = []

    class Database(Closing):
        """Counts the values of the changes. A database is compacted when it is filled, and opened anew."""

        def __init__(self, library: ctypes.CDLL, folder: Path, cache_bytes: int) -> None:
            folder.mkdir(exist_ok=True)
            self.values: dict[bytes, int] = {}

        def get(self, key: bytes) -> int:
            return 0

        def put(self, key: bytes, value: bytes) -> None:
            self.values[value] = self.values.get(value, 0) + 1

        def compact(self) -> None:
            self.values.clear()

        def close(self) -> None:
            changed.append(self.values)

    monkeypatch.setattr(access_times, "LibraryDatabase", Database)
    monkeypatch.setattr(access_times, "_STATE_BYTES", 1 << 20)
    measure(ctypes.CDLL(None), tmp_path, MapSize(300, 16, 100), 1, 0.2)
    of_changes = [values for values in changed if values]
    assert len(of_changes) == 2
    for values in of_changes:
        # If the random bytes were made within a change, each had other ones, and they took longer than RocksDB does.
        assert 1 < len(values) <= 16 < sum(values.values())


def test_without_a_measurement_it_goes_by_the_sizes(savepoint: Path, terminal: Terminal) -> None:
    text = terminal.says("worth-it", savepoint)
    assert "maps of 40.0 entries" in text
    assert "worth it: yes" in text
    assert "nothing to migrate" in terminal.says("worth-it", GOLDEN / "lists-ttl-2.3-rocksdb")


def test_of_few_keys_it_is_not_known_whether_the_backend_gains(tmp_path: Path, terminal: Terminal) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(40, 40, 0, 30 * DAY, NOW, 2, 1024, 1))
    assert "worth it: yes, if the backend is RocksDB" in terminal.says("worth-it", tmp_path / "demo")
    (state,) = json.loads(terminal.says("worth-it", tmp_path / "demo", "--json"))["states"]
    assert (state["backend"], state["condition"]) == ("unknown", "if the backend is RocksDB")


def test_what_is_missing_is_named(
    savepoint: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLINK_HOME", raising=False)
    code, error = terminal.fails("worth-it", savepoint, "--measure")
    assert (code, "FLINK_HOME isn't set" in error) == (69, True)
    (tmp_path / "lib").mkdir()
    with zipfile.ZipFile(tmp_path / "lib" / "flink-dist-2.3.0.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "")
    monkeypatch.setenv("FLINK_HOME", str(tmp_path))
    code, error = terminal.fails("worth-it", savepoint, "--measure")
    assert (code, "has no jar with it" in error) == (69, True)
    code, error = terminal.fails("worth-it", savepoint, "--measure", "--jar", tmp_path / "lib" / "flink-dist-2.3.0.jar")
    assert (code, "found one without librocksdbjni" in error) == (2, True)
    for arguments in (["--jar", "x"], ["--measure", "--threads", "0"]):
        assert terminal.fails("worth-it", savepoint, *arguments)[0] == 2
