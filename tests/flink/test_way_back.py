"""Savepoints of Flink 2.3 that were written for Flink 1.20, against real Flink 1.20: it reads every value as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateferry.runs.record.run_list import readable_runs
from stateferry.runs.report.report import Report
from stateferry.verdict.outcomes import Outcome
from tests.flink.harness import Made
from tests.flink.jobs import Job, Operator, State, Timers
from tests.flink.judge import Started, upgraded
from tests.flink.upgrade_checks import LAYOUTS, check_kept, check_observed, check_with_layout, refused
from tests.flink.upgrade_rows import ROWS

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

# A list and a collection look alike in Flink 2.
_DECLARED = {
    "HintedList<String>": {"main/s": "List<String>"},
    "nested Tuple2<HintedMap<String,Long>,HintedList<String>>": {"main/s.f1": "List"},
    "operator state HintedList": {"plain/o": "List"},
    "HintedList<UUID?>": {"main/s": "List<Kryo<java.util.UUID>>"},
    "HintedList<Person?>": {"main/s": "List<Pojo<stateferry.flink.pojo.Person>>"},
    "HintedList<CountsClass<String,Long>>": {"main/s": "List"},
    "HintedCollection<String>": {"main/s": "Collection<String>"},
    "HintedCollection<Person>": {"main/s": "Collection"},
    **{name: {"main/s": "List"} for name in ("LIST HintedList", "nested List<HintedList>", "nested Map<HintedList>")},
    "nested Tuple2<HintedList,Long,HintedMap>": {"main/s.f0": "List"},
    "operator state HintedList of UUID": {"plain/o": "List"},
    "operator state broadcast HintedList of Person": {"plain/o": "List"},
}
# What is refused by name: classes that are not known or that Flink 1.20 can't read as they were, and serializers of
# Flink 2's own around what is by Kryo in Flink 1.
_REFUSED = {
    "ZonedDateTime": "ZonedDateTime: the Kryo of the other Flink can't read such an object, or not as it was",
    **dict.fromkeys(
        ("Object<UtilMap<String,Long>>", "Optional<UtilMap<String,Long>>", "HashSet<UtilMap<String,Long>>"),
        "(Synchronized|Unmodifiable).*: the Kryo of the other Flink can't read",
    ),
    **{f"no classes {name}": "--classes" for name in ("nested", "user keys", "Opaque", "Color", "Person")},
    "Object<AsList<String>>": "ArrayList: the Kryo of the other Flink can't read",
    "EnumMap<Color,Long>": "EnumMap: the Kryo of the other Flink can't read",
    "CapMap<String,Long>": "Cap: the Kryo of the other Flink can't read",
    **dict.fromkeys(("KEY HintedList<String>", "operator state broadcast keys"), "inside of its keys or values"),
    "protobuf": "StringValue",
    "registered serializer": "with the job's serializer",
    **dict.fromkeys(
        (f"{how} serializer {of}" for how in ("registered", "default") for of in ("Opaque", "HashMap<String,Opaque>")),
        r"with the job's serializer stateferry\.flink\.pojo\.OpaqueSerializer",
    ),
}
# What a committer of Flink 2.3 keeps has another form, of which the verdict is "can't tell", as of all state of sinks.
# A job finds a key by Kryo with two equal Strings by chance alone, in the same Flink too.
_NOT_READ = {"sink": Outcome.FAILS, "KEY two Strings": Outcome.WRONG}
# Classes that plain code doesn't know.
_NOT_READ_PLAINLY = (
    *("ArrayDeque<String>", "Duration", "DayOfWeek", "BitSet", "Optional<UUID>", "POJO Sometimes", "KEY BitSet"),
    *("Object<Optional<HashMap<String,Long>>>", "LIST Optional<float[]>", "LIST Optional<String>"),
    "MAP Optional<String>",
    *(f"Optional<{one}>" for one in ("Color", "String", "Long", "Double", "Opaque")),
    *(f"Object<Optional<{one}>>" for one in ("Long", "Double", "Opaque")),
    *(f"KEY Optional<{one}>" for one in ("Long", "String", "Opaque", "UUID")),
    *("Ticket<Long?>", "HashMap<String,Ticket<Long>>"),
)
_NOT_IN_FLINK_2 = [name for name in ROWS if name.startswith("Scala")]
_ROWS = [name for name in ROWS if name not in _REFUSED and name not in _NOT_IN_FLINK_2]
_SAMPLE = (
    *("HashMap<String,Long>", "TreeMap<String,Long>", "Object<Double>", "MAP UUID", "TTL HashMap", "POJO Tagged"),
    *("HintedMap<String,Long>", "HintedCollection<String>", "operator state broadcast UUID", "KEY UUID", "windows"),
    *("operator state", "operator state HintedList", "avro beside Kryo", "heap HashMap", "HintedList<Person?>"),
    *("HintedSet<Color?>", "POJO Cart", "POJO Zoo", "TTL MAP HintedMap", "operator state broadcast Cart"),
    "HashMap<String,Ticket<Long>>",
)


_WAY_BACK: dict[str, Any] = {"to": "flink-1.20", "all_by_kryo_5": True}


def way_back(source: Path, home: Path, with_classes: bool = False, **options: Any) -> Path:
    return upgraded(source, home, with_classes, **(_WAY_BACK | options))


def not_proven(home: Path) -> list[str]:
    """The checks of the run's report that could not tell."""
    (run,) = readable_runs(str(home), "job")
    return [one.name for one in Report.read(run.report).checks if one.outcome.value != "passed"]


