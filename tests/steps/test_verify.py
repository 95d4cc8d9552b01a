"""`stateferry verify` knows the results of all kinds of runs, and says no to what they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateferry.cli import main
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

pytestmark = pytest.mark.usefixtures("home")

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


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, list[str]]:
    """Whether the answer is green, and its notes about now."""
    capsys.readouterr()
    code = main(["verify", *arguments, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["green"] is (code == 0)
    return answer["green"], [note for note in answer["notes"] if note.startswith("now is")]


def test_now_is_that_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    came_from, target = source(tmp_path, "all keys"), str(tmp_path / "target")
    options = (*STATES, "--ttl", "30d", "--accept-expired", "100%")
    assert main(["run", "--savepoint", came_from, "--target", target, *options, "--now", f"{NOW}"]) == 0
    (run,) = runs_of(str(tmp_path / "home"))
    # By the clock, everything that is there has expired since.
    moment = "now is 1970-04-11 00:00:00 UTC"
    assert answered(capsys, came_from, target, *options) == (
        True,
        [f"{moment}, as in run {run.run_id}, whose target this is"],
    )
    assert main(["verify", came_from, f"{target}/", *options]) == 0
    assert f"note: {moment}, as in run {run.run_id}, whose target this is" in capsys.readouterr().out
    for named in (run.run_id, run.run_id[:-3], run.folder.path):
        assert answered(capsys, came_from, target, "--run", named) == (True, [f"{moment}, as in run {run.run_id}"])
    assert answered(capsys, came_from, target, *options, "--now", f"{NOW}") == (True, [])
    assert answered(capsys, came_from, target, "--run", run.run_id, "--now", f"{NOW + DAY}") == (False, [])
    # What a plan keeps doesn't depend on now.
    keeps = ("--run", run.run_id, "--keep-expired")
    assert answered(capsys, came_from, target, *keeps) == (False, [])


def test_without_the_run_it_says_what_red_may_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    came_from, target = source(tmp_path, "all keys"), str(tmp_path / "target")
    assert main(["run", "--savepoint", came_from, "--target", target, *STATES, *TTL]) == 0
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "other"))
    green, (note,) = answered(capsys, came_from, target, *STATES, *TTL[:2])
    assert not green
    assert f"now is this moment, as no run under {tmp_path / 'other'} has the target {target}" in note
    assert main(["verify", came_from, target, "--run", "nope"]) == 2
    assert f"{tmp_path / 'other'} has no run 'nope'" in capsys.readouterr().err


def test_the_published_run_counts_before_a_later_rehearsal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    came_from, target = source(tmp_path, "all keys"), str(tmp_path / "target")
    rehearsal = ("--now", f"{NOW + DAY}", "--rehearse", "--accept-expired", "100%")
    for more in (TTL[2:], rehearsal):
        assert main(["run", "--savepoint", came_from, "--target", target, *STATES, "--ttl", "30d", *more]) == 0
    (published,) = (one for one in runs_of(str(tmp_path / "home")) if one.state is RunState.PUBLISHED)
    assert answered(capsys, came_from, target, *STATES, "--ttl", "30d") == (
        True,
        [f"now is 1970-04-11 00:00:00 UTC, as in run {published.run_id}, whose target this is"],
    )
