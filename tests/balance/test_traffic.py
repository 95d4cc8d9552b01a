"""Load by traffic: rates that a file tells, and what changed between two savepoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkstate.serializers.types import Scalar
from stateferry.cli import main
from tests.cli.test_cli import GOLDEN
from tests.support.keyed_blobs import key_group_of, write_blobs
from tests.support.terminal import Terminal

SIZES = dict.fromkeys(range(40), 3)


def advice(terminal: Terminal, *arguments: object) -> dict[str, Any]:
    (found,) = json.loads(terminal.says("advise", *map(str, arguments), "--json"))["operators"]
    return dict(found)


def groups_of(weights: dict[int, int]) -> list[int]:
    groups = [0] * 128
    for key, weight in weights.items():
        groups[key_group_of(Scalar.INTEGER, key, 128)] += weight
    return groups


def test_rates_count_in_the_key_groups_of_their_keys(tmp_path: Path, terminal: Terminal) -> None:
    savepoint = write_blobs(tmp_path / "savepoint", SIZES, 4, 128)
    rates = {3: 500, 7: 20, 39: 1, 5: 0}
    (tmp_path / "rates").write_text("".join(f"{key}\t{rate}\n" for key, rate in rates.items()))
    found = advice(terminal, savepoint, "--rates", tmp_path / "rates", "--heaviest", "2")
    assert found["by"] == "rates"
    assert found["key_groups"]["rates"] == groups_of(rates)
    assert [(key["key"], key["weight"]) for key in found["heaviest_keys"]] == [(3, 500), (7, 20)]
    assert found["one_key_is_too_heavy"]
    assert "rates, of a fair share" in terminal.says("advise", savepoint, "--rates", tmp_path / "rates")


def test_keys_of_the_file_without_state_are_counted(
    tmp_path: Path, terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    savepoint = write_blobs(tmp_path / "savepoint", SIZES, 4, 128)
    (tmp_path / "rates").write_text("3\t5\n4000\t9\n")
    assert main(["advise", str(savepoint), "--rates", str(tmp_path / "rates")]) == 0
    assert "note: 1 of the 2 keys" in capsys.readouterr().err


def test_rates_of_which_no_key_has_state_are_an_error(tmp_path: Path, terminal: Terminal) -> None:
    savepoint = write_blobs(tmp_path / "savepoint", SIZES, 4, 128)
    (tmp_path / "rates").write_text("4000\t9\n331\t5\n")
    for more in ([], ["--substitutes", "Long"], ["--heaviest", "0"]):
        code, error = terminal.fails("advise", savepoint, "--rates", tmp_path / "rates", *more)
        assert code == 2
        assert (
            "expected rates of keys of operator main, found 2 that have no state in this savepoint, such as 331"
            in error
        )
        if "--heaviest" not in more:
            assert "There are: 40 of the type Integer, such as " in error
    (tmp_path / "rates").write_text("4000\t9\n390\t5\n")
    code, error = terminal.fails("advise", savepoint, "--rates", tmp_path / "rates", "--heaviest", "40")
    assert "Did you mean 39? There are: 40 of the type Integer" in error


def test_changes_are_the_keys_whose_rows_are_new_or_others(tmp_path: Path, terminal: Terminal) -> None:
    earlier = write_blobs(tmp_path / "earlier", SIZES, 2, 128)
    later = write_blobs(tmp_path / "later", SIZES | {3: 4, 8: 0, 77: 1}, 4, 128)
    found = advice(terminal, later, "--changed-since", earlier)
    assert found["by"] == "changes"
    assert found["key_groups"]["changes"] == groups_of({3: 1, 8: 1, 77: 1})
    assert advice(terminal, later, "--changed-since", later)["key_groups"]["changes"] == [0] * 128


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("3 500\n", "line 1: expected a key, a tab and a whole number"),
        ("3\t5\n4\t-5\n", "line 2: expected a key, a tab and a whole number"),
        ("3\t5\n3\t6\n", "line 2: expected each key once"),
        ("x\t5\n", "expected a value of the type Integer"),
        ("", "expected lines of a key"),
    ],
)
def test_a_file_that_is_none_of_rates(tmp_path: Path, terminal: Terminal, text: str, hint: str) -> None:
    savepoint = write_blobs(tmp_path / "savepoint", SIZES, 4, 128)
    (tmp_path / "rates").write_text(text)
    code, error = terminal.fails("advise", savepoint, "--rates", tmp_path / "rates")
    assert code == 2
    assert hint in error


def test_what_cannot_be_compared_is_refused(tmp_path: Path, terminal: Terminal) -> None:
    savepoint = write_blobs(tmp_path / "savepoint", SIZES, 4, 128)
    other = write_blobs(tmp_path / "other", SIZES, 4, 64)
    for arguments, hint in [
        (["--changed-since", other], "expected the earlier savepoint with max parallelism 128"),
        (["--changed-since", other, "--rates", other], "found --rates and --changed-since"),
        (["--rates", tmp_path / "none"], "expected a file of rates"),
    ]:
        code, error = terminal.fails("advise", savepoint, *map(str, arguments))
        assert code == 2
        assert hint in error
    code, error = terminal.fails("advise", GOLDEN / "several-operators-2.3-hashmap", "--rates", str(tmp_path / "none"))
    assert (code, "expected --operator for --rates" in error) == (2, True)
