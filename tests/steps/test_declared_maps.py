"""However a job has declared its map, a run makes the same of it: the result from `Types.MAP` is the measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from flinkstate.errors import PlanError, RefusedError
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import kryo_snapshot, map_snapshot, nullable_snapshot, simple_snapshot
from flinkstate.serializers.types import Scalar
from stateferry.demo import IS_MIGRATED_STATE, MAIN_STATE, NEW_MAIN_STATE, DemoState, write_demo_savepoint
from stateferry.demo_maps import Declared
from stateferry.runs.checks import old_form
from tests.rocksdb.goldens import Contents, contents
from tests.steps.test_native_source import run
from tests.support import legacy_states
from tests.support.kryo_writing import Boxed, kryo_map
from tests.support.legacy_states import LegacyState

NOW = 1_700_000_000_000
DAY = 24 * 60 * 60 * 1000
TTL = 30 * DAY
GOLDENS = Path(__file__).parents[1] / "savepoints"

OPTIONS: dict[str, dict[str, Any]] = {
    "canonical": {},
    "parallelism 2": {"parallelism": 2},
    "max parallelism 300": {"max_parallelism": 300},
    "native": {"output_format": "native"},
    "native, max parallelism 64": {"output_format": "native", "max_parallelism": 64},
    "keeping what has expired": {"keep_expired": True},
    "keeping the maps": {"keep_legacy": True},
    "lazy": {"lazy": True, "share": "40%"},
    "lazy, the largest first": {"lazy": True, "share": "40%", "largest_first": True},
    "lazy, max parallelism 300": {"lazy": True, "share": "40%", "max_parallelism": 300},
}


def demo(folder: Path, declared: Declared, ttl: int | None) -> Path:
    source = folder / f"{declared.name}-{ttl}"
    version = 4 if declared is Declared.KRYO_2 else 6
    state = DemoState(300, 7, 0.3, ttl, NOW, 3, 128, 1, declared=declared, metadata_version=version)
    write_demo_savepoint(str(source), state)
    return source


def migrated_state(ttl: int | None) -> dict[str, Any]:
    return {"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "flag": IS_MIGRATED_STATE, "ttl_ms": ttl}


def result(folder: Path, declared: Declared, ttl: int | None, options: str) -> Contents:
    """The entries of the new savepoint but the maps that it still has."""
    state = migrated_state(ttl)
    place = folder / f"run-{declared.name}"
    source = demo(folder, declared, ttl)
    wanted = {"now": NOW, "operators": [{"operator": "main", "states": [state]}], **OPTIONS[options]}
    report, _ = run(source, place, **wanted)
    assert report.is_green, report
    assert not report.tables_pending
    found = contents(Savepoint.open(str(place / "target")))
    return Counter({entry: count for entry, count in found.items() if entry[0] != MAIN_STATE})


@cache
def measure(ttl: int | None, options: str) -> Contents:
    with TemporaryDirectory() as folder:
        return result(Path(folder), Declared.MAP, ttl, options)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    ("options", "ttl"),
    [(name, ttl) for name in OPTIONS for ttl in (None, TTL) if ttl or "keep_expired" not in OPTIONS[name]],
)
@pytest.mark.parametrize("declared", [Declared.NULLABLE, Declared.KRYO_2, Declared.KRYO_5])
def test_a_run_makes_the_same_of_it(declared: Declared, options: str, ttl: int | None, tmp_path: Path) -> None:
    assert result(tmp_path, declared, ttl, options) == measure(ttl, options)


def stored_maps(savepoint: Path) -> dict[bytes, bytes]:
    """The bytes of each map in mainState, by those of its key."""
    opened = Savepoint.open(str(savepoint))
    found: dict[bytes, bytes] = {}
    for file in opened.open_files(opened.operator("main")):
        names = [state.name for state in file.header.states]
        for key_group in file.handle.range:
            for section in file.sections(key_group):
                if names[section.state] == MAIN_STATE:
                    ends = section.key_ends.tolist(), section.ends.tolist()
                    bounds = zip(section.key_starts.tolist(), *ends, strict=True)
                    found |= {bytes(section.data[one:two]): bytes(section.data[two:end]) for one, two, end in bounds}
    return found


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("options", ["canonical", "native, max parallelism 64"])
@pytest.mark.parametrize("ttl", [None, TTL])
@pytest.mark.parametrize("declared", [Declared.NULLABLE, Declared.KRYO_2, Declared.KRYO_5])
def test_a_run_in_reverse_gives_back_what_the_old_job_wrote(
    declared: Declared, ttl: int | None, options: str, tmp_path: Path
) -> None:
    source = demo(tmp_path, declared, ttl)
    wanted = {"now": NOW - TTL // 2, "operators": [{"operator": "main", "states": [migrated_state(ttl)]}]}
    run(source, tmp_path / "forth", **wanted, **OPTIONS[options])
    new_job = tmp_path / "forth" / "target"
    back = {"reverse": True, "nulls": "stop", "on_contradiction": "stop", "max_parallelism": 128}
    with pytest.raises(PlanError, match=f"by Types.MAP: .* --like {source}"):
        run(new_job, tmp_path / "forth", **wanted, **back, run_id="back", target=str(tmp_path / "other"))
    run(new_job, tmp_path / "back", **wanted, **back, like=str(source))
    old, again = (Savepoint.open(str(place)) for place in (source, tmp_path / "back" / "target"))
    assert again.state(again.operator("main"), MAIN_STATE) == old.state(old.operator("main"), MAIN_STATE)
    maps = stored_maps(tmp_path / "back" / "target")
    before = stored_maps(source)
    assert len(maps) == 300
    assert {key: maps[key] for key in before} == before


def test_what_kryo_isnt_written_for_is_refused_in_reverse(tmp_path: Path) -> None:
    blobs = {"a key": ({"user key": Boxed("double", 1.5)}, 0)}
    old = LegacyState(blobs, kryo=2, has_flag_state=False, lacks=frozenset({NEW_MAIN_STATE}))
    old.write(str(tmp_path / "old"))
    LegacyState(rows={"a key": {"user key": (1, 0)}}, lacks=frozenset({MAIN_STATE})).write(str(tmp_path / "new"))
    with pytest.raises(RefusedError, match=r"they are Map<String,Double>, and the rows become Map<String,Long>"):
        run(tmp_path / "new", tmp_path, reverse=True, nulls="stop", on_contradiction="stop", like=str(tmp_path / "old"))


def test_maps_of_flink_1_do_not_go_back_into_a_savepoint_of_flink_2(tmp_path: Path) -> None:
    """A job of Flink 2 would read each map by Kryo 2 without one of its entries."""
    LegacyState(rows={"a key": {"user key": (1, 0)}}, lacks=frozenset({MAIN_STATE})).write(str(tmp_path / "new"))
    back: dict[str, Any] = {"reverse": True, "nulls": "stop", "on_contradiction": "stop"}
    back |= {"operators": [{"operator": "main", "states": [migrated_state(None)]}]}
    with pytest.raises(RefusedError, match=r"is of Flink 1 and the savepoint with the rows of Flink 2"):
        run(tmp_path / "new", tmp_path, **back, like=str(GOLDENS / "hint-hash-map-1.20-rocksdb"))
    assert not (tmp_path / "target").exists()


def test_a_nullable_map_of_keys_that_are_not_nullable_does_not_come_back(tmp_path: Path) -> None:
    """Such a map has no flags before its keys, and those that Flink 2 declares itself have."""
    of_old_job = nullable_snapshot(map_snapshot(simple_snapshot(Scalar.STRING), simple_snapshot(Scalar.LONG)))
    old = LegacyState(lacks=frozenset({NEW_MAIN_STATE}), serializers={MAIN_STATE: of_old_job})
    old.write(str(tmp_path / "old"))
    LegacyState(rows={"a key": {"user key": (1, 0)}}, lacks=frozenset({MAIN_STATE})).write(str(tmp_path / "new"))
    back: dict[str, Any] = {"reverse": True, "nulls": "stop", "on_contradiction": "stop"}
    back |= {"operators": [{"operator": "main", "states": [migrated_state(None)]}], "like": str(tmp_path / "old")}
    with pytest.raises(RefusedError, match=r"state mainState of operator main .*, but not of nullable keys"):
        run(tmp_path / "new", tmp_path, **back)
    assert not (tmp_path / "target").exists()


class TreeMap(dict[str, object]):
    """A map that is stored as an object of this class."""


def written(content: Mapping[Any, object], five: bool) -> bytes:
    """A map by Kryo 2 in a state of maps, whose class has no id; a TreeMap is in natural order."""
    name, order = (b"java.util.TreeMa\xf0", b"\x00") if isinstance(content, TreeMap) else (b"java.util.HashMa\xf0", b"")
    map_ = kryo_map(content, five)
    return b"\x01\x00" + name + map_[1:2] + order + map_[2:]


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ({"user key": Boxed("int", 5)}, r"Integer"),
        (TreeMap({"user key": 5}), r"some of them are java\.util\.TreeMap, and only a HashMap"),
    ],
)
def test_maps_of_which_others_would_come_back(
    last: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused also if the run that migrated them has seen it, and what is read of them doesn't show it."""
    monkeypatch.setattr(legacy_states, "kryo_map", written)
    content: dict[str, Any] = {f"key {number}": ({"user key": number}, 0) for number in range(20)}
    old = LegacyState(
        content | {"last": (last, 0)},
        kryo=2,
        serializers={MAIN_STATE: kryo_snapshot("java.util.Map")},
        has_flag_state=False,
        lacks=frozenset({NEW_MAIN_STATE}),
    )
    old.write(str(tmp_path / "old"))
    state = {"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "map_type": "Map<String, Long>", "widen": True}
    wanted = {"operators": [{"operator": "main", "states": [state]}]}
    run(tmp_path / "old", tmp_path / "forth", **wanted, on_contradiction="stop")
    back: dict[str, Any] = {"reverse": True, "nulls": "stop", "on_contradiction": "stop"}
    back |= {"operators": [{"operator": "main", "states": [{"legacy": MAIN_STATE, "new": NEW_MAIN_STATE}]}]}
    back |= {"run_id": "back", "like": str(tmp_path / "old"), "target": str(tmp_path / "other")}
    with pytest.raises(RefusedError, match=message):
        run(tmp_path / "forth" / "target", tmp_path / "elsewhere", **back)
    monkeypatch.setattr(old_form, "first_maps", lambda *_: FoundClasses())
    with pytest.raises(RefusedError, match=message):
        run(tmp_path / "forth" / "target", tmp_path / "forth", **back)
