"""`stateferry verify` knows the results of all kinds of runs, and says no to what they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateferry.cli import main
from tests.support.in_process import without_spark
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

DAY = 86_400_000
NOW = 100 * DAY
STATES = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG, "--job", "orders")
TTL = ("--ttl", "30d", "--now", f"{NOW}", "--accept-expired", "100%")

# The state that a run begins with, its options, and options of another run, whose result this is not.
KINDS = {
    "all keys": ((*STATES, *TTL), (*STATES, *TTL, "--keep-legacy")),
    "lazy": ((*STATES, *TTL, "--lazy", "--share", "40%"), (*STATES, *TTL)),
    "reverse": ((*STATES, *TTL, "--reverse"), (*STATES, *TTL, "--reverse", "--parallelism", "3")),
    "rescale": (("--max-parallelism", "300", "--job", "orders"), ("--max-parallelism", "301", "--job", "orders")),
    "other states": (
        ("--state-ttl", f"main/{NEW}=30d:drop", "--now", f"{NOW}", "--job", "orders"),
        ("--state-ttl", f"main/{NEW}=60d:drop", "--now", f"{NOW}", "--job", "orders"),
    ),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def source(tmp_path: Path, kind: str) -> str:
    blobs = {f"key-{number}": ({"a": number, "b": 1}, NOW - number * DAY) for number in range(40)}
    rows = {f"row-{number}": {"a": (number, NOW - number * DAY), "b": (1, NOW - DAY)} for number in range(40)}
    state = LegacyState(blobs={} if kind == "reverse" else blobs, rows=rows, ttl=True)
    state.write(str(tmp_path / "source"))
    return str(tmp_path / "source")


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_yes_to_the_result_of_a_run_and_no_to_another(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, others = KINDS[kind]
    came_from, target = source(tmp_path, kind), str(tmp_path / "target")
    assert main(["run", "--savepoint", came_from, "--target", target, *options]) == 0
    assert main(["verify", came_from, target, *options]) == 0
    capsys.readouterr()
    assert main(["verify", came_from, target, *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["green"]
    assert {check["outcome"] for check in answer["checks"]} == {"passed"}
    assert main(["verify", came_from, target, *others, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["green"]
    assert [check["name"] for check in answer["checks"] if check["outcome"] == "failed"]


def test_a_target_that_is_not_there_is_told_to_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, _ = KINDS["rescale"]
    (tmp_path / "empty").mkdir()
    assert main(["verify", source(tmp_path, "rescale"), str(tmp_path / "empty"), *options, "--json"]) != 0
    said = capsys.readouterr()
    assert said.err or not json.loads(said.out)["green"]
