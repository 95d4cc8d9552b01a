"""Savepoints of Flink 1.13 to 1.19 and 2.0 to 2.2: what is read in them, and the verdict on them against real Flink."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flinkstate.reading.reader import Savepoint, operator_id
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome, StateVerdict
from stateferry.verdict.versions import Line
from tests.flink import judge
from tests.flink.harness import FlinkError, FlinkHarness, Made, by_state, restored_by_state
from tests.flink.jobs import Job
from tests.flink.judge import Started, answer, check_restored, upgraded
from tests.flink.make_earlier_golden import (
    BREAKING,
    CASES,
    EARLIER,
    RESTORING,
    held_by,
    is_of_flink_2,
    job_with,
    lines,
    whole_job,
)
from tests.flink.make_golden import SAVEPOINTS

_ALL = sorted(folder.name for folder in EARLIER.iterdir())
NAMES = [name for name in _ALL if not is_of_flink_2(name)]
OF_FLINK_2 = [name for name in _ALL if is_of_flink_2(name)]
_LINES = {"1.20.0": Line.ONE, "2.3.0": Line.TWO}


def case_of(name: str) -> tuple[str, bool]:
    """The backend, and whether there are states that break in Flink 2."""
    backend, _, breaking = CASES[name.partition("-")[2]]
    return backend, breaking


def test_there_are_savepoints_of_each_version() -> None:
    versions = {name.partition("-")[0] for name in _ALL}
    assert versions == {"1.13", "1.14", "1.15", "1.16", "1.17", "1.18", "1.19", "2.0", "2.1", "2.2"}
    native = {name.partition("-")[0] for name in _ALL if "native" in name}
    assert native == versions - {"1.13", "1.14"}


@pytest.mark.matrix(most=8)
@pytest.mark.parametrize("name", _ALL)
def test_all_that_they_hold_is_read(name: str) -> None:
    savepoint = Savepoint.open(str(EARLIER / name))
    _, breaking = case_of(name)
    all_lines = held_by(name) if is_of_flink_2(name) else lines(breaking)
    wanted = [one for one in all_lines if one["operator"] != "plain"]
    held = {
        (uid, state.name)
        for uid in ("main", "windows")
        for state in savepoint.keyed_states(savepoint.operator(uid))
        if any((one["operator"], one["state"]) == (uid, state.name) for one in wanted)
    }
    assert held == {(one["operator"], one["state"]) for one in wanted}
    for uid, state in sorted(held):
        out = answer("dump", str(EARLIER / name), "--operator", uid, "--state", state)
        found = [json.loads(line) for line in out.splitlines()]
        of_state = [one for one in wanted if (one["operator"], one["state"]) == (uid, state)]
        assert _counted(found) == _counted(of_state), (uid, state)


def _counted(entries: list[dict[str, Any]]) -> Counter[str]:
    """Without what isn't known: when a value that expires was used last."""
    kept = ("key", "namespace", "key_group", "user_key", "value")
    texts = []
    for one in entries:
        rest = {name: _unordered(value) for name, value in one.items() if name in kept}
        if "value" not in one:
            rest["timestamp"] = one["timestamp"]
        texts.append(json.dumps(rest, sort_keys=True))
    return Counter(texts)


def _unordered(value: Any) -> Any:
    """A map by Kryo is shown as its entries, in an order of their own."""
    if isinstance(value, list) and value and all(isinstance(one, list) and len(one) == 2 for one in value):
        return dict(value)
    return value or None if isinstance(value, dict | list) else value


def said(name: str, target: Line) -> list[StateVerdict]:
    return list(verdicts(Savepoint.open(str(EARLIER / name)), Asked(target)))


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_names_what_breaks(name: str) -> None:
    _, breaking = case_of(name)
    ends = {one.state: one.finding.outcome for one in said(name, Line.TWO) if one.finding.outcome.breaks}
    wanted = {"hinted": Outcome.REFUSED, "hash": Outcome.WRONG, "uuid": Outcome.FAILS}
    assert ends == (wanted if breaking else {})
    assert {one.finding.outcome for one in said(name, Line.ONE)} == {Outcome.RESTORES}


@pytest.mark.parametrize("name", OF_FLINK_2)
def test_those_of_flink_2_restore_in_flink_2_alone(name: str) -> None:
    assert {one.finding.outcome for one in said(name, Line.TWO)} == {Outcome.RESTORES}
    assert {one.finding.outcome for one in said(name, Line.ONE)} == {Outcome.REFUSED}