@pytest.mark.matrix(most=6)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.full) for name in _ROWS]
)
def test_flink_1_reads_what_flink_2_wrote(
    name: str, started: Started, savepoints: Callable[[str, str], Made], tmp_path: Path
) -> None:
    row, made = ROWS[name], savepoints("2.3.0", name)
    no_timers = row.format == "NATIVE"
    new = way_back(made.path, tmp_path, row.classes, declared=_DECLARED.get(name), no_timers=no_timers)
    check_observed(started("1.20.0", row.whole_class_path), row.job, new, made, _NOT_READ.get(name, Outcome.RESTORES))
    assert not_proven(tmp_path) == (["main/s: sample read plainly"] if name in _NOT_READ_PLAINLY else [])


_KINDS = ("heap HashMap", "TTL HashMap", "LIST UUID", "POJO Tagged", "KEY UUID", "kinds in windows", "POJO Kennel")


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", _KINDS)
def test_it_goes_with_other_layouts_and_formats(name: str, layout: str, started: Started, tmp_path: Path) -> None:
    check_with_layout(name, layout, started, ("2.3.0", "1.20.0"), tmp_path, **_WAY_BACK)


def test_keys_user_keys_timers_and_collections(started: Started, tmp_path: Path) -> None:
    states = (
        State("number", "Long"),
        State("by-key", "Map<UUID,Long>", kind="MAP"),
        State("hinted", "HintedMap<String,Double>", ttl="stamped"),
        State("rows", "Map<String,HintedMap<Integer,String>>", kind="MAP"),
        State("lists", "HintedList<Double>", kind="LIST"),
        State("set", "HintedSet<Long>"),
    )
    job = Job((Operator("main", key="UUID", keys=12, states=states, timers=Timers(event=2, far=1)),), parallelism=2)
    check_kept(job, started, ("2.3.0", "1.20.0"), tmp_path, declared={"main/lists": "List"}, **_WAY_BACK)


_OF_CLASSES = {
    "totals": "HintedList<KryoTotals?>",
    "visits": "HintedMap<String,Visit?>",
    "last": "HintedCollection<VisitTotals>",
    "places": "HintedSet<Address>",
    "animals": "HintedMap<Color,Animal?>",
    "typed": "HintedList<TypedTotals>",
    "crates": "HintedList<Crate>",
}


