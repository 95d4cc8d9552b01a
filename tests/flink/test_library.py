"""What the public API writes: real Flink restores it, and finds what was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flinkstate
from flinkstate import ListType, MapType, NewState, OpenSavepoint, Scalar
from flinkstate.serializers.type_parts import opaque_parts
from tests.flink.harness import FlinkHarness, Line, Made, by_state
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import Make, check_restored
from tests.flink.scenarios import BACKENDS, COVERING, SCENARIOS

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]
# A subclass that one subtask alone describes can't be written in the file of another.
CASES = {name: case for name, case in COVERING.items() if "subclass" not in case.scenario}
TELLING = ("kinds-ttl", "kinds-in-windows-ttl", "kinds-in-strings", "composites-ttl", "legacy-string-nullable-ttl")
SAMPLE = [name for name, case in CASES.items() if case.scenario in TELLING and case.version == VERSIONS[-1]]


def own_entries(savepoint: OpenSavepoint) -> dict[tuple[str, str], Any]:
    """All states that can be given as entries, each by its own."""
    out: dict[tuple[str, str], Any] = {}
    for operator in savepoint.operators:
        for state in operator.states:
            of = state._described
            parts = [part for part in (of.key, of.namespace, of.user_key, of.value) if part is not None]
            if state.kind != "TIMERS" and not any(map(opaque_parts, parts)):
                out[operator.id, state.name] = state.entries()
    return out


def check_written_from_entries(name: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    case = CASES[name]
    source = made(case.version, case.job)
    opened = flinkstate.open(str(source.path))
    opened.copy(str(tmp_path / "copy"), own_entries(opened))
    check_restored(flink(case.version), tmp_path / "copy", case.job, source, moved=False)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_job_finds_states_that_were_written_from_entries(name: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    check_written_from_entries(name, made, flink, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if name not in SAMPLE])
def test_so_does_any_other_job(name: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    check_written_from_entries(name, made, flink, tmp_path)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", ["legacy-string-long-ttl", "kinds"])
def test_native_state_stays_native(scenario: str, version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    job = replace(SCENARIOS[scenario], backend="rocksdb")
    source = made(version, job, "NATIVE")
    opened = flinkstate.open(str(source.path))
    opened.copy(str(tmp_path / "copy"), own_entries(opened))
    assert flinkstate.open(str(tmp_path / "copy")).format == "native"
    check_restored(flink(version), tmp_path / "copy", job, source, moved=False)


def entry_lines(savepoint: Path, operator: str, states: list[str]) -> list[Line]:
    """The entries as the harness shows them."""
    names = ("key", "user_key", "value", "timestamp", "key_group")
    return [
        {"operator": operator, "state": state}
        | {name: found for name in names if (found := getattr(entry, name)) is not None}
        for state in states
        for entry in flinkstate.open(str(savepoint)).operator(operator).state(state).entries()
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_savepoint_is_one_of_a_job(version: str, backend: str, flink: Flink, tmp_path: Path) -> None:
    stamp = 1_959_200_000_000
    given: dict[str, list[Line]] = {
        "count": [{"key": f"key-{number}", "value": number} for number in range(400)],
        "list": [{"key": "key-1", "value": ["a", "b", "\u00e4"], "timestamp": [stamp, stamp + 1, stamp + 2]}],
        "map": [
            {"key": f"key-{number}", "user_key": item, "value": [item, -item], "timestamp": stamp + item}
            for number in range(50)
            for item in range(4)
        ],
    }
    states = [
        NewState("count", "VALUE", Scalar.LONG, entries=given["count"]),
        NewState("list", "LIST", Scalar.STRING, ttl=True, entries=given["list"]),
        NewState("map", "MAP", ListType(Scalar.LONG), Scalar.INTEGER, ttl=True, entries=given["map"]),
        NewState("blob", "VALUE", MapType(Scalar.STRING, Scalar.LONG), entries=[{"key": "key-7", "value": {}}]),
    ]
    target = tmp_path / "new"
    flinkstate.write(str(target), "counter", Scalar.STRING, states, parallelism=2, max_parallelism=300)
    declared = (
        State("count", "Long"),
        State("list", "String", kind="LIST", ttl="stamped"),
        State("map", "Map<Integer,List<Long>>", kind="MAP", ttl="stamped"),
        State("blob", "Map<String,Long>"),
    )
    operator = Operator("counter", key="String", states=declared)
    job = Job((operator,), parallelism=3, max_parallelism=300, backend=backend)
    restored = flink(version).restore(target, job)
    assert restored.problems == []
    held = [{"operator": "counter", "state": state, **one} for state, entries in given.items() for one in entries]
    held.append({"operator": "counter", "state": "blob", "key": "key-7", "value": {}})
    without_groups = [{name: part for name, part in line.items() if name != "key_group"} for line in restored.lines]
    assert by_state(without_groups) == by_state(held)
    shown = [line for line in restored.lines if line["state"] != "blob"]
    assert by_state(shown) == by_state(entry_lines(target, "counter", list(given)))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_goes_on_with_the_entries_that_replaced_its_own(
    version: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    job = SCENARIOS["legacy-string-long"]
    source = made(version, job)
    opened = flinkstate.open(str(source.path))
    new = [{"key": f"new-{number}", "user_key": "x", "value": number} for number in range(300)]
    opened.copy(str(tmp_path / "copy"), {("main", "newMainState"): new})
    lines = [line for line in source.lines if line["state"] != "newMainState"]
    lines += entry_lines(tmp_path / "copy", "main", ["newMainState"])
    assert len(lines) > 300
    check_restored(flink(version), tmp_path / "copy", job, Made(tmp_path / "copy", lines), moved=False)
