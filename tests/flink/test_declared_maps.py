"""Maps as people declare them go through a whole run; real Flink restores them as `MapState`, in 1.20 and in 2.3.

The new job declares its states by the lines of Java that a run prints. Nothing of the savepoint may be left over that
it doesn't declare, and every entry and timestamp must be what the generator of the old job's contents knows.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.flink import jars
from tests.flink.harness import FlinkHarness, Line, Made
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import Change, Make, check_restored, dumped
from tests.flink.make_golden import SAVEPOINTS
from tests.flink.scenarios import DECLARED_MAPS, legacy, with_kryo_parts, with_pojo_parts
from tests.flink.test_lazy import expected as expected_of_lazy
from tests.flink.test_pipeline import expected as expected_of_legacy
from tests.flink.test_pipeline import of_new_shape
from tests.support.verified_runs import STAGED, do_steps, verified

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]

# Each on either version. Where nulls are drawn, those of types that have no null are left out under time to live.
DECLARATIONS = (
    *(f"{name}{{0-9}}<String,Long?>" for name in ("HintedMap", "MapClass", "HashMap", "HashMapClass", "AnyMap")),
    *(f"{name}{{0-9}}<String,Long?>" for name in ("LinkedHashMap", "TreeMap", "SortedMap", "ReverseTreeMap")),
    *(f"{name}{{0-9}}<String,Long>" for name in ("ConcurrentHashMap", "ConcurrentMap", "ConcurrentSkipListMap")),
    *(f"{name}{{0-9}}<String,Long>" for name in ("Hashtable", "UtilMap", "IdentityHashMap")),
    "SortedView{0-9}<String,Long?>",
    "AnyHashMap<String,AnyHashMap<String,Long?>>",
)
SCALARS = (
    *("String", "Integer", "Short", "Byte", "Boolean", "Character", "Float", "Double", "BigInteger", "BigDecimal"),
    *("Date", "SqlDate", "SqlTime", "SqlTimestamp", "LocalDate", "LocalTime", "LocalDateTime", "Instant"),
)
ARRAYS = (
    *("byte[]", "short[]", "int[]", "long[]", "float[]", "double[]", "boolean[]", "char[]"),
    *("String[]", "Long?[]", "Integer[]", "Short[]", "Byte[]", "Boolean?[]", "Character[]", "Float[]", "Double?[]"),
)
_TUPLE_12 = f"Tuple12<{','.join(('Integer', 'String') * 6)}>"
COMPOSITES = (
    *("List<String>", "AnyList<Long>", "List<Double>", "List<Date>", "List<Tuple2<Long,String>>"),
    *("List<AnyList<Short>>", "HashMap<Integer,List<BigDecimal>>", "TreeMap<Long,Instant?>", "UtilMap<String,Byte>"),
    *("List<HashMap<Long,Float>>", "List<String?>", "Tuple2<String?,Long>"),
    *("Tuple2<Long,Long>", "Tuple3<Integer,Boolean,Double>", "Tuple1<LocalDateTime>", "Tuple2<List<String>,long[]>"),
    "Tuple2<Tuple2<Long,Character>,HashMap<String,Long?>>",
    *("Either<Long,String>", "List<Either<List<String>,Tuple2<Long,Either<Integer,Double>>>>"),
    # Kryo writes f10 before f2.
    "Tuple11<String?,Long,Integer,Double,LocalDateTime,List<String>,Byte,Date,Boolean,String,Long>",
    f"Tuple25<{','.join(('Long', 'String', _TUPLE_12, 'Float', 'Short') * 5)}>",
)
OF_VALUES = (
    *(f"HashMap<String,{type_}?>" for type_ in (*SCALARS, *ARRAYS, *COMPOSITES)),
    *(f"HintedMap<String,{type_}?>" for type_ in ("Integer", "Double", "Date", "SqlTime", "Instant", "double[]")),
    *(
        f"HintedMap<String,{type_}?>"
        for type_ in ("Long[]", "List<String>", "Tuple2<Long,Long>", "HintedMap<String,Long?>")
    ),
    *("LinkedHashMap<Integer,Boolean?>", "TreeMap<Long,Float?>", "MapClass<Short,LocalDate?>"),
    "HashMap<String,String{300-700}>",
)
OF_KEYS = (
    *(f"HashMap<{type_},Long>" for type_ in SCALARS if type_ != "String"),
    *("HintedMap<Integer,Long>", "HintedMap<Character,String?>", "TreeMap<BigDecimal,Byte>", "TreeMap<Instant,Long?>"),
    *("HashMap<Tuple2<Integer,String>,Long>", f"HashMap<{_TUPLE_12},Long>"),
    *("HashMap<Either<Integer,String>,Long>", "HashMap<List<String>,Double>", "LinkedHashMap<Tuple1<LocalDate>,Date>"),
)
TYPES = {"declarations": DECLARATIONS, "values": OF_VALUES, "keys": OF_KEYS}
CHANGES = {"same": Change(), "parallelism": Change(parallelism=3), "max": Change(max_parallelism=300)}
FORMATS = ("rocksdb", "hashmap", "native")
BACKENDS = {"rocksdb": "rocksdb", "hashmap": "hashmap", "native": "rocksdb"}
TTLS = {"plain": None, "ttl": "stamped"}
# The Flink of the source, and those that restore what becomes of it.
VERSIONS = {"1.20.0": ("1.20.0", "2.3.0"), "2.3.0": ("2.3.0",)}


NOTHING_TOLD: Mapping[str, Any] = MappingProxyType({})


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def old_job(types: Sequence[str], ttl: str | None, backend: str) -> Job:
    """Under time to live some of the maps are null."""
    states = tuple(State(f"old-{i}", type_ + ("?" if ttl else ""), ttl=ttl) for i, type_ in enumerate(types))
    return Job((Operator("main", key="Long", keys=8, states=states),), parallelism=2, backend=backend)


def of_flink(type_: str) -> str:
    """The type as the new job has it, whose maps and lists are Flink's own."""
    maps = re.sub(r"\b\w*(Map|MapClass|Hashtable|SortedView)(?=[<{])", "Map", type_)
    return re.sub(r"\b\w*List<", "List<", maps).rstrip("?")


