"""`--classes`: objects of a job's classes, in `inspect` and `dump`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateferry.cli import main
from tests.kryo.kept import kept
from tests.kryo.test_pojos import examples
from tests.steps.test_kept_values import JAR, POJO_JAR, write


def inspected(savepoint: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main(["inspect", str(savepoint), "--json", *options]) == 0
    (operator,) = json.loads(capsys.readouterr().out)["operators"]
    (state,) = operator["keyed"]["states"]
    return dict(state)


def test_inspect_says_what_maps_of_objects_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "source", kept("1.20.0")["things of keys"])
    without = inspected(tmp_path / "source", capsys)
    assert without["migratable"] is False
    assert "KryoThings$Thing" in str(without["reason"])
    assert "--classes" in str(without["reason"])
    known = inspected(tmp_path / "source", capsys, "--classes", str(JAR))
    assert known["migratable"] is True
    assert known["type"] == "Map<String,Thing>"
    assert known["declaration"] == (
        'new MapStateDescriptor<>("NEW_STATE", Types.STRING, Types.GENERIC(stateferry.kryo.KryoThings.Thing.class))'
    )


def test_dump_shows_objects_by_their_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "source", examples("2.3.0")["beans"])
    command = ["dump", str(tmp_path / "source"), "--operator", "main", "--state", "totals", "--limit", "1"]
    assert main([*command, "--classes", str(POJO_JAR)]) == 0
    value = json.loads(capsys.readouterr().out)["value"]
    assert value["a"]["inner"] == {"color": "RED", "text": "text"}
    assert value["a"]["id"] == 1
    assert value["b"]["inner"] is None
    assert value["a"]["numbers"]["c"] == "\u00fc"
    assert main([*command, "--classes", str(tmp_path / "none.jar")]) == 2
    assert "none.jar: there is no such jar or folder of class files" in capsys.readouterr().err
