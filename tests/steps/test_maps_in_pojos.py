"""Maps in fields of POJOs that Flink wrote: what a run makes of them, and what it refuses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import DamagedError, PlanError, RefusedError, RejectedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.stored_maps import map_spans
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import PojoMapType
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.changes import pojos_without_maps
from stateferry.changes.rules import Rules
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.record.step_facts import SnapshotFacts, TablesFacts
from tests.flink.judge import dumped
from tests.rocksdb.goldens import contents
from tests.steps.test_native_source import run
from tests.support.facts import kept_facts
from tests.support.rewriting import rewrite

GOLDENS = Path(__file__).parents[1] / "savepoints"
MADE = (
    "in-pojos-1.20-rocksdb",
    "in-pojos-ttl-1.20-hashmap",
    "in-pojos-ttl-1.20-rocksdb",
    "in-pojos-2.3-hashmap",
    "in-pojos-ttl-2.3-rocksdb",
    "in-pojos-upgraded-2.3-rocksdb",
)
OPTIONS: Mapping[str, dict[str, Any]] = {
    "as it is": {},
    "parallelism 3": {"parallelism": 3},
    "max parallelism 300": {"max_parallelism": 300},
    "native": {"output_format": "native"},
    "native, max parallelism 64": {"output_format": "native", "max_parallelism": 64},
}
PLAIN = {"on_contradiction": "stop", "nulls": "stop", "clock_tolerance_ms": MAX_MILLISECONDS}
Line = dict[str, Any]


def lines_of(golden: str) -> list[Line]:
    with (GOLDENS / golden / "expected.jsonl").open(encoding="ascii") as lines:
        found = [json.loads(line) for line in lines]
    # The class of `moved` has no such field in Flink 2, which leaves it out of the description of the state.
    return [line for line in found if "upgraded" not in golden or line["state"] != "moved"]


def moved(state: str, golden: str, rest: str = "keep", **more: object) -> dict[str, object]:
    ttl = {"ttl_ms": 10**11} if "-ttl-" in golden else {}
    return {"legacy": state, "new": f"{state}Counts", "field": "counts", "rest": rest, **ttl, **more}


def options_of(golden: str, rest: str = "keep", **options: object) -> dict[str, Any]:
    names = sorted({line["state"] for line in lines_of(golden)})
    states = [moved(name, golden, rest) for name in names]
    keeps = {"keep_expired": True} if "-ttl-" in golden else {}
    return {**PLAIN, "operators": [{"operator": "main", "states": states}], **keeps, **options}


def texts(lines: list[Line], *, without_group: bool) -> Counter[str]:
    left_out = {"operator", *(["key_group"] if without_group else [])}
    return Counter(
        json.dumps({name: value for name, value in line.items() if name not in left_out}, sort_keys=True)
        for line in lines
    )


def rows_of(lines: list[Line], state: str) -> list[Line]:
    """The rows that the maps of a state become."""
    return [
        {name: value for name, value in line.items() if name != "value"}
        | {"state": f"{state}Counts", "user_key": key, "value": value}
        for line in lines
        if line["state"] == state
        for key, value in ((line["value"] or {}).get("counts") or {}).items()
    ]


def pojos_of(lines: list[Line], state: str) -> list[Line]:
    return [
        line | {"value": None if line["value"] is None else line["value"] | {"counts": None}}
        for line in lines
        if line["state"] == state
    ]


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("rest", ["keep", "drop"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("golden", MADE)
def test_entries_become_rows_and_pojos_stay_without_them(golden: str, options: str, rest: str, tmp_path: Path) -> None:
    report, _ = run(GOLDENS / golden, tmp_path, **options_of(golden, rest, **OPTIONS[options]))
    assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
    lines, target = lines_of(golden), tmp_path / "target"
    names = sorted({line["state"] for line in lines})
    regrouped = "max_parallelism" in OPTIONS[options]
    for name in names:
        rows = dumped(target, "main", f"{name}Counts")
        assert texts(rows, without_group=regrouped) == texts(rows_of(lines, name), without_group=regrouped)
    kept = {state for state, _, _ in contents(Savepoint.open(str(target)))} & set(names)
    assert kept == (set(names) if rest == "keep" else set())
    if rest == "keep" and "2.3" in golden and "upgraded" not in golden:
        found = dumped(target, "main", "totals")
        assert texts(found, without_group=regrouped) == texts(pojos_of(lines, "totals"), without_group=regrouped)


@pytest.mark.parametrize("golden", ["in-pojos-1.20-rocksdb", "in-pojos-ttl-2.3-rocksdb"])
def test_values_of_a_map_by_kryo_can_stay_values_of_kryo(golden: str, tmp_path: Path) -> None:
    """Real Flink 1.20 read such rows of UUIDs, sets and objects of the job by Kryo, and the POJOs without the maps."""
    options = options_of(golden)
    kept = moved("kryo", golden, map_type="Map<String, Kryo<java.lang.Object>>")
    options["operators"] = [{"operator": "main", "states": [kept]}]
    report, _ = run(GOLDENS / golden, tmp_path, **options)
    assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
    rows = dumped(tmp_path / "target", "main", "kryoCounts")
    assert texts(rows, without_group=False) == texts(rows_of(lines_of(golden), "kryo"), without_group=False)


def test_values_of_both_kryos_cannot_stay_values_of_kryo(tmp_path: Path) -> None:
    golden = "in-pojos-upgraded-2.3-rocksdb"
    options = options_of(golden)
    kept = moved("kryo", golden, map_type="Map<String, Kryo<java.lang.Object>>")
    options["operators"] = [{"operator": "main", "states": [kept]}]
    with pytest.raises(RefusedError, match="stay values of Kryo"):
        run(GOLDENS / golden, tmp_path, **options)


@pytest.mark.full
def test_another_run_finds_nothing_more_in_the_pojos(tmp_path: Path) -> None:
    golden = "in-pojos-ttl-2.3-rocksdb"
    options = options_of(golden)
    run(GOLDENS / golden, tmp_path / "first", **options)
    again, _ = run(tmp_path / "first" / "target", tmp_path / "second", **options, accept_empty=1.0)
    assert again.is_green
    first, second = (contents(Savepoint.open(str(tmp_path / name / "target"))) for name in ("first", "second"))
    assert first == second


def test_with_keep_legacy_the_pojo_stays_as_it_was(tmp_path: Path) -> None:
    golden = "in-pojos-1.20-rocksdb"
    report, _ = run(GOLDENS / golden, tmp_path, **options_of(golden, "stop", keep_legacy=True))
    assert report.is_green
    before, after = (contents(Savepoint.open(str(folder))) for folder in (GOLDENS / golden, tmp_path / "target"))
    assert before == Counter({row: count for row, count in after.items() if not row[0].endswith("Counts")})


@pytest.mark.parametrize("wrong", ["the map stays", "another byte", "an expired one stays"])
def test_the_proof_sees_a_wrong_rest(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = pojos_without_maps.without_maps

    def without_maps(section: Section, rules: Rules) -> Section:
        made = section if wrong == "the map stays" else right(section, rules)
        if wrong == "another byte":
            made.data[made.ends - 1] ^= 1
        return made

    golden = "in-pojos-ttl-2.3-rocksdb"
    options = options_of(golden)
    if wrong == "an expired one stays":
        of_run = pojos_without_maps.pojos_without_maps
        monkeypatch.setattr(
            "stateferry.changes.blobs_to_rows.pojos_without_maps",
            lambda rules, *others: of_run(replace(rules, keep_expired=True), *others),
        )
        options |= {"keep_expired": False}
    monkeypatch.setattr(pojos_without_maps, "without_maps", without_maps)
    with pytest.raises(RejectedError, match=r"failed its checks.*main/totals: POJOs without their maps"):
        run(GOLDENS / golden, tmp_path, **options)


def problems(golden: str, state: dict[str, object], **options: object) -> str:
    values = {"source": str(GOLDENS / golden), "target": "/new", **PLAIN, **options}
    plan = planned({**values, "operators": [{"operator": "main", "states": [state]}]})
    resolve(plan, open_source(plan))
    return ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"field": "count"},
            r"has no field 'count'. Did you mean counts\? There are: begun, counts, name, notes, total",
        ),
        ({"field": "name"}, r"field name is a String, not a map. Fields of .*Totals that are maps: counts, notes"),
        ({"rest": "stop"}, r"it isn't said what becomes of them: give rest keep .* or rest drop"),
        ({"field": None}, "only a POJO with a map in a field has a rest"),
        (
            {"field": None, "rest": "stop"},
            "a ValueState<Totals>, not of a map; it has maps in fields: --field counts or",
        ),
        ({"flag": "moved"}, "field and flag"),
        ({"map_type": "Map<String, Double>"}, "is a Map<String,Long>, as the savepoint says"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    golden = "in-pojos-2.3-hashmap"
    state = {name: value for name, value in (moved("totals", golden) | changes).items() if value is not None}
    with pytest.raises(PlanError, match=message):
        problems(golden, state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reverse": True}, "field and reverse"),
        ({"lazy": True, "share": "30%"}, "lazy: the map of state 'totals' is in a field"),
        ({"keep_legacy": True}, "rest and keep_legacy"),
    ],
)
def test_options_of_a_run_that_a_field_excludes(options: dict[str, object], message: str) -> None:
    golden = "in-pojos-2.3-hashmap"
    with pytest.raises(PlanError, match=message):
        problems(golden, moved("totals", golden), **options)


def test_a_state_of_something_else_has_no_field() -> None:
    with pytest.raises(PlanError, match="not a ValueState of a POJO"):
        problems("hint-map-2.3-rocksdb", {"legacy": "mainState", "new": "new", "field": "counts", "rest": "drop"})


def test_maps_by_kryo_of_another_type_than_told_are_refused(tmp_path: Path) -> None:
    golden = "in-pojos-1.20-rocksdb"
    state = moved("kryo", golden, map_type="Map<String, Double>")
    with pytest.raises(RefusedError, match=r"state kryo, key .*expected Double as the map's value, found Long"):
        run(GOLDENS / golden, tmp_path, **{**PLAIN, "operators": [{"operator": "main", "states": [state]}]})


@pytest.mark.parametrize(
    ("told", "is_refused"),
    [
        ("Map<String, Integer>", True),
        ("Map<Long, Long>", True),
        ("Map<String, Long>", False),
        ("Map<String, Kryo<java.lang.Object>>", False),
    ],
)
def test_a_map_of_another_type_than_the_class_has_is_refused(told: str, is_refused: bool) -> None:
    """Where all maps are empty, no entry shows it."""
    golden = "in-pojos-1.20-rocksdb"
    jar = Path(__file__).parents[1] / "kryo" / "totals-classes.jar"
    state = moved("totals", golden, map_type=told)
    values = {"source": str(GOLDENS / golden), "target": "/new", **PLAIN, "classes": [str(jar)]}
    plan = planned({**values, "operators": [{"operator": "main", "states": [state]}]})
    if is_refused:
        with pytest.raises(PlanError, match=r"--as says .* in the jar has java\.util\.Map<.*Long> counts"):
            resolve(plan, open_source(plan))
    else:
        resolve(plan, open_source(plan))


def sections(golden: str, name: str) -> tuple[PojoMapType, list[Section]]:
    """The sections of a state, and the type by which its maps are found."""
    plan = planned(
        {"source": str(GOLDENS / golden), "target": "/new", **options_of(golden)},
    )
    source = open_source(plan)
    (operator,) = resolve(plan, source).operators
    type_ = operator.states[name].value
    assert isinstance(type_, PojoMapType)
    found = []
    for file in source.open_files(operator.operator):
        names = [state.name for state in file.header.states]
        for key_group in file.handle.range:
            found += [
                replace(section, data=section.data.copy()).with_own_positions()
                for section in file.sections(key_group)
                if names[section.state] == name
            ]
    return type_, found


def test_a_wrong_byte_ends_with_its_place() -> None:
    type_, found = sections("in-pojos-1.20-rocksdb", "totals")
    for section in found:
        start = int(section.value_starts[0])
        section.data[start] = 3
        with (
            pytest.raises(DamagedError, match="expected a POJO flag 1, 2, 4 or 8, found 3") as error,
            section.locating(),
        ):
            map_spans(type_, section.data, section.value_starts, section.ends)
        assert error.value.file is not None
        assert error.value.offset == section.base + start


def test_a_night_reads_what_has_changed_since_the_night_before(tmp_path: Path) -> None:
    golden, state = "in-pojos-1.20-rocksdb", moved("kryo", "in-pojos-1.20-rocksdb")
    source = Savepoint.open(str(GOLDENS / golden))
    native = frozenset(operator.id for operator in source.keyed_operators())
    rewrite(source, str(tmp_path / "native"), Layout(native=native))
    of_night = {**PLAIN, "operators": [{"operator": "main", "states": [state]}], "job": "nights", "rehearse": True}
    nights = []
    for number in range(2):
        report, one = run(tmp_path / "native", tmp_path, **of_night, run_id=f"night-{number}")
        assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
        snapshot, tables = kept_facts(one, SnapshotFacts), kept_facts(one, TablesFacts)
        nights.append((snapshot, next(iter(tables.counts.values()))))
    (first, first_tables), (second, second_tables) = nights
    assert any("have changed since run" in note for note in second.notes)
    assert (first.states, first.met) == (second.states, second.met)
    entries = len(rows_of(lines_of(golden), "kryo"))
    assert (first_tables.rows_written, second_tables.rows_written) == (entries, 0)
    assert second_tables.keys_unchanged == first_tables.keys_new
