"""The way back: a savepoint of the new job goes through a run in reverse; real Flink starts the old job from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateferry.cli import main
from tests.flink.harness import FlinkHarness, Line, Made
from tests.flink.jobs import Job, State
from tests.flink.judge import Change, Make, check_restored, with_parallelism
from tests.flink.test_pipeline import ANY_TIME, FLAG, LEGACY, NEW, OPTIONS, inspected_format, whole
from tests.support.in_process import without_spark

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]
TYPE = "Map{0-9}<String,String?>"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)


def with_states(job: Job, *states: State) -> Job:
    """The job with these states of the maps in its first operator, and all else as it is."""
    first, *others = job.operators
    untouched = tuple(state for state in first.states if state.name not in (LEGACY, NEW, FLAG))
    return replace(job, operators=(replace(first, states=(*states, *untouched)), *others))


def new_job(max_parallelism: int, ttl: str | None) -> Job:
    """The job as it is after a migration, with a flag that it still has for some keys."""
    rows = State(NEW, TYPE, kind="MAP", ttl=ttl)
    flag = State(FLAG, "Boolean", ttl=ttl, share=(0.5, 1.0))
    return with_states(whole(max_parallelism, ttl=ttl), rows, flag)


def old_job(job: Job) -> Job:
    return with_states(job, State(LEGACY, TYPE, ttl=job.operators[0].states[0].ttl))


def expected(lines: Sequence[Line]) -> list[Line]:
    """What the old job is to find."""
    blobs: dict[str, dict[str, Any]] = {}
    found = []
    for line in lines:
        if line["state"] == NEW:
            parts = ("state", "user_key", "value", "timestamp")
            shared = {name: value for name, value in line.items() if name not in parts}
            blob = blobs.setdefault(json.dumps(shared, sort_keys=True), {**shared, "state": LEGACY, "value": {}})
            blob["value"][line["user_key"]] = line["value"]
            if "timestamp" in line:
                blob["timestamp"] = max(blob.get("timestamp", line["timestamp"]), line["timestamp"])
        elif line["state"] != FLAG:
            found.append(line)
    return [*found, *blobs.values()]


def back(source: Path, target: Path, job: Job, *options: object) -> None:
    ttl: tuple[object, ...] = ("--ttl", "30d", "--now", 0, *ANY_TIME) if job.operators[0].states[0].ttl else ()
    command = ["run", "--reverse", "--savepoint", source, "--target", target, *OPTIONS, *ttl, *options]
    assert main([str(part) for part in command]) == 0


# Version, backend, time to live, format of the source, what is asked for: parallelism, max parallelism, format.
CASES = {
    "rocksdb, fewer subtasks": ("1.20.0", "rocksdb", None, "CANONICAL", 2, None, "canonical"),
    "hashmap, TTL, max 256": ("2.3.0", "hashmap", "stamped", "CANONICAL", None, 256, "canonical"),
    "native to native, TTL": ("2.3.0", "rocksdb", "stamped", "NATIVE", 5, None, "native"),
    "checkpoint to canonical, TTL, max 300": ("1.20.0", "rocksdb", "stamped", "CHECKPOINT", None, 300, "canonical"),
    "hashmap, more subtasks": ("1.20.0", "hashmap", None, "CANONICAL", 5, None, "canonical"),
    "hashmap, TTL": ("1.20.0", "hashmap", "stamped", "CANONICAL", None, None, "canonical"),
    "rocksdb, TTL": ("2.3.0", "rocksdb", "stamped", "CANONICAL", None, None, "canonical"),
    "native to native, max 256": ("1.20.0", "rocksdb", None, "NATIVE", None, 256, "native"),
}
_TRIED = tuple(CASES)[:3]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in _TRIED else pytest.mark.full) for name in CASES]
)
def test_the_old_job_finds_every_entry_and_all_else_untouched(
    case: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    version, backend, ttl, format_, parallelism, to_max, into = CASES[case]
    job = replace(new_job(128, ttl), backend=backend)
    if format_ == "CANONICAL":
        source = made(version, job)
    else:
        settings = {"execution.checkpointing.incremental": "true"}
        job = replace(job, settings=settings, inline_threshold=0)
        source = flink(version).make_in_place(job, format_=format_)
    wanted: tuple[object, ...] = () if parallelism is None else ("--parallelism", parallelism)
    wanted += () if to_max is None else ("--max-parallelism", to_max)
    back(source.path, tmp_path / "old", job, "--format", into, *wanted)
    assert inspected_format(tmp_path / "old") == into
    started = old_job(job) if to_max is None else Change(max_parallelism=to_max).job(old_job(job))
    if parallelism is not None:
        started = with_parallelism(started, parallelism)
    found = Made(tmp_path / "old", expected(source.lines))
    assert any(line["state"] == LEGACY and None in line["value"].values() for line in found.lines)
    check_restored(flink(version), tmp_path / "old", started, found, moved=to_max is not None)


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
def test_maps_by_kryo_go_back_into_a_native_savepoint_with_another_max_parallelism(
    version: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    job = replace(new_job(128, None), backend="rocksdb", inline_threshold=0)
    old = with_states(job, State(LEGACY, "HashMap{0-9}<String,String?>"))
    source, like = flink(version).make_in_place(job, format_="NATIVE"), made(version, old)
    back(source.path, tmp_path / "old", job, "--format", "native", "--max-parallelism", 300, "--like", like.path)
    assert inspected_format(tmp_path / "old") == "native"
    found = Made(tmp_path / "old", expected(source.lines))
    assert any(line["state"] == LEGACY and len(line["value"]) > 1 for line in found.lines)
    check_restored(flink(version), tmp_path / "old", Change(max_parallelism=300).job(old), found, moved=True)
