"""Savepoints of Flink 1.20 that were written for Flink 2, against real Flink 2.3: it reads every value as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flinkstate.errors import PlanError, RefusedError
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.versions import Line
from tests.flink.harness import Made
from tests.flink.jobs import Job, Operator, OperatorState, State, Timers
from tests.flink.judge import Change, Started, observed, upgraded
from tests.flink.scenarios import DECLARED_MAPS
from tests.flink.test_verdict import said
from tests.flink.upgrade_checks import LAYOUTS, check_kept, check_observed, check_with_layout, refused
from tests.flink.upgrade_rows import ROWS

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

_POJO = "stateferry.flink.pojo."
# How the jobs declare what Flink 2 stores in one of two ways.
_DECLARED = {
    "HintedMap<String,Long>": {"main/s": "Map<String, Long>"},
    "native HintedMap<String,Long>": {"main/s": "Map<String, Long>"},
    "HintedMap<String,UUID>": {"main/s": "Map<String, Kryo<java.util.UUID>>"},
    "TTL HintedMap": {"main/s": "Map<String, Kryo<java.util.UUID>>"},
    "HintedMap<String,Person?>": {"main/s": "Map<String, Pojo<stateferry.flink.pojo.Person>>"},
    "HintedMap<Long,Color?>": {"main/s": "Map<Long, Enum<stateferry.flink.pojo.Color>>"},
    "HintedMap<String,List<String>>": {"main/s": "Map<String, List<String>>"},
    "WildMap<String,Long>": {"main/s": "Map"},
    "HintedList<String>": {"main/s": "List<String>"},
    "HintedList<UUID?>": {"main/s": "List<Kryo<java.util.UUID>>"},
    "HintedList<Person?>": {"main/s": "List<Pojo<stateferry.flink.pojo.Person>>"},
    "HintedMap<String,Lru<String,Long>>": {"main/s": "Map"},
    "HintedMap<String,CountsClass<String,Long>>": {"main/s": "Map<String, Kryo<stateferry.flink.pojo.Counts>>"},
    "HintedList<CountsClass<String,Long>>": {"main/s": "List<Kryo<stateferry.flink.pojo.Counts>>"},
    "HintedSet<Color?>": {"main/s": "Set<Enum<stateferry.flink.pojo.Color>>"},
    "HintedSet<UUID>": {"main/s": "Set<Kryo<java.util.UUID>>"},
    "HintedCollection<Person>": {"main/s": "Collection<Pojo<stateferry.flink.pojo.Person>>"},
    "HintedSet<String>": {"main/s": "Set<String>"},
    "HintedCollection<String>": {"main/s": "Collection<String>"},
    "MapClass<String,Long>": {"main/s": "Map"},
    "ListClass<String>": {"main/s": "java.util.List"},
    "SetClass<String>": {"main/s": "Set"},
    "nested Tuple2<HintedMap<String,Long>,HintedList<String>>": {
        "main/s.f0": "Map<String, Long>",
        "main/s.f1": "List<String>",
    },
    "operator state HintedList": {"plain/o": "List<String>"},
    "operator state broadcast HintedMap": {"plain/o": "Map<String, Long>"},
    "KEY HintedList<String>": {"main/(key)": "List<String>"},
    "HintedMap<String,Shape>": {"main/s": "Map<String, Pojo<stateferry.flink.pojo.Shape>>"},
    "LIST HintedList": {"main/s": "List<Pojo<stateferry.flink.pojo.Person>>"},
    "TTL MAP HintedMap": {"main/s": "Map<String, Kryo<java.util.UUID>>"},
    "nested Tuple2<HintedList,Long,HintedMap>": {
        "main/s.f0": "List<Kryo<java.util.UUID>>",
        "main/s.f2": "Map<Enum<stateferry.flink.pojo.Color>, Pojo<stateferry.flink.pojo.Person>>",
    },
    "nested Row<HintedSet>": {"main/s.f0": "Set<Enum<stateferry.flink.pojo.Color>>"},
    "nested List<HintedList>": {"main/s": "List<Kryo<stateferry.flink.pojo.Opaque>>"},
    "nested Map<HintedList>": {"main/s": "List<Enum<stateferry.flink.pojo.Color>>"},
    "operator state HintedList of UUID": {"plain/o": "List<Kryo<java.util.UUID>>"},
    "operator state broadcast keys": {"plain/o.(key)": "List<Kryo<java.util.UUID>>"},
    "operator state broadcast HintedList of Person": {"plain/o": "List<Pojo<stateferry.flink.pojo.Person>>"},
    "POJO Tagged": {"main/s.counts": "Map<String, Long>", "main/s.tags": "List<String>"},
    "POJO List<Tagged>": {"main/s.counts": "Map<String, Long>", "main/s.tags": "List<String>"},
    "POJO Totals": {"main/s.counts": "Map<String, Long>", "main/s.notes": "Map<Integer, String>"},
}
# What is refused by name: classes that are not known, or that Flink 2 can't read again; keys; operator state.
_REFUSED = {
    "Object<UtilMap<String,Long>>": "Synchronized|Unmodifiable",
    "Optional<UtilMap<String,Long>>": "Synchronized|Unmodifiable",
    "HashSet<UtilMap<String,Long>>": "Synchronized|Unmodifiable",
    "EnumMap<Color,Long>": "EnumMap",
    "CapMap<String,Long>": r"stateferry\.flink\.pojo\.Cap",
    "no classes Color": "--classes",
    "no classes Person": "--classes",
    "LIST Object<short[]>": "Flink 2 reads beyond the array",
    "LIST Object<float[]>": "Flink 2 reads beyond the array",
    "LIST Optional<float[]>": "Flink 2 reads beyond the array",
    **dict.fromkeys(
        (f"{how} serializer {of}" for how in ("registered", "default") for of in ("Opaque", "HashMap<String,Opaque>")),
        r"with the job's serializer stateferry\.flink\.pojo\.OpaqueSerializer",
    ),
}
# Flink 2 doesn't restore these from its own savepoints either.
_NEVER = [name for name, row in ROWS.items() if row.stays.get("2.3.0", Outcome.RESTORES) is not Outcome.RESTORES]
_BREAK = [name for name, row in ROWS.items() if row.becomes is not Outcome.RESTORES and not row.whole_class_path]
_SAMPLE = (
    *("HashMap<String,Long>", "TreeMap<String,Long>", "Object<Double>", "POJO KryoTotals", "MAP UUID", "TTL HashMap"),
    *(
        "HintedMap<String,Long>",
        "HintedSet<String>",
        "HintedList<UUID?>",
        "HintedList<Person?>",
        "POJO Tagged",
        "operator state HashMap",
        "KEY UUID",
        "KEY HintedList<String>",
    ),
    *("operator state broadcast UUID", "operator state HintedList"),
)


@pytest.mark.matrix(most=8)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.full)
        for name in _BREAK
        if name not in (*_REFUSED, *_NEVER)
    ],
)
def test_flink_2_reads_what_flink_1_wrote(
    name: str, started: Started, savepoints: Callable[[str, str], Made], tmp_path: Path
) -> None:
    row, made = ROWS[name], savepoints("1.20.0", name)
    flink = started("2.3.0", row.whole_class_path)
    before, _ = observed(flink, row.job, made)
    assert before is row.becomes
    assert "run --to flink-2" in said(made.path, row, Line.TWO).advice
    no_timers = row.format == "NATIVE"
    new = upgraded(made.path, tmp_path, row.classes, declared=_DECLARED.get(name), no_timers=no_timers)
    check_observed(flink, row.job, new, made)


_REFUSED_BY_FLINK = "Flink refuses the state at its start"
# Wrong words of --declared, and what stops them: Stateferry before it writes anything, or Flink before it reads any.
_WRONG: tuple[tuple[str, str, str, str], ...] = (
    ("HintedMap<String,Long>", "main/s", "Map<String, List<String>>", "value, found Long"),
    ("HintedMap<String,Long>", "main/s", "Map<String, Integer>", "found Long where --declared"),
    ("HintedMap<String,Long>", "main/s", "Map<Long, Long>", "found String where --declared"),
    ("HintedMap<String,Long>", "main/s", "Map", _REFUSED_BY_FLINK),
    ("MapClass<String,Long>", "main/s", "Map<String, Long>", _REFUSED_BY_FLINK),
    ("HintedMap<String,List<String>>", "main/s", "Map<String, Long>", "found java.util.ArrayList where"),
    ("HintedMap<String,List<String>>", "main/s", "Map<String, List<Long>>", "value.element, found String"),
    (
        "HintedMap<String,List<String>>",
        "main/s",
        "Map<String, Map<String, String>>",
        "value, found java.util.ArrayList",
    ),
    ("HintedMap<String,List<String>>", "main/s", "Map<Long, List<String>>", "key, found String"),
    ("HintedList<String>", "main/s", "List<Long>", "found String where --declared"),
    ("HintedList<String>", "main/s", "List<List<String>>", "element, found String"),
    ("HintedList<String>", "main/s", "List", _REFUSED_BY_FLINK),
    ("HintedSet<String>", "main/s", "Set<Long>", "found String where --declared"),
    ("HintedSet<String>", "main/s", "Set<List<String>>", "element, found String"),
    ("HintedCollection<String>", "main/s", "Collection<Long>", "found String where --declared"),
    ("HintedMap<String,UUID>", "main/s", "Map<String, Kryo<java.time.Duration>>", "found java.util.UUID"),
    ("HintedMap<String,UUID>", "main/s", "Map<String, Kryo<java.lang.Object>>", _REFUSED_BY_FLINK),
    ("HintedMap<String,Person?>", "main/s", f"Map<String, Kryo<{_POJO}Person>>", _REFUSED_BY_FLINK),
    ("HintedMap<String,Person?>", "main/s", f"Map<String, Enum<{_POJO}Color>>", "found .*Person"),
    ("HintedMap<Long,Color?>", "main/s", f"Map<Long, Kryo<{_POJO}Color>>", "say Enum<.*Color>"),
    ("KEY HintedList<String>", "main/(key)", "List<Long>", "found String where --declared"),
    ("KEY HintedList<String>", "main/(key)", "List", _REFUSED_BY_FLINK),
    ("POJO Tagged", "main/s.counts", "Map<String, List<String>>", "value, found Long"),
    ("POJO Tagged", "main/s.tags", "List<Long>", "found String where --declared"),
    ("POJO Tagged", "main/s.tags", "List<List<String>>", "element, found String"),
    ("POJO Tagged", "main/s.tags", "List", _REFUSED_BY_FLINK),
    ("nested Tuple2<HintedMap<String,Long>,HintedList<String>>", "main/s.f0", "Map<String, List<Long>>", "found Long"),
    ("nested Tuple2<HintedMap<String,Long>,HintedList<String>>", "main/s.f1", "List<Long>", "found String"),
    ("operator state HintedList", "plain/o", "List<List<String>>", "element, found String"),
    ("operator state HintedList", "plain/o", "List<Long>", "found String where --declared"),
    ("operator state broadcast HintedMap", "plain/o", "Map<String, List<String>>", "value, found Long"),
    ("operator state broadcast HintedMap", "plain/o", "Map<String, Double>", "found Long where --declared"),
)


@pytest.mark.parametrize(
    ("name", "place", "said", "stopped_by"),
    [
        pytest.param(*one, marks=() if number in (0, 3) else pytest.mark.full, id=f"{one[0]} as {one[2]}")
        for number, one in enumerate(_WRONG)
    ],
)
def test_a_wrong_declaration_stops_the_run_or_the_job(
    name: str, place: str, said: str, stopped_by: str, started: Started, savepoints: Callable[[str, str], Made],
    tmp_path: Path,
) -> None:  # fmt: skip
    row, made = ROWS[name], savepoints("1.20.0", name)
    declared, classes = {**_DECLARED[name], place: said}, row.classes
    if name == "POJO Tagged":
        with refused(r"--declared says .*Tagged in the jar has java\.util\.\w+<.*String", tmp_path / "with jar"):
            upgraded(made.path, tmp_path / "with jar", True, declared=declared)
        classes = False
    if stopped_by == _REFUSED_BY_FLINK:
        new = upgraded(made.path, tmp_path, classes, declared=declared)
        check_observed(started("2.3.0", False), row.job, new, made, Outcome.REFUSED)
        return
    with refused(stopped_by, tmp_path):
        upgraded(made.path, tmp_path, classes, declared=declared)


# Of each kind of state, and of what is by Kryo in it, one; the first is of the HashMap backend.
_KINDS = (
    *("heap HashMap", "TTL HashMap", "MAP UUID", "LIST UUID", "AGGREGATING UUID", "POJO Tagged", "KEY UUID"),
    *("POJO Cart", "TTL LIST Ids"),
)


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", _KINDS)
def test_it_goes_with_other_layouts_and_formats(name: str, layout: str, started: Started, tmp_path: Path) -> None:
    check_with_layout(name, layout, started, ("1.20.0", "2.3.0"), tmp_path, declared=_DECLARED.get(name))


@pytest.mark.parametrize("key", ["UUID", pytest.param("Long", marks=pytest.mark.full)])
def test_keys_user_keys_and_timers(key: str, started: Started, tmp_path: Path) -> None:
    """By Kryo or by Flink's own serializers, beside each other in one operator."""
    states = (
        State("number", "Long"),
        State("by-key", "Map<UUID,Long>", kind="MAP"),
        State("by-list", "Map<ArrayList<Double>,String>", kind="MAP", ttl="stamped"),
        State("both", "Map<UUID,HashMap<String,Long>>", kind="MAP"),
        State("nulls", "Map<String,HashMap<String,Long>?>", kind="MAP"),
        State("aged nulls", "Map<UUID,UUID?>", kind="MAP", ttl="stamped"),
    )
    job = Job((Operator("main", key=key, keys=12, states=states, timers=Timers(event=2, far=1)),), parallelism=2)
    check_kept(job, started, ("1.20.0", "2.3.0"), tmp_path)


