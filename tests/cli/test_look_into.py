"""The look into a savepoint that spark-submit starts: the same answer as `stateferry inspect`, in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.cli.commands.look_into import main as check
from tests.classfiles.test_class_files import small_class
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"


def answer(folder: Path, savepoint: Path, *more: str) -> dict[str, Any]:
    into = folder / "checks" / "one.json"
    assert check(["--savepoint", str(savepoint), "--into", str(into), *more]) == 0
    found: dict[str, Any] = json.loads(into.read_text())
    return found


def wanted(folder: Path, savepoint: Path, **state: object) -> str:
    names = {"legacy": LEGACY, "new": NEW, "flag": FLAG, **state}
    plan = {"job": "orders", "run_id": "one", "now": 1, "source": str(savepoint), "target": str(folder / "target")}
    return json.dumps({**plan, "home": str(folder), "operators": [{"operator": "main", "states": [names]}]})


@pytest.mark.parametrize("name", ["legacy-ttl-2.3-rocksdb", "native-2.3-rocksdb", "several-operators-2.3-hashmap"])
def test_it_says_what_inspect_says_and_writes_nothing_else(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    savepoint = SAVEPOINTS / name
    found = answer(tmp_path, savepoint)
    capsys.readouterr()
    assert main(["inspect", str(savepoint), "--json"]) == 0
    assert found == json.loads(capsys.readouterr().out)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["one.json"]
    assert (tmp_path / "checks" / "one.json").stat().st_mode & 0o077 == 0


def test_a_plan_is_held_against_it(tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint"
    LegacyState({"a": ({"x": 1}, 1)}, ttl=True).write(str(savepoint))
    good = wanted(tmp_path, savepoint, ttl_ms=86_400_000)
    assert answer(tmp_path, savepoint, "--wanted", good)["problems"] == []
    without = wanted(tmp_path, savepoint)
    (problem,) = answer(tmp_path, savepoint, "--wanted", without)["problems"]
    assert "has TTL (its values have timestamps), but --ttl is missing" in problem
    unknown = wanted(tmp_path, savepoint, legacy="mainstate", new="none")
    (problem,) = answer(tmp_path, savepoint, "--wanted", unknown)["problems"]
    assert (
        "has no keyed state 'mainstate', and no MapState 'none' that it could have become. Did you mean mainState?"
        in problem
    )
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "target").exists()


def test_what_is_no_savepoint_is_refused_without_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(["--savepoint", str(tmp_path), "--into", str(tmp_path / "one.json")]) == DAMAGED_OR_REFUSED
    assert f"{tmp_path}: expected a savepoint" in capsys.readouterr().err
    assert not (tmp_path / "one.json").exists()


def test_it_says_what_the_savepoint_does_in_another_flink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = SAVEPOINTS / "hint-hash-map-1.20-rocksdb"
    found = answer(tmp_path, savepoint, "--for", "flink-2")["verdict"]
    assert found == commands_verdict(capsys, savepoint)
    assert found["counts"] == {"wrong": 1, "restores": 2}
    assert "verdict" not in answer(tmp_path, savepoint)


def commands_verdict(capsys: pytest.CaptureFixture[str], savepoint: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["check", str(savepoint), "--for", "flink-2", "--json", *more]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_with_classes_it_says_what_the_command_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that were given are held against the savepoint as the new job's, too."""
    (tmp_path / "Other.class").write_bytes(small_class("Other", "java/lang/Object"))
    savepoint, classes = SAVEPOINTS.parent / "earlier_savepoints" / "1.19-rocksdb", ("--classes", str(tmp_path))
    found = answer(tmp_path, savepoint, "--for", "flink-2", *classes)["verdict"]
    assert found == commands_verdict(capsys, savepoint, *classes)
    assert next(state["outcome"] for state in found["states"] if state["state"] == "person") == "unknown"


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("upgraded-hint-hash-map-2.3-rocksdb", ("--before", str(SAVEPOINTS / "hint-hash-map-1.20-rocksdb"))),
        ("kryo-2.3-rocksdb", ("--all-by-kryo-5", "--all")),
    ],
)
def test_it_is_asked_all_that_the_command_is_asked(
    name: str, asked: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(tmp_path, SAVEPOINTS / name, "--for", "flink-2", *asked)["verdict"]
    assert found == commands_verdict(capsys, SAVEPOINTS / name, *asked)
    assert found != commands_verdict(capsys, SAVEPOINTS / name)
    assert ("losses" in found) is ("--before" in asked)


def test_a_plan_for_another_flink_is_held_against_what_that_would_misread(tmp_path: Path) -> None:
    savepoint = SAVEPOINTS / "hint-hash-map-1.20-rocksdb"
    plan = {**json.loads(wanted(tmp_path, savepoint)), "nulls": "keep", "to": "flink-2"}
    assert answer(tmp_path, savepoint, "--wanted", json.dumps(plan))["problems"] == []
    kept = json.dumps({**plan, "keep_legacy": True})
    assert answer(tmp_path, savepoint, "--wanted", kept)["problems"] == []
    hinted = SAVEPOINTS / "hint-map-1.20-rocksdb"
    undecided = json.dumps({**plan, "source": str(hinted), "keep_legacy": True})
    problems = answer(tmp_path, hinted, "--wanted", undecided)["problems"]
    assert any("mainState" in one and "--declared" in one for one in problems)
