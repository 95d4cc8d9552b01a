"""`stateferry where` says of keys that Flink wrote what Flink itself did with them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.hashing.key_groups import murmur, range_for_operator_index
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.values.codecs import decode_whole, encode
from stateferry.cli import main
from stateferry.look.balance.key_place import KeyFinder
from tests.cli.test_cli import CANONICAL, GOLDEN, LEGACY, expected
from tests.support.terminal import Line, Terminal

MOST_KEYS = 12


def key_text(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def keyed_lines(case: str) -> dict[str, list[Line]]:
    lines: dict[str, list[Line]] = {}
    for line in expected(GOLDEN / case):
        if "key" in line:
            lines.setdefault(line["operator"], []).append(line)
    return lines


@pytest.mark.matrix(most=20)
@pytest.mark.part
@pytest.mark.parametrize("case", sorted({*CANONICAL, "native-2.3-rocksdb"}))
def test_keys_are_where_flink_wrote_them(case: str) -> None:
    savepoint = Savepoint.open(str(GOLDEN / case))
    for uid, lines in keyed_lines(case).items():
        operator = savepoint.operator(operator_id(uid).hex())
        keys = list(dict.fromkeys(key_text(line["key"]) for line in lines))
        for text in [*keys[: MOST_KEYS // 2], *keys[-MOST_KEYS // 2 :]]:
            own = [line for line in lines if key_text(line["key"]) == text]
            finder = KeyFinder(savepoint, operator, text)
            found_in, states = finder.rows()
            rows = {state.state: state.rows for state in states}
            assert rows == Counter(line["state"] for line in own)
            if finder.hash_code is None:
                with pytest.raises(RefusedError, match="--look"):
                    finder.place()
            else:
                assert finder.place().key_group == own[0]["key_group"]
            place = finder.place(found_in)
            assert {place.key_group} == {line["key_group"] for line in own}
            assert place.bytes is not None


def test_the_place_is_that_of_the_key_groups_bytes(terminal: Terminal) -> None:
    line = expected(LEGACY)[0]
    facts = json.loads(terminal.says("where", LEGACY, "--operator", "main", line["key"], "--json"))
    today = facts["today"]
    assert today["key_group"] == line["key_group"]
    assert (facts["after"], facts["states"]) == (None, None)
    data, at = Path(today["file"]).read_bytes(), today["offset"]
    # A key group begins with the id of a state; the first entry's key begins with the number of the key group. Bit 0x80
    # says whether it is the last one.
    assert data[at + 6] & 0x7F == line["key_group"]
    assert data[at + today["bytes"] - 2 : at + today["bytes"]] == b"\xff\xff"


def test_another_layout_has_flinks_subtask_and_range(terminal: Terminal) -> None:
    arguments = ("where", LEGACY, "--operator", "main", "hello", "--parallelism", "7", "--max-parallelism", "300")
    facts = json.loads(terminal.says(*arguments, "--json"))
    assert (facts["key"], facts["key_type"], facts["hash_code"]) == ("hello", "String", 99162322)
    assert facts["murmur"] == murmur(99162322)
    assert (facts["today"]["key_group"], facts["today"]["max_parallelism"]) == (35, 128)
    after = facts["after"]
    assert (after["key_group"], after["file"]) == (murmur(99162322) % 300, None)
    assert after["subtask"] == after["key_group"] * 7 // 300
    owned = range_for_operator_index(300, 7, after["subtask"])
    assert after["key_groups"] == [owned.start, owned.end]
    text = terminal.says(*arguments, "--look")
    assert f"{after['key_group']} of 300" in text
    assert "No state of the operator has this key." in text


def test_another_parallelism_alone_reads_the_same_bytes(terminal: Terminal) -> None:
    key = expected(LEGACY)[0]["key"]
    facts = json.loads(terminal.says("where", LEGACY, "--operator", "main", key, "--parallelism", "8", "--json"))
    today, after = facts["today"], facts["after"]
    assert after["subtask"] == today["key_group"] * 8 // 128
    assert [after[name] for name in ("file", "offset")] == [today[name] for name in ("file", "offset")]


def test_a_negative_number_is_a_key() -> None:
    assert main(["where", str(GOLDEN / "legacy-integer-row-ttl-1.20-hashmap"), "--operator", "main", "-5"]) == 0


@pytest.mark.parametrize(
    ("case", "arguments", "code", "hint"),
    [
        ("legacy-integer-row-ttl-1.20-hashmap", ["five"], 2, "such as 42"),
        ("legacy-integer-row-ttl-1.20-hashmap", ["3000000000"], 2, "no value of the type Integer"),
        ("legacy-tuple-pojo-2.3-rocksdb", ["a"], 2, "as JSON"),
        ("legacy-tuple-pojo-2.3-rocksdb", ["[1]"], 2, "as a JSON array of"),
        ("legacy-2.3-rocksdb", ["a", "--parallelism", "0"], 2, "found 0"),
        ("legacy-2.3-rocksdb", ["a", "--max-parallelism", "40000"], 2, "found 40000"),
        ("legacy-2.3-rocksdb", ["a", "--parallelism", "129"], 2, "at most the max parallelism 128"),
    ],
)
def test_nonsense_is_one_line(terminal: Terminal, case: str, arguments: list[str], code: int, hint: str) -> None:
    found, error = terminal.fails("where", GOLDEN / case, "--operator", "main", *arguments)
    assert found == code
    assert hint in error


def test_an_operator_without_keyed_state_is_named(terminal: Terminal) -> None:
    case = GOLDEN / "several-operators-2.3-hashmap"
    (operator, *_) = [one["id"] for one in terminal.inspects(case)["operators"] if one["keyed"] is None]
    code, error = terminal.fails("where", case, "--operator", operator, "a")
    assert code == 2
    assert "no keyed state" in error


def test_a_key_that_is_read_is_written_as_flink_does() -> None:
    savepoint = Savepoint.open(str(LEGACY))
    finder = KeyFinder(savepoint, savepoint.operator("main"), '"quoted"')
    assert finder.data == encode(finder.type, '"quoted"')
    assert decode_whole(finder.type, finder.data) == '"quoted"'