def test_names_with_slashes_are_declared_as_the_message_says(started: Started, tmp_path: Path) -> None:
    states = (State("tags/by day", "HintedList<String>"), State("a/b=c.d", "Tuple2<HintedMap<String,Long>,Long>"))
    job = Job((Operator("main/first", key="String", keys=9, states=states), Operator("main", key="Long", keys=3)))
    made = started("1.20.0", False).make(job, tmp_path / "old")
    with pytest.raises(PlanError) as caught:
        upgraded(made.path, tmp_path)
    asked = re.findall(r"--declared '([^']+<[^']+)'", str(caught.value))
    assert len(asked) == 2
    new = upgraded(made.path, tmp_path, declared=dict(one.rsplit("=", 1) for one in asked))
    check_observed(started("2.3.0", False), job, new, made)


# By how objects of the class hash. Of a Tuple2 a part is by Kryo, of a List<UUID> each element.
_KEYS = (
    *("UUID", "Tuple2<UUID,Long>", "List<UUID>", "Object<Double>", "Object<BigDecimal>", "Object<LocalDateTime>"),
    *("Object<Instant>", "ArrayList<Long>", "Object<Tuple2<Double,String>>", "Object<Either<Long,String>>"),
)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("layout", [pytest.param(None, marks=pytest.mark.full), 256])
@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=() if key in _KEYS[:2] else pytest.mark.full) for key in _KEYS]
)
def test_keys_by_kryo_are_found_beside_namespaces_and_at_another_max_parallelism(
    key: str, layout: int | None, started: Started, tmp_path: Path
) -> None:
    """Where namespaces vary in length too, keys have their lengths behind them."""
    states = (
        State("number", "Long"),
        State("by-key", "Map<UUID,Long>", kind="MAP"),
        State("in windows", "UUID", namespace="TimeWindow", namespaces=2),
        State("in texts", "Map<UUID,Long>", kind="MAP", namespace="String", namespaces=3),
        State("values in texts", "HashMap<String,Long>", namespace="String", namespaces=3),
    )
    timers = Timers(event=2, far=1, namespace="String")
    operator = Operator("main", key=key, keys=40, states=states, timers=timers)
    job = Job((operator,), parallelism=2)
    check_kept(job, started, ("1.20.0", "2.3.0"), tmp_path, change=_to(layout))


