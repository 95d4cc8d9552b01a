"""Real Flink restores what lazy runs write, in a job that has all three states, and goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flink.harness import FlinkHarness, Line, Made
from tests.flink.jobs import Job, State
from tests.flink.judge import Change, Make, check_restored, dumped, keyed_lines
from tests.flink.scenarios import legacy
from tests.support.legacy_states import FLAG, LEGACY, NEW
from tests.support.verified_runs import verified

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]

Flink = Callable[[str], FlinkHarness]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def options_of(job: Job) -> dict[str, object]:
    """Some maps are empty. Timestamps are drawn to the end of time, as no clock would tell them."""
    accepted: dict[str, object] = {"accept_empty": 0.2}
    if not job.operators[0].states[0].ttl:
        return accepted
    return accepted | {"ttl_ms": "30d", "keep_expired": True, "clock_tolerance_ms": 2**63 - 1}


def with_flag(job: Job, ttl: str | None) -> Job:
    """The job, with a flag state."""
    operator = job.operators[0]
    states = (*(state for state in operator.states if state.name != FLAG), State(FLAG, "Boolean", ttl=ttl))
    return replace(job, operators=(replace(operator, states=states), *job.operators[1:]))


def without(job: Job, *names: str) -> Job:
    operator = job.operators[0]
    states = tuple(state for state in operator.states if state.name not in names)
    return replace(job, operators=(replace(operator, states=states), *job.operators[1:]))


def expected(lines: Iterable[Line], left: Container[Any]) -> list[Line]:
    """What the job is to find if the blobs of the keys `left` stay, and the others are moved."""
    found = []
    for line in lines:
        if line["state"] != LEGACY or line["key"] in left:
            found.append(line)
            continue
        shared = {name: value for name, value in line.items() if name != "value"}
        entries = line["value"].items() if isinstance(line["value"], dict) else line["value"]
        found += [shared | {"state": NEW, "user_key": key, "value": value} for key, value in entries]
        found.append(shared | {"state": FLAG, "value": True})
    return found


# Whether the source has a flag state, and in which layout the result is.
CASES = [
    pytest.param("1.20.0", "rocksdb", "stamped", True, {}, id="1.20-rocksdb-ttl"),
    pytest.param("2.3.0", "hashmap", None, False, {"max_parallelism": 300}, id="2.3-hashmap-no-flag-300"),
    pytest.param("2.3.0", "rocksdb", "stamped", False, {"output_format": "native"}, id="2.3-rocksdb-no-flag-native"),
    pytest.param("1.20.0", "hashmap", None, True, {"parallelism": 2}, id="1.20-hashmap", marks=pytest.mark.full),
    pytest.param("1.20.0", "rocksdb", None, False, {}, id="1.20-rocksdb-no-flag", marks=pytest.mark.full),
    pytest.param("2.3.0", "hashmap", "stamped", False, {}, id="2.3-hashmap-no-flag-ttl", marks=pytest.mark.full),
]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend", "ttl", "has_flag", "layout"), CASES)
def test_a_job_with_all_three_states_goes_on_from_run_to_run(
    version: str,
    backend: str,
    ttl: str | None,
    has_flag: bool,
    layout: dict[str, object],
    made: Make,
    flink: Flink,
    tmp_path: Path,
) -> None:
    job = replace(legacy("Map{0-9}<String,Long>", keys=60, ttl=ttl, migrated=0.3 if has_flag else 0.0), backend=backend)
    if not has_flag:
        job = without(job, FLAG)
    source = made(version, job)
    first = tmp_path / "first"
    verified(source.path, first, lazy=True, share=0.3, **layout, **options_of(job))
    left = {line["key"] for line in dumped(first, "main", LEGACY)}
    blobs = {line["key"] for line in keyed_lines(source.lines) if line["state"] == LEGACY}
    assert 0 < len(left) < len(blobs)
    started = with_flag(Change(max_parallelism=layout.get("max_parallelism")).job(job), ttl)  # type: ignore[arg-type]
    if "parallelism" in layout:
        started = replace(started, parallelism=2)
    moved = "max_parallelism" in layout
    check_restored(flink(version), first, started, Made(first, expected(source.lines, left)), moved=moved)

    # The job has gone on, and the next run starts from its savepoint.
    carried = flink(version).carry(first, started, format_="CANONICAL")
    second = tmp_path / "second"
    verified(carried, second, lazy=True, share=0.3, largest_first=True, **options_of(job))
    still_left = {line["key"] for line in dumped(second, "main", LEGACY)}
    assert still_left < left
    check_restored(flink(version), second, started, Made(second, expected(source.lines, still_left)), moved=moved)

    # The last one has the new state alone.
    last = tmp_path / "last"
    verified(flink(version).carry(second, started, format_="CANONICAL"), last, **options_of(job))
    found = [line for line in expected(source.lines, set()) if line["state"] != FLAG]
    check_restored(flink(version), last, without(started, LEGACY, FLAG), Made(last, found), moved=moved)
