"""A run on maps by Kryo whose values stay Kryo's: objects of classes for which Flink has no serializer of its own."""

from __future__ import annotations

import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.classfiles.job_classes import job_classes
from flinkstate.errors import PlanError, RefusedError
from flinkstate.hashing.key_groups import assign_to_key_group, ranges
from flinkstate.keyed.header import KeyedHeader
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import encode
from flinkstate.writing.new_entries import as_entries
from flinkstate.writing.new_savepoint import NewState
from flinkstate.writing.writer import SavepointWriter
from stateferry.runs.checks import kryo_maps
from stateferry.runs.checks.plan_check import planned
from tests.kryo.examples import compiled, maps_of
from tests.kryo.kept import FOLDER, Kept, kept
from tests.kryo.test_pojos import Example
from tests.kryo.test_pojos import examples as pojo_examples
from tests.rocksdb.goldens import contents
from tests.steps.test_native_source import NOW, run

JAR, POJO_JAR = FOLDER / "kept-classes.jar", FOLDER / "pojo-classes.jar"
KEYS = 40


def write(
    target: Path,
    one: Kept | Example,
    *,
    other: Kept | Example | None = None,
    is_alone: bool = True,
    version: int = 4,
) -> None:
    """Writes a savepoint whose state `totals` has this map under each key, but `other` under one.

    That one is alone in its key group, or isn't.
    """
    writer = SavepointWriter(str(target))
    operator = operator_with(writer, "main", one, other, is_alone=is_alone)
    writer.commit(Metadata(version, 1, (operator,), properties=CANONICAL_SAVEPOINT))


def operator_with(
    writer: SavepointWriter,
    uid: str,
    one: Kept | Example,
    other: Kept | Example | None = None,
    *,
    is_alone: bool = True,
) -> Operator:
    """Writes the state of an operator, see `write`."""
    max_parallelism = 128
    rows: dict[int, list[bytes]] = {}
    # Of texts of one character, the character is the hash.
    groups = [assign_to_key_group(ord("a") + number, max_parallelism) for number in range(KEYS)]
    changed = next(number for number, group in enumerate(groups) if (groups.count(group) == 1) == is_alone)
    for number, group in enumerate(groups):
        whole = bytes([group]) + encode(Scalar.STRING, chr(ord("a") + number)) + b"\0"
        written = one.written if other is None or number != changed else other.written
        row = len(whole).to_bytes(4, "big") + whole + len(written).to_bytes(4, "big") + written
        rows.setdefault(group, []).append(row)
    header = KeyedHeader(False, snapshot_of(Scalar.STRING), (NewState("totals", "VALUE", one.kryo).meta(),))
    id_, subtasks = operator_id(uid), []
    for index, key_groups in enumerate(ranges(max_parallelism, 2)):
        with writer.keyed_file(id_.hex(), index, header, key_groups) as file:
            for key_group in key_groups:
                if key_group in rows:
                    file.entries(key_group, 0, *as_entries(rows[key_group]))
            subtasks.append(Subtask(index, managed_keyed=file.close()))
    return Operator(id_, 2, max_parallelism, subtasks=tuple(subtasks))


def wanted(**options: object) -> dict[str, object]:
    state = {"legacy": "totals", "new": "entries", "flag": "flag", "map_type": options.pop("as_type", None)}
    return {"now": NOW, "operators": [{"operator": "main", "states": [state]}], **options}


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize("name", ["UUID with null", "things of keys"])
def test_a_run_makes_a_value_of_each(version: str, name: str, tmp_path: Path) -> None:
    one = kept(version)[name]
    write(tmp_path / "source", one)
    options = {"classes": [str(JAR)]} if "things" in name else {}
    report, _ = run(tmp_path / "source", tmp_path / "run", **wanted(**options))
    assert report.is_green, report
    assert_rows(tmp_path / "run" / "target", one)