@pytest.mark.full
@pytest.mark.parametrize("layout", [pytest.param(None, marks=pytest.mark.full), 300])
def test_lists_in_keys_are_what_the_job_declares(layout: int | None, started: Started, tmp_path: Path) -> None:
    """In keys with and without other fields, in timers, in user keys, in keys of a broadcast state."""
    states = (
        State("number", "Long"),
        State("lists", "Map<HintedList<Long>,UUID>", kind="MAP"),
        State("aged", "Map<ListClass<Long>,HashMap<String,Long>>", kind="MAP", ttl="stamped"),
        State("in texts", "Map<String,Long>", kind="MAP", namespace="String", namespaces=3),
    )
    timers = Timers(event=2, far=1, namespace="String")
    keys = {"whole": "HintedList<String>", "field": "Tuple2<HintedCollection<Long>,UUID>", "class": "ListClass<Double>"}
    operators = [Operator(uid, key=key, keys=20, states=states, timers=timers) for uid, key in keys.items()]
    rules = OperatorState("rules", "Map<HintedList<String>,HintedList<Long>>", "BROADCAST", elements=3)
    job = Job((*operators, Operator("plain", type="plain", operator_states=(rules,))), parallelism=2)
    declared = {
        "whole/(key)": "List<String>",
        "field/(key).f0": "Collection<Long>",
        "class/(key)": "List",
        **{f"{uid}/lists.(key)": "List<Long>" for uid in keys},
        **{f"{uid}/aged.(key)": "List" for uid in keys},
        "plain/rules.(key)": "List<String>",
        "plain/rules": "List<Long>",
    }
    check_kept(job, started, ("1.20.0", "2.3.0"), tmp_path, change=_to(layout), declared=declared)
    for left_out in ("whole/(key)", "field/lists.(key)", "plain/rules.(key)"):
        where, rest = left_out.partition("/")[2], {name: declared[name] for name in declared if name != left_out}
        with pytest.raises(PlanError, match=rf"say --declared '\w+/{re.escape(where)}=List<String>'"):
            upgraded(tmp_path / "old", tmp_path / "again", declared=rest)


