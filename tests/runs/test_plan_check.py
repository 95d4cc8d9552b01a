"""A plan held against savepoints: what it comes to, and what is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flinkstate
from flinkstate import NewState
from flinkstate.errors import PlanError, RefusedError, UsageError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import InlineBytes, KeyedHandle, Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import (
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoField,
    PojoMapType,
    PojoType,
    RowType,
    Scalar,
    SetType,
    TraversableType,
    TupleType,
)
from stateferry.changes.rules import Contradiction, Nulls
from stateferry.changes.staging import file_tasks
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.inventory.inventory import Inventory, take, total
from stateferry.runs.checks import wanted_layout
from stateferry.runs.checks.contradictions import contradictions
from stateferry.runs.checks.plan_check import planned, resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.target_claim import TargetContent, target_content
from stateferry.steps import snapshot
from tests.savepoint.test_full_checkpoint import with_old_handles
from tests.support.rewriting import rewrite

GOLDEN = Path(__file__).parents[1] / "savepoints"
MAIN_ID = "075411a2d1ef617c7b2ad2770050b24f"
CAN_BUILD = "scala.collection.generic.CanBuildFrom"
STATE: dict[str, Any] = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}


def values(source: Path, *states: dict[str, Any], operator: str = "main", **more: object) -> dict[str, Any]:
    target = str(source.parent / "the target")
    operators = [{"operator": operator, "states": list(states or (STATE,))}]
    return {"source": str(source), "target": target, "operators": operators, **more}


def resolved(source: Path, *states: dict[str, Any], operator: str = "main", **more: object) -> ResolvedPlan:
    plan = plan_of({"job": "orders", **values(source, *states, operator=operator, **more)})
    return resolve(plan, Savepoint.open(plan.source))


def demo(folder: Path, *, ttl: int | None = None) -> Path:
    state = DemoState(keys=40, entries=3, migrated=0.4, ttl=ttl, now=10**12, parallelism=3, max_parallelism=128, seed=7)
    write_demo_savepoint(str(folder), state)
    return folder


@pytest.mark.parametrize("name", ["main", MAIN_ID, MAIN_ID.upper()])
def test_the_rules_say_what_the_plan_says(name: str) -> None:
    state = {**STATE, "ttl_ms": "30d"}
    told = {"now": 5, "keep_expired": True, "nulls": "keep", "on_contradiction": "rows"}
    (operator,) = resolved(GOLDEN / "legacy-ttl-2.3-rocksdb", state, operator=name, **told).operators
    assert operator.operator.hex_id == MAIN_ID
    assert set(operator.states) == {"mainState", "newMainState", "isMigratedState"}
    (rules,) = operator.rules
    assert (rules.legacy.name, rules.new_name, rules.flag_name) == ("mainState", "newMainState", "isMigratedState")
    assert (rules.ttl, rules.now, rules.keep_expired) == (30 * 86_400_000, 5, True)
    assert (rules.nulls, rules.on_contradiction) == (Nulls.KEEP, Contradiction.ROWS)


def test_the_layout_is_the_plan_s() -> None:
    plan = resolved(GOLDEN / "several-operators-2.3-hashmap", parallelism=5, max_parallelism=300)
    by_label = {one.old.label: one.new for one in plan.rewrites()}
    assert (by_label["main"].parallelism, by_label["main"].max_parallelism) == (5, 300)
    assert (by_label["gate"].parallelism, by_label["gate"].max_parallelism) == (1, 300)
    same = {one.old: one.new for one in resolved(GOLDEN / "several-operators-2.3-hashmap").rewrites()}
    assert all(old == new for old, new in same.items())


def test_several_states_and_operators_in_one_plan() -> None:
    source = GOLDEN / "composites-2.3-rocksdb"
    states = [
        {"legacy": "value-8-Map-String-Long", "new": "one"},
        {"legacy": "value-11-Map-Color-Address", "new": "two"},
    ]
    (operator,) = resolved(source, *states, operator="values").operators
    assert [rules.new_name for rules in operator.rules] == ["one", "two"]


def test_states_that_the_job_has_not_begun_to_use_are_normal() -> None:
    (operator,) = resolved(GOLDEN / "kinds-2.3-rocksdb", {**STATE, "legacy": "value-state"}, operator="kinds").operators
    assert [rules.legacy.name for rules in operator.rules] == ["value-state"]


def problems(source: Path, *states: dict[str, Any], operator: str = "main", **more: object) -> list[str]:
    with pytest.raises(PlanError) as caught:
        resolved(source, *states, operator=operator, **more)
    return str(caught.value).splitlines()


def test_ttl_must_be_told_if_and_only_if_there_are_timestamps() -> None:
    (line,) = problems(GOLDEN / "legacy-ttl-2.3-rocksdb")
    assert "has TTL" in line
    assert "give the duration" in line
    (line,) = problems(GOLDEN / "legacy-2.3-rocksdb", {**STATE, "ttl_ms": "30d"})
    assert "has no TTL" in line
    assert "but the run has --ttl 30d: leave it out" in line
    assert "TTL on one side only is the most common reason why Flink rejects a restore" in line


def test_a_new_state_with_ttl_on_one_side_only() -> None:
    plan = resolved(GOLDEN / "legacy-2.3-rocksdb")
    (operator,) = plan.operators
    states = {**operator.states, "newMainState": replace(operator.states["newMainState"], ttl=True)}
    said = list(said_of(plan, states))
    assert len(said) == 1
    assert said[0].startswith("state newMainState of operator main has TTL, mainState has none: TTL on one side only")


def said_of(plan: ResolvedPlan, states: dict[str, Any]) -> list[str]:
    (operator,) = plan.operators
    return list(contradictions(plan.plan, plan.plan.operators[0].states[0], states, operator.operator))


def test_a_flag_in_another_namespace() -> None:
    plan = resolved(GOLDEN / "legacy-2.3-rocksdb")
    (operator,) = plan.operators
    flag = replace(operator.states["isMigratedState"], namespace=operator.states["mainState"].key)
    (line,) = said_of(plan, {**operator.states, "isMigratedState": flag})
    assert "is per String, mainState per VoidNamespace" in line


def of_class(name: str) -> KryoType:
    return KryoType(f"java.util.{name}")


def with_user_key(key: FlinkType) -> tuple[ResolvedPlan, dict[str, Any]]:
    """A plan, and the states of the operator if its maps had such keys."""
    plan = resolved(GOLDEN / "legacy-2.3-rocksdb")
    states = plan.operators[0].states
    return plan, {**states, "mainState": replace(states["mainState"], value=MapType(key, Scalar.LONG))}


def stored_in_every_way(state: KeyedState) -> list[KeyedState]:
    """The state for each way in which a job may store such maps, if their entries can be found then."""
    assert isinstance(state.value, MapType)
    pojo = PojoType("com.acme.Totals", (PojoField("counts", state.value),))
    by_kryo = KryoMapType("java.util.HashMap", "serialized by Kryo", of_class("HashMap"), state.value)
    in_field = PojoMapType(pojo.class_name, "", pojo, "counts", state.value)
    every = (replace(state, value=value) for value in (state.value, NullableType(state.value, 0), by_kryo, in_field))
    found = [one for one in every if one.why_not_split is None]
    assert found
    return found


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (SetType(Scalar.STRING), "Set<String>"),
        (NullableType(SetType(Scalar.STRING), 0), "Set<String>"),
        (MapType(Scalar.STRING, Scalar.LONG), "Map<String,Long>"),
        (ListType(TupleType((Scalar.LONG, SetType(Scalar.LONG)), "Tuple2")), "Set<Long>"),
        (PojoType("com.acme.Tagged", (PojoField("tags", SetType(Scalar.STRING)),)), "Set<String>"),
        (PojoType("com.acme.Tagged", (PojoField("tags", of_class("Set")),)), "java.util.Set by Kryo"),
        (TraversableType(Scalar.STRING, "scala.collection.immutable.Set[String]"), "Traversable<String>"),
        (TraversableType(Scalar.LONG, f"implicitly[{CAN_BUILD}[Set[Long],Long,Set[Long]]]"), "Traversable<Long>"),
        *(
            (of_class(name), f"java.util.{name} by Kryo")
            for name in (
                *(
                    "HashSet",
                    "TreeSet",
                    "EnumSet",
                    "Set",
                    "ImmutableCollections$SetN",
                    "HashMap",
                    "TreeMap",
                    "SortedMap",
                ),
                *("IdentityHashMap", "ArrayList", "Arrays$ArrayList", "List", "Collection", "ArrayDeque", "Hashtable"),
            )
        ),
    ],
)
def test_user_keys_that_are_equal_with_other_bytes_stay_in_their_maps(key: FlinkType, what: str) -> None:
    """RocksDB finds a row by the bytes of its user key."""
    plan, states = with_user_key(key)
    for state in stored_in_every_way(states["mainState"]):
        with pytest.raises(RefusedError) as refused:
            said_of(plan, {**states, "mainState": state})
        said = str(refused.value)
        assert said.startswith(f"state mainState of operator main can't be migrated: its user keys have a {what}: ")
        assert said.endswith("such as a String, a sorted list or a tuple first; until then the map stays a blob")


@pytest.mark.parametrize(
    "key",
    [
        ListType(Scalar.STRING),
        TupleType((Scalar.LONG, ListType(Scalar.LONG)), "Tuple2"),
        TraversableType(Scalar.STRING, "scala.collection.immutable.List[String]"),
        TraversableType(
            Scalar.STRING, f"implicitly[{CAN_BUILD}[Seq[com.acme.Settlement],com.acme.Settlement,Seq[Any]]]"
        ),
        KryoType("com.acme.Key"),
        KryoType("com.acme.KeySet"),
        *map(of_class, ("UUID", "BitSet", "Locale", "Optional")),
    ],
)
def test_other_user_keys_are_migrated(key: FlinkType) -> None:
    plan, states = with_user_key(key)
    for state in stored_in_every_way(states["mainState"]):
        said = [line for line in said_of(plan, {**states, "mainState": state}) if "user key" in line]
        assert not said


def test_a_told_user_key_is_refused_too(tmp_path: Path) -> None:
    state = {**STATE, "map_type": "Map<Kryo<java.util.HashSet>, Long>"}
    with pytest.raises(RefusedError, match=r"mainState .*: its user keys have a java\.util\.HashSet by Kryo"):
        resolved(GOLDEN / "hint-hash-map-1.20-rocksdb", state, home=str(tmp_path))


def test_states_that_are_something_else_than_the_plan_says() -> None:
    source = GOLDEN / "kinds-2.3-rocksdb"
    (line,) = problems(source, {"legacy": "map-state", "new": "n"}, operator="kinds")
    assert line.startswith("state map-state of operator kinds can't be migrated: it is already a MapState.")
    assert line.endswith("Can be migrated: value-state")
    (line,) = problems(source, {"legacy": "reducing-state", "new": "n"}, operator="kinds")
    assert "REDUCING state, not a ValueState" in line
    (line,) = problems(source, {"legacy": "value-state", "new": "list-state"}, operator="kinds")
    assert "list-state of operator kinds is LIST state: the new state is a MapState" in line
    (line,) = problems(source, {"legacy": "value-state", "new": "n", "flag": "map-state"}, operator="kinds")
    assert "flag map-state of operator kinds is MAP state: a flag is a ValueState" in line
    (line,) = problems(source, {"legacy": "value-state", "new": "map-state"}, operator="kinds")
    assert "state map-state is in the savepoint, but not as Map<String,Long> without TTL" in line


def test_all_problems_are_said_at_once() -> None:
    states = [{"legacy": "map-state", "new": "a"}, {"legacy": "nowhere", "new": "b"}]
    first, second = problems(GOLDEN / "kinds-2.3-rocksdb", *states, operator="kinds")
    assert "map-state" in first
    assert second.startswith("operator kinds has no keyed state 'nowhere', and no MapState 'b'")
    assert "value-state, " in second


def test_an_operator_by_two_names_is_one() -> None:
    operators = [{"operator": name, "states": [{"legacy": "mainState", "new": "n"}]} for name in ("main", MAIN_ID)]
    (line,) = problems(GOLDEN / "legacy-2.3-rocksdb", operators=operators)
    assert line.startswith("operator main is there more than once")


def test_an_operator_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no operator has the id, uid or name 'nobody'\. There are: .*main"):
        resolved(GOLDEN / "legacy-2.3-rocksdb", operator="nobody")


def counted(state: str) -> Inventory:
    """What the snapshot counts: which classes are in a map by Flink's own serializer is known only then."""
    found = resolved(GOLDEN / "kryo-2.3-rocksdb", {"legacy": state, "new": "n"}, operator="kryo")
    return total(map(take, snapshot.inventory_work(found, 1)))