def new_job(old: Job, run: Run) -> Job:
    """The job that declares the new states, each by the line that the run has printed for it."""
    (operator,) = old.operators
    facts = run.facts(SnapshotFacts)
    assert facts is not None
    assert facts.declarations is not None
    states = [
        replace(state, name=new_name(state), kind="MAP", type=of_flink(state.type), java=line.partition(": ")[2])
        for state, line in zip(operator.states, facts.declarations, strict=True)
    ]
    return replace(old, operators=(replace(operator, states=tuple(states)),))


def new_name(state: State) -> str:
    return state.name.replace("old", "new")


def value_type(map_: str) -> str:
    """Of `Map<Tuple2<Long,String>,List<Long>?>` it is `List<Long>`."""
    depth = 0
    for place, character in enumerate(map_):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if (character, depth) == (",", 1):
            return map_[place + 1 : -1].rstrip("?")
    raise AssertionError(map_)


# Of these, Flink's own serializers write null by themselves.
_HAVE_A_NULL = (
    *("String", "BigInteger", "BigDecimal", "Date", "SqlDate", "SqlTime", "SqlTimestamp", "LocalDate", "LocalTime"),
    *("LocalDateTime", "Instant"),
    # By Kryo.
    *("UUID", "Opaque"),
    # POJOs.
    *("Person", "Address", "Visit", "Animal", "Shape", "Totals", "Cart", "Ids"),
)


def expected(old: Job, lines: Sequence[Line]) -> list[Line]:
    """What the new job is to find."""
    values = {state.name: value_type(of_flink(state.type)) for state in old.operators[0].states}
    found = []
    for line in lines:
        if line["value"] is None:
            continue
        shared = {name: value for name, value in line.items() if name != "value"}
        shared["state"] = line["state"].replace("old", "new")
        entries = line["value"].items() if isinstance(line["value"], dict) else line["value"]
        kept = "timestamp" not in line or values[line["state"]] in _HAVE_A_NULL
        found += [shared | {"user_key": key, "value": value} for key, value in entries if kept or value is not None]
    return found


