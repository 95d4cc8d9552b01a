"""Maps by Flink's own map serializer, with keys and values by Kryo or parts that are: what a run makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError, RejectedError
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import NullableType
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.changes.upgrade import for_other_kryo
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.record.step_facts import SnapshotFacts, WrittenTables
from tests.rocksdb.goldens import Contents, contents
from tests.steps.test_for_another_flink import ALONE
from tests.steps.test_native_source import run
from tests.support.facts import kept_facts

GOLDENS = Path(__file__).parents[1] / "savepoints"
MADE = (
    "kryo-parts-1.20-rocksdb",
    "kryo-parts-ttl-1.20-hashmap",
    "kryo-parts-2.3-hashmap",
    "kryo-parts-ttl-2.3-rocksdb",
    "pojo-parts-1.20-rocksdb",
    "pojo-parts-ttl-2.3-hashmap",
)
JAR = GOLDENS.parent / "kryo" / "collection-classes.jar"
# Of these, Flink's serializers write no null by themselves.
WITHOUT_NULL = ("Map<UUID,Long>", "Map<String,List<Visit>>")
OPTIONS: Mapping[str, dict[str, Any]] = {
    "as it is": {},
    "parallelism 3": {"parallelism": 3},
    "max parallelism 300": {"max_parallelism": 300},
    "native": {"output_format": "native"},
    "native, max parallelism 64": {"output_format": "native", "max_parallelism": 64},
    "keeping the maps": {"keep_legacy": True},
}


def options_of(golden: str, **more: object) -> dict[str, Any]:
    ttl = "-ttl-" in golden
    source = Savepoint.open(str(GOLDENS / golden))
    states = [
        {"legacy": state.name, "new": state.name.replace("old", "new"), **({"ttl_ms": 10**11} if ttl else {})}
        for state in source.keyed_states(source.operator("main"))
    ]
    return {
        "operators": [{"operator": "main", "states": states}],
        "on_contradiction": "stop",
        "nulls": "drop" if ttl else "keep",
        "clock_tolerance_ms": MAX_MILLISECONDS,
        "keep_expired": ttl,
        "classes": [str(JAR)] if "pojo-" in golden else [],
        **more,
    }


def keys_of(found: Contents, prefix: int) -> dict[tuple[str, bytes], list[tuple[bytes, bytes]]]:
    """The rest of the key, and the value, of each entry by state and key. A key is a Long and its namespace."""
    by_key: dict[tuple[str, bytes], list[tuple[bytes, bytes]]] = {}
    for state, key, value in found.elements():
        by_key.setdefault((state, key[prefix : prefix + 9]), []).append((key[prefix + 9 :], value))
    return by_key


def assert_cut(blob: bytes, rows: list[tuple[bytes, bytes]], *, ttl: bool, nullable: bool, has_null: bool) -> int:
    """Put together, the rows are the map, byte for byte; returns how many of them are null."""
    stamp, blob = (blob[:8], blob[8:]) if ttl else (b"", blob)
    if nullable:
        flag, blob = blob[0], blob[1:]
        if flag:
            assert (blob, rows) == (b"", [])
            return 0
    count, rest = int.from_bytes(blob[:4], "big"), blob[4:]
    entries, nulls = [], 0
    for user_key, value in rows:
        assert value[1 : 1 + len(stamp)] == stamp
        written = value[1 + len(stamp) :]
        # By Kryo, and by the serializer of a POJO.
        is_null = value[0] == 1 or (ttl and written in (b"\0", b"\1"))
        nulls += is_null
        key = bytes(nullable) + user_key
        entries.append(key + (b"\1" if is_null else b"\0" + written))
    while entries and (found := [entry for entry in entries if rest.startswith(entry)]):
        entries.remove(max(found, key=len))
        rest, count = rest.removeprefix(max(found, key=len)), count - 1
    if has_null:
        assert (entries, rest, count) == ([], b"", 0)
    return nulls


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("golden", MADE)
def test_entries_become_rows(golden: str, options: str, tmp_path: Path) -> None:
    report, _ = run(GOLDENS / golden, tmp_path, **options_of(golden, **OPTIONS[options]))
    assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
    source = Savepoint.open(str(GOLDENS / golden))
    states = {state.name: state for state in source.keyed_states(source.operator("main"))}
    before = keys_of(contents(source), 1)
    regrouped = OPTIONS[options].get("max_parallelism") == 300
    after = keys_of(contents(Savepoint.open(str(tmp_path / "target"))), 2 if regrouped else 1)
    ttl, nulls = "-ttl-" in golden, 0
    for (name, key), ((_, blob),) in before.items():
        state, rows = states[name], after.pop((name.replace("old", "new"), key), [])
        # Under time to live other nulls have no row.
        has_null = not ttl or state.type_name not in WITHOUT_NULL
        nullable = isinstance(state.value, NullableType)
        nulls += assert_cut(blob, rows, ttl=ttl, nullable=nullable, has_null=has_null)
    assert nulls
    assert after.keys() == (before.keys() if options == "keeping the maps" else set())


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("golden", "declared"), [
    ("kryo-parts-1.20-rocksdb", 'new MapStateDescriptor<>("new-0", Types.STRING, Types.GENERIC(java.util.UUID.class))'),
    (
        "kryo-parts-2.3-hashmap",
        'new MapStateDescriptor<>("new-0", Types.STRING, Types.GENERIC(java.time.LocalDate.class))',
    ),
])  # fmt: skip
def test_the_new_job_declares_the_same_serializer(golden: str, declared: str, tmp_path: Path) -> None:
    _, made = run(GOLDENS / golden, tmp_path, **options_of(golden))
    facts = kept_facts(made, SnapshotFacts)
    assert facts.declarations is not None
    assert any(line.endswith(f": {declared}") for line in facts.declarations)
    assert not [note for note in facts.notes if "Kryo" in note]


def test_a_value_of_a_class_of_the_job_needs_its_jar(tmp_path: Path) -> None:
    state = {"legacy": "opaque-in-map", "new": "rows"}
    options = {"operators": [{"operator": "kryo", "states": [state]}], "on_contradiction": "stop"}
    with pytest.raises(RefusedError, match=r"stateferry\.flink\.pojo\.Opaque"):
        run(GOLDENS / "kryo-2.3-rocksdb", tmp_path, **options)


def test_a_part_of_a_class_of_the_job_needs_its_jar(tmp_path: Path) -> None:
    golden = "pojo-parts-1.20-rocksdb"
    with pytest.raises(RefusedError, match=r"state old-0, key .*pojo\.\w+ can't be read .*--classes.*offset \d+"):
        run(GOLDENS / golden, tmp_path, **options_of(golden, classes=[]))
    assert not (tmp_path / "target").exists()


OF_FLINK_1 = tuple(golden for golden in MADE if "-1.20-" in golden)
# The fields of a class that isn't in the jar.
OF_VISIT = {
    "tags": "List<String>",
    "stops": "List<Pojo<stateferry.flink.pojo.Address>>",
    "counts": "Map<String, Long>",
    "rates": "Map<Integer, Double>",
    "marks": "Set<Long>",
}


def declared(golden: str, *names: str) -> dict[str, Any]:
    """What a run for Flink 2 must be told of states with these names."""
    if "pojo-" not in golden:
        return {"to": "flink-2"}
    told = {f"main/{name}.{field}": type_ for name in names for field, type_ in OF_VISIT.items()}
    return {"to": "flink-2", "declared": told}


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("golden", OF_FLINK_1)
def test_rows_are_for_flink_2_in_the_same_run(golden: str, options: str, tmp_path: Path) -> None:
    """They are the same, with the same tables, as by a run that migrates and another one that upgrades its result."""
    more = OPTIONS[options]
    told = declared(golden, "old-1", "old-4")
    report, made = run(GOLDENS / golden, tmp_path / "one", **options_of(golden, **told, **more))
    assert {check.outcome.value for check in (*report.checks, *report.tables)} == {"passed"}, report
    facts = kept_facts(made, SnapshotFacts)
    assert not [note for note in facts.notes if "must run on Flink 1" in note]
    run(GOLDENS / golden, tmp_path / "rows", **options_of(golden, **more))
    names = ["new-1", "new-4", *(("old-1", "old-4") if "keep_legacy" in more else ())]
    upgraded = {**ALONE, "classes": options_of(golden)["classes"], **declared(golden, *names)}
    if "output_format" in more:
        upgraded["output_format"] = more["output_format"]
    run(tmp_path / "rows" / "target", tmp_path / "two", **upgraded)
    once, twice = (contents(Savepoint.open(str(tmp_path / one / "target"))) for one in ("one", "two"))
    assert once == twice


def test_the_tables_follow_from_night_to_night(tmp_path: Path) -> None:
    """They have what the new state has: by Kryo 5 as soon as the result is for Flink 2."""
    golden, home = OF_FLINK_1[0], {"home": str(tmp_path / "home"), "rehearse": True}
    for number, to in enumerate(("same", "flink-2", "flink-2")):
        night = options_of(golden, run_id=f"night-{number}", to=to, **home)
        report, made = run(GOLDENS / golden, tmp_path / f"{number}", **night)
        assert {check.outcome.value for check in report.tables} == {"passed"}, report
        facts = kept_facts(made, WrittenTables)
        written = sum(one.rows_written for one in facts.counts.values())
        assert (written == 0) == (number == 2)


def flipped(written: Callable[..., Any]) -> Callable[..., Any]:
    """Another last byte of a map, unless that is a flag: of a UUID, say."""

    def with_another_value(*args: Any, **options: Any) -> Any:
        made = written(*args, **options)
        for end in (made.ends[made.data[made.ends - 1] > 1])[:1]:
            made.data[end - 1] ^= 128
        return made

    return with_another_value


@pytest.mark.parametrize(
    ("what", "red"),
    [("for_other_kryo", r"new-\d: content"), ("_written", r"new-\d: sample read plainly")],
    ids=["the writers alone", "all compiled code"],
)
@pytest.mark.parametrize("golden", [one for one in OF_FLINK_1 if "kryo-" in one])
def test_another_value_is_found(
    golden: str, what: str, red: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(for_other_kryo, what, flipped(getattr(for_other_kryo, what)))
    with pytest.raises(RejectedError, match=red):
        run(GOLDENS / golden, tmp_path, **options_of(golden, to="flink-2"))


def test_a_lazy_run_leaves_whole_maps(tmp_path: Path) -> None:
    golden = "pojo-parts-1.20-rocksdb"
    options = options_of(golden, lazy=True, share=0.5, on_contradiction="blob")
    for state in options["operators"][0]["states"]:
        state["flag"] = state["new"].replace("new", "flag")
    report, _ = run(GOLDENS / golden, tmp_path, **options)
    assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
    before = keys_of(contents(Savepoint.open(str(GOLDENS / golden))), 1)
    after = keys_of(contents(Savepoint.open(str(tmp_path / "target"))), 1)
    left = {place: rows for place, rows in after.items() if place[0].startswith("old")}
    moved = before.keys() - left.keys()
    assert moved
    assert left
    assert all(before[place] == rows for place, rows in left.items())
    for name, key in moved:
        rows = after.get((name.replace("old", "new"), key), [])
        assert_cut(before[name, key][0][1], rows, ttl=False, nullable=False, has_null=True)


@pytest.mark.parametrize("golden", ["kryo-parts-2.3-hashmap", "pojo-parts-1.20-rocksdb"])
def test_it_cant_go_back(golden: str, tmp_path: Path) -> None:
    run(GOLDENS / golden, tmp_path, **options_of(golden))
    back = {"reverse": True, "operators": options_of(golden)["operators"]}
    plan = planned({"source": str(tmp_path / "target"), "target": "/new", **back})
    with pytest.raises(RefusedError, match=r"new-. .* can't become .*: its keys or values are by Kryo \(java\."):
        resolve(plan, open_source(plan))
