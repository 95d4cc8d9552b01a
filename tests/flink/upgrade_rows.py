"""What real Flink does with a savepoint of another Flink: jobs, and what becomes of their state.

    .venv/bin/python -m tests.flink.upgrade_rows

writes the table of `docs/upgrade.md`, from `ROWS`. `test_verdict.py` holds `ROWS` against real Flink.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stateferry.verdict.outcomes import Outcome
from tests.flink.jobs import Job, Operator, OperatorState, State
from tests.flink.scenarios import ARRAYS, AVRO, COMPOSITES, KEYS, LIST_ELEMENTS, SCALARS, SCENARIOS, kinds, values

PAGE = Path(__file__).parents[2] / "docs" / "upgrade.md"
_POJO = "stateferry.flink.pojo."
RESTORES, UNKNOWN = Outcome.RESTORES, Outcome.UNKNOWN
FAILS, WRONG, REFUSED = Outcome.FAILS, Outcome.WRONG, Outcome.REFUSED


@dataclass(frozen=True)
class Row:
    """A job, and what was seen when it was started by Flink 2.3 from its savepoint of Flink 1.20.

    `verdict` is what Stateferry says where that is less: that it can't tell. `shown` is the row's text in the docs.
    """

    job: Job
    becomes: Outcome
    verdict: Outcome | None = None
    shown: str | None = None
    whole_class_path: bool = False
    classes: bool = True
    format: str = "CANONICAL"
    # What was seen where Flink doesn't restore its own savepoint or the verdict says less, by version, and the verdict.
    stays: Mapping[str, Outcome] = field(default_factory=dict)
    verdict_if_stays: Outcome | None = None
    # The class in the jar says how the collections in it are declared.
    by_field: bool = False


def _one(
    type_: str, kind: str = "VALUE", key: str = "Long", backend: str = "rocksdb", ttl: str | None = None, keys: int = 12
) -> Job:
    states = (State("s", type_, kind=kind, ttl=ttl),)
    return Job((Operator("main", key=key, keys=keys, states=states),), parallelism=2, backend=backend)


def _hint(of: str) -> str:
    return f"`TypeInformation.of(new TypeHint<{of}>() {{}})`"


def _of_values() -> Iterator[tuple[str, Row]]:
    """ValueStates whose value is by Kryo 2."""
    for type_, becomes, shown in (
        ("HintedMap<String,Long>", REFUSED, _hint("Map<String, Long>")),
        ("HintedMap<String,UUID>", REFUSED, None),
        ("HintedMap<String,Person?>", REFUSED, None),
        ("HintedMap<Long,Color?>", REFUSED, None),
        ("HintedMap<String,List<String>>", WRONG, _hint("Map<String, List<String>>")),
        ("WildMap<String,Long>", WRONG, _hint("Map<String, ? extends Number>")),
        ("HintedList<String>", REFUSED, _hint("List<String>")),
        ("HintedList<UUID?>", REFUSED, None),
        ("HintedList<Person?>", REFUSED, _hint("List<Person>")),
        ("HintedSet<String>", REFUSED, _hint("Set<String>")),
        ("HintedSet<Color?>", REFUSED, None),
        ("HintedSet<UUID>", REFUSED, None),
        ("HintedCollection<String>", REFUSED, _hint("Collection<String>")),
        ("HintedCollection<Person>", REFUSED, None),
        ("MapClass<String,Long>", WRONG, "`Map.class`"),
        ("ListClass<String>", WRONG, "`List.class`"),
        ("SetClass<String>", WRONG, "`Set.class`"),
        ("HashMap<String,Long>", WRONG, _hint("HashMap<String, Long>")),
        ("HashMap<String,String>", WRONG, None),
        ("HashMap<String,Double>", WRONG, None),
        ("HashMap<String,List<String>>", WRONG, None),
        ("LinkedHashMap<String,Long>", WRONG, None),
        ("HashMap<String,Row<Long?,String?>>", FAILS, None),
        ("HashMap<String,Either<Long,String>>", WRONG, None),
        (f"HashMap<String,Tuple12<{','.join(('Long', 'String') * 6)}>>", WRONG, None),
        ("ConcurrentHashMap<String,Long>", WRONG, None),
        ("LruMap<String,Long>", WRONG, "a class of the job that extends `LinkedHashMap`, `HashMap` and the like"),
        ("JsonMap<String,Double>", WRONG, "a class of the job that implements `Map`"),
        ("CountsMapClass<String,Long>", WRONG, None),
        ("BraceMap<String,Long>", WRONG, None),
        ("GsonMap<String,Double>", WRONG, "Gson's `LinkedTreeMap`"),
        ("TextMap<String,Long>", WRONG, "a `TreeMap` with a comparator of the job's own"),
        ("HashMap<String,TextSorted<String,Long>>", FAILS, None),
        ("HashMap<String,Lru<String,Long>>", WRONG, None),
        ("Basket<String>", WRONG, "a class of the job that extends `ArrayList`"),
        ("Dated<String>", FAILS, "a class of the job with a type parameter"),
        ("HashMap<String,Dated<Long>>", FAILS, None),
        ("Ticket<Long?>", FAILS, None),
        ("HashMap<String,Ticket<Long>>", FAILS, None),
        ("Rack<Long>", WRONG, None),
        ("Crowd<String>", WRONG, None),
        ("HintedMap<String,Lru<String,Long>>", WRONG, None),
        ("HintedMap<String,CountsClass<String,Long>>", REFUSED, None),
        ("HintedList<CountsClass<String,Long>>", REFUSED, None),
        ("TreeMap<String,Long>", WRONG, _hint("TreeMap<String, Long>")),
        ("ArrayList<String>", WRONG, _hint("ArrayList<String>")),
        ("ArrayList<Double>", WRONG, None),
        ("LinkedList<Long>", WRONG, None),
        ("HashSet<String>", WRONG, _hint("HashSet<String>")),
        ("TreeSet<String>", WRONG, None),
        ("ArrayDeque<String>", WRONG, None),
        ("UUID", FAILS, "`UUID.class`"),
        ("Duration", FAILS, "`Duration.class`"),
        ("ZonedDateTime", FAILS, "`ZonedDateTime.class`"),
        ("DayOfWeek", WRONG, None),
        ("BitSet", WRONG, "`BitSet.class`"),
        ("Object<LocalDate>", FAILS, "`Object.class`, a `LocalDate` in it"),
        ("Object<LocalTime>", FAILS, None),
        ("Object<LocalDateTime>", FAILS, None),
        ("Object<Instant>", WRONG, "`Object.class`, an `Instant` in it"),
        ("Object<Double>", WRONG, "`Object.class`, a `Double`, `Float`, `Short` or `Character` in it"),
        ("Object<Float>", WRONG, None),
        ("Object<Short>", WRONG, None),
        ("Object<Character>", WRONG, None),
        ("Object<double[]>", WRONG, None),
        ("Object<Tuple2<Double,String>>", WRONG, None),
        ("Object<AsList<String>>", FAILS, None),
        ("Optional<UUID>", FAILS, "`Optional<UUID>`, also in a field of a POJO"),
        ("Object<Optional<HashMap<String,Long>>>", WRONG, None),
        ("Objects<HashMap<String,Long>>", WRONG, None),
        ("HashSet<UUID>", FAILS, None),
        ("Opaque{33-33}", RESTORES, None),
        ("Object<Opaque>", RESTORES, None),
        ("Object<Opaque{33-33}>", RESTORES, None),
        ("Object<Route>", RESTORES, None),
        ("Object<Address>", RESTORES, None),
        ("Object<Dog>", RESTORES, None),
        ("Object<Parcel>", RESTORES, None),
        ("Object<Opaque[]>", RESTORES, None),
        ("Object<Dog[]>", RESTORES, None),
        ("Object<Animal[]>", FAILS, None),
        ("Object<Crate>", FAILS, None),
        ("Object<Parcel[]>", RESTORES, None),
        ("Object<Tuple3<Opaque,Route,Parcel>>", RESTORES, None),
        ("Object<Tuple2<Cat,Cat>>", FAILS, None),
        ("Optional<Color>", WRONG, None),
        ("Object<Tuple2<Opaque,Long>>", RESTORES, None),
        ("Object<Optional<Opaque>>", RESTORES, None),
        ("Object<Optional<Long>>", RESTORES, None),
        ("Object<Optional<Double>>", WRONG, None),
        (
            "Optional<String>",
            RESTORES,
            "`Optional<String>`, `Optional<Long>`",
        ),
        ("Optional<Long>", RESTORES, None),
        ("Optional<Opaque>", RESTORES, None),
        ("Optional<Double>", WRONG, None),
        ("Map<Object<Opaque>,Long>", RESTORES, None),
        ("Row<Object<Opaque>?,Long?>", RESTORES, None),
        ("Object<String>", RESTORES, "`Object.class`, a `String`, `Long`, `Integer`, `Byte`, `Boolean` in it"),
        ("Object<BigDecimal>", RESTORES, "`Object.class`, a `BigDecimal`, `BigInteger`, `Date`, `Timestamp` in it"),
        ("Object<Tuple2<Long,String>>", RESTORES, "`Object.class`, a `Tuple2<Long, String>` in it"),
        *(
            (f"Object<{type_}>", RESTORES, None)
            for type_ in (
                *("Long", "Integer", "Boolean", "Byte", "BigInteger", "Date", "SqlDate", "SqlTime", "SqlTimestamp"),
                *("long[]", "int[]", "byte[]", "String[]", "Long[]"),
                *("Either<Long,String>", f"Tuple12<{','.join(('Long', 'String') * 6)}>"),
            )
        ),
    ):
        # Flink 1.20 doesn't keep the name of an offset.
        stays = {"1.20.0": WRONG} if type_ == "ZonedDateTime" else {}
        yield type_, Row(_one(type_), becomes, shown=shown, stays=stays)
    # Its subclass Cat has an enum, of which Kryo 5 writes some objects otherwise: all are read if there is one subtask.
    yield "Object<Animal>", Row(replace(_one("Object<Animal>"), parallelism=1), RESTORES)
    yield "Object<Animal> in part", Row(_one("Object<Animal>"), RESTORES, UNKNOWN)
    forgets = dict.fromkeys(("1.20.0", "2.3.0"), WRONG)
    yield "CapMap<String,Long>", Row(_one("CapMap<String,Long>"), WRONG, stays=forgets, verdict_if_stays=UNKNOWN)
    # Flink can't read all that it writes. Of several subtasks any may fail first, so there is one.
    unreadable = ("Object<UtilMap<String,Long>>", "Optional<UtilMap<String,Long>>", "HashSet<UtilMap<String,Long>>")
    for type_ in (*unreadable, "EnumMap<Color,Long>"):
        stays = dict.fromkeys(("1.20.0", "2.3.0"), FAILS)
        yield type_, Row(replace(_one(type_), parallelism=1), FAILS, stays=stays)


# Collections with POJOs, enums and objects by Kryo that are no whole values of a ValueState.
INSIDE = {
    "LIST Cart": ("Cart", "LIST"),
    "TTL LIST Ids": ("Ids", "LIST"),
    "MAP Cart": ("Map<String,Cart?>", "MAP"),
    "TTL MAP Ids": ("Map<String,Ids>", "MAP"),
    "REDUCING Cart": ("Cart", "REDUCING"),
    "AGGREGATING Ids": ("Ids", "AGGREGATING"),
    "TTL Cart": ("Cart", "VALUE"),
    "TTL MAP Zoo": ("Map<String,Zoo?>", "MAP"),
    "HintedMap<String,Shape>": ("HintedMap<String,Shape?>", "VALUE"),
    "LIST HintedList": ("HintedList<Person?>", "LIST"),
    "TTL MAP HintedMap": ("Map<Long,HintedMap<String,UUID?>>", "MAP"),
    "nested Tuple2<HintedList,Long,HintedMap>": ("Tuple3<HintedList<UUID?>,Long,HintedMap<Color,Person?>>", "VALUE"),
    "nested Row<HintedSet>": ("Row<HintedSet<Color?>?,Cart?>", "VALUE"),
    "nested List<HintedList>": ("List<HintedList<Opaque?>>", "VALUE"),
    "nested Map<HintedList>": ("Map<String,HintedList<Color?>>", "VALUE"),
}


def _of_kinds() -> Iterator[tuple[str, Row]]:
    """Other kinds of state with values by Kryo 2."""
    for type_, ends in (
        ("HashMap<String,Long>", {"LIST": FAILS, "MAP": WRONG, "REDUCING": WRONG, "AGGREGATING": WRONG}),
        ("UUID", dict.fromkeys(("LIST", "MAP", "REDUCING", "AGGREGATING"), FAILS)),
        ("Object<Double>", dict.fromkeys(("LIST", "MAP", "REDUCING", "AGGREGATING"), WRONG)),
        ("Object<Long>", dict.fromkeys(("LIST", "MAP", "REDUCING", "AGGREGATING"), RESTORES)),
        ("Object<Opaque>", dict.fromkeys(("LIST", "MAP"), RESTORES)),
        ("Optional<String>", dict.fromkeys(("LIST", "MAP"), RESTORES)),
    ):
        for kind, becomes in ends.items():
            declared = f"Map<String,{type_}>" if kind == "MAP" else type_
            yield f"{kind} {type_}", Row(_one(declared, kind), becomes)
    yield (
        "nested Map",
        Row(_one("Map<String,UUID>"), FAILS, shown="`Types.MAP(Types.STRING, Types.GENERIC(UUID.class))`"),
    )
    yield "nested List", Row(_one("List<UUID>"), FAILS)
    for type_, becomes in (
        ("Tuple2<Long,Object<Double>>", WRONG),
        ("Tuple2<HintedMap<String,Long>,HintedList<String>>", REFUSED),
        ("Tuple2<Object<Long>,String>", RESTORES),
        ("List<Object<Long>>", RESTORES),
        ("Map<String,Object<Long>>", RESTORES),
        ("List<Opaque>", RESTORES),
        ("Either<Object<Long>,String>", RESTORES),
    ):
        yield f"nested {type_}", Row(_one(type_), becomes)
    for name, (type_, kind) in INSIDE.items():
        yield (
            name,
            Row(
                _one(type_, kind, ttl="stamped" if "TTL" in name else None),
                REFUSED,
                by_field=any(one in type_ for one in ("Cart", "Ids", "Zoo")),
            ),
        )
    # The HashMap backend reads all values before it compares the serializers, and ends with that.
    yield "heap Cart", Row(_one("Cart", backend="hashmap"), FAILS, REFUSED)
    in_windows = State("s", "Cart", kind="LIST", namespace="TimeWindow", namespaces=2)
    yield "windows Cart", Row(Job((Operator("main", key="String", keys=12, states=(in_windows,)),)), REFUSED)
    yield "nested LIST", Row(_one("Tuple2<Long,Object<Long>>", "LIST", ttl="stamped"), RESTORES)
    # Flink 2.3 reads beyond these arrays, also in what it wrote itself.
    for type_, verdict in (("Object<short[]>", None), ("Object<float[]>", None), ("Optional<float[]>", None)):
        lists = replace(_one(type_, "LIST", keys=20), parallelism=1)
        yield f"LIST {type_}", Row(lists, FAILS, verdict, stays={"2.3.0": FAILS}, verdict_if_stays=UNKNOWN)
    yield "no classes nested", Row(_one("List<Opaque>"), RESTORES, UNKNOWN, classes=False)
    yield "nested HashMap", Row(_one("Map<String,HashMap<String,Long>>", "MAP", ttl="stamped"), WRONG)
    yield "TTL HintedMap", Row(_one("HintedMap<String,UUID?>", ttl="stamped"), REFUSED)
    yield "TTL UUID", Row(_one("UUID", ttl="stamped"), FAILS)
    yield "TTL HashMap", Row(_one("HashMap<String,Long>", ttl="stamped"), WRONG)
    yield "heap HashMap", Row(_one("HashMap<String,Long>", backend="hashmap"), WRONG)
    yield "heap UUID", Row(_one("UUID", backend="hashmap"), FAILS)


def _in_rocksdbs_own_files() -> Iterator[tuple[str, Row]]:
    """Native savepoints."""
    for type_, becomes in (
        ("HashMap<String,Long>", WRONG),
        ("HintedMap<String,Long>", REFUSED),
        ("UUID", FAILS),
        ("Object<Long>", RESTORES),
        ("Map<String,Long>", RESTORES),
    ):
        yield f"native {type_}", Row(_one(type_), becomes, format="NATIVE")
    yield "native MAP UUID", Row(_one("Map<String,UUID>", "MAP", ttl="stamped"), FAILS, format="NATIVE")
    yield "native KEY UUID", Row(_one("String", key="UUID"), FAILS, format="NATIVE")


def _of_classes() -> Iterator[tuple[str, Row]]:
    """Classes of the job by Kryo, with and without its jar."""
    for name, type_, becomes, shown in (
        (
            "Opaque",
            "Opaque",
            RESTORES,
            "a class of the job with `String`, `int`, `long` fields only, by Kryo",
        ),
        ("Color", "Object<Color>", WRONG, "an enum of the job by Kryo"),
        ("Person", "Object<Person>", WRONG, "a class of the job with a `double` field, by Kryo"),
    ):
        yield f"classes {name}", Row(_one(type_), becomes, shown=shown)
        yield f"no classes {name}", Row(_one(type_), becomes, UNKNOWN, classes=False)
    user_keys = _one("Map<Opaque,Long>", "MAP")
    yield "classes user keys", Row(user_keys, RESTORES)
    yield "no classes user keys", Row(user_keys, RESTORES, UNKNOWN, classes=False)


def _of_pojos() -> Iterator[tuple[str, Row]]:
    for type_, becomes, shown in (
        ("Tagged", REFUSED, "a POJO with a field `List<String>` or `Map<String, Long>`"),
        ("Totals", REFUSED, None),
        ("KryoTotals", WRONG, "a POJO with a field `HashMap<String, Long>`"),
        ("Sometimes", FAILS, None),
        ("TypedTotals", RESTORES, "a POJO with a field of `@TypeInfo`, whose factory says `Types.MAP`"),
        ("Person", RESTORES, "a POJO with fields that Flink has serializers for"),
        ("Animal", RESTORES, None),
        ("Point", RESTORES, "a record of Java"),
        ("Tuple2<Long,Point>", RESTORES, None),
        ("List<Tagged>", REFUSED, None),
        ("Cart", REFUSED, "a POJO with a field `List<Item>` or `Map<String, Item>`, where `Item` is a POJO or an enum"),
        ("Ids", REFUSED, "a POJO with a field `List<UUID>` or `Map<String, UUID>`"),
        ("Zoo", REFUSED, "a POJO with a field `List<Shape>`, whose elements are of subclasses of `Shape`"),
        ("Kennel", REFUSED, "a POJO whose subclass has a field `List<Animal>`"),
        ("Shelf", REFUSED, None),
        ("Board", WRONG, "a POJO with a field `Map<String, List<Long>>`"),
        ("Sheet", REFUSED, None),
        ("Pair", RESTORES, "a class of the job that extends `Tuple2`, with or without fields of its own"),
        ("Labelled", RESTORES, None),
        ("List<Pair>", RESTORES, None),
    ):
        yield f"POJO {type_}", Row(_one(type_), becomes, shown=shown, by_field=True)


def _of_keys() -> Iterator[tuple[str, Row]]:
    for type_, becomes, shown in (
        ("UUID", FAILS, "keys of `UUID`"),
        ("List<UUID>", FAILS, None),
        ("BitSet", WRONG, None),
        ("Object<Double>", WRONG, None),
        ("Object<Long>", RESTORES, None),
        ("HintedList<String>", REFUSED, "keys of `List<String>`"),
    ):
        # One String that stands twice in a key is two after the restore: the key's bytes are others then.
        stays = {"1.20.0": WRONG} if type_ == "HintedList<String>" else {}
        if_stays = UNKNOWN if stays else None
        row = Row(_one("String", key=type_), becomes, shown=shown, stays=stays, verdict_if_stays=if_stays)
        yield f"KEY {type_}", row
    for type_ in ("Optional<Long>", "Optional<String>", "Optional<Opaque>"):
        yield f"KEY {type_}", Row(_one("String", key=type_), RESTORES)
    yield "KEY Optional<UUID>", Row(_one("String", key="Optional<UUID>"), FAILS)
    yield "KEY Opaque", Row(_one("String", key="Opaque"), RESTORES)
    yield "KEY Object<Opaque>", Row(_one("String", key="Object<Opaque>"), RESTORES)
    # Each Kryo reads what the other has written of a String, but those in ASCII have other bytes from 33 characters on.
    yield "KEY long Strings", Row(_one("String", key="Object<String{33-33}>", keys=400), WRONG)
    yield "KEY long Strings in a class", Row(_one("String", key="Opaque{33-33}", keys=400), WRONG)
    # Either Kryo refers to a String that stands twice, and reads some equal ones as one.
    stays = dict.fromkeys(("1.20.0", "2.3.0"), WRONG)
    yield "KEY two Strings", Row(_one("String", key="Route", keys=200), WRONG, UNKNOWN, stays=stays)
    for type_ in KEYS:
        yield f"KEY {type_}", Row(_one("Map<String,Long>", "MAP", key=type_), RESTORES)


def _of_flink() -> Iterator[tuple[str, Row]]:
    """Flink's own serializers, many at a time."""
    both = {
        "scalars": values(SCALARS),
        "scalars under TTL": values(SCALARS, ttl="stamped"),
        "arrays": values(ARRAYS),
        "composites": values(COMPOSITES),
        "composites under TTL": values(COMPOSITES, ttl="stamped"),
        "lists": values(LIST_ELEMENTS, kind="LIST"),
        "kinds": kinds("String", None),
        "kinds on the heap": replace(kinds("String", None), backend="hashmap"),
        "kinds under TTL": kinds("Long", None, ttl="stamped"),
        "kinds in windows": kinds("Tuple2<String,Long>", "TimeWindow"),
        "kinds in strings": kinds("String", "String"),
        "maps": SCENARIOS["maps"],
        "windows": SCENARIOS["windows"],
        "operator state": SCENARIOS["operator-state"],
        "snappy": replace(kinds("Long", None), snappy=True),
    }
    shown = {
        "scalars": "`Types.STRING`, `Types.LONG` and all other basic types",
        "composites": "tuples, rows, `Either`, `Types.LIST`, `Types.MAP` of these",
        "windows": "windows, their contents and timers",
        "operator state": "list, union and broadcast state of these types",
    }
    for name, job in both.items():
        yield name, Row(job, RESTORES, shown=shown.get(name))
    shown_avro = "Avro's records, with flink-avro on the class path"
    yield "Avro", Row(values(AVRO), RESTORES, shown=shown_avro, whole_class_path=True)