def ferried(
    source: Path, target: Path, old: Job, change: Change, format_: str, told: Mapping[str, Any] = NOTHING_TOLD
) -> Run:
    """A run that moves all states of the job; `told` are further options."""
    (operator,) = old.operators
    ttl = operator.states[0].ttl is not None
    types = told.get("types", ())
    states = [
        {"legacy": state.name, "new": new_name(state), "map_type": map_type}
        | ({"ttl_ms": state.ttl_millis} if ttl else {})
        for state, map_type in itertools.zip_longest(operator.states, types)
    ]
    options = {
        "source": str(source),
        "target": str(target),
        "job": "declared",
        "operators": [{"operator": operator.uid, "states": states}],
        "nulls": "drop" if ttl else "keep",
        "keep_expired": ttl,
        "no_timers": format_ == "native",
        "clock_tolerance_ms": MAX_MILLISECONDS,
        "output_format": "native" if format_ == "native" else "canonical",
        "parallelism": change.parallelism,
        "max_parallelism": change.max_parallelism,
        "classes": told.get("classes"),
        "to": told.get("to"),
    }
    plan = plan_of({name: value for name, value in options.items() if value is not None})
    return do_steps(Run.create(plan, plan.now), STAGED)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ttl", TTLS)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_job_finds_every_entry(
    version: str, format_: str, ttl: str, change: str, types: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    check(version, format_, old_job(TYPES[types], TTLS[ttl], BACKENDS[format_]), CHANGES[change], made, flink, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("version", VERSIONS)
def test_null_is_a_key_like_any_other(version: str, format_: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    """Where Flink's own serializer can write it."""
    types = tuple(f"HashMap<{key}?,Long>" for key in ("String", "BigInteger", "BigDecimal"))
    check(version, format_, old_job(types, None, BACKENDS[format_]), Change(), made, flink, tmp_path)


def check(
    version: str,
    format_: str,
    old: Job,
    change: Change,
    made: Make,
    flink: Flink,
    folder: Path,
    *,
    restoring: Sequence[str] = (),
    told: Mapping[str, Any] = NOTHING_TOLD,
) -> None:
    source = made(version, old, "NATIVE" if format_ == "native" else "CANONICAL")
    target = folder / "new"
    run = ferried(source.path, target, old, change, format_, told)
    found = Made(target, expected(old, source.lines))
    new = change.job(new_job(old, run))
    for by in restoring or VERSIONS[version]:
        check_restored(flink(by), target, new, found, moved=change.max_parallelism is not None)


_TRIED = (("1.20.0", "rocksdb", "plain", "max"), ("2.3.0", "hashmap", "ttl", "same"))
_in_each_cell = pytest.mark.parametrize(
    ("version", "format_", "ttl", "change"),
    [
        pytest.param(*cell, marks=() if cell in _TRIED else pytest.mark.full)
        for cell in itertools.product(VERSIONS, FORMATS, TTLS, CHANGES)
    ],
)


@pytest.mark.matrix(most=1)
@_in_each_cell
def test_keys_and_values_by_kryo_stay_as_they_are(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """In maps by Flink's own serializer. The other Flink has another Kryo."""
    old = with_kryo_parts(version, BACKENDS[format_], TTLS[ttl], keys=12)
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, restoring=(version,))


@pytest.mark.matrix(most=1)
@_in_each_cell
def test_parts_by_kryo_of_keys_and_values_stay_as_they_are(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """POJOs with collections, dates and UUIDs, and tuples of these, in maps by Flink's own serializer."""
    old = with_pojo_parts(BACKENDS[format_], TTLS[ttl], keys=12)
    told = {"classes": [str(jars.classes(version))]}
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told=told, restoring=(version,))


# Maps by Kryo as a whole, with keys and values that stay Kryo's.
KEPT = (
    *("HashMap{0-9}<String,UUID?>", "HintedMap{0-9}<UUID,Long?>", "TreeMap<Integer,Row<Long?,String?>>"),
    *("MapClass<Long,Opaque?>", "LinkedHashMap<String,Duration>", "HashMap<UUID,HashSet<UUID>>"),
)
# Maps that are classes of the job, and such maps, lists and sets as values, which stay objects of their classes.
OF_THE_JOB = (
    *("LruMap{0-9}<String,Long?>", "JsonMap{0-9}<String,Long?>", "CountsMapClass{0-9}<String,Long>"),
    *("BraceMap{1-9}<Long,String?>", "LruMap<Integer,List<String>>", "JsonMap<Tuple2<Long,String>,HashMap<Long,Date>>"),
    *("HashMap{0-9}<String,Lru<String,Long>>", "LruMap<String,Json<String,Json<Long,UUID>>>"),
    *("TreeMap<String,CountsClass<String,Long>>", "HashMap<Integer,Basket<String>>", "JsonMap<String,Rack<Long>>"),
    *(
        "CapMap{0-9}<String,Long?>",
        "LruMap<Long,Crowd<String>>",
        "GsonMap{0-9}<String,Double?>",
        "HashMap<String,Gson<String,Gson<String,Double>>>",
        "TextMap{0-9}<Integer,Long?>",
        "TextMap<String,TextSorted<Long,HashSet<String>>>",
        "HashMap{0-9}<String,Dated<Long?>>",
        "HashMap{0-9}<String,Ticket<Long?>>",
        "HashMap<String,Dated<Dated<HashMap<String,Lru<String,Long>>>>>",
    ),
)
_OF_FLINK_1: dict[str, Callable[[str, str | None], Job]] = {
    "keys and values": lambda backend, ttl: with_kryo_parts("1.20.0", backend, ttl, keys=12),
    "parts of POJOs": lambda backend, ttl: with_pojo_parts(backend, ttl, keys=12),
    "in maps by Kryo": lambda backend, ttl: old_job(KEPT, ttl, backend),
    "of the job's own classes": lambda backend, ttl: old_job(OF_THE_JOB, ttl, backend),
}


@pytest.mark.parametrize("of", _OF_FLINK_1)
@pytest.mark.parametrize(
    ("format_", "ttl", "change"),
    [
        pytest.param(
            *cell, marks=() if cell in (("rocksdb", "ttl", "max"), ("native", "plain", "same")) else pytest.mark.full
        )
        for cell in itertools.product(FORMATS, TTLS, CHANGES)
    ],
)
def test_values_of_kryo_are_for_flink_2_in_the_same_run(
    format_: str, ttl: str, change: str, of: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """Flink 2 reads of each map what Flink 1 has written, in rows."""
    old = _OF_FLINK_1[of](BACKENDS[format_], TTLS[ttl])
    told = {"classes": [str(jars.classes("1.20.0"))], "to": "flink-2"}
    check("1.20.0", format_, old, CHANGES[change], made, flink, tmp_path, told=told, restoring=("2.3.0",))


@pytest.mark.parametrize(
    ("type_", "ttl", "lazy"),
    [
        ("HashMap{0-9}<String,UUID>", None, {"lazy": True, "share": 0.5}),
        ("Map{0-9}<UUID,UUID>", "stamped", {}),
        pytest.param("HintedMap{0-9}<UUID,Long>", "stamped", {}, marks=pytest.mark.full),
    ],
)
def test_a_job_of_flink_1_that_has_begun_to_move_such_maps(
    type_: str, ttl: str | None, lazy: dict[str, Any], made: Make, flink: Flink, tmp_path: Path
) -> None:
    old = legacy(type_, new_type=of_flink(type_), keys=40, ttl=ttl)
    source, new = made("1.20.0", old, "CANONICAL"), tmp_path / "new"
    options = {"ttl_ms": 30 * 86_400_000, "keep_expired": True} if ttl else {}
    verified(source.path, new, to="flink-2", accept_empty=0.2, clock_tolerance_ms=MAX_MILLISECONDS, **options, **lazy)
    if lazy:
        left = [line["key"] for line in dumped(new, "main", "mainState")]
        assert left
        check_restored(flink("2.3.0"), new, old, Made(new, expected_of_lazy(source.lines, left)), moved=False)
    else:
        found = Made(new, expected_of_legacy(source.lines))
        check_restored(flink("2.3.0"), new, of_new_shape(old), found, moved=False)


# Maps by Kryo with objects of the job's classes, and the types by which the new job is to have them.
_PERSON, _ADDRESS, _ANIMAL, _SHAPE = (
    f"Pojo<stateferry.flink.pojo.{name}>" for name in ("Person", "Address", "Animal", "Shape")
)
OF_CLASSES = {
    "HashMap{0-9}<String,Person?>": f"Map<String,{_PERSON}>",
    "MapClass{0-9}<Long,Address?>": f"Map<Long,{_ADDRESS}>",
    "HashMap<Address,Long>": f"Map<{_ADDRESS},Long>",
    "HashMap<String,List<Address>>": f"Map<String,List<{_ADDRESS}>>",
    "TreeMap<String,HashMap<Long,Person?>>": f"Map<String,Map<Long,{_PERSON}>>",
    "HashMap{0-9}<String,Animal?>": f"Map<String,{_ANIMAL}>",
    "HashMap<Long,List<Animal>>": f"Map<Long,List<{_ANIMAL}>>",
    "EnumMap{0-3}<Color,Long?>": "Map<Enum<stateferry.flink.pojo.Color>,Long>",
    "HashMap<String,EnumMap<Color,Long>>": "Map<String,Map<Enum<stateferry.flink.pojo.Color>,Long>>",
    "HashMap<String,Color>": "Map<String,Enum<stateferry.flink.pojo.Color>>",
}


@pytest.mark.matrix(most=1)
@_in_each_cell
def test_objects_of_the_jobs_classes_become_pojos(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    old = old_job(tuple(OF_CLASSES), TTLS[ttl], BACKENDS[format_])
    told = {"types": tuple(OF_CLASSES.values()), "classes": [str(jars.classes(version))]}
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told=told)


@_in_each_cell
def test_maps_of_the_jobs_own_classes(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    old = old_job(OF_THE_JOB, TTLS[ttl], BACKENDS[format_])
    told = {"classes": [str(jars.classes(version))]}
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told=told, restoring=(version,))


@pytest.mark.parametrize(("version", "to"), [("1.20.0", {}), ("1.20.0", {"to": "flink-2"}), ("2.3.0", {})])
def test_objects_of_jackson_are_values_of_kryo(
    version: str, to: dict[str, str], made: Make, flink: Flink, tmp_path: Path
) -> None:
    """As those of a class of the job: its jar has Jackson."""
    old = old_job(("HashMap{0-9}<String,ObjectNode>", "HashMap<Long,Dated<ObjectNode>>"), None, "rocksdb")
    places = (Path(one) for one in jars.class_path(version).split(os.pathsep))
    libraries = [str(jar) for place in places for jar in place.parent.glob("jackson-*.jar")]
    told = {"classes": [str(jars.classes(version)), *libraries], **to}
    restoring = ("2.3.0",) if to else (version,)
    check(version, "rocksdb", old, Change(), made, flink, tmp_path, told=told, restoring=restoring)


@pytest.mark.parametrize("key", ["Basket<String>", "Lru<String,Long>"])
def test_collections_of_the_job_are_refused_as_user_keys(key: str, made: Make, tmp_path: Path) -> None:
    """Equal ones may have other bytes."""
    old = old_job((f"HashMap{{1-9}}<{key},Long>",), None, "rocksdb")
    source = made("1.20.0", old, "CANONICAL")
    with pytest.raises(RefusedError, match=r"its user keys have a stateferry\.flink\.pojo\.(Basket|Lru) by Kryo"):
        ferried(source.path, tmp_path / "new", old, Change(), "rocksdb", {"classes": [str(jars.classes("1.20.0"))]})


# POJOs with fields that Flink leaves to Kryo, which only the same Flink reads.
OF_VISITS = {
    "HashMap<String,Shape?>": f"Map<String,{_SHAPE}>",
    "HashMap{0-9}<String,Visit?>": "Map<String,Pojo<stateferry.flink.pojo.Visit>>",
    "TreeMap<Integer,List<Visit>>": "Map<Integer,List<Pojo<stateferry.flink.pojo.Visit>>>",
}


@pytest.mark.matrix(most=1)
@_in_each_cell
def test_objects_become_pojos_with_fields_by_kryo(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    old = old_job(tuple(OF_VISITS), TTLS[ttl], BACKENDS[format_])
    told = {"types": tuple(OF_VISITS.values()), "classes": [str(jars.classes(version))]}
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told=told, restoring=(version,))


@pytest.mark.full
@pytest.mark.parametrize("format_", ["rocksdb", pytest.param("native", marks=pytest.mark.full)])
def test_objects_of_flink_1_become_pojos_of_flink_2(format_: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    """Whose maps are in fields that Flink 2 doesn't leave to Kryo."""
    old = old_job(("HashMap{0-9}<String,Totals?>",), "stamped", BACKENDS[format_])
    told = {"types": ["Map<String,Pojo<stateferry.flink.pojo.Totals>>"], "classes": [str(jars.classes("1.20.0"))]}
    check("1.20.0", format_, old, Change(), made, flink, tmp_path, told=told | {"to": "flink-2"}, restoring=("2.3.0",))


# Maps by Kryo with rows, and the types by which the new job is to have them: else they stay values of Kryo.
OF_ROWS = {
    "HashMap{0-9}<String,Row<Long?,String?>?>": "Map<String,Row<Long,String>>",
    "MapClass{0-9}<Long,Row<Row<Integer?>?,List<Row<String?>>?,Double?>?>": (
        "Map<Long,Row<Row<Integer>,List<Row<String>>,Double>>"
    ),
    "HashMap<Row<Long?,String?>,Row<LocalDate?,Either<Long,String>?,Boolean?,Short?,Instant?,Byte?,Date?>>": (
        "Map<Row<Long,String>,Row<LocalDate,Either<Long,String>,Boolean,Short,Instant,Byte,Date>>"
    ),
    "TreeMap<String,Tuple2<Row<BigDecimal?>,long[]>>": "Map<String,Tuple2<Row<BigDecimal>,long[]>>",
}


@pytest.mark.full
@_in_each_cell
def test_rows_become_flinks_own(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    old = old_job(tuple(OF_ROWS), TTLS[ttl], BACKENDS[format_])
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told={"types": tuple(OF_ROWS.values())})


@_in_each_cell
def test_rows_stay_values_of_kryo(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """In a new job of the same Flink: the other one has another Kryo."""
    old = old_job(("HashMap{0-9}<String,Row<Long?,String?>>",), TTLS[ttl], BACKENDS[format_])
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, restoring=(version,))


# Flink gives them ids, which come into every value; LocalTime gets one although it isn't written by itself.
REGISTERED = (
    *(
        "java.util.ArrayList",
        "java.util.LinkedHashMap",
        "java.time.LocalTime",
        "java.math.BigDecimal",
        "java.util.UUID",
    ),
    *("java.lang.Long", "java.util.HashMap", "org.apache.flink.api.java.tuple.Tuple2", "java.util.TreeMap"),
)
CLASS_PATHS = {"all": jars.class_path, "java": jars.class_path_of_java_alone}


@pytest.mark.full
@pytest.mark.parametrize("class_path", CLASS_PATHS)
@pytest.mark.parametrize("registered", [(), REGISTERED], ids=["none", "some"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_may_register_classes_and_have_scala_and_avro_beside_it(
    version: str, registered: tuple[str, ...], class_path: str, flink: Flink, tmp_path: Path
) -> None:
    old = old_job((*DECLARATIONS, *OF_VALUES), None, "rocksdb")
    listed = ", ".join(f"{name}: {{type: kryo}}" for name in registered)
    old = replace(old, settings={"pipeline.serialization-config": f"[{listed}]"} if registered else {})
    with FlinkHarness(version, CLASS_PATHS[class_path](version)) as writer:
        source = writer.make(old, tmp_path / "old")
    run = ferried(source.path, tmp_path / "new", old, Change(), "rocksdb")
    found = Made(tmp_path / "new", expected(old, source.lines))
    new = replace(new_job(old, run), settings={})
    for by in VERSIONS[version]:
        check_restored(flink(by), tmp_path / "new", new, found, moved=False)


@pytest.mark.parametrize("ttl", [pytest.param("", marks=pytest.mark.full), "-ttl"])
def test_an_upgraded_job_has_maps_of_both_kryos(ttl: str, flink: Flink, tmp_path: Path) -> None:
    source = SAVEPOINTS / f"upgraded-hint-hash-map{ttl}-2.3-rocksdb"
    options = {"ttl_ms": 30 * 86_400_000, "keep_expired": True} if ttl else {}
    nulls = "drop" if ttl else "keep"
    run = verified(source, tmp_path / "new", nulls=nulls, clock_tolerance_ms=MAX_MILLISECONDS, **options)
    facts = run.facts(SnapshotFacts)
    assert facts is not None
    assert facts.kryo is not None
    assert min(facts.kryo[0].classes.kryo[version] for version in ("2", "5")) > 2
    with (source / "expected.jsonl").open(encoding="ascii") as file:
        found = expected_of_legacy([json.loads(line) for line in file])
    found = [line for line in found if not ttl or line["value"] is not None]
    new = of_new_shape(DECLARED_MAPS[f"hint-hash-map{ttl}"])
    check_restored(flink("2.3.0"), tmp_path / "new", new, Made(tmp_path / "new", found), moved=False)
