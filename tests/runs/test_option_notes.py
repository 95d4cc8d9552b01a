"""Options without effect on a savepoint: each is said where it is so, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from stateferry.inventory.inventory import Inventory, inventory_tasks, total
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.kryo_notes import kryo_notes
from stateferry.runs.guards.option_notes import nothing_to_do_lines, option_notes
from stateferry.runs.plan.plan_json import plan_of
from stateferry.steps.snapshot import ages
from tests.kryo.kept import FOLDER
from tests.savepoint.test_full_checkpoint import with_old_handles
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.rewriting import rewrite
from tests.validation.test_checks import GOLDEN

DAY = 86_400_000
NOW = 100 * DAY
PLAIN = LegacyState(blobs={"cold": ({"a": 1}, 0)}, rows={"hot": {"a": (5, 0)}}, flags={"hot": 0})
TIMED = LegacyState(blobs={"cold": ({"a": 1}, NOW - DAY)}, rows={"hot": {"a": (5, NOW)}}, flags={"hot": NOW}, ttl=True)
OLD = NOW - 31 * DAY
MOSTLY_EXPIRED = TIMED.with_changes(blobs={"cold": ({f"a{number}": 1 for number in range(150)}, OLD)})
STATE = {"legacy": LEGACY, "new": NEW}
WITH_TTL = {"ttl_ms": "30d"}
MOVED = {"/old": "/new"}


def resolved(source: str, state: dict[str, Any], **options: object) -> ResolvedPlan:
    operators = [{"operator": "main", "states": [STATE | state]}]
    target = f"{source}-target"
    places = {"source": source, "target": target, "home": f"{source}-home"}
    return resolve(
        plan_of({"job": "j", "now": NOW, "operators": operators, **places, **options}), Savepoint.open(source)
    )


def notes(plan: ResolvedPlan) -> list[str]:
    """As after the snapshot, which says all that was said before it."""
    (one,) = plan.operators
    tasks = inventory_tasks(plan.source, one, target_bytes=1 << 20)
    inventory = total(task.take() for task in tasks)
    found = option_notes(plan, inventory, ages(plan, inventory))
    assert set(option_notes(plan)) <= set(found)
    return found


FLAGGED = {"flag": FLAG}


@pytest.mark.parametrize(
    ("made", "state", "options", "said"),
    [
        (PLAIN, FLAGGED, {}, None),
        (PLAIN, {"flag": "isMoved"}, {}, "--flag-state isMoved had no effect: main has no state of that name"),
        (
            PLAIN.with_changes(flags={}),
            FLAGGED,
            {},
            f"--flag-state {FLAG} had no effect: this state of main has no entry",
        ),
        (
            PLAIN.with_changes(rows={}, flags={}, false_flags={"cold": 0}),
            FLAGGED,
            {},
            f"--flag-state {FLAG} had no effect: no value of this state of main is true",
        ),
        (PLAIN, {"no_flag": True}, {}, None),
        (
            PLAIN.with_changes(rows={}),
            {"no_flag": True},
            {},
            f"--no-flag-state had no effect on {LEGACY}: {NEW} has no rows",
        ),
        (PLAIN, FLAGGED, {"parallelism": 1}, "--parallelism 1 had no effect: it is that of main already"),
        (PLAIN, FLAGGED, {"parallelism": 2}, None),
        (PLAIN, FLAGGED, {"max_parallelism": 128}, "--max-parallelism 128 had no effect: it is that of every operator"),
        (
            PLAIN,
            FLAGGED,
            {"max_parallelism": 256},
            "main: a new job gets max parallelism 128 at parallelism 1, unless it sets another one; one that",
        ),
        (PLAIN, FLAGGED, {"on_contradiction": "rows"}, "--on-contradiction rows had no effect: no key is flagged"),
        (PLAIN.with_changes(flags={"cold": 0}), FLAGGED, {"on_contradiction": "blob"}, None),
        (TIMED, FLAGGED | WITH_TTL, {"keep_expired": True}, "--keep-expired had no effect: nothing has expired"),
        (TIMED.with_changes(blobs={"c": ({"a": 1}, OLD)}), FLAGGED | WITH_TTL, {"keep_expired": True}, None),
        (TIMED.with_changes(rows={"hot": {"a": (1, OLD)}}), FLAGGED | WITH_TTL, {"keep_expired": True}, None),
        (
            TIMED,
            FLAGGED | WITH_TTL,
            {"nulls": "drop"},
            "--nulls drop had no effect: no entry has a null value that its serializer can't write",
        ),
        (
            TIMED.with_changes(blobs={"cold": ({"a": None}, NOW)}),
            FLAGGED | WITH_TTL,
            {"nulls": "drop"},
            None,
        ),
        (
            LegacyState(blobs={"cold": ({"a": "x", "b": None}, NOW)}, ttl=True, value=Scalar.STRING),
            WITH_TTL,
            {"nulls": "drop"},
            "--nulls drop had no effect: each value's serializer can write null",
        ),
        (
            LegacyState(blobs={"cold": ({"a": "x", "b": None}, 0)}, value=Scalar.STRING),
            {},
            {"nulls": "keep"},
            "--nulls keep had no effect: each value's serializer can write null",
        ),
        (PLAIN.with_changes(blobs={"cold": ({"a": None}, 0)}), FLAGGED, {"nulls": "drop"}, None),
        (
            PLAIN.with_changes(blobs={"cold": ({"a": None, "b": 1, "c": None}, 0)}),
            FLAGGED,
            {"nulls": "keep"},
            f"2 null values of {LEGACY} of main become rows, which the serializer of Long can't write: a job on",
        ),
        (PLAIN, FLAGGED, {"keep_legacy": True}, None),
        (TIMED.with_changes(flags={"hot": OLD}), FLAGGED | WITH_TTL, {"keep_expired": True}, None),
        (
            TIMED,
            FLAGGED | WITH_TTL,
            {"accept_expired": "60%"},
            "--accept-expired had no effect: without it the run would",
        ),
        (MOSTLY_EXPIRED, FLAGGED | WITH_TTL, {"accept_expired": "60%"}, None),
        (
            MOSTLY_EXPIRED,
            FLAGGED | WITH_TTL,
            {"accept_expired": "60%", "keep_expired": True},
            "--accept-expired had no effect: without it the run would not have stopped either",
        ),
        (
            PLAIN,
            FLAGGED,
            {"accept_expired": "60%"},
            "--accept-expired had no effect: no legacy state has a time to live",
        ),
        (
            PLAIN,
            FLAGGED,
            {"clock_tolerance_ms": "1h"},
            "--clock-tolerance had no effect: no legacy state has a time to",
        ),
        (TIMED, FLAGGED | WITH_TTL, {"clock_tolerance_ms": "1h"}, "--clock-tolerance had no effect: without it"),
        (
            TIMED.with_changes(blobs={"cold": ({"a": 1}, NOW + DAY // 48)}),
            FLAGGED | WITH_TTL,
            {"clock_tolerance_ms": "1h"},
            None,
        ),
    ],
)
def test_an_option_is_said_to_have_no_effect_where_it_has_none(
    tmp_path: Path, made: LegacyState, state: dict[str, Any], options: dict[str, Any], said: str | None
) -> None:
    source = str(tmp_path / "source")
    made.write(source)
    found = notes(resolved(source, state, **options))
    if said is None:
        assert found == []
    else:
        (note,) = found
        assert note.startswith(said)


def test_a_flag_that_is_not_there_contradicts_nothing(tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    PLAIN.write(source)
    missing, contradiction = notes(resolved(source, {"flag": "isMoved"}, on_contradiction="rows"))
    assert missing.startswith("--flag-state isMoved had no effect")
    assert contradiction == "--on-contradiction rows had no effect: no legacy state has a flag state"


@pytest.mark.parametrize(("stamp", "says"), [(NOW - DAY, 1), (NOW, 0)])
def test_rows_to_which_something_younger_gives_way_are_counted(stamp: int, says: int, tmp_path: Path) -> None:
    source, rows = str(tmp_path / "source"), {"both": {"a": (5, stamp), "b": (6, OLD), "c": (7, stamp)}}
    TIMED.with_changes(blobs={"both": ({"a": 1, "b": 2, "d": 3}, NOW)}, rows=rows, flags={}).write(source)
    found = [note for note in notes(resolved(source, WITH_TTL)) if "older" in note]
    assert [note.split(": ")[0] for note in found] == [
        f"1 row of {NEW} of main is older than the blob of {LEGACY} whose entry gives way to it"
    ] * says


def test_a_lazy_run_says_that_nulls_stay_in_maps(tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    PLAIN.with_changes(blobs={"cold": ({"a": None}, 0)}).write(source)
    told = notes(resolved(source, FLAGGED, nulls="drop", lazy=True, share=0.5))
    (note,) = (note for note in told if "null" in note)
    assert note.startswith(
        f"of 1 null value in {LEGACY} of main, which the serializer of Long can't write, those of keys"
    )


def migrated(source: Path, made: LegacyState, **state: object) -> str:
    made.write(str(source))
    plan = resolved(str(source), {**FLAGGED, **state})
    transforms = {one.old.id: one.transform for one in plan.rewrites()}
    rewrite(plan.source, f"{source}-migrated", plan.layout, transforms=transforms)
    return f"{source}-migrated"


def test_what_is_migrated_already_needs_no_option(tmp_path: Path) -> None:
    done = migrated(tmp_path / "source", PLAIN)
    bare = resolved(done, {})
    assert nothing_to_do_lines(bare) == [
        f"nothing to do: {LEGACY} of main is already migrated: the savepoint has {NEW} alone"
    ]
    told = resolved(done, FLAGGED, keep_legacy=True, on_contradiction="rows", nulls="drop")
    assert [line.split(" had no effect")[0] for line in nothing_to_do_lines(told)[1:]] == [
        "note: --flag-state",
        "note: --keep-legacy",
        "note: --on-contradiction rows",
        "note: --nulls drop",
    ]
    # Another layout is something to do, and that this is all of it is worth saying.
    assert option_notes(resolved(done, {}, max_parallelism=300))[:1] == [
        f"{LEGACY} of main is already migrated: the savepoint has {NEW} alone"
    ]
    (note,) = option_notes(resolved(done, {"no_flag": True}))
    assert note == f"--no-flag-state had no effect: {LEGACY} of main is already migrated, the savepoint has {NEW} alone"


def test_a_native_savepoint_that_stays_as_it_is_is_said_to_stay_native() -> None:
    """Canonical is the format of a result, and here is none."""
    told: dict[str, Any] = {"source": str(GOLDEN / "native-2.3-rocksdb"), "target": "/no", "no_timers": True}

    def lines(**options: object) -> list[str]:
        plan = plan_of({"job": "j", "operators": [], "max_parallelism": 128, **told, **options})
        return nothing_to_do_lines(resolve(plan, Savepoint.open(plan.source)))

    stays = "note: nothing is written, so the savepoint stays native: --format canonical alone makes no other of it"
    assert stays in lines()
    assert stays not in lines(output_format="native")


def test_a_job_that_is_too_old_for_the_result_is_said_to_be_so(tmp_path: Path) -> None:
    PLAIN.write(str(tmp_path / "source"))
    newer = Savepoint.open(str(tmp_path / "source"))
    metadata = replace(newer.metadata, version=3, operators=tuple(with_old_handles(newer)), properties=b"")

    def said(source: Savepoint, **options: object) -> list[str]:
        told = {"source": source.folder.shown, "target": str(tmp_path / "target"), "job": "j", "operators": []}
        found = option_notes(resolve(plan_of({**told, **options}), source))
        return [note.split(",")[0] for note in found if "can't start from the result" in note]

    old = replace(newer, metadata=metadata)
    assert said(old, parallelism=2) == ["a job of Flink before 1.13 can't start from the result"]
    assert said(old, output_format="native") == ["a job of Flink before 1.15 can't start from the result"]
    # The run writes nothing, or for another Flink, or the source has such handles itself.
    assert not said(old, parallelism=1)
    assert not said(old, parallelism=2, to="flink-1.20")
    assert not said(newer, parallelism=2)


def test_a_time_to_live_for_a_migrated_state_without_one_is_refused(tmp_path: Path) -> None:
    without = migrated(tmp_path / "without", PLAIN)
    with pytest.raises(PlanError) as caught:
        resolved(without, WITH_TTL)
    assert str(caught.value).startswith(
        f"state {NEW} of operator main has no TTL (its values have no timestamps), but the run has --ttl 30d"
    )
    stamped = migrated(tmp_path / "stamped", TIMED, ttl_ms="30d")
    notes_ = option_notes(resolved(stamped, WITH_TTL, keep_expired=True))
    assert notes_ == [
        f"--ttl had no effect: {LEGACY} of main is already migrated, the savepoint has {NEW} alone",
        "--keep-expired had no effect: no legacy state has a time to live",
    ]
    # Nothing is migrated, so nobody has to know it.
    assert nothing_to_do_lines(resolved(stamped, {}))[0].startswith("nothing to do")


def test_an_option_for_another_kind_of_run_or_source_is_said_to_be_so(tmp_path: Path) -> None:
    def resolved_(name: str, **options: object) -> ResolvedPlan:
        source = Savepoint.open(str(GOLDEN / name), files_from=MOVED)
        told = {"source": str(GOLDEN / name), "target": str(tmp_path / "new"), "job": "j", "operators": []}
        return resolve(plan_of({**told, "parallelism": 2, "files_from": MOVED, **options}), source)

    def vain_of(one: ResolvedPlan) -> list[str]:
        return [note for note in option_notes(one) if "had no effect" in note]

    def said(name: str, **options: object) -> list[str]:
        return vain_of(resolved_(name, **options))

    canonical, native = "legacy-2.3-rocksdb", "native-2.3-rocksdb"
    moved = f"--files-from /old=/new had no effect: {GOLDEN / canonical} has no address of a file below /old"
    timers = "--no-timers had no effect: only a native savepoint may lack timers, and this source is canonical"
    assert said(canonical) == [moved]
    # The other snapshot that the run reads may need it.
    for other in ("before", "like"):
        of = resolved_(canonical)
        assert vain_of(replace(of, plan=of.plan.model_copy(update={other: "/before"}))) == []
    assert said(canonical, no_timers=True) == [timers, moved]
    assert timers not in said(canonical, no_timers=True, rehearse=True)
    assert len(said(native, no_timers=True)) == 1
    nights = {"output_format": "native", "full_every": 3, "to": "flink-2"}
    vain = "--full-every had no effect: only a rehearsal goes on from an earlier one, and this run is none"
    assert vain in said(canonical, **nights)
    assert vain not in said(canonical, **nights, rehearse=True)


def notes_on_keys(class_name: str, classes: FoundClasses | None = None) -> list[str]:
    """What is said of a map by Kryo with such keys, in which the snapshot has found these classes."""
    return notes_on(f"Map<Kryo<{class_name}>, Long>", classes)


def notes_on(type_: str, classes: FoundClasses | None = None) -> list[str]:
    source = str(GOLDEN / "hint-hash-map-2.3-rocksdb")
    jars = [str(FOLDER / name) for name in ("kept-classes.jar", "pojo-classes.jar")]
    plan = resolved(source, {"map_type": type_, "new": "rows"}, classes=jars)
    ((of, rules),) = plan.migrations
    inventory = Inventory()
    if classes is not None:
        inventory.maps[of.ref(rules.legacy.name)] = classes
    return [note for note in kryo_notes(plan, inventory) if "the bytes of its user key" in note]


@pytest.mark.parametrize("name", ["com.acme.Key", "java.util.Optional", "java.lang.Object", "java.net.URI"])
def test_user_keys_by_kryo_that_may_be_equal_with_other_bytes(name: str) -> None:
    (note,) = notes_on_keys(name)
    assert note.startswith(f"user keys of mainState of main are by Kryo ({name}). The new job finds an entry by")


@pytest.mark.parametrize(
    "name",
    [
        "java.util.UUID",
        "java.util.Currency",
        "stateferry.kryo.KryoThings$Color",
        "stateferry.kryo.KryoPojos$WithoutSetter",
    ],
)
def test_user_keys_by_kryo_that_are_equal_with_equal_bytes(name: str) -> None:
    assert not notes_on_keys(name)


@pytest.mark.parametrize("key", ["BigInteger", "BigDecimal", "Tuple2<String, BigInteger>"])
def test_three_large_numbers_have_two_forms(key: str) -> None:
    (note,) = notes_on("Map<" + key + ", Long>")
    assert note.startswith(
        "user keys of mainState of main have a BigInteger or BigDecimal, and Flink writes 0, 1 and 10"
    )


@pytest.mark.parametrize("key", ["Pojo<{}>", "Tuple2<String, Pojo<{}>>"])
def test_a_pojo_may_be_equal_with_other_bytes(key: str) -> None:
    name = "stateferry.kryo.KryoPojos$Bean"
    (note,) = notes_on(f"Map<{key.format(name)}, Long>")
    assert note.startswith(f"user keys of mainState of main have objects of {name}")


@pytest.mark.parametrize("key", ["String", "Tuple2<String, Long>", "Enum<stateferry.kryo.KryoThings$Color>"])
def test_flinks_own_types_are_equal_with_equal_bytes(key: str) -> None:
    assert not notes_on(f"Map<{key}, Long>")


def test_a_sorted_map_finds_a_decimal_number_of_another_scale() -> None:
    decimals = {"java.math.BigDecimal": 2}
    for name in ("java.util.TreeMap", "java.util.concurrent.ConcurrentSkipListMap"):
        (note,) = notes_on_keys("java.util.UUID", FoundClasses(1, classes={"map": {name: 1}, "key": decimals}))
        assert note.startswith("maps of mainState of main are sorted, with BigDecimal keys: the old job finds 1.00 by")
    for others in ({"map": {"java.util.HashMap": 1}, "key": decimals}, {"map": {name: 1}, "value": decimals}):
        assert not notes_on_keys("java.util.UUID", FoundClasses(1, classes=others))
