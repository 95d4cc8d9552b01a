"""Savepoints of real Flink, read: entries and facts are what the job that wrote them held."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flinkstate.reading.reader import operator_id
from tests.flink.harness import Line, Made, by_state
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import (
    Make,
    declared,
    dump_of,
    dumped,
    inspected,
    keyed_lines,
    keyed_names,
    refusal,
    shown_type,
    timer_names,
)
from tests.flink.scenarios import BACKENDS, COVERING, SCENARIOS, Case, values

pytestmark = pytest.mark.flink

# These are on both backends in both versions; the others take the backends in turn.
_FULL_MATRIX = (
    *(name for name in SCENARIOS if name.startswith("legacy-")),
    *("kinds", "kinds-ttl", "kinds-in-windows-ttl", "kinds-in-strings", "windows", "operator-state", "composites-ttl"),
)


def _cases() -> Mapping[str, Case]:
    out = dict(COVERING)
    for name in _FULL_MATRIX:
        for version in VERSIONS:
            for backend in BACKENDS:
                out[f"{name}-{version}-{backend}"] = Case(version, name, replace(SCENARIOS[name], backend=backend))
    return out


CASES = _cases()
_COVERING_OF = {(case.version, case.scenario): case for case in COVERING.values()}


def unreadable(case: Case) -> Mapping[str, str]:
    """The states whose values the format leaves to Kryo or doesn't describe, with the class that is named."""
    if case.scenario == "kryo":
        return dict.fromkeys(("opaque", "opaque-in-map"), r"pojo\.Opaque \(serialized by Kryo\)")
    if case.scenario == "kryo-registered":
        classes = {"opaque": "Opaque", "protobuf": "StringValue", "thrift-in-map": "ThriftText"}
        return {state: rf"\.{name} \(serialized by Kryo\)" for state, name in classes.items()}
    if case.job.backend == "hashmap" and "subclass" in case.scenario and case.scenario != "all-subclasses-registered":
        return {state.name: "(Cat|Dog): a subclass of" for operator in case.job.operators for state in operator.states}
    return {}


@pytest.mark.matrix(most=6)
@pytest.mark.parametrize("name", CASES)
def test_every_entry_is_what_flink_held(name: str, made: Make) -> None:
    case = CASES[name]
    savepoint = made(case.version, case.job)
    expected = by_state(keyed_lines(savepoint.lines))
    refused = unreadable(case)
    for operator in declared(case.job).operators:
        for state in keyed_names(operator):
            if state in refused:
                assert re.search(refused[state], refusal(*dump_of(savepoint.path, operator.uid, state)))
                continue
            lines = _without_late_stamps(dumped(savepoint.path, operator.uid, state), savepoint.lines)
            found = by_state(lines).get((operator.uid, state), Counter())
            assert found == expected.get((operator.uid, state), Counter())


def _without_late_stamps(lines: list[Line], made: list[Line]) -> list[Line]:
    """Flink's own clock stamps some entries: between the times before and after they were written."""
    between = {_place(line): line["timestamp_between"] for line in made if "timestamp_between" in line}
    out = []
    for line in lines:
        if (span := between.get(_place(line))) is not None:
            assert span[0] <= line["timestamp"] <= span[1]
            line = {name: value for name, value in line.items() if name != "timestamp"}
        out.append(line)
    return out


def _place(line: Line) -> str:
    return repr([line["operator"], line["state"], line.get("key"), line.get("namespace"), line.get("user_key")])


@pytest.mark.matrix(most=15)
@pytest.mark.parametrize("name", CASES)
def test_facts_are_those_of_the_job(name: str, made: Make) -> None:
    case = CASES[name]
    savepoint = made(case.version, case.job)
    operators = inspected(savepoint.path)
    for operator in declared(case.job).operators:
        facts = operators.get(operator_id(operator.uid).hex())
        if facts is None:
            assert operator.uid == "stateless"
            continue
        if case.version.startswith("2"):
            prefix = "Source: " if operator.type == "source" else ""
            assert (facts["uid"], facts["name"]) == (operator.uid, prefix + (operator.name or operator.uid))
        _check_layout(facts, operator, case.job)
        assert _operator_states(facts) == _expected_operator_states(operator, savepoint)
        assert facts["raw_bytes"] == _raw_bytes(operator, savepoint)
        _check_keyed(facts, operator, savepoint)


def _raw_bytes(operator: Operator, made: Made) -> int:
    """Each text has its length before it."""
    own = (line for line in made.lines if line["operator"] == operator.uid)
    return sum(2 + len(line["value"]) for line in own if line["state"].startswith("raw-"))