@pytest.mark.parametrize("state", ["opaque-in-map", "opaque"])
def test_kryo_inside_the_blob_is_refused_by_name_and_elsewhere_let_through(state: str) -> None:
    with pytest.raises(RefusedError, match=r"stateferry\.flink\.pojo\.Opaque"):
        counted(state)
    assert resolved(GOLDEN / "kryo-2.3-rocksdb", {"legacy": "plain", "new": "n"}, operator="kryo").rewrites()


def test_raw_keyed_state_beside_the_legacy_state_is_refused(tmp_path: Path) -> None:
    source = Savepoint.open(str(demo(tmp_path / "demo")))
    raw = KeyedHandle(KeyGroupRange(0, 0), (0,), InlineBytes("raw", b"?"))
    plan = plan_of({"job": "orders", **values(tmp_path / "demo")})

    def with_raw(operator: Operator) -> Operator:
        return replace(operator, subtasks=(replace(operator.subtasks[0], raw_keyed=raw), *operator.subtasks[1:]))

    operators = tuple(with_raw(operator) for operator in source.metadata.operators)
    # Flink before 1.13 writes timers on the heap in this way into savepoints, too.
    told = (
        r"operator main has raw keyed state: .* savepoint from before Flink 1\.13, timers.* with Flink 1\.13 or newer"
    )
    with pytest.raises(RefusedError, match=told):
        resolve(plan, replace(source, metadata=replace(source.metadata, operators=operators)))