def _to(max_parallelism: int | None) -> Change:
    return Change() if max_parallelism is None else Change(3, max_parallelism)


@pytest.mark.full
def test_sets_and_maps_in_keys_are_refused(started: Started, tmp_path: Path) -> None:
    states = (State("number", "Long"), State("maps", "Map<HintedMap<String,Long>,Long>", kind="MAP"))
    job = Job((Operator("main", key="HintedSet<Long>", keys=12, states=states),), parallelism=2)
    made = started("1.20.0", False).make(job, tmp_path / "old")
    for place, name in (("the key", "Set"), ("state maps.(key)", "Map")):
        where = re.escape(place)
        with pytest.raises(PlanError, match=rf"{where} of operator \w+: there is a {name} by Kryo"):
            upgraded(made.path, tmp_path)


def test_a_key_whose_hash_is_not_known_stops_another_max_parallelism(started: Started, tmp_path: Path) -> None:
    job = Job((Operator("main", key="BitSet", keys=12, states=(State("number", "Long"),)),), parallelism=2)
    made = started("1.20.0", False).make(job, tmp_path / "old")
    with pytest.raises(RefusedError, match=r"state number, key .*java.util.BitSet.*keep the max parallelism"):
        upgraded(made.path, tmp_path, max_parallelism=64)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("ttl", [pytest.param("", marks=pytest.mark.full), "-ttl"])
