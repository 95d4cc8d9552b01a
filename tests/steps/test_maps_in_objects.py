"""Maps in fields of objects that Kryo wrote as a whole: what a run makes of them with the job's classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flinkstate.classfiles.job_classes import job_classes
from flinkstate.errors import PlanError, RefusedError, RejectedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import object_of
from flinkstate.serializers.type_text import type_text
from stateferry.changes import pojos_without_maps
from stateferry.changes.rules import Rules
from stateferry.proof.plain.plain_objects import object_without_map
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.flink.judge import dumped
from tests.kryo.test_fields import VERSIONS
from tests.kryo.test_fields import examples as field_examples
from tests.rocksdb.goldens import contents
from tests.steps.test_kept_values import write
from tests.steps.test_maps_in_pojos import GOLDENS, OPTIONS, PLAIN, lines_of, moved, options_of, rows_of, texts
from tests.steps.test_native_source import run
from tests.support.facts import kept_facts

JAR = Path(__file__).parents[1] / "kryo" / "totals-classes.jar"
MADE = (
    "in-objects-1.20-rocksdb",
    "in-objects-ttl-1.20-hashmap",
    "in-objects-ttl-2.3-rocksdb",
    "in-objects-upgraded-2.3-rocksdb",
)
TOLD: Mapping[str, Any] = {"classes": [str(JAR)]}
STATES = ("raw", "whole")


def objects_of(golden: str, folder: Path) -> Counter[tuple[str, bytes, bytes]]:
    """The rows of the objects in the source, with null for their maps."""
    plan = planned({"source": str(GOLDENS / golden), "target": str(folder / "no"), **options_of(golden, **TOLD)})
    (operator,) = resolve(plan, open_source(plan)).operators
    types = {rules.legacy.name: rules.legacy.value for rules in operator.rules}
    assert all(object_of(type_) is not None for type_ in types.values())
    stamp = 8 if "-ttl-" in golden else 0
    found: Counter[tuple[str, bytes, bytes]] = Counter()
    for (state, key, value), count in contents(Savepoint.open(str(GOLDENS / golden))).items():
        found[state, key, object_without_map(types[state], value, stamp)] += count  # type: ignore[arg-type]
    return found


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("rest", ["keep", "drop"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("golden", MADE)
def test_entries_become_rows_and_objects_stay_without_them(
    golden: str, options: str, rest: str, tmp_path: Path
) -> None:
    report, _ = run(GOLDENS / golden, tmp_path, **options_of(golden, rest, **OPTIONS[options], **TOLD))
    assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
    lines, target = lines_of(golden), tmp_path / "target"
    regrouped = "max_parallelism" in OPTIONS[options]
    for name in STATES:
        rows = dumped(target, "main", f"{name}Counts")
        assert texts(rows, without_group=regrouped) == texts(rows_of(lines, name), without_group=regrouped)
    kept = Counter({row: count for row, count in contents(Savepoint.open(str(target))).items() if row[0] in STATES})
    if rest == "drop":
        assert not kept
    elif not regrouped:
        assert kept == objects_of(golden, tmp_path)


def test_maps_of_both_kryos_are_counted(tmp_path: Path) -> None:
    golden = "in-objects-upgraded-2.3-rocksdb"
    _, one = run(GOLDENS / golden, tmp_path, **options_of(golden, **TOLD))
    facts = kept_facts(one, SnapshotFacts)
    assert facts.kryo is not None
    assert [(found.state, found.type) for found in facts.kryo] == [(name, "Map<String,Long>") for name in STATES]
    for found in facts.kryo:
        assert min(found.classes.kryo[kryo] for kryo in ("2", "5")) > 2
        assert set(found.classes.classes) == {"map", "key", "value"}


def test_with_keep_legacy_the_object_stays_as_it_was(tmp_path: Path) -> None:
    golden = "in-objects-1.20-rocksdb"
    report, _ = run(GOLDENS / golden, tmp_path, **options_of(golden, "stop", keep_legacy=True, **TOLD))
    assert report.is_green
    before, after = (contents(Savepoint.open(str(folder))) for folder in (GOLDENS / golden, tmp_path / "target"))
    assert before == Counter({row: count for row, count in after.items() if not row[0].endswith("Counts")})


def test_another_run_finds_nothing_more_in_the_objects(tmp_path: Path) -> None:
    golden = "in-objects-ttl-2.3-rocksdb"
    options = options_of(golden, **TOLD)
    run(GOLDENS / golden, tmp_path / "first", **options)
    again, _ = run(tmp_path / "first" / "target", tmp_path / "second", **options, accept_empty=1.0)
    assert again.is_green
    first, second = (contents(Savepoint.open(str(tmp_path / name / "target"))) for name in ("first", "second"))
    assert first == second


@pytest.mark.parametrize("wrong", ["the map stays", "another byte"])
def test_the_proof_sees_a_wrong_rest(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = pojos_without_maps.without_maps

    def without_maps(section: Section, rules: Rules) -> Section:
        if wrong == "the map stays":
            return section
        made = right(section, rules)
        made.data[made.ends - 1] ^= 1
        return made

    golden = "in-objects-ttl-2.3-rocksdb"
    monkeypatch.setattr(pojos_without_maps, "without_maps", without_maps)
    with pytest.raises(RejectedError, match=r"failed its checks.*POJOs without their maps"):
        run(GOLDENS / golden, tmp_path, **options_of(golden, **TOLD))


@pytest.mark.parametrize(
    ("changes", "told", "message"),
    [
        ({}, {}, r"Kryo wrote the objects of .*\.Totals as a whole.*give the job's jar, --classes job.jar"),
        ({}, {"classes": [str(JAR.with_name("kept-classes.jar"))]}, "can't be read: the jars don't have it"),
        ({"field": "count"}, TOLD, r"has no field 'count'. Did you mean counts\? There are: begun, counts, name"),
        ({"field": "name"}, TOLD, r"field name of .*Totals is a String, not a map"),
        ({"field": "total"}, TOLD, r"field total of .*Totals is a number, not a map"),
        (
            {"map_type": "Map<String, Double>"},
            TOLD,
            r"--as says Map<String,Double>, and the class .*\.Totals in the jar has java\.util\.Map<.*Long> counts",
        ),
        ({"rest": "stop"}, TOLD, r"it isn't said what becomes of them: give rest keep .* or rest drop"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], told: dict[str, object], message: str) -> None:
    golden = "in-objects-1.20-rocksdb"
    state = moved("whole", golden) | changes
    values = {"source": str(GOLDENS / golden), "target": "/new", **PLAIN, **told}
    plan_values = {**values, "operators": [{"operator": "main", "states": [state]}]}
    with pytest.raises(PlanError, match=message):
        resolve(plan := planned(plan_values), open_source(plan))


def test_an_entry_of_another_type_than_told_is_refused(tmp_path: Path) -> None:
    golden = "in-objects-1.20-rocksdb"
    state = moved("whole", golden, map_type="Map<String, Kryo<java.util.UUID>>")
    with pytest.raises(RefusedError, match=r"state whole, key .*expected UUID as the map's value, found Long"):
        run(GOLDENS / golden, tmp_path, **{**PLAIN, "operators": [{"operator": "main", "states": [state]}]}, **TOLD)
    assert not (tmp_path / "target").exists()


def test_a_pojo_that_stays_is_written_for_flink_2_in_the_same_run() -> None:
    declared = {
        **{f"main/{state}.counts": "Map<String,Long>" for state in ("totals", "moved")},
        "main/totals.notes": "Map<Integer,String>",
    }
    options = {"to": "flink-2", "declared": declared, **TOLD}
    for rest in ("keep", "drop"):
        values = {"source": str(GOLDENS / "in-pojos-1.20-rocksdb"), "target": "/new"}
        told = declared if rest == "keep" else None
        values |= options_of("in-pojos-1.20-rocksdb", rest, **{**options, "declared": told})
        plan = planned(values)
        assert resolve(plan, open_source(plan)).rewrites()


def test_a_look_names_the_fields_with_maps() -> None:
    source = Savepoint.open(str(GOLDENS / "in-objects-1.20-rocksdb"))
    state = source.state(source.operator("main"), "whole")
    assert state.why_not_migratable == "its value is stateferry.flink.pojo.Totals, serialized by Kryo"
    known = state.with_classes(job_classes((str(JAR),)))
    assert (known.why_not_migratable or "").endswith("by Kryo; it has maps in fields: --field counts or notes")


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize("name", ["parts", "pojos", "typed and kept"])
@pytest.mark.parametrize("version", VERSIONS)
def test_values_of_a_map_in_an_object_may_stay_kryos(version: str, name: str, tmp_path: Path) -> None:
    one = field_examples(version)[name]
    write(tmp_path / "source", one, version=4 if version < "2" else 5)  # type: ignore[arg-type]
    state = {"legacy": "totals", "new": "entries", "field": "counts", "rest": "keep", "map_type": type_text(one.map)}
    told = {"classes": [str(JAR.with_name("field-classes.jar"))], **PLAIN}
    operators = [{"operator": "main", "states": [state]}]
    report, _ = run(tmp_path / "source", tmp_path / "run", **told, operators=operators)
    assert report.is_green, report
    found = contents(Savepoint.open(str(tmp_path / "run" / "target")))
    assert {value for state, _, value in found if state == "totals"} <= set(one.rest)
    assert {state for state, _, _ in found} == {"totals", "entries"}


def test_an_object_that_contains_itself_is_migrated_and_the_report_says_what_was_not_read(tmp_path: Path) -> None:
    one = field_examples("2.3.0")["itself"]
    write(tmp_path / "source", one, version=5)  # type: ignore[arg-type]
    state = {"legacy": "totals", "new": "entries", "field": "counts", "rest": "keep"}
    told = {"classes": [str(JAR.with_name("field-classes.jar"))], **PLAIN, "nulls": "keep"}
    operators = [{"operator": "main", "states": [state]}]
    report, _ = run(tmp_path / "source", tmp_path / "run", **told, operators=operators)
    assert report.is_green, report
    assert [check.name for check in report.checks if check.outcome.value == "could not tell"]
    found = contents(Savepoint.open(str(tmp_path / "run" / "target")))
    assert {value for state, _, value in found if state == "totals"} <= set(one.rest)


@pytest.mark.parametrize("golden", ["in-objects-1.20-rocksdb", "in-objects-ttl-1.20-hashmap"])
def test_plain_code_reads_the_maps_of_objects_that_are_written_for_flink_2(golden: str, tmp_path: Path) -> None:
    report, _ = run(GOLDENS / golden, tmp_path, **options_of(golden, "keep", to="flink-2", **TOLD))
    assert {one.outcome.value for one in (*report.checks, *report.tables)} == {"passed"}, report
