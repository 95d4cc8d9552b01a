"""The made-up savepoint: the same every time, in key groups that its keys' hashes say, aged as it was told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import UsageError
from flinkstate.hashing.key_groups import assign_to_key_group, ranges
from flinkstate.reading.entries import Entry, read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.ttl import expired
from stateferry.demo import IS_MIGRATED_STATE, MAIN_STATE, NEW_MAIN_STATE, OPERATOR, DemoState, write_demo_savepoint
from tests.support.samples import java_hash

DAY = 86_400_000
NOW = 1_700_000_000_000
STATE = DemoState(keys=500, entries=4, migrated=0.3, ttl=30 * DAY, now=NOW, parallelism=3, max_parallelism=128, seed=1)


def written(folder: Path, state: DemoState) -> Savepoint:
    write_demo_savepoint(str(folder), state)
    return Savepoint.open(str(folder))


def entries(savepoint: Savepoint, state: str) -> list[Entry]:
    operator = savepoint.operator(OPERATOR)
    return list(read_entries(savepoint, operator, savepoint.state(operator, state)))


def timestamps(found: list[Entry]) -> list[int]:
    return [entry.timestamp for entry in found if isinstance(entry.timestamp, int)]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_same_request_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, state in (("one", STATE), ("again", STATE), ("other", replace(STATE, seed=2))):
        written(tmp_path / name, state)
    assert contents(tmp_path / "one") == contents(tmp_path / "again")
    assert contents(tmp_path / "one") != contents(tmp_path / "other")


@pytest.mark.part
@pytest.mark.parametrize("max_parallelism", [1, 128, 129, 32768])
def test_every_key_is_in_the_group_and_the_file_that_its_hash_says(tmp_path: Path, max_parallelism: int) -> None:
    parallelism = min(3, max_parallelism)
    state = replace(STATE, max_parallelism=max_parallelism, parallelism=parallelism)
    savepoint = written(tmp_path / "demo", state)
    for name in (MAIN_STATE, NEW_MAIN_STATE, IS_MIGRATED_STATE):
        found = entries(savepoint, name)
        assert found
        for entry in found:
            assert entry.key_group == assign_to_key_group(java_hash(entry.key), max_parallelism)
    handles = [subtask.managed_keyed for subtask in savepoint.metadata.operators[0].subtasks]
    assert tuple(handle.range for handle in handles if handle is not None) == ranges(max_parallelism, parallelism)


def test_each_key_waits_or_was_moved(tmp_path: Path) -> None:
    savepoint = written(tmp_path / "demo", STATE)
    waiting = [entry.key for entry in entries(savepoint, MAIN_STATE)]
    moved = [entry.key for entry in entries(savepoint, IS_MIGRATED_STATE)]
    assert sorted(waiting + moved) == [f"customer-{number:06d}" for number in range(500)]
    assert len(moved) == STATE.migrated_keys == 150
    rows = [(entry.key, entry.user_key) for entry in entries(savepoint, NEW_MAIN_STATE)]
    assert len(rows) == len(set(rows)) == 4 * len(moved)
    assert {key for key, _ in rows} == set(moved)
    for entry in entries(savepoint, MAIN_STATE):
        assert len(dict(entry.value)) == 4


def test_ages_reach_a_little_beyond_the_time_to_live(tmp_path: Path) -> None:
    savepoint = written(tmp_path / "demo", STATE)
    blobs = timestamps(entries(savepoint, MAIN_STATE))
    rows = timestamps(entries(savepoint, NEW_MAIN_STATE)) + timestamps(entries(savepoint, IS_MIGRATED_STATE))
    assert len(blobs) == 350
    assert NOW - 32 * DAY < min(blobs) < NOW - 30 * DAY
    assert max(blobs) > NOW - DAY
    assert 0 < sum(expired(timestamp, 30 * DAY, NOW) for timestamp in blobs) < 35
    assert NOW - 3 * DAY <= min(rows) <= max(rows) <= NOW


@pytest.mark.parametrize(
    "change",
    [
        {"keys": 0},
        {"entries": 0},
        {"keys": 1, "entries": 20_000},
        {"migrated": 0.0},
        {"migrated": 1.0},
        {"ttl": 2**63 - 1},
        {"ttl": 1, "now": 0},
        {"compressed": True},
        {"parallelism": 128},
    ],
)
def test_the_odd_ends_of_what_may_be_asked_for(tmp_path: Path, change: dict[str, int]) -> None:
    state = replace(STATE, **change)  # type: ignore[arg-type]
    steps: list[int] = []
    write_demo_savepoint(str(tmp_path / "demo"), state, steps.append)
    savepoint = Savepoint.open(str(tmp_path / "demo"))
    moved = state.migrated_keys
    assert len(entries(savepoint, MAIN_STATE)) == state.keys - moved
    assert len(entries(savepoint, NEW_MAIN_STATE)) == moved * state.entries
    assert len(entries(savepoint, IS_MIGRATED_STATE)) == moved
    assert sum(steps) == state.size


def test_a_large_map_has_each_user_key_once(tmp_path: Path) -> None:
    savepoint = written(tmp_path / "demo", replace(STATE, keys=2, entries=12_345, migrated=0.5))
    (blob,) = entries(savepoint, MAIN_STATE)
    assert len(dict(blob.value)) == 12_345
    assert len({entry.user_key for entry in entries(savepoint, NEW_MAIN_STATE)}) == 12_345


@pytest.mark.parametrize(
    "change",
    [{"keys": -1}, {"entries": -1}, {"migrated": 1.1}, {"ttl": 0}, {"now": -1}, {"seed": -1}, {"parallelism": 129}],
)
def test_what_can_t_be_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="expected"):
        replace(STATE, **change)  # type: ignore[arg-type]