@pytest.mark.parametrize("name", ["old-1.12-rocksdb", "old-ttl-snappy-1.12-rocksdb"])
def test_of_a_version_that_was_not_tried_nothing_is_said(name: str) -> None:
    found = list(verdicts(Savepoint.open(str(SAVEPOINTS / name)), Asked(Line.TWO)))
    assert found
    assert {one.finding.outcome for one in found} == {Outcome.UNKNOWN}
    assert {one.finding.reason.partition(",")[0] for one in found} == {"not tried with Flink 1.11 to 1.15"}


_SAMPLE = ("1.15-rocksdb", "1.17-native-rocksdb", "1.19-hashmap")


@pytest.mark.matrix(most=2)
@pytest.mark.flink
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", _LINES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.full) for name in NAMES]
)
def test_flink_restores_what_the_verdict_says(name: str, version: str, started: Started) -> None:
    flink, target = started(version, False), _LINES[version]
    backend, breaking = case_of(name)
    ends = {one.state: one.finding for one in said(name, target)}
    states = [*RESTORING.values(), *(BREAKING.values() if breaking else ())]
    whole = [state for state in states if ends[state.name].outcome is Outcome.RESTORES]
    job = job_with(whole, backend)
    restored = flink.restore(EARLIER / name, job)
    known = {state.name for state in states}
    kept = {state.name for state in whole}
    wanted = [one for one in lines(breaking) if one["state"] not in known or one["state"] in kept]
    assert restored_by_state(restored, job) == by_state(wanted)
    for state in states:
        if ends[state.name].outcome.breaks:
            outcome, exception = observed(flink, EARLIER / name, job_with([state], backend), state.name)
            assert outcome in ends[state.name].possible, exception


@pytest.mark.flink
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _SAMPLE[:1] else pytest.mark.full) for name in NAMES]
)
def test_flink_2_reads_what_earlier_versions_wrote_after_the_upgrade(
    name: str, started: Started, tmp_path: Path
) -> None:
    backend, breaking = case_of(name)
    if not breaking:
        pytest.skip("it has nothing by Kryo")
    declared = {"main/hinted": "Map<String, Long>"}
    target = upgraded(EARLIER / name, tmp_path, declared=declared, no_timers=True)
    states = [*RESTORING.values(), *BREAKING.values()]
    job = job_with(states, backend)
    assert restored_by_state(started("2.3.0", False).restore(target, job), job) == by_state(lines(breaking))


_OF_2 = [pytest.param(name, marks=() if name == "2.2-rocksdb" else pytest.mark.full) for name in OF_FLINK_2]


@pytest.mark.flink
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _OF_2)
def test_flink_2_3_restores_what_earlier_flink_2_wrote_and_flink_1_refuses_it(name: str, started: Started) -> None:
    job, made = whole_job(case_of(name)[0]), Made(EARLIER / name, held_by(name))
    check_restored(started("2.3.0", False), made.path, job, made, moved=False)
    outcome, exception = judge.observed(started("1.20.0", False), job, made)
    (refused,) = {one.finding.exception for one in said(name, Line.ONE)}
    assert outcome is Outcome.REFUSED
    assert refused is not None
    assert refused in exception


@pytest.mark.flink
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _OF_2)
def test_flink_1_reads_what_earlier_flink_2_wrote_after_the_way_back(
    name: str, started: Started, tmp_path: Path
) -> None:
    job, made = whole_job(case_of(name)[0]), Made(EARLIER / name, held_by(name))
    target = upgraded(made.path, tmp_path, to="flink-1.20", all_by_kryo_5=True)
    check_restored(started("1.20.0", False), target, job, made, moved=False)


def observed(flink: FlinkHarness, savepoint: Path, job: Job, state: str) -> tuple[Outcome, str]:
    """What Flink does with one state."""
    try:
        restored = flink.restore(savepoint, job)
    except FlinkError as error:
        text = str(error)
        return (Outcome.REFUSED if "StateMigrationException" in text else Outcome.FAILS), text
    found = restored_by_state(restored, job).get(("main", state))
    wanted = by_state(one for one in lines(breaking=True) if one["state"] == state)["main", state]
    return (Outcome.RESTORES if found == wanted else Outcome.WRONG), ""


def test_operators_are_found_by_their_uids() -> None:
    ids = {operator.hex_id for operator in Savepoint.open(str(EARLIER / "1.15-rocksdb")).metadata.operators}
    assert {operator_id(uid).hex() for uid in ("main", "windows", "plain")} <= ids
