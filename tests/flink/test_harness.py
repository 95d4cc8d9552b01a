"""Flink against itself: what it was given to hold is what it shows after a restore, so that tests may rely on both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.flink.harness import FlinkError, FlinkHarness, by_state, restored_by_state
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, State
from tests.flink.judge import Make
from tests.flink.scenarios import COVERING, SCENARIOS, windows_read_back

pytestmark = pytest.mark.flink
Flink = Callable[[str], FlinkHarness]


# Of all scenarios, `test_rewrite.py` restores what is rewritten to the same bytes.
_TRIED = ("windows", "operator-state")


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if one.scenario in _TRIED else pytest.mark.full) for name, one in COVERING.items()],
)
def test_what_a_job_wrote_is_what_it_holds_after_a_restore(name: str, made: Make, flink: Flink) -> None:
    case = COVERING[name]
    source = made(case.version, case.job)
    job = windows_read_back(case.job) if case.scenario == "windows" else case.job
    restored = flink(case.version).restore(source.path, job)
    assert restored_by_state(restored, job) == by_state(source.lines)
    assert restored.problems == []
    assert restored.timers_missed == 0
    timers = [line for line in source.lines if line["state"].startswith("_timer_state/")]
    due = [t for t in timers if "processing" not in t["state"] or t["timestamp"] < 3_000_000_000_000]
    assert by_state(restored.fired) == by_state(due)


@pytest.mark.parametrize("version", VERSIONS)
def test_another_parallelism_finds_the_same(version: str, flink: Flink, tmp_path: Path) -> None:
    job = replace(SCENARIOS["operator-state"], max_parallelism=None)
    made = flink(version).make(job, tmp_path / "savepoint")
    for parallelism in (1, 5):
        restored = flink(version).restore(made.path, replace(job, parallelism=parallelism))
        assert restored_by_state(restored, job) == by_state(made.lines)


@pytest.mark.parametrize("scenario", ["legacy-string-long-ttl", "kinds-in-strings", "windows"])
def test_a_newer_flink_with_the_other_backend_finds_the_same(scenario: str, flink: Flink, tmp_path: Path) -> None:
    job = SCENARIOS[scenario]
    made = flink("1.20.0").make(job, tmp_path / "savepoint")
    newer = replace(windows_read_back(job) if scenario == "windows" else job, backend="hashmap")
    assert restored_by_state(flink("2.3.0").restore(made.path, newer), newer) == by_state(made.lines)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_restore_says_why_it_is_refused(version: str, flink: Flink, tmp_path: Path) -> None:
    job = SCENARIOS["legacy-string-long"]
    made = flink(version).make(job, tmp_path / "savepoint")
    with pytest.raises(FlinkError, match="Max parallelism mismatch"):
        flink(version).restore(made.path, replace(job, max_parallelism=256))


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_no_job_would_find_by_their_key_are_noticed(version: str, flink: Flink, tmp_path: Path) -> None:
    """The key's bytes are changed where they lie, so that the row stays in a key group that isn't the key's."""
    job = replace(SCENARIOS["legacy-untouched"], inline_threshold=0, parallelism=1)
    made = flink(version).make(job, tmp_path / "savepoint")
    line = next(line for line in made.lines if line["key"].isascii() and 3 <= len(line["key"]) < 20)
    written = bytes([line["key_group"], len(line["key"]) + 1]) + line["key"].encode()
    data_file = next(file for file in made.path.iterdir() if file.name != "_metadata")
    data = data_file.read_bytes()
    # The first entry of a key group, or the last: such a key carries the flag that ends its state.
    places = [written, bytes([written[0] | 0x80]) + written[1:]]
    found = next(place for place in places if data.count(place) == 1)
    data_file.write_bytes(data.replace(found, found[:-1] + b"~"))
    restored = flink(version).restore(made.path, job)
    assert [problem["problem"] for problem in restored.problems] == ["found by scan but not by key"]


@pytest.mark.parametrize("version", VERSIONS)
def test_timestamps_of_flinks_own_ttl_can_be_read_as_stamps(version: str, flink: Flink, tmp_path: Path) -> None:
    """A state that Flink's TTL wrote, and one with known stamps, are the same bytes: each reads the other."""
    stamped, by_flink = SCENARIOS["legacy-string-long-ttl"], SCENARIOS["legacy-ttl-by-flink"]
    made = flink(version).make(by_flink, tmp_path / "by-flink")
    read = flink(version).restore(made.path, _with_ttl(by_flink, "stamped"))
    assert len(read.lines) == len(made.lines)
    between = {json.dumps([t["key"], t.get("user_key"), t["state"]]): t["timestamp_between"] for t in made.lines}
    for line in read.lines:
        first, last = between[json.dumps([line["key"], line.get("user_key"), line["state"]])]
        assert first <= line["timestamp"] <= last
    made = flink(version).make(stamped, tmp_path / "stamped")
    lasting = _with_ttl(stamped, "config", ttl_millis=2**62)
    plain = [{k: v for k, v in line.items() if k != "timestamp"} for line in made.lines]
    assert restored_by_state(flink(version).restore(made.path, lasting), lasting) == by_state(plain)


def _with_ttl(job: Job, ttl: str, ttl_millis: int = State.ttl_millis) -> Job:
    return replace(
        job,
        operators=tuple(
            replace(o, states=tuple(replace(s, ttl=ttl, ttl_millis=ttl_millis) for s in o.states))
            for o in job.operators
        ),
    )


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_other_versions_of_the_metadata_and_absolute_paths_restore(version: str, flink: Flink, tmp_path: Path) -> None:
    job = replace(SCENARIOS["operator-state"], inline_threshold=0)
    made = flink(version).make(job, tmp_path / "savepoint")
    for metadata_version in range(3, 7 if version.startswith("2") else 5):
        for absolute in (False, True):
            copy = tmp_path / f"copy-{metadata_version}-{absolute}"
            shutil.copytree(made.path, copy)
            target = copy / "_metadata"
            flink(version).rewrite_metadata(made.path, target, version=metadata_version, absolute=absolute)
            assert target.read_bytes()[4:8] == metadata_version.to_bytes(4, "big")
            assert (f"file:{made.path}".encode() in target.read_bytes()) is absolute
            assert restored_by_state(flink(version).restore(copy, job), job) == by_state(made.lines)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_canonical_savepoint_can_be_made_too(version: str, flink: Flink, tmp_path: Path) -> None:
    incremental = {"execution.checkpointing.incremental": "true"}
    job = replace(SCENARIOS["legacy-string-long"], settings=incremental)
    native = flink(version).make(job, tmp_path / "native", format_="NATIVE")
    assert restored_by_state(flink(version).restore(native.path, job), job) == by_state(native.lines)
    checkpoint = flink(version).make(job, tmp_path / "checkpoint", format_="CHECKPOINT")
    assert (checkpoint.path / "_metadata").read_bytes()[:4] == bytes.fromhex("4960672d")


@pytest.mark.parametrize("version", VERSIONS)
def test_samples_say_what_their_bytes_mean(version: str, flink: Flink) -> None:
    found = flink(version).samples("Tuple2<Integer,Boolean>", 20)
    assert found.length == 5
    assert b"TupleSerializerSnapshot" in found.snapshot
    for data, value in found.values:
        assert [int.from_bytes(data[:4], "big", signed=True), bool(data[4])] == value
