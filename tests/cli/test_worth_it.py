"""`stateferry worth-it`: by sizes, and measured on the RocksDB in Flink's own jar."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from stateferry.demo import DemoState, write_demo_savepoint
from tests.cli.test_cli import GOLDEN, Terminal, terminal
from tests.flink import jars

__all__ = ["terminal"]

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


def test_without_a_measurement_it_goes_by_the_sizes(savepoint: Path, terminal: Terminal) -> None:
    text = terminal.says("worth-it", savepoint)
    assert "maps of 40.0 entries" in text
    assert "worth it: yes" in text
    assert "nothing to migrate" in terminal.says("worth-it", GOLDEN / "lists-ttl-2.3-rocksdb")


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
