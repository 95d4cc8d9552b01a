"""Runs from maps by Kryo: which classes they have, what is refused and how it is named, wider numbers, both Kryos."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import MapType, Scalar
from stateferry.cli import main
from stateferry.inventory.inventory import Inventory, take, total
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.predict.earlier_night import Counted
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.steps import snapshot
from tests.rocksdb.goldens import contents
from tests.steps import test_nights_since
from tests.steps.test_native_source import run
from tests.support.kryo_writing import Boxed
from tests.support.legacy_states import LEGACY, NEW, LegacyState, key_group_of
from tests.support.native_nights import NightlyDatabase

BLOBS: dict[str, Any] = {f"key-{one}": ({f"item-{two}": one * two for two in range(4)}, 0) for one in range(40)}
OLD_JOB = LegacyState(BLOBS, kryo=2, has_flag_state=False, lacks=frozenset({NEW}))
GOLDEN = Path(__file__).parents[1] / "savepoints"


def plan_of(source: Path, **state: object) -> dict[str, Any]:
    states = [{"legacy": LEGACY, "new": NEW, **state}]
    return {"source": str(source), "operators": [{"operator": "main", "states": states}]}


def counted(state: LegacyState, folder: Path, **of_state: object) -> Inventory:
    """What the snapshot step counts."""
    state.write(str(folder / "source"))
    places = {"target": str(folder / "target"), "home": str(folder / "home"), "catalog_uri": "sqlite:////dev/null"}
    plan = planned(plan_of(folder / "source", **of_state) | places)
    return total(map(take, snapshot.inventory_work(resolve(plan, open_source(plan)), 1)))


def green(source: Path, folder: Path, **of_state: object) -> None:
    """Does a run whose report is green."""
    operators = plan_of(source, **of_state)["operators"]
    report, _ = run(source, folder, operators=operators, on_contradiction="stop", nulls="stop")
    assert report.is_green, report


def with_map(**entries: object) -> LegacyState:
    return OLD_JOB.with_changes(blobs={**BLOBS, "odd": (entries, 0)})


def test_an_object_of_another_class_is_refused_with_its_place(tmp_path: Path) -> None:
    state = with_map(one=1, two=Boxed("double", 2.5), three=3)
    with pytest.raises(RefusedError) as refused:
        counted(state, tmp_path, map_type="Map<String, Long>")
    said = str(refused.value)
    place = 'state mainState, key "odd", user key "two"'
    assert said.startswith(f"{place}: expected Long as the map's value, found Double (")
    offset = int(said.rpartition(" ")[2].rstrip(")"))
    (file,) = (tmp_path / "source").glob("*keyed*")
    # A double has class tag 10 (2 + 8), and then its bytes.
    assert file.read_bytes()[offset : offset + 4] == b"\x0a\x40\x04\x00"


def test_a_user_key_of_another_class_is_refused(tmp_path: Path) -> None:
    state = OLD_JOB.with_changes(blobs={**BLOBS, "odd": ({Boxed("int", 3): 1}, 0)})
    with pytest.raises(RefusedError, match='key "odd": expected String as the map\'s key, found Integer'):
        counted(state, tmp_path, map_type="Map<String, Long>")


def test_what_is_found_first_is_held_against_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateferry.runs.checks.kryo_maps._ENOUGH_ENTRIES", 1)
    blobs = {f"key-{one}": ({"item": Boxed("int", one) if one % 2 else one}, 0) for one in range(40)}
    with pytest.raises(RefusedError, match=r"expected (Long|Integer) as .*, found (Integer|Long); .* --widen"):
        counted(OLD_JOB.with_changes(blobs=blobs), tmp_path)


def test_numbers_of_several_classes_need_a_word(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"Integer 1, Long 161. To make .* --as 'Map<String,Long>' --widen"):
        counted(with_map(one=1, two=Boxed("int", 2)), tmp_path)


def test_classes_are_counted_in_all_maps(tmp_path: Path) -> None:
    state = OLD_JOB.with_changes(
        blobs={**BLOBS, "null": (None, 0), "empty": ({}, 0), "null value": ({"a": None}, 0)},
        other_kryo=frozenset({"key-1", "key-2", "empty"}),
    )
    inventory = counted(state, tmp_path)
    ((_, found),) = inventory.maps.items()
    assert (found.maps, found.null_maps, found.empty_maps, found.entries) == (43, 1, 1, 161)
    assert found.kryo == {"2": 39, "5": 3, "either": 1}
    assert found.classes["key"] == {"java.lang.String": 161}
    assert found.classes["value"] == {"java.lang.Long": 160, "null": 1}


WIDENED: dict[str, tuple[str, dict[Any, Any], MapType, dict[Any, Any]]] = {
    "values to Long": (
        "Map<String, Long>",
        {"aa": 1 << 40, "bb": Boxed("int", -7), "cc": Boxed("short", -300), "dd": Boxed("byte", -1)},
        MapType(Scalar.STRING, Scalar.LONG),
        {"aa": 1 << 40, "bb": -7, "cc": -300, "dd": -1},
    ),
    "values to Integer": (
        "Map<String, Integer>",
        {"aa": Boxed("int", -(1 << 31)), "bb": Boxed("short", 32767), "cc": Boxed("byte", -128)},
        MapType(Scalar.STRING, Scalar.INTEGER),
        {"aa": -(1 << 31), "bb": 32767, "cc": -128},
    ),
    "values to Double": (
        "Map<String, Double>",
        {
            "aa": Boxed("double", 0.1),
            "bb": Boxed("float", -2.5),
            "cc": Boxed("float", 2.0**-149),
            "dd": Boxed("float", float("-inf")),
            "ee": Boxed("float", -0.0),
            "ff": Boxed("float", 2.0**-126),
        },
        MapType(Scalar.STRING, Scalar.DOUBLE),
        {"aa": 0.1, "bb": -2.5, "cc": 2.0**-149, "dd": float("-inf"), "ee": -0.0, "ff": 2.0**-126},
    ),
    "user keys to Long": (
        "Map<Long, Long>",
        {Boxed("int", 1): 1, 2: 2, Boxed("byte", -1): 3},
        MapType(Scalar.LONG, Scalar.LONG),
        {1: 1, 2: 2, -1: 3},
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("kryo", [2, 5])
@pytest.mark.parametrize("what", WIDENED)
def test_narrower_numbers_become_wider_ones(what: str, kryo: int, tmp_path: Path) -> None:
    told, map_, type_, expected = WIDENED[what]
    state = OLD_JOB.with_changes(blobs={"a key": (map_, 0)}, kryo=kryo)
    state.write(str(tmp_path / "source"))
    green(tmp_path / "source", tmp_path, map_type=told, widen=True)
    result = Savepoint.open(str(tmp_path / "target"))
    (made,) = result.keyed_states(result.operator("main"))
    assert (made.user_key, made.value) == (type_.key, type_.value)
    assert rows_of(result) == {repr(key): repr(value) for key, value in expected.items()}


def rows_of(savepoint: Savepoint) -> dict[str, str]:
    operator = savepoint.operator("main")
    (state,) = savepoint.keyed_states(operator)
    return {repr(entry.user_key): repr(entry.value) for entry in read_entries(savepoint, operator, state)}


def named(name: str, content: bytes) -> tuple[bytes, bytes]:
    """An object as Kryo writes it where its class occurs for the first time in a map, and where it occurs again."""
    named = name.encode()
    return b"\1\0" + named[:-1] + bytes([named[-1] | 0x80]) + b"\1" + content, b"\1\0\1" + content


_LONG, _INTEGER = b"\x09\x02", b"\x02\x02"
_A_LIST, _SAME_LIST = named("java.util.ArrayList", b"\1" + _LONG)
_AN_ARRAY, _SAME_ARRAY = named("[B", b"\3ab")
# The type that is told, two keys that differ for Java, and what they both become.
EQUAL_KEYS: dict[str, tuple[str, object, object, str]] = {
    "numbers": ("Map<Long, Long>", Boxed("int", 1), 1, "user key 1: .* the same Long"),
    "numbers in lists": (
        "Map<List<Long>, Long>", _A_LIST, _SAME_LIST.replace(_LONG, _INTEGER), r"user key \[1\]: .* the same List<Long>"
    ),
    "arrays": ("Map<byte[], Long>", _AN_ARRAY, _SAME_ARRAY, r'user key "YWI=": .* the same byte\[\]'),
}  # fmt: skip


@pytest.mark.parametrize("what", EQUAL_KEYS)
def test_keys_that_would_become_one_are_refused(what: str, tmp_path: Path) -> None:
    told, one, other, said = EQUAL_KEYS[what]
    blobs = {"empty": ({}, 0), "odd": ({one: 1, other: 2}, 0), "fine": ({one: 3}, 0)}
    with pytest.raises(RefusedError, match=f'key "odd", {said}'):
        counted(OLD_JOB.with_changes(blobs=blobs), tmp_path, map_type=told, widen=True)


def test_equal_arrays_are_keys_of_several_maps(tmp_path: Path) -> None:
    blobs = {"one": ({_AN_ARRAY: 1}, 0), "other": ({_AN_ARRAY: 2}, 0)}
    ((_, found),) = counted(OLD_JOB.with_changes(blobs=blobs), tmp_path).maps.items()
    assert found.classes["key"] == {"[B": 2}


def test_the_keys_of_inner_maps_are_not_widened(tmp_path: Path) -> None:
    """Two of them could become one."""
    inner, _ = named("java.util.HashMap", b"\1" + b"\1\1java.util.ArrayLis\xf4\1\1" + _INTEGER + _LONG)
    state = OLD_JOB.with_changes(blobs={"odd": ({"a": inner}, 0)})
    with pytest.raises(RefusedError, match=r"expected Long as the map's value\.key\.element, found Integer"):
        counted(state, tmp_path, map_type="Map<String, Map<List<Long>, Long>>", widen=True)


def test_without_widen_another_number_is_refused_although_the_type_is_told(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r'user key "two": expected Long .*, found Integer; .*--widen'):
        counted(with_map(one=1, two=Boxed("int", 2)), tmp_path, map_type="Map<String, Long>")


def test_an_upgraded_job_is_told_what_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = GOLDEN / "upgraded-hint-hash-map-2.3-rocksdb"
    assert main(["inspect", str(source)]) == 0
    said = capsys.readouterr().out
    assert "Map<String,Long> by Kryo 2 (9 maps) and Kryo 5 (8 maps), in all 17 maps (1 empty): can be migrated" in said
    assert "9 maps of mainState are by Kryo 2, from before the job's upgrade to Flink 2" in said
    assert 'the new job declares new MapStateDescriptor<>("newMainState", Types.STRING, Types.LONG)' in said
    report, of_run = run(source, tmp_path, operators=plan_of(source, flag="isMigratedState")["operators"])
    facts = of_run.facts(SnapshotFacts)
    assert report.is_green
    assert facts is not None
    assert facts.kryo is not None
    assert facts.kryo[0].line.startswith(
        "mainState: Map<String,Long> by Kryo 2 (9 maps) and Kryo 5 (8 maps), in all 17"
    )
    assert facts.declarations == ('main: new MapStateDescriptor<>("newMainState", Types.STRING, Types.LONG)',)
    assert any("without one of its entries" in note for note in facts.notes)


def test_a_state_by_kryo_that_is_no_map_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", str(GOLDEN / "kryo-2.3-rocksdb")]) == 0
    assert "maps with objects that can't be read: stateferry.flink.pojo.Opaque 8" in capsys.readouterr().out


def test_a_night_reads_changed_keys_alone(tmp_path: Path) -> None:
    database = NightlyDatabase(tmp_path / "database")
    state = OLD_JOB.with_changes(lacks=frozenset(), has_flag_state=True)
    of_state = {"map_type": "Map<String, Long>"}
    runs = []
    for night in range(2):
        if night:
            changed = {**BLOBS, "key-1": ({"item-0": 9, "new": 1}, 0), "more": ({"a": 1}, 0)}
            del changed["key-2"]
            state = state.with_changes(blobs=changed, other_kryo=frozenset({"more"}))
        database.flush(state)
        source = database.checkpoint(night + 1)
        report, of_night = test_nights_since.run(source, tmp_path, night, state=of_state)
        assert report.is_green, report
        runs.append(of_night)
    assert test_nights_since.went_on(runs[1])
    _, whole = test_nights_since.run(source, tmp_path, 1, job="whole", state=of_state)
    assert not test_nights_since.went_on(whole)
    since, all_read = (one.facts(SnapshotFacts) for one in (runs[1], whole))
    assert since is not None
    assert all_read is not None
    assert (since.kryo, since.met) == (all_read.kryo, all_read.met)
    assert since.kryo is not None
    assert since.kryo[0].classes.kryo == {"2": 39, "5": 1}
    assert runs[1].facts(Counted) == whole.facts(Counted)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("kryo", [2, 5])
def test_a_checkpoint_of_rocksdb_makes_what_a_canonical_savepoint_does(kryo: int, tmp_path: Path) -> None:
    state = OLD_JOB.with_changes(lacks=frozenset(), has_flag_state=True, kryo=kryo)
    database = NightlyDatabase(tmp_path / "database")
    database.flush(state)
    state.write(str(tmp_path / "canonical"))
    made: list[Counter[Any]] = []
    for number, source in enumerate((database.checkpoint(1), tmp_path / "canonical")):
        folder = tmp_path / f"run-{number}"
        green(source, folder)
        made.append(Counter(contents(Savepoint.open(str(folder / "target")))))
    assert made[0] == made[1]
    assert made[0].total() == 160


def test_maps_that_show_no_type_need_a_word(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"all 1 maps are null or empty.* --as 'Map<String, Long>'"):
        counted(OLD_JOB.with_changes(blobs={"null": (None, 0)}), tmp_path)


def test_a_job_may_clear_all_maps_before_a_catch_up(tmp_path: Path) -> None:
    """What a catch-up reads shows no type then, but its base has one. A cut-over goes on."""
    state = OLD_JOB.with_changes(has_flag_state=True)
    database = NightlyDatabase(tmp_path / "database")
    database.flush(state)
    native: dict[str, Any] = {"output_format": "native", "now": test_nights_since.NOW}
    report, _ = test_nights_since.run(database.checkpoint(1), tmp_path, 0, **native)
    assert report.is_green, report
    database.flush(state.with_changes(blobs=dict.fromkeys(BLOBS, ({}, 0))))
    source = database.checkpoint(2)
    report, caught_up = test_nights_since.run(source, tmp_path, 1, since="nights-0", **native)
    assert report.is_green, report
    assert not contents(Savepoint.open(caught_up.staged.shown)).total()
    with pytest.raises(RefusedError, match="all 40 maps are null or empty"):
        test_nights_since.run(source, tmp_path, 2, job="whole", **native)


def test_not_all_of_a_large_state_is_read_to_find_a_map_with_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step would do that again, one key group after the other."""
    state = OLD_JOB.with_changes(blobs={f"key-{one}": ({}, 0) for one in range(100)} | {"last": ({"a": 1}, 0)})
    groups = sorted(key_group_of(key, 128) for key in state.blobs)
    assert groups[0] < key_group_of("last", 128)
    monkeypatch.setattr("stateferry.runs.checks.kryo_maps._MOST_BYTES", 1)
    with pytest.raises(RefusedError, match=r"the first of them don't show one type: all 1 maps are null or empty"):
        counted(state, tmp_path)
    inventory = counted(state, tmp_path / "told", map_type="Map<String, Long>")
    assert sum(found.maps for found in inventory.maps.values()) == 101


def test_a_night_on_which_the_maps_show_another_type_reads_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that haven't changed were of the type of the night before."""
    monkeypatch.setattr("stateferry.runs.checks.kryo_maps._ENOUGH_ENTRIES", 1)
    monkeypatch.setattr("stateferry.runs.checks.space._SAMPLED_GROUPS", 1)
    first = min(BLOBS, key=lambda key: key_group_of(key, 128))
    others = {key: blob for key, blob in BLOBS.items() if key != first}
    state = OLD_JOB.with_changes(has_flag_state=True, blobs=others)
    database = NightlyDatabase(tmp_path / "database")
    database.flush(state)
    report, _ = test_nights_since.run(database.checkpoint(1), tmp_path, 0)
    assert report.is_green
    database.flush(state.with_changes(blobs=others | {first: ({"a": Boxed("int", 1)}, 0)}))
    with pytest.raises(RefusedError, match="expected Integer as the map's value, found Long"):
        test_nights_since.run(database.checkpoint(2), tmp_path, 1)
    newest = next(iter(runs_of(str(tmp_path / "home"), "nights")))
    assert newest.plan is not None
    assert not Run(newest.plan, newest.folder).has_done(Step.SNAPSHOT)