def test_what_an_upgraded_job_has_not_read_yet_is_saved(ttl: str, started: Started, tmp_path: Path) -> None:
    """A job of Flink 2.3 that went on from a savepoint of 1.20, and has written some of its maps since."""
    source = SAVEPOINTS / f"upgraded-hint-hash-map{ttl}-2.3-rocksdb"
    with (source / "expected.jsonl").open(encoding="ascii") as file:
        made = Made(source, [json.loads(line) for line in file])
    flink, job = started("2.3.0", False), DECLARED_MAPS[f"hint-hash-map{ttl}"]
    assert observed(flink, job, made)[0] is Outcome.WRONG
    new = upgraded(source, tmp_path)
    check_observed(flink, job, new, made)


@pytest.mark.full
@pytest.mark.parametrize("has_avro", [True, False])
def test_a_job_may_have_avro_beside_kryo(has_avro: bool, started: Started, tmp_path: Path) -> None:
    """In Flink 1, flink-avro registers a serializer with Kryo that Flink 2 knows nothing of, with it or without."""
    states = (
        State("map", "HashMap<String,Long>"),
        State("list", "UUID", kind="LIST"),
        State("user keys", "Map<UUID,Long>", kind="MAP"),
        State("aged", "HashMap<String,Long>", ttl="stamped"),
        State("tuple", "Tuple2<UUID,Long>"),
        State("pojo", "Tagged"),
    )
    elements = (OperatorState("elements", "UUID", "SPLIT", elements=6),)
    keyed = Operator("main", key="UUID", keys=12, states=states)
    job = Job((keyed, Operator("plain", type="plain", operator_states=elements)), parallelism=2)
    made = started("1.20.0", True).make(job, tmp_path / "old")
    flink = started("2.3.0", has_avro)
    assert observed(flink, job, made)[0] is Outcome.REFUSED
    declared = {"main/pojo.counts": "Map<String, Long>", "main/pojo.tags": "List<String>"}
    new = upgraded(made.path, tmp_path, declared=declared)
    check_observed(flink, job, new, made)


@pytest.mark.full
@pytest.mark.parametrize("name", _REFUSED)
def test_what_cannot_be_written_is_refused_by_name(
    name: str, savepoints: Callable[[str, str], Made], tmp_path: Path
) -> None:
    row, made = ROWS[name], savepoints("1.20.0", name)
    with refused(_REFUSED[name], tmp_path):
        upgraded(made.path, tmp_path, row.classes)
    # No such run is advised; another type or the jar is.
    advice = said(made.path, row, Line.TWO).advice
    assert "run --to flink-2" not in advice or "--classes" in advice or "If that refuses such an array" in advice