def assert_rows(target: Path, one: Kept, state: str = "entries") -> None:
    """Each key has the rows that Flink's serializers write for the map."""
    found = contents(Savepoint.open(str(target)))
    rows = Counter((key[-2:], value) for name, key, value in found.elements() if name == state)
    made = compiled(one.kryo, one.map, [one.written])
    assert maps_of(made) == [one.flink]
    expected: Counter[tuple[bytes, bytes]] = Counter()
    entries = made.entries
    for start, key_end, end in zip(entries.starts, entries.key_ends, entries.ends, strict=True):
        expected[made.data[start:key_end].tobytes()[-2:], made.data[key_end:end].tobytes()] += KEYS
    assert rows == expected


def test_values_that_stay_kryos_are_all_by_one_kryo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no section and no first look has both: the map by the other Kryo is alone in its key group."""
    monkeypatch.setattr(kryo_maps, "_ENOUGH_ENTRIES", 1)
    old, new = (kept(version)["UUID with null"] for version in ("1.20.0", "2.3.0"))
    write(tmp_path / "source", old, other=new)
    with pytest.raises(RefusedError, match=r"39 of its maps are by Kryo 2 .* and 1 by Kryo 5"):
        run(tmp_path / "source", tmp_path / "run", **wanted())
    assert not (tmp_path / "run" / "target").exists()


def test_maps_of_both_kryos_may_be_in_one_key_group(tmp_path: Path) -> None:
    """And the told type is right for both."""
    old, new = (kept(version)["UUID with null"] for version in ("1.20.0", "2.3.0"))
    write(tmp_path / "source", old, other=new, is_alone=False)
    with pytest.raises(RefusedError, match=r"39 of its maps are by Kryo 2 .* and 1 by Kryo 5"):
        run(tmp_path / "source", tmp_path / "run", **wanted(as_type="Map<String, Kryo<java.util.UUID>>"))
    assert not (tmp_path / "run" / "target").exists()


def test_values_of_kryo_2_are_not_for_a_job_of_flink_2(tmp_path: Path) -> None:
    one = kept("1.20.0")["UUID with null"]
    write(tmp_path / "source", one, version=5)
    with pytest.raises(RefusedError, match=r"by Kryo 2 \(Flink 1\), but the savepoint is of Flink 2"):
        run(tmp_path / "source", tmp_path / "run", **wanted())


@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
def test_each_operator_has_the_registrations_of_its_own_serializer(version: str, tmp_path: Path) -> None:
    """The job's classes have other numbers in the second operator: those of the first would be other classes there."""
    examples = {uid: kept(version)[f"registered {uid} Color"] for uid in ("before", "behind")}
    names = {uid: [part.class_name for part in one.kryo.registrations] for uid, one in examples.items()}
    assert names["before"] != names["behind"]
    assert set(names["before"]) == set(names["behind"])
    writer = SavepointWriter(str(tmp_path / "source"))
    operators = tuple(operator_with(writer, uid, one) for uid, one in examples.items())
    writer.commit(Metadata(4, 1, operators, properties=CANONICAL_SAVEPOINT))
    states = {uid: {"legacy": "totals", "new": f"entries {uid}", "flag": "flag"} for uid in examples}
    planned_operators = [{"operator": uid, "states": [state]} for uid, state in states.items()]
    told = {"now": NOW, "job": "both", "classes": [str(JAR)], "operators": planned_operators}
    report, _ = run(tmp_path / "source", tmp_path / "run", **told)
    assert report.is_green, report
    target = Savepoint.open(str(tmp_path / "run" / "target"))
    for uid, one in examples.items():
        assert_rows(tmp_path / "run" / "target", one, f"entries {uid}")
        new = target.state(target.operator(uid), f"entries {uid}")
        assert new.value is not None
        assert kept_by_kryo(new.value)[0].registrations == kept_by_kryo(one.map)[0].registrations