def test_a_version_that_is_not_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    def in_version_2(folder: Path) -> Savepoint:
        source = Savepoint.open(str(folder))
        return replace(source, metadata=replace(source.metadata, version=2))

    plan = plan_of({"job": "orders", **values(demo(tmp_path / "demo"))})
    told = r"demo/_metadata: version 2 can be read, but not written.* with Flink 1\.13 or newer"
    with pytest.raises(RefusedError, match=told):
        resolve(plan, in_version_2(tmp_path / "demo"))
    # Where nothing is to be written, that is said instead.
    whole = resolved(tmp_path / "demo")
    transforms = {one.old.id: one.transform for one in whole.rewrites()}
    rewrite(whole.source, str(tmp_path / "done"), whole.layout, transforms=transforms)
    assert resolve(plan, in_version_2(tmp_path / "done")).nothing_to_do


ROW = RowType((Scalar.STRING,), True)


@pytest.mark.parametrize("key", [ROW, TupleType((ROW, Scalar.LONG), "org.apache.flink.api.java.tuple.Tuple2")])
def test_rows_as_keys_of_flink_1_12_are_refused(key: FlinkType, tmp_path: Path) -> None:
    """Flink 1.13 hashes rows otherwise, so a job of it would not look for them where they are."""
    flinkstate.write(str(tmp_path / "s"), "main", key, [NewState("n", "VALUE", Scalar.LONG)])
    source = Savepoint.open(str(tmp_path / "s"))
    plan = plan_of({"job": "orders", "source": str(tmp_path / "s"), "target": str(tmp_path / "new"), "parallelism": 2})
    of_13 = replace(source, metadata=replace(source.metadata, version=3))
    assert not resolve(plan, of_13).nothing_to_do
    of_12 = replace(source, metadata=replace(of_13.metadata, operators=tuple(with_old_handles(source))))
    with pytest.raises(RefusedError, match=r"its keys .* have rows, which Flink hashes otherwise since 1\.13"):
        resolve(plan, of_12)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"parallelism": 129}, "a parallelism of 1 to the max parallelism 128, found 129"),
        ({"max_parallelism": 2}, "expected a parallelism of 1 to"),
    ],
)
def test_a_parallelism_above_the_savepoint_s_max(more: dict[str, Any], said: str) -> None:
    (line,) = problems(GOLDEN / "legacy-2.3-rocksdb", **more)
    assert said in line