def _check_layout(facts: Mapping[str, Any], operator: Operator, job: Job) -> None:
    assert facts["parallelism"] == (operator.parallelism or job.parallelism)
    # With none set, Flink's default for so few subtasks.
    assert facts["max_parallelism"] == (operator.max_parallelism or job.max_parallelism or 128)
    assert facts["finished_subtasks"] == operator.finished


def _operator_states(facts: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    # What a source keeps of itself is its own.
    own = ("SourceReaderState",)
    states = (state for state in facts["operator_states"] if state["name"] not in own)
    return {state["name"]: (state["mode"], state["elements"]) for state in states}


def _expected_operator_states(operator: Operator, made: Made) -> dict[str, tuple[str, int]]:
    if operator.finished and all(line["operator"] != operator.uid for line in made.lines):
        return {}
    lines = Counter((line["operator"], line["state"]) for line in made.lines)
    return {state.name: (state.mode, lines[operator.uid, state.name]) for state in operator.operator_states}


def _check_keyed(facts: Mapping[str, Any], operator: Operator, made: Made) -> None:
    if operator.key is None:
        assert facts["keyed"] is None
        return
    keyed = facts["keyed"]
    assert keyed["key_type"] == shown_type(operator.key)
    states = {state["name"]: state for state in keyed["states"]}
    assert set(states) == set(keyed_names(operator))
    for state in operator.states:
        _check_state(states[state.name], state)
    for name in timer_names(operator):
        namespace = _namespace(operator.timers.namespace if operator.timers else None)
        assert states[name]["type"] == f"Timer<{shown_type(operator.key)},{namespace}>"
        assert (states[name]["kind"], states[name]["namespace_type"]) == ("TIMERS", namespace)
        assert (states[name]["ttl"], states[name]["reason"]) == (False, "timers")
    for name, found in states.items():
        groups = Counter(
            line["key_group"] for line in made.lines if (line["operator"], line["state"]) == (operator.uid, name)
        )
        assert found["entries"] == groups.total()
        assert found["key_groups"]["empty"] == facts["max_parallelism"] - len(groups)
        largest = found["key_groups"]["largest"]
        assert (largest and largest["entries"]) == (groups[largest["key_group"]] if groups else None)


def _namespace(expression: str | None) -> str:
    return "VoidNamespace" if expression is None else shown_type(expression)


def _check_state(found: Mapping[str, Any], state: State) -> None:
    type_ = shown_type(state.type)
    assert found["kind"] == state.kind
    assert found["type"] == (f"List<{type_}>" if state.kind == "LIST" else type_)
    assert found["namespace_type"] == _namespace(state.namespace)
    assert found["ttl"] is (state.ttl is not None)
    assert found["migratable"] is (state.kind == "VALUE" and type_.startswith("Map<") and "Thrift" not in type_)
    assert found["migratable"] is (found["reason"] is None)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_migrated_says_why(version: str, made: Make) -> None:
    def reasons(scenario: str) -> dict[str, str | None]:
        facts = inspected(made(version, _COVERING_OF[version, scenario].job).path)
        return {
            state["name"]: state["reason"]
            for operator in facts.values()
            if operator["keyed"]
            for state in operator["keyed"]["states"]
        }

    legacy = reasons("legacy-string-long")
    assert legacy == {
        "mainState": None,
        "newMainState": "already a MapState",
        "isMigratedState": "a ValueState<Boolean>, not of a map",
    }
    kryo = reasons("kryo")
    assert kryo["plain"] is None
    assert kryo["opaque-in-map"] is None
    assert (kryo["opaque"] or "").startswith("its value is stateferry.flink.pojo.Opaque, serialized by Kryo")
    registered = reasons("kryo-registered")["thrift-in-map"] or ""
    assert re.search(r"pojo\.ThriftText \(serialized by Kryo with .*\.TBaseSerializer\)", registered)
    kinds = reasons("kinds")
    assert kinds["value-state"] is None
    for kind in ("LIST", "REDUCING", "AGGREGATING"):
        assert kinds[f"{kind.lower()}-state"] == f"{kind} state, not a ValueState"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_inside_a_pojo_is_left_to_kryo_by_flink_1_only(version: str, made: Make) -> None:
    savepoint = made(version, values(("Map<String,Tagged>",)))
    (state,) = inspected(savepoint.path)[operator_id("values").hex()]["keyed"]["states"]
    if version.startswith("2"):
        assert state["reason"] is None
        assert by_state(dumped(savepoint.path, "values", state["name"])) == by_state(savepoint.lines)
        return
    # Its entries become rows, as the parts by Kryo have an end; what they are no header says.
    assert state["migratable"] is True
    assert "java.util.List (serialized by Kryo)" in refusal(*dump_of(savepoint.path, "values", state["name"]))
