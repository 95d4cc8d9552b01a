"""`stateferry advise`: what it says of the checked examples, and that the command it gives does what it says."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from stateferry.cli import main
from tests.cli.test_cli import GOLDEN, LEGACY, expected
from tests.support.keyed_blobs import write_blobs
from tests.support.terminal import Terminal


def advised(terminal: Terminal, savepoint: Path, *arguments: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(terminal.says("advise", savepoint, "--operator", "main", "--json", *arguments))
    (operator,) = facts["operators"]
    found: dict[str, Any] = operator
    return found


@pytest.mark.slow
def test_the_command_that_is_given_makes_the_layout(
    terminal: Terminal, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_blobs(tmp_path / "five", dict.fromkeys(range(5), 3), 5, 128)
    facts = advised(terminal, path)
    assert (facts["today"]["bytes"]["idle_subtasks"], facts["today"]["keys"]["by_subtask"]) == (2, [1, 0, 0, 2, 2])
    proposal = facts["proposal"]
    assert (proposal["parallelism"], proposal["max_parallelism"], proposal["is_worth_it"]) == (5, 133, True)
    command = proposal["how"][0]
    assert command in terminal.says("advise", path, "--operator", "main").splitlines()
    target = tmp_path / "new"
    words = [{"NEW_FOLDER": str(target), "NEW_STATE": "new"}.get(word, word) for word in shlex.split(command)]
    assert main(words[1:]) == 0
    capsys.readouterr()
    after = advised(terminal, target)
    assert after["today"]["keys"]["by_subtask"] == proposal["keys"]["by_subtask"] == [1] * 5
    assert not after["proposal"]["is_worth_it"]
    assert "keep the layout" in terminal.says("advise", target)


def test_flinks_savepoint_is_measured(terminal: Terminal) -> None:
    facts = advised(terminal, LEGACY, "--by", "rows", "--heaviest", "2", "--max-parallelism", "128-300")
    lines = [line for line in expected(LEGACY) if "key" in line]
    for group in range(128):
        own = [line for line in lines if line["key_group"] == group]
        assert facts["key_groups"]["rows"][group] == len(own)
        assert facts["key_groups"]["keys"][group] == len({line["key"] for line in own})
    by_key = {line["key"]: sum(one["key"] == line["key"] for one in lines) for line in lines}
    assert [key["rows"] for key in facts["heaviest_keys"]] == sorted(by_key.values())[:-3:-1]
    assert by_key[facts["heaviest_keys"][0]["key"]] == facts["heaviest_keys"][0]["rows"]
    assert facts["candidates"] == 173


@pytest.mark.part
@pytest.mark.parametrize("case", ["native-2.3-rocksdb", "kinds-in-windows-1.20-rocksdb", "legacy-snappy-1.20-hashmap"])
def test_every_kind_of_savepoint_is_advised(terminal: Terminal, case: str) -> None:
    facts = json.loads(terminal.says("advise", GOLDEN / case, "--json", "--max-parallelism", "128-200"))
    for operator in facts["operators"]:
        lines = [line for line in expected(GOLDEN / case) if line.get("key_group") is not None]
        assert sum(operator["key_groups"]["rows"]) == len(lines)
    assert "searched" in terminal.says("advise", GOLDEN / case, "--max-parallelism", "128-200")


def test_keys_whose_hash_is_unknown_keep_their_max_parallelism(terminal: Terminal) -> None:
    case = GOLDEN / "kryo-2.3-rocksdb"
    savepoints = [
        folder.parent
        for folder in GOLDEN.glob("*/expected.jsonl")
        if folder.parent.name.startswith(("legacy-enum", "legacy-tuple-pojo", "kryo"))
    ]
    assert case in savepoints
    options = ("--json", "--parallelism", "1-4", "--max-parallelism", "128-160")
    for savepoint in savepoints:
        for operator in json.loads(terminal.says("advise", savepoint, *options))["operators"]:
            assert len(operator["choices"]) == 4
            if operator["max_parallelism_fixed"]:
                assert {choice["flattest"]["max_parallelism"] for choice in operator["choices"]} == {128}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--parallelism", "many"], "1-64"),
        (["--parallelism", "0"], "found 0"),
        (["--parallelism", "8-4"], "ascends"),
        (["--parallelism", "200", "--max-parallelism", "128"], "at least the parallelism 200"),
        (["--max-parallelism", "32769"], "32768"),
        (["--heaviest", "-1"], "--heaviest"),
        (["--by", "weight"], "weight"),
        (["--by", "bytes", "--rates", "/rates"], "found --by and --rates: each says what counts as load"),
        (["--by", "keys", "--changed-since", "/old"], "found --by and --changed-since"),
        (["--rates", "/rates", "--changed-since", "/old"], "found --rates and --changed-since"),
        (["--operator", "nobody"], "nobody"),
    ],
)
def test_nonsense_is_one_line(terminal: Terminal, arguments: list[str], hint: str) -> None:
    code, error = terminal.fails("advise", LEGACY, *arguments)
    assert code == 2
    assert hint in error


def test_an_operator_without_keyed_state_is_named(terminal: Terminal) -> None:
    case = GOLDEN / "several-operators-2.3-hashmap"
    (operator, *_) = [one["id"] for one in terminal.inspects(case)["operators"] if one["keyed"] is None]
    code, error = terminal.fails("advise", case, "--operator", operator)
    assert code == 2
    assert "no keyed state" in error


def test_it_says_what_a_new_job_would_get(terminal: Terminal) -> None:
    assert "new job" not in terminal.says("advise", LEGACY, "--operator", "main")
    for asked in ("86", "84-86"):
        said = terminal.says("advise", LEGACY, "--operator", "main", "--parallelism", asked)
        (line,) = (line for line in said.splitlines() if "new job" in line)
        assert line == (
            "A new job gets max parallelism 256 at parallelism 86, unless it sets another one; one that starts from "
            "this savepoint gets 128."
        )