def test_keys_without_a_stable_hash_keep_their_max_parallelism() -> None:
    source = GOLDEN / "since-flink-2-2.3-hashmap"
    state = {"legacy": "value-5-Map-String-Set-Long", "new": "n"}
    assert resolved(source, state, operator="values", max_parallelism=256).operators
    pojo_keys = [folder for folder in GOLDEN.iterdir() if folder.name.startswith("legacy-pojo-list-ttl")]
    with pytest.raises(RefusedError, match="can't be hashed for another max parallelism"):
        resolved(pojo_keys[0], {**STATE, "ttl_ms": 1}, max_parallelism=256)
    assert resolved(pojo_keys[0], {**STATE, "ttl_ms": 1}, parallelism=7).operators


def test_after_the_cut_over_there_is_nothing_to_do(tmp_path: Path) -> None:
    source = demo(tmp_path / "demo")
    plan = resolved(source)
    assert not plan.nothing_to_do
    done = tmp_path / "done" / "savepoint"
    transforms = {one.old.id: one.transform for one in plan.rewrites()}
    rewrite(plan.source, str(done), plan.layout, transforms=transforms)
    again = resolved(done)
    assert again.nothing_to_do
    assert again.what_was_done_before == "mainState of main is already migrated: the savepoint has newMainState alone"
    assert [state.legacy for _, state in again.migrated_before] == ["mainState"]
    assert resolved(done, parallelism=3, max_parallelism=128).nothing_to_do
    # Another layout is something to do all the same.
    wider = resolved(done, parallelism=4)
    assert not wider.nothing_to_do
    assert len(file_tasks(wider.rewrites(), str(tmp_path / "wider"))) == 4