def _of_two_inputs() -> Iterator[tuple[str, Row]]:
    """Operators of Flink with two inputs, of which the one holds what the other is joined to."""
    for name, key, becomes, verdict, shown in (
        ("interval-join", "String", RESTORES, None, "interval joins"),
        ("interval-join", "UUID", FAILS, None, None),
        ("window-join", "String", RESTORES, None, "joins and `coGroup` in windows"),
        ("window-join-map", "String", FAILS, None, None),
        ("co-process", "String", RESTORES, None, None),
    ):
        job = Job((Operator("both", type=name, key=key, keys=15),), parallelism=2)
        yield f"{name} {key}", Row(job, becomes, verdict, shown=shown)


# Each job has a keyed operator: only those listen to the source that starts it.
_LISTENER = Operator("keyed", key="Long", keys=2, states=(State("s", "Long"),))


def _of_operator_state() -> Iterator[tuple[str, Row]]:
    for name, type_, mode, becomes, verdict in (
        ("UUID", "UUID", "SPLIT", FAILS, None),
        ("HashMap", "HashMap<String,Long>", "UNION", FAILS, None),
        ("HintedList", "HintedList<String>", "SPLIT", FAILS, None),
        ("Cart", "Cart", "SPLIT", FAILS, None),
        ("Ids", "Ids", "UNION", FAILS, None),
        ("HintedList of UUID", "HintedList<UUID?>", "UNION", FAILS, None),
        ("broadcast Cart", "Map<String,Cart>", "BROADCAST", FAILS, None),
        ("broadcast keys", "Map<HintedList<UUID>,Ids>", "BROADCAST", FAILS, None),
        ("broadcast HintedList of Person", "Map<Long,HintedList<Person?>>", "BROADCAST", FAILS, None),
        ("broadcast UUID", "Map<String,UUID>", "BROADCAST", FAILS, None),
        ("broadcast HintedMap", "Map<String,HintedMap<String,Long>>", "BROADCAST", FAILS, None),
        ("Object", "Object<Long>", "SPLIT", RESTORES, None),
        ("Object of Double", "Object<Double>", "SPLIT", WRONG, None),
        ("Tuple2", "Tuple2<String,Object<Long>>", "UNION", RESTORES, None),
        ("broadcast Object", "Map<String,Object<Long>>", "BROADCAST", RESTORES, None),
    ):
        state = OperatorState("o", type_, mode, elements=6)
        job = Job((Operator("plain", type="plain", operator_states=(state,)), _LISTENER), parallelism=1)
        yield f"operator state {name}", Row(job, becomes, verdict)
    for name, type_, mode, becomes in (
        ("UUID", "UUID", "SPLIT", FAILS),
        # Larger than what a chunk holds.
        ("HashMap", "HashMap{6000-6000}<String,Long>", "UNION", WRONG),
        ("broadcast UUID", "Map<String,UUID>", "BROADCAST", FAILS),
    ):
        state = OperatorState("o", type_, mode, elements=6)
        operators = (Operator("plain", type="plain", operator_states=(state,)), _LISTENER)
        yield f"compressed operator state {name}", Row(Job(operators, parallelism=1, snappy=True), becomes)
    source = Operator("numbers", type="source", parallelism=2)
    yield "source", Row(Job((source, _LISTENER), parallelism=2), RESTORES, UNKNOWN)
    # What its writers and committers hold, bytes of its own.
    sink = Operator("sink", type="sink", parallelism=2)
    yield "sink", Row(Job((sink, _LISTENER), parallelism=2), RESTORES, UNKNOWN)