def test_no_map_is_taken_out_of_an_object_that_kryo_wrote(tmp_path: Path) -> None:
    one = kept("1.20.0")["UUID"]
    assert isinstance(one, Kept)
    declared, *others = one.kryo.registrations
    registrations = (replace(declared, class_name="com.acme.Totals"), *others)
    kryo = replace(one.kryo, class_name="com.acme.Totals", registrations=registrations)
    write(tmp_path / "source", replace(one, kryo=kryo))
    state = {"legacy": "totals", "new": "entries", "field": "counts", "rest": "drop"}
    told = {"now": NOW, "on_contradiction": "stop", "operators": [{"operator": "main", "states": [state]}]}
    with pytest.raises(PlanError, match=r"Kryo wrote the objects of com\.acme\.Totals as a whole"):
        run(tmp_path / "source", tmp_path / "run", **told)
    assert not (tmp_path / "run" / "target").exists()


def test_an_enum_can_become_flinks_own(tmp_path: Path) -> None:
    one = kept("2.3.0")["enums"]
    write(tmp_path / "source", one)
    told = wanted(classes=[str(JAR)], as_type="Map<String, Enum<stateferry.kryo.KryoThings$Color>>")
    report, _ = run(tmp_path / "source", tmp_path / "run", **told)
    assert report.is_green, report
    found = contents(Savepoint.open(str(tmp_path / "run" / "target")))
    values = {value for state, _, value in found if state == "entries"}
    assert values == {b"\0" + number.to_bytes(4, "big") for number in (0, 2)}


def test_objects_of_both_kryos_become_the_same_pojos(tmp_path: Path) -> None:
    old, new = (pojo_examples(version)["beans"] for version in ("1.20.0", "2.3.0"))
    assert old.flink == new.flink
    write(tmp_path / "source", old, other=new, version=5)
    told = wanted(classes=[str(POJO_JAR)], as_type="Map<String, Pojo<stateferry.kryo.KryoPojos$Bean>>")
    report, _ = run(tmp_path / "source", tmp_path / "run", **told)
    assert report.is_green, report
    found = contents(Savepoint.open(str(tmp_path / "run" / "target")))
    values = Counter(value for state, _, value in found.elements() if state == "entries")
    made = compiled(old.kryo, old.map, [old.written])
    spans = zip(made.entries.key_ends, made.entries.ends, strict=True)
    assert values == {made.data[start:end].tobytes(): KEYS for start, end in spans}


def test_classes_that_flink_has_serializers_for_are_noted(tmp_path: Path) -> None:
    write(tmp_path / "source", pojo_examples("1.20.0")["beans"])
    report, _ = run(tmp_path / "source", tmp_path / "run", **wanted(classes=[str(POJO_JAR)]))
    assert report.is_green
    (note,) = (note for note in report.notes if "serializers of its own" in note)
    assert note.endswith("give --as 'Map<String,Pojo<stateferry.kryo.KryoPojos$Bean>>'")


def test_classes_that_are_missing_are_named(tmp_path: Path) -> None:
    write(tmp_path / "source", kept("1.20.0")["things of keys"])
    with pytest.raises(RefusedError, match=r"KryoThings\$Thing"):
        run(tmp_path / "source", tmp_path / "run", **wanted())


def test_other_classes_are_another_plan(tmp_path: Path) -> None:
    write(tmp_path / "source", kept("1.20.0")["things of keys"])
    folder = tmp_path / "classes"
    with zipfile.ZipFile(JAR) as jar:
        jar.extractall(folder)
    values = {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "home": str(tmp_path / "home")}
    plan = planned({**values, **wanted(classes=[str(folder)])})
    assert plan.job_classes is not None
    assert plan.classes_digest == plan.job_classes.digest
    next(iter(folder.rglob("KryoThings$Box.class"))).unlink()
    job_classes.cache_clear()
    with pytest.raises(PlanError, match="others than when the run was planned"):
        _ = plan.job_classes
    assert planned({**values, **wanted(classes=[str(folder)])}).classes_digest != plan.classes_digest