def test_the_job_is_called_after_the_operator(tmp_path: Path) -> None:
    assert planned(values(GOLDEN / "several-operators-2.3-hashmap", operator=MAIN_ID)).job == "main"
    assert planned(values(GOLDEN / "several-operators-2.3-hashmap", operator="gate")).job == "Source: gate"
    assert planned(values(GOLDEN / "legacy-enum-1.20-rocksdb")).job == "main"
    assert planned(values(tmp_path / "not there", job="told")).job == "told"
    with pytest.raises(PlanError, match=r"^mine: nwo: unknown field: did you mean now\?$"):
        planned(values(GOLDEN / "legacy-2.3-rocksdb", nwo=5), "mine")


STATE_FILE = f"{MAIN_ID}-keyed-00000"


def test_a_target_may_be_empty_or_this_run_s(tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert target_content(str(target), claimed=False) is TargetContent.NOTHING
    target.mkdir()
    assert target_content(str(target), claimed=False) is TargetContent.NOTHING
    (target / STATE_FILE).write_bytes(b"")
    assert target_content(str(target), claimed=True) is TargetContent.FILES_OF_THIS_RUN
    with pytest.raises(UsageError, match="state files of another run that was not published"):
        target_content(str(target), claimed=False)
    (target / "_metadata").write_bytes(b"mine")
    assert target_content(str(target), claimed=False, published_metadata=b"mine") is TargetContent.THIS_PUBLICATION
    for metadata in (None, b"other"):
        with pytest.raises(UsageError, match="already holds another savepoint"):
            target_content(str(target), claimed=True, published_metadata=metadata)


def test_a_target_with_anything_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    (target / STATE_FILE).write_bytes(b"")
    with pytest.raises(UsageError, match=r"it holds notes\.txt: choose another target"):
        target_content(str(target), claimed=True)
    with pytest.raises(UsageError, match="is a file; a savepoint is a folder"):
        target_content(str(target / "notes.txt"), claimed=False)
    assert sorted(file.name for file in target.iterdir()) == [STATE_FILE, "notes.txt"]


def test_a_target_that_cannot_be_made_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to("nowhere")
    for name in ("file/target", "file/more/target", "broken", "broken/target"):
        present = tmp_path / name.split("/")[0]
        with pytest.raises(UsageError, match=f"target .*{name} can't be made: {present} is no folder: choose another"):
            target_content(str(tmp_path / name), claimed=False)
    asked: list[str] = []
    # The tests may run as a user who may write everywhere.
    monkeypatch.setattr("os.access", lambda place, _: asked.append(place))
    for claimed in (False, True):
        with pytest.raises(UsageError, match=f"no permission to write into {tmp_path}: give it, or choose another"):
            target_content(str(tmp_path / "more" / "target"), claimed=claimed)
    assert asked == [str(tmp_path)] * 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["broken", "file"]


@pytest.mark.parametrize(
    ("wanted", "of_small", "of_large"),
    [("auto", "auto", "snappy"), ("stored", "stored", "stored"), ("source", "source", "source")],
)
def test_a_large_state_is_compressed_unless_the_plan_says_how_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, of_small: str, of_large: str
) -> None:
    source = Savepoint.open(str(demo(tmp_path / "demo")))
    subtasks = [subtask for operator in source.metadata.operators for subtask in operator.subtasks]
    size = sum(subtask.keyed.size for subtask in subtasks if subtask.keyed is not None)
    for large, found in ((size + 1, of_small), (size, of_large)):
        monkeypatch.setattr(wanted_layout, "_LARGE", large)
        assert resolved(tmp_path / "demo", compression=wanted).layout.compression == found
