"""Runs whose result is for another Flink: what that would read wrongly stops them, before anything is written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError, RefusedError, UsageError
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint
from stateferry.runs.guards import other_flink
from stateferry.runs.plan.plan_json import plan_of
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome, StateVerdict
from stateferry.verdict.versions import Line
from tests.steps.test_native_source import run
from tests.support.legacy_states import LegacyState

GOLDEN = Path(__file__).parents[1] / "savepoints"
KRYO = GOLDEN / "hint-hash-map-1.20-rocksdb"
OF_FLINK = GOLDEN / "legacy-1.20-hashmap"
PARTS = GOLDEN / "kryo-parts-1.20-rocksdb"
STATE = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}
MIGRATED: dict[str, Any] = {"operators": [{"operator": "main", "states": [STATE]}]}
ALONE: dict[str, Any] = {"operators": [], "parallelism": 3, "job": "totals"}
# Options of a migration, which the runs of these tests have.
ALONE |= {"nulls": "stop", "on_contradiction": "stop", "accept_expired": None}


def test_what_kryo_2_wrote_is_written_by_kryo_5(tmp_path: Path) -> None:
    report, made = run(KRYO, tmp_path, to="flink-2", **ALONE)
    assert report.is_green
    names = [check.name.rpartition("/")[2] for check in report.checks]
    assert "mainState: carried over, written by Kryo 5" in names
    assert "mainState: sample read plainly" in names
    before, after = Savepoint.open(str(KRYO)), Savepoint.open(made.plan.target)
    assert (before.metadata.version, after.metadata.version) == (4, 6)
    outcomes = {one.finding.outcome for one in verdicts(after, Asked(Line.TWO, everything=True))}
    assert outcomes == {Outcome.RESTORES}


def test_a_key_with_a_map_and_rows_is_sampled_once(tmp_path: Path) -> None:
    """To find out which of the two count, its key group is read twice."""
    content = ({"u": 1, "v": 2}, 0)
    state = LegacyState({f"key-{number}": content for number in range(9)}, {"key-1": {"w": (3, 0)}}, kryo=2)
    source = state.write(str(tmp_path / "source")).folder.path
    report, _ = run(Path(source), tmp_path, to="flink-2", keep_legacy=True, **MIGRATED)
    assert report.is_green, report.failed


def test_a_value_that_cannot_be_written_by_kryo_5_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"state opaque, key .*Opaque.*: --classes job.jar .* offset"):
        run(GOLDEN / "kryo-1.20-rocksdb", tmp_path, to="flink-2", **ALONE)
    assert not (tmp_path / "target").exists()


def test_how_a_map_is_declared_must_be_told(tmp_path: Path) -> None:
    source = GOLDEN / "hint-map-1.20-rocksdb"
    cases: tuple[tuple[dict[str, str] | None, str], ...] = (
        (None, r"--declared '.*/mainState=Map<String, Long>'.*; if by Map.class, .*/mainState=Map'"),
        ({"main/mainStat": "Map"}, "no Map, List, Set or Collection by Kryo of this name.*mainState"),
        ({"main/mainState": "List<String>"}, "expected Map or Map<...>, found 'List<String>'"),
        ({"main/mainState": "Map<String>"}, "expected 2 type arguments"),
        ({"main/mainState": "Map<String, java.util.UUID>"}, "no type 'UUID' is known here"),
        ({"main/mainState": "Map<String, LocalDate>"}, "only numbers, texts, dates and arrays, Pojo"),
        ({"main/mainState": "Map<String, Pojo<com.acme.Reading>>"}, "which fields .* has is not known|--classes"),
    )
    for told, why in cases:
        with pytest.raises((PlanError, UsageError), match=why):
            run(source, tmp_path, to="flink-2", declared=told, **ALONE)
    with pytest.raises(PlanError, match="is for a savepoint of one Flink and --to of the other"):
        run(source, tmp_path, declared={"main/mainState": "Map"}, **ALONE)
    with pytest.raises(RefusedError, match="found Long where --declared has another class"):
        run(source, tmp_path, to="flink-2", declared={"main/mainState": "Map<String, String>"}, **ALONE)
    objects = {"main/mainState": "Map<String, Kryo<java.util.UUID>>"}
    with pytest.raises(RefusedError, match="expected UUID as the map's value, found Long"):
        run(source, tmp_path / "objects", to="flink-2", declared=objects, **ALONE)
    arrays = {"main/mainState": "Map<String, Long[]>"}
    with pytest.raises(RefusedError, match=r"expected Long\[\] as the map's value, found Long"):
        run(source, tmp_path / "arrays", to="flink-2", declared=arrays, **ALONE)
    for number, (nested, why) in enumerate(
        (
            ("Map<String, List<String>>", r"as the map's value, found Long"),
            ("Map<String, Set<Kryo<java.util.UUID>>>", r"as the map's value, found Long"),
            ("Map<List<String>, Long>", r"as the map's key, found String"),
        )
    ):
        with pytest.raises(RefusedError, match=why):
            run(source, tmp_path / str(number), to="flink-2", declared={"main/mainState": nested}, **ALONE)
    assert not (tmp_path / "target").exists()
    right = {"main/mainState": "Map<String, Long>"}
    report, _ = run(source, tmp_path / "right", to="flink-2", declared=right, **ALONE)
    assert report.is_green


def test_what_values_of_scala_become_must_be_told(tmp_path: Path) -> None:
    source = GOLDEN / "scala-1.20-rocksdb"
    with pytest.raises(PlanError) as refused:
        run(source, tmp_path, to="flink-2", **ALONE)
    for place, text in (("value-0-ScalaTuple2-String--Long", "Tuple2<String, Long>"), ("value-2-Option-Long", "Long?")):
        assert re.search(rf"such as --declared '.*/{place}={re.escape(text)}'", str(refused.value))
    assert "value-6-Try-Long" in str(refused.value)
    found = {one.state: one.finding for one in verdicts(Savepoint.open(str(source)), Asked(Line.TWO))}
    assert "with --declared" in found["value-2-Option-Long"].advice
    assert "such as Long?" in found["value-2-Option-Long"].advice
    assert "to types of Java" in found["value-6-Try-Long"].advice
    assert not (tmp_path / "target").exists()


def test_a_declaration_that_is_there_twice_or_of_nothing_is_refused(tmp_path: Path) -> None:
    source, id_ = GOLDEN / "hint-map-1.20-rocksdb", "075411a2d1ef617c7b2ad2770050b24f"
    cases: tuple[tuple[Path, object, str], ...] = (
        (source, ["main/mainState=Map", "main/mainState=Map<String, Long>"], "'main/mainState' is there twice"),
        (source, {"main/mainState": "Map", f"{id_}/mainState": "Map<String, Long>"}, "there twice, by two names"),
        (source, {"main/mainState": "com.acme.Map<String, Long>"}, r"expected Map or Map<\.\.\.>"),
        (source, {"main/mainState": "com.acme.Map"}, r"expected Map or Map<\.\.\.>"),
        (GOLDEN / "operator-state-1.20-hashmap", {"plain/no": "Map"}, "has no Map, List, Set or Collection by Kryo"),
    )
    for savepoint, told, why in cases:
        with pytest.raises((PlanError, UsageError), match=why):
            run(savepoint, tmp_path, to="flink-2", declared=told, **ALONE)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("native", [False, True])
def test_it_goes_with_another_max_parallelism_and_other_files(native: bool, tmp_path: Path) -> None:
    source = GOLDEN / ("native-hint-hash-map-1.20-rocksdb" if native else "hint-hash-map-ttl-1.20-rocksdb")
    wanted = ALONE | {"max_parallelism": 256, "output_format": "native" if native else "canonical"}
    report, _ = run(source, tmp_path, to="flink-2", **wanted)
    assert report.is_green, report


@pytest.mark.parametrize("to", ["same", "flink-1.20"])
def test_the_same_flink_reads_it(to: str, tmp_path: Path) -> None:
    report, made = run(KRYO, tmp_path, to=to, **ALONE)
    assert report.is_green
    assert Savepoint.open(made.plan.target).metadata.version == 4


def test_a_map_that_is_migrated_may_stay_beside_its_rows(tmp_path: Path) -> None:
    for keeps in (False, True):
        report, made = run(KRYO, tmp_path / str(keeps), to="flink-2.3", keep_legacy=keeps, **MIGRATED)
        assert report.is_green
        found = list(verdicts(Savepoint.open(made.plan.target), Asked(Line.TWO, everything=True)))
        assert {one.state for one in found} >= ({"mainState", "newMainState"} if keeps else {"newMainState"})
        assert {one.finding.outcome for one in found} == {Outcome.RESTORES}


def test_another_operator_may_have_the_same_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(savepoint: Savepoint, asked: Asked) -> Iterator[StateVerdict]:
        for one in verdicts(savepoint, asked):
            yield from (one, replace(one, operator_id="0" * 32))

    monkeypatch.setattr(other_flink, "verdicts", twice)
    with pytest.raises(RefusedError, match="mainState: restores and is wrong"):
        run(KRYO, tmp_path, to="flink-2", **MIGRATED)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("keeps", [False, True])
def test_a_repair_migrates_no_values_that_stay_values_of_kryo_2(keeps: bool, tmp_path: Path) -> None:
    upgraded = tmp_path / "upgraded"
    shutil.copytree(PARTS, upgraded)
    # As if a job of Flink 2 had restored it and taken a savepoint: it has written none of the values since.
    metadata = parse_metadata((upgraded / METADATA).read_bytes(), METADATA)
    (upgraded / METADATA).write_bytes(build_metadata(replace(metadata, version=6)))
    states = [{"legacy": f"old-{number}", "new": f"new-{number}"} for number in range(4)]
    wanted: dict[str, Any] = {
        "operators": [{"operator": "075411a2d1ef617c7b2ad2770050b24f", "states": states}],
        "nulls": "keep",
        "on_contradiction": "stop",
        "keep_legacy": keeps,
    }
    with pytest.raises(RefusedError, match=r"old-0: .*are by Kryo 2.*a run with --to alone, and its result to another"):
        run(upgraded, tmp_path / "both", to="flink-2", **wanted)
    assert not (tmp_path / "both" / "target").exists()
    report, repaired = run(upgraded, tmp_path / "repaired", to="flink-2", **ALONE)
    assert report.is_green, report
    report, made = run(Path(repaired.plan.target), tmp_path / "migrated", to="flink-2", **wanted)
    assert report.is_green, report
    found = list(verdicts(Savepoint.open(made.plan.target), Asked(Line.TWO, everything=True)))
    assert {one.finding.outcome for one in found} == {Outcome.RESTORES}


def test_states_by_flinks_own_serializers_are_carried_over(tmp_path: Path) -> None:
    report, _ = run(OF_FLINK, tmp_path, to="flink-2", **ALONE)
    assert report.is_green


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("legacy-2.3-rocksdb", None),
        ("hint-hash-map-2.3-rocksdb", None),
        ("hint-map-2.3-rocksdb", None),
        ("hint-map-ttl-2.3-hashmap", {"main/mainState": "Map"}),
        ("upgraded-hint-hash-map-ttl-2.3-rocksdb", None),
    ],
)
def test_a_savepoint_of_flink_2_is_written_for_flink_1(name: str, told: dict[str, str] | None, tmp_path: Path) -> None:
    report, made = run(GOLDEN / name, tmp_path, to="flink-1.20", declared=told, **ALONE)
    assert report.is_green, report
    after = Savepoint.open(made.plan.target)
    assert after.metadata.version == 4
    assert {one.finding.outcome for one in verdicts(after, Asked(Line.ONE, everything=True))} == {Outcome.RESTORES}
    if not name.startswith("legacy"):
        names = [check.name.rpartition("/")[2] for check in report.checks]
        assert "mainState: carried over, written by Kryo 2" in names
        assert "mainState: sample read plainly" in names


@pytest.mark.parametrize("name", ["hint-map-2.3-rocksdb", "hint-hash-map-2.3-rocksdb"])
def test_on_the_way_back_a_map_may_be_migrated(name: str, tmp_path: Path) -> None:
    report, made = run(GOLDEN / name, tmp_path, to="flink-1.20", **MIGRATED)
    assert report.is_green, report
    found = list(verdicts(Savepoint.open(made.plan.target), Asked(Line.ONE, everything=True)))
    assert {one.finding.outcome for one in found} == {Outcome.RESTORES}


def test_a_migrated_map_that_stays_may_get_another_serializer(tmp_path: Path) -> None:
    """Of Flink 2 alone, and with the same types in it as in the rows."""
    options, told = {"keep_legacy": True, **MIGRATED}, {"main/mainState": "Map<String, Long>"}
    # Plain code reads the rows of each, by whichever Kryo wrote the maps.
    for name, to in (
        ("hint-hash-map-2.3-rocksdb", "flink-1.20"), ("upgraded-hint-hash-map-2.3-rocksdb", "flink-2"),
    ):  # fmt: skip
        report, _ = run(GOLDEN / name, tmp_path / name, to=to, **options)
        assert {one.outcome.value for one in (*report.checks, *report.tables)} == {"passed"}, report
    source = GOLDEN / "hint-map-1.20-rocksdb"
    report, made = run(source, tmp_path / "two", to="flink-2", declared=told, **options)
    assert {one.outcome.value for one in (*report.checks, *report.tables)} == {"passed"}, report
    found = list(verdicts(Savepoint.open(made.plan.target), Asked(Line.TWO, everything=True)))
    assert {one.finding.outcome for one in found} == {Outcome.RESTORES}
    with pytest.raises(PlanError, match=r"mainState .* is migrated, and what stays of it"):
        run(GOLDEN / "hint-map-2.3-rocksdb", tmp_path, to="flink-1.20", declared=told, **options)
    with pytest.raises(PlanError, match=r"is a Map<String,Integer> by --declared, but its maps are Map<String,Long>"):
        run(source, tmp_path, to="flink-2", declared={"main/mainState": "Map<String, Integer>"}, **options)
    assert not (tmp_path / "target").exists()


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    """To Flink 2 and back: each file has the same bytes as one that was only brought into the same layout."""
    for number, source in enumerate((KRYO, GOLDEN / "hint-map-1.20-rocksdb")):
        area = tmp_path / str(number)
        _, only_moved = run(source, area / "moved", **ALONE)
        told = {"declared": {"main/mainState": "Map<String, Long>"}} if number else {}
        _, there = run(source, area / "there", to="flink-2", **told, **ALONE)
        _, back = run(Path(there.plan.target), area / "back", to="flink-1.20", **ALONE)
        contents = [
            sorted(one.read_bytes() for one in Path(run_.plan.target).iterdir() if one.name != "_metadata")
            for run_ in (only_moved, back)
        ]
        assert contents[0] == contents[1]


def test_collections_of_flink_2_with_objects_by_kryo_go_back(tmp_path: Path) -> None:
    """Plain code reads all of them, by Kryo 5 and as Kryo 2 reads them."""
    report, _ = run(GOLDEN / "kryo-parts-2.3-hashmap", tmp_path, to="flink-1.20", **ALONE)
    assert {one.outcome.value for one in report.checks} == {"passed"}, report
    assert sum("read plainly" in one.name for one in report.checks) == 5


def test_what_flink_1_cannot_have_stops_the_run(tmp_path: Path) -> None:
    cases: tuple[tuple[str, dict[str, str] | None, str], ...] = (
        ("hint-map-2.3-rocksdb", {"main/mainState": "List"}, "is a Map<String,Long> by .* no List.*=Map'"),
        ("legacy-2.3-rocksdb", {"main/mainState": "Map"}, "no Map, List, Set or Collection by a serializer of Flink 2"),
        ("since-flink-2-2.3-hashmap", None, r"(?s)Flink 1.20 has no serializer of Variant.*has no serializer of Set<"),
    )
    for name, told, why in cases:
        with pytest.raises((PlanError, RefusedError), match=why):
            run(GOLDEN / name, tmp_path, to="flink-1.20", declared=told, **ALONE)
    assert not (tmp_path / "target").exists()


def test_the_way_back_is_for_the_same_flink() -> None:
    with pytest.raises(PlanError, match="to and reverse: the way back is to the Flink that wrote the savepoint"):
        plan_of({"job": "totals", "source": "/in", "target": "/out", "to": "flink-2", "reverse": True, **MIGRATED})
