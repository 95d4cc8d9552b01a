"""Substitute keys, and how measured keys are spread by them, against plain counting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import RefusedError, UsageError
from flinkstate.hashing.key_groups import murmur
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, Scalar, TupleType
from stateferry.look.balance.java import java_class
from stateferry.look.balance.java_literals import java_literal
from stateferry.look.balance.key_weights import measure_keys
from stateferry.look.balance.layouts import KeyGroupLayout
from stateferry.look.balance.substitutes import TYPES, rebalanced_keys, substitutes
from tests.cli.test_cli import GOLDEN, LEGACY
from tests.support.keyed_blobs import key_group_of, write_blobs
from tests.support.terminal import Terminal

SIZES = dict.fromkeys(range(400), 0) | {1000: 60, 1001: 45, 1002: 30}


@given(st.integers(1, 60), st.integers(0, 700), st.sampled_from(sorted(TYPES)))
def test_substitutes_are_the_smallest_that_reach_each_subtask(parallelism: int, more: int, name: str) -> None:
    layout, type_ = KeyGroupLayout(parallelism, parallelism + more), TYPES[name]
    keys = rebalanced_keys(layout, type_)
    assert {type(key) for key in keys} == {str if type_ is Scalar.STRING else int}
    candidates = range(max(map(int, keys)) + 1)
    own = [str(number) if type_ is Scalar.STRING else number for number in candidates]
    routed = [key_group_of(type_, key, layout.max_parallelism) * parallelism // layout.max_parallelism for key in own]
    assert list(keys) == [own[routed.index(subtask)] for subtask in range(parallelism)]


@pytest.mark.parametrize("layout", [KeyGroupLayout(4, 3), KeyGroupLayout(0, 3), KeyGroupLayout(1, 40_000)])
def test_impossible_layouts_are_refused(layout: KeyGroupLayout) -> None:
    with pytest.raises(UsageError, match="found"):
        rebalanced_keys(layout)


@pytest.mark.parametrize("parallelism", [1, 4, 7])
def test_heavy_keys_are_pinned_and_the_rest_fills_the_room(tmp_path: Path, parallelism: int) -> None:
    savepoint = Savepoint.open(str(write_blobs(tmp_path / "savepoint", SIZES, 2, 128)))
    weights = measure_keys(savepoint, savepoint.operator("main"), "bytes", heaviest=3)
    assert weights is not None
    found = substitutes(weights, KeyGroupLayout(parallelism, 128), Scalar.INTEGER)
    # A single subtask needs no heavy keys of its own.
    assert found.pinned == ((("1000", 0), ("1001", 1), ("1002", 2)) if parallelism > 1 else ())
    assert (len(found.last_hashes), found.last_hashes[-1]) == (parallelism, 2**31 - 1)
    pinned = {int(key): subtask for key, subtask in found.pinned}
    loads = [0] * parallelism
    for key, entries in SIZES.items():
        hashed = murmur(key)
        place = next(subtask for subtask, last in enumerate(found.last_hashes) if hashed <= last)
        loads[pinned.get(key, place)] += 8 + 1 + 4 + 1 + 4 + entries * 19
    assert found.loads is not None
    assert found.loads.by_subtask.tolist() == loads
    assert found.loads.worst_over_mean < 1.3


def test_a_subtask_whose_heavy_key_fills_it_gets_no_other_keys(tmp_path: Path) -> None:
    sizes = {0: 2000, **dict.fromkeys(range(1, 200), 1)}
    savepoint = Savepoint.open(str(write_blobs(tmp_path / "savepoint", sizes, 2, 128)))
    weights = measure_keys(savepoint, savepoint.operator("main"), "bytes", heaviest=1)
    assert weights is not None
    found = substitutes(weights, KeyGroupLayout(4, 128), Scalar.LONG)
    assert found.pinned == (("0", 0),)
    assert found.last_hashes[0] == -1
    assert found.loads is not None
    assert found.loads.by_subtask[0] == weights.heaviest[0].bytes


def test_tuples_are_spread_too(terminal: Terminal) -> None:
    case = GOLDEN / "legacy-tuple-pojo-2.3-rocksdb"
    facts = json.loads(terminal.says("advise", case, "--substitutes", "Long", "--json"))
    assert (
        facts["load"]["worst_over_mean"]
        < json.loads(terminal.says("advise", case, "--json"))["operators"][0]["today"]["bytes"]["worst_over_mean"]
    )
    assert facts["heaviest_keys"][0]["java"].startswith('org.apache.flink.api.java.tuple.Tuple2.of("')
    assert facts["partition_to_key"] == {str(subtask): key for subtask, key in enumerate(facts["substitutes"])}
    assert facts["key_to_partition"] == {str(key): subtask for subtask, key in enumerate(facts["substitutes"])}
    source = terminal.says("advise", case, "--java", "Own")
    assert "substitute(org.apache.flink.api.java.tuple.Tuple2<String, Long> key)" in source


def test_more_keys_get_places_as_long_as_that_helps(tmp_path: Path) -> None:
    sizes = {number: 100 + number for number in range(23)}
    savepoint = Savepoint.open(str(write_blobs(tmp_path / "savepoint", sizes, 2, 128)))
    few, all_ = (measure_keys(savepoint, savepoint.operator("main"), "bytes", heaviest=most) for most in (1, 1000))
    assert few is not None
    assert all_ is not None
    found = substitutes(all_, KeyGroupLayout(8, 128), Scalar.LONG)
    assert len(found.pinned) == 23
    assert found.loads is not None
    assert found.own_loads is not None
    assert found.loads.worst_over_mean < 1.1 < found.own_loads.worst_over_mean


def test_substitutes_that_make_things_worse_are_refused(tmp_path: Path, terminal: Terminal) -> None:
    layout = KeyGroupLayout(2, 2)
    # One key for each subtask, and without a place of their own both keys get the same one.
    keys = [
        next(key for key in range(100) if key_group_of(Scalar.INTEGER, key, 2) == group and murmur(key) < 2**30)
        for group in (0, 1)
    ]
    path = write_blobs(tmp_path / "savepoint", dict.fromkeys(keys, 50), 2, 2)
    savepoint = Savepoint.open(str(path))
    weights = measure_keys(savepoint, savepoint.operator("main"), "bytes", heaviest=0)
    assert weights is not None
    with pytest.raises(RefusedError, match=r"2\.00 instead of 1\.00"):
        substitutes(weights, layout, Scalar.LONG)
    code, error = terminal.fails("advise", path, "--java", "Own", "--heaviest", "0")
    assert (code, "less even" in error) == (3, True)
    assert "HEAVY" in terminal.says("advise", path, "--java", "Own")


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (Scalar.STRING, 'a"\\日', '"a\\"\\\\\\u65e5"'),
        (Scalar.LONG, -(2**63), "-9223372036854775808L"),
        (Scalar.SHORT, -3, "(short) -3"),
        (Scalar.BYTE, 7, "(byte) 7"),
        (Scalar.BOOLEAN, True, "true"),
        (Scalar.CHARACTER, "ü", "(char) 252"),
        (Scalar.DOUBLE, 1.5, None),
        (Scalar.INTEGER, None, None),
        (TupleType((Scalar.LONG, Scalar.STRING), "org.apache.flink.api.java.tuple.Tuple2"), [1, None], None),
        (TupleType((Scalar.LONG,), "org.example.Case"), [1], None),
    ],
)
def test_literals(type_: FlinkType, value: object, expected: str | None) -> None:
    assert java_literal(type_, value) == expected


def test_the_table_has_every_subtask(terminal: Terminal) -> None:
    text = terminal.says("advise", LEGACY, "--operator", "main", "--substitutes", "String", "--parallelism", "20")
    for subtask, key in enumerate(rebalanced_keys(KeyGroupLayout(20, 128), Scalar.STRING)):
        (row,) = [line for line in text.splitlines() if line.startswith(f"│ {subtask:>7} ")]
        assert row.split("│")[2].strip() == key
    assert "by substitutes: worst over mean" in text


def test_a_class_may_be_in_a_package(tmp_path: Path) -> None:
    savepoint = Savepoint.open(str(write_blobs(tmp_path / "savepoint", SIZES, 2, 128)))
    weights = measure_keys(savepoint, savepoint.operator("main"), "bytes")
    assert weights is not None
    source = java_class(substitutes(weights, KeyGroupLayout(4, 128), Scalar.LONG), "org.example.Own")
    assert source.startswith("package org.example;\n\nimport java.util.Map;\n")
    assert "public final class Own {" in source


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--substitutes", "Double"], "Double"),
        (["--java", "not a class"], "not a class"),
        (["--java", "Own;"], "Own;"),
        (["--java", "Own", "--json"], "isn't JSON"),
        (["--substitutes", "Long", "--parallelism", "1-4"], "one --parallelism"),
        (["--substitutes", "Long", "--parallelism", "2000", "--max-parallelism", "4000"], "at most 1024"),
        (["--substitutes", "Long", "--parallelism", "200"], "at most the max parallelism 128"),
    ],
)
def test_nonsense_is_one_line(terminal: Terminal, arguments: list[str], hint: str) -> None:
    code, error = terminal.fails("advise", LEGACY, "--operator", "main", *arguments)
    assert code == 2
    assert hint in error


def test_one_operator_is_asked_for(terminal: Terminal) -> None:
    code, error = terminal.fails("advise", GOLDEN / "several-operators-2.3-hashmap", "--java", "Own")
    assert code == 2
    assert "--operator" in error