@pytest.mark.parametrize("registered", [(), ("Dog", "Cat")])
def test_collections_of_the_jobs_own_classes(registered: tuple[str, ...], started: Started, tmp_path: Path) -> None:
    """With fields and arrays of all kinds, and with subclasses that the job has registered or not."""
    states = tuple(State(name, type_) for name, type_ in _OF_CLASSES.items())
    job = Job((Operator("main", key="String", keys=25, states=states),), parallelism=2, registered=registered)
    lists = {f"main/{name}": "List" for name in ("totals", "typed", "crates")}
    declared = {**lists, "main/last": "Collection"}
    check_kept(job, started, ("2.3.0", "1.20.0"), tmp_path, with_classes=True, declared=declared, **_WAY_BACK)
    assert not_proven(tmp_path) == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "ZonedDateTime" else pytest.mark.full) for name in _REFUSED]
)
def test_what_flink_1_cannot_have_is_refused_by_name(
    name: str, savepoints: Callable[[str, str], Made], tmp_path: Path
) -> None:
    row, made = ROWS[name], savepoints("2.3.0", name)
    with refused(_REFUSED[name], tmp_path):
        way_back(made.path, tmp_path, row.classes, declared=_DECLARED.get(name))


_OF_THE_JOB = ("HintedMap<String,Person?>", "HintedSet<Color?>", "HintedMap<String,Shape>", "LIST HintedList")


@pytest.mark.parametrize("name", [*_OF_THE_JOB, "operator state broadcast HintedList of Person"])
def test_classes_in_collections_that_are_not_known_are_refused_by_name(
    name: str, savepoints: Callable[[str, str], Made], tmp_path: Path
) -> None:
    with refused(r"how Kryo 2 writes stateferry\.flink\.pojo\.\w+ is not known.*--classes", tmp_path):
        way_back(savepoints("2.3.0", name).path, tmp_path, declared=_DECLARED.get(name))


@pytest.mark.parametrize(
    ("name", "place", "said", "stopped_by"),
    [
        ("HintedList<String>", "main/s", "List<Long>", "the savepoint has String in it"),
        ("HintedList<String>", "main/s", "List<List<String>>", "the savepoint has String in it"),
        ("HintedMap<String,Long>", "main/s", "Map<String, Integer>", "the savepoint has String and Long in it"),
        ("HintedMap<String,Person?>", "main/s", "Map<String, Pojo<stateferry.flink.pojo.Item>>", "Person> in it"),
        ("HintedSet<String>", "main/s", "Set<Strin>", "no type 'Strin' is known here"),
        ("POJO Tagged", "main/s.counts", "Map<Long, Long>", "the savepoint has String and Long in it"),
        ("POJO Tagged", "main/s.tags", "Collection", r"Tagged in the jar has java\.util\.List<.*> tags"),
        ("operator state HintedList", "plain/o", "List<Integer>", "the savepoint has String in it"),
        ("operator state broadcast HintedMap", "plain/o", "Map<String, String>", "String and Long in it"),
        ("HintedList<String>", "main/s", "Collection<String>", ""),
        ("HintedCollection<String>", "main/s", "List<String>", ""),
    ],
)
def test_a_wrong_declaration_stops_the_run_or_the_job(
    name: str, place: str, said: str, stopped_by: str, started: Started, savepoints: Callable[[str, str], Made],
    tmp_path: Path,
) -> None:  # fmt: skip
    row, made = ROWS[name], savepoints("2.3.0", name)
    declared = {**_DECLARED.get(name, {}), place: said}
    if stopped_by:
        with refused(stopped_by, tmp_path):
            way_back(made.path, tmp_path, row.classes, declared=declared)
        return
    new = way_back(made.path, tmp_path, row.classes, declared=declared)
    check_observed(started("1.20.0", False), row.job, new, made, Outcome.REFUSED)


def test_a_value_of_either_kryo_and_a_list_must_be_told(savepoints: Callable[[str, str], Made], tmp_path: Path) -> None:
    with refused(r"could both have written this value.*say --all-by-kryo-5", tmp_path):
        way_back(savepoints("2.3.0", "Object<Double>").path, tmp_path, all_by_kryo_5=False)
    with refused("say --declared 'main/s=List' or --declared 'main/s=Collection'", tmp_path):
        way_back(savepoints("2.3.0", "HintedList<String>").path, tmp_path)
