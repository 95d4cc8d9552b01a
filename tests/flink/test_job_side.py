"""The class that people copy into their jobs, in real Flink: what it reads, writes and moves, with and without us."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stateferry.basics.durations import now_ms
from stateferry.runs.guards.name_guard import WrongStateError
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.flink.harness import FlinkHarness, Line
from tests.flink.judge import dumped, raw_entries
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.verified_runs import verified

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]

Flink = Callable[[str], FlinkHarness]
WHERE = [
    pytest.param("1.20.0", "rocksdb", id="1.20-rocksdb"),
    pytest.param("2.3.0", "hashmap", id="2.3-hashmap"),
    pytest.param("1.20.0", "hashmap", id="1.20-hashmap", marks=pytest.mark.full),
    pytest.param("2.3.0", "rocksdb", id="2.3-rocksdb", marks=pytest.mark.full),
]
KEYS = [f"customer {number}" for number in range(24)]
ITEMS = [f"item {number}" for number in range(8)]
HOUR = 3_600_000
UserMap = dict[str, int]
# A map by Kryo may be null.
NULL: Any = None


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def call(key: str, name: str, **more: object) -> dict[str, object]:
    return {"key": key, "name": name, **more}


@dataclass
class Model:
    """What the job must find: plain maps by key, and the keys that it has touched since all were blobs."""

    maps: dict[str, UserMap] = field(default_factory=dict)
    calls: list[dict[str, object]] = field(default_factory=list)
    found: list[Line] = field(default_factory=list)

    def do(self, key: str, name: str, **more: object) -> None:
        """Adds a call to the script, and what it finds."""
        map_ = self.maps.setdefault(key, {})
        found: Line = {"call": len(self.calls)}
        user_key, value, other = more.get("user_key"), more.get("value"), more.get("map")
        match name:
            case "get":
                found["found"] = map_.get(str(user_key))
            case "contains":
                found["found"] = str(user_key) in map_
            case "isEmpty":
                found["found"] = not map_
            case "count":
                found["found"] = 2 * len(map_)
            case "entries" | "iterator":
                found["map"] = dict(map_)
            case "value":
                found["map"] = dict(map_) or None
            case "put":
                map_[str(user_key)] = int(str(value))
            case "putAll" | "update":
                if name == "update":
                    map_.clear()
                assert isinstance(other, dict)
                map_.update(other)
            case "remove":
                map_.pop(str(user_key), None)
            case "clear":
                map_.clear()
        self.calls.append(call(key, name, **more))
        self.found.append(found)

    def at_random(self, drawn: random.Random, keys: list[str], names: tuple[str, ...]) -> None:
        """Any call for each key, and what is there after it."""
        for key in keys:
            name = drawn.choice(names)
            map_ = {item: drawn.randrange(100) for item in drawn.sample(ITEMS, drawn.randrange(1, 5))}
            more: dict[str, object] = {}
            if name in ("get", "contains", "put", "remove"):
                more["user_key"] = drawn.choice(ITEMS)
            if name == "put":
                more["value"] = drawn.randrange(100)
            if name in ("putAll", "update"):
                more["map"] = map_
            self.do(key, name, **more)
            if drawn.random() < 0.5:
                self.do(key, drawn.choice(("value", "entries", "iterator", "count")))

    def run(self, flink: FlinkHarness, shape: str, backend: str, savepoint: Path | None, **more: object) -> Path:
        """Has a job do the script, and compares what it has found."""
        left, found = flink.job_side({"shape": shape, "backend": backend, "calls": self.calls, **more}, savepoint)
        assert found == self.found
        self.calls, self.found = [], []
        return left


CALLS = ("get", "contains", "isEmpty", "count", "entries", "iterator", "value", "put", "putAll", "update", "remove")


def old_job(flink: FlinkHarness, backend: str, **more: object) -> tuple[Model, Path]:
    """A job that keeps whole maps has filled them."""
    model, drawn = Model(), random.Random(1)
    for key in KEYS:
        items = drawn.sample(ITEMS, drawn.randrange(1, 6))
        model.maps[key] = {item: drawn.randrange(100) for item in items}
    calls = [call(key, "update", map=map_) for key, map_ in model.maps.items()]
    left, _ = flink.job_side({"shape": "old", "backend": backend, "calls": calls, **more}, None)
    return model, left


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend"), WHERE)
def test_job_and_runs_move_keys_in_turn_and_nobody_sees_a_difference(
    version: str, backend: str, flink: Flink, tmp_path: Path
) -> None:
    model, savepoint = old_job(flink(version), backend)
    drawn, blobs = random.Random(2), [len(KEYS)]
    for night in range(3):
        # The job touches some keys, new ones among them, and the run moves a tenth.
        model.at_random(drawn, [*drawn.sample(KEYS, 6), f"new {night}"], (*CALLS, "clear"))
        savepoint = model.run(flink(version), "wrapped", backend, savepoint)
        options = {"largest_first": night == 1, "lazy": True, "share": 0.1, "now": now_ms()}
        verified(savepoint, tmp_path / f"{night}", **options)
        savepoint = tmp_path / f"{night}"
        blobs.append(len(dumped(savepoint, "main", LEGACY)))
    assert all(later < earlier for earlier, later in pairwise(blobs))
    assert blobs[-1] > 0
    # What was moved isn't read from the old map any more: the job finds it by its flag.
    for key in KEYS:
        model.do(key, "value")
    savepoint = model.run(flink(version), "wrapped", backend, savepoint)
    assert dumped(savepoint, "main", LEGACY) == []
    # The last run drops the old state and the flag, and the job goes on with the rows alone.
    verified(savepoint, tmp_path / "last", now=now_ms())
    for key in model.maps:
        model.do(key, "entries")
    model.run(flink(version), "rows", backend, tmp_path / "last")


@pytest.mark.parametrize(("version", "backend"), WHERE)
def test_a_key_is_moved_by_whatever_touches_it_and_by_nothing_else(version: str, backend: str, flink: Flink) -> None:
    model, savepoint = old_job(flink(version), backend)
    names = [name for name in (*CALLS, "clear") if name not in ("put", "putAll", "update", "remove")]
    calls = [call(key, name, user_key="item 1") for key, name in zip(KEYS, names, strict=False)]
    calls += [call(KEYS[12], "put", user_key="item 1", value=7), call(KEYS[13], "remove", user_key="item 1")]
    calls += [call(KEYS[14], "putAll", map={"item 1": 7}), call(KEYS[15], "update", map={"item 1": 7})]
    calls += [call(key, "there") for key in KEYS]
    _, found = flink(version).job_side({"shape": "wrapped", "backend": backend, "calls": calls}, savepoint)
    there = dict(zip(KEYS, found[-len(KEYS) :], strict=True))
    touched = {str(one["key"]) for one in calls[: -len(KEYS)]}
    for key in KEYS:
        assert there[key]["blob"] is (key not in touched)
        assert there[key]["flag"] is (key in touched and key != KEYS[names.index("clear")])
        if key not in touched:
            assert there[key]["map"] == {}
    # User keys that left the map are gone, in an update of the whole map as well.
    assert there[KEYS[13]]["map"] == {item: n for item, n in model.maps[KEYS[13]].items() if item != "item 1"}
    assert there[KEYS[14]]["map"] == model.maps[KEYS[14]] | {"item 1": 7}
    assert there[KEYS[15]]["map"] == {"item 1": 7}


@pytest.mark.parametrize(("version", "backend"), WHERE)
def test_a_run_keeps_timestamps_and_the_job_renews_them(
    version: str, backend: str, flink: Flink, tmp_path: Path
) -> None:
    model, savepoint = old_job(flink(version), backend, ttl_millis=HOUR)
    stamps = {line["key"]: line["timestamp"] for line in dumped(savepoint, "main", LEGACY)}
    assert stamps.keys() == set(KEYS)
    verified(savepoint, tmp_path / "new", lazy=True, share=0.5, ttl_ms=HOUR, now=now_ms())
    left = {line["key"] for line in dumped(tmp_path / "new", "main", LEGACY)}
    assert 0 < len(left) < len(KEYS)
    before = now_ms()
    for key in KEYS:
        model.do(key, "value")
    savepoint = model.run(flink(version), "wrapped", backend, tmp_path / "new", ttl_millis=HOUR)
    for state in (NEW, FLAG):
        for line in dumped(savepoint, "main", state):
            by_the_job = line["key"] in left
            assert (line["timestamp"] >= before) is by_the_job
            assert by_the_job or line["timestamp"] == stamps[line["key"]]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend"), WHERE)
@pytest.mark.parametrize("emptied", [1, 5], ids=["one key", "many keys"])
def test_a_job_that_empties_maps_is_told_from_a_wrong_name(
    version: str, backend: str, emptied: int, flink: Flink, tmp_path: Path
) -> None:
    model, savepoint = old_job(flink(version), backend)
    for key in KEYS[:20]:
        model.do(key, "put", user_key="item 0", value=7)
    # `clear` would clear the flag, too.
    for key in KEYS[:emptied]:
        for item in list(model.maps[key]):
            model.do(key, "remove", user_key=item)
    savepoint = model.run(flink(version), "wrapped", backend, savepoint)
    flagged = {line["key"] for line in dumped(savepoint, "main", FLAG)}
    with_rows = {line["key"] for line in dumped(savepoint, "main", NEW)}
    assert (len(flagged), len(flagged - with_rows)) == (20, emptied)
    options: dict[str, Any] = {"now": now_ms()}
    told = r"20 keys are flagged as moved by isMigratedState, .* but another isn't in"
    with pytest.raises(WrongStateError, match=told):
        verified(savepoint, tmp_path / "wrong", new="another", **options)
    if emptied > 1:
        with pytest.raises(WrongStateError, match=r"newMainState has no rows of 5 of them \(25\.0 %\)"):
            verified(savepoint, tmp_path / "asked", **options)
        options["accept_empty"] = 0.25
    facts = verified(savepoint, tmp_path / "moved", **options).facts(SnapshotFacts)
    assert facts is not None
    (found,) = facts.flags or ()
    assert (found.flagged, found.with_rows, found.without_rows) == (20, 20 - emptied, emptied)
    assert set(found.named_without_rows) <= {f'"{key}"' for key in KEYS[:emptied]}
    for key in KEYS:
        model.do(key, "entries")
    model.run(flink(version), "rows", backend, tmp_path / "moved")


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend"), WHERE[:2])
def test_a_flag_that_has_expired_brings_nothing_back(version: str, backend: str, flink: Flink) -> None:
    time_to_live = 3000
    _, savepoint = old_job(flink(version), backend, ttl_millis=time_to_live * 1000)
    calls = [
        call("a", "put", user_key="early", value=1),
        call("a", "wait", value=2000),
        call("a", "put", user_key="late", value=2),
        call("a", "wait", value=1500),
        call("a", "there"),
        call("a", "value"),
        call("a", "there"),
    ]
    script = {"shape": "wrapped", "backend": backend, "ttl_millis": time_to_live, "calls": calls}
    _, found = flink(version).job_side(script, savepoint)
    assert found[4] == {"call": 4, "blob": False, "flag": False, "map": {"late": 2}}
    assert found[5] == {"call": 5, "map": {"late": 2}}
    # The next touch sets it again.
    assert found[6] == {"call": 6, "blob": False, "flag": True, "map": {"late": 2}}


def maps_in(savepoint: Path) -> list[bytes]:
    """The keys of all that the old state has; a dump leaves out what a job reads as null."""
    return [key for _, state, key, _ in raw_entries(savepoint) if state == LEGACY]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("backend", ["hashmap", pytest.param("rocksdb", marks=pytest.mark.full)])
def test_a_map_that_is_null_is_cleared_as_well(backend: str, flink: Flink, tmp_path: Path) -> None:
    """A job that was upgraded to Flink 2 reads an empty map of Kryo 2 as null, and it is still there."""
    version, maps = "2.3.0", {"a": (NULL, now_ms()), "b": ({"item 1": 1}, now_ms())}
    LegacyState(maps, ttl=True, kryo=5, lacks=frozenset({NEW, FLAG})).write(str(tmp_path / "source"))
    assert len(maps_in(tmp_path / "source")) == 2
    calls = [call("a", "put", user_key="item 2", value=2), call("b", "value")]
    script = {"shape": "wrapped", "backend": backend, "calls": calls, "ttl_millis": HOUR, "kryo": True}
    savepoint, found = flink(version).job_side(script, tmp_path / "source")
    assert found == [{"call": 0}, {"call": 1, "map": {"item 1": 1}}]
    assert maps_in(savepoint) == []
    verified(savepoint, tmp_path / "new", ttl_ms=HOUR, now=now_ms())