def _with_the_whole_class_path() -> Iterator[tuple[str, Row]]:
    for type_ in ("ScalaTuple2<String,Long>", "Option<Long>", "Suit", "Traversable<String>", "Unit", "Try<Long>"):
        shown = (
            "case classes, `Option`, `Either`, enumerations, collections of flink-scala" if type_ == "Suit" else None
        )
        yield f"Scala {type_}", Row(_one(type_), REFUSED, shown=shown, whole_class_path=True)
    yield (
        "avro beside Kryo",
        Row(
            _one("Opaque"), REFUSED, whole_class_path=True, shown="anything by Kryo, with flink-avro on the class path"
        ),
    )
    yield "protobuf", Row(_one("ProtobufText"), REFUSED, whole_class_path=True)
    settings = SCENARIOS["kryo-registered"].settings
    yield (
        "registered serializer",
        Row(replace(_one("ProtobufText"), settings=settings), REFUSED, whole_class_path=True),
    )


def _with_a_serializer_of_the_job() -> Iterator[tuple[str, Row]]:
    """Classes that the job registers with Kryo and a serializer of its own; flink-avro isn't on the class path."""
    for kryo_type in ("registered", "default"):
        serializer = f"{{type: kryo, kryo-type: {kryo_type}, class: {_POJO}OpaqueSerializer}}"
        settings = {"pipeline.serialization-config": f"[{_POJO}Opaque: {serializer}]"}
        # Of the map Kryo 5 loses an entry, whatever the serializer does.
        for type_, verdict in (("Opaque", UNKNOWN), ("HashMap<String,Opaque>", None)):
            job, stays = replace(_one(type_), settings=settings), dict.fromkeys(("1.20.0", "2.3.0"), RESTORES)
            yield f"{kryo_type} serializer {type_}", Row(job, WRONG, verdict, stays=stays, verdict_if_stays=UNKNOWN)


ROWS: Mapping[str, Row] = dict(
    (
        *_of_values(),
        *_of_kinds(),
        *_in_rocksdbs_own_files(),
        *_of_classes(),
        *_of_pojos(),
        *_of_keys(),
        *_of_flink(),
        *_of_two_inputs(),
        *_of_operator_state(),
        *_with_the_whole_class_path(),
        *_with_a_serializer_of_the_job(),
    )
)
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def table() -> str:
    """The table of the docs: the rows that have a text."""
    lines = [
        "| the state is declared as | a job of Flink 2.3 that starts from the savepoint of Flink 1.20 |",
        "|---|---|",
    ]
    lines += [f"| {row.shown} | {row.becomes.value} |" for row in ROWS.values() if row.shown is not None]
    return "\n".join(lines) + "\n"


def table_in_docs() -> str:
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"{PAGE} has no table"
    return found[0]


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
