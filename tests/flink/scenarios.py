"""The named scenarios: what the tests have Flink hold, and on which Flink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Operator, OperatorState, State, Timers


def legacy(
    type_: str = "Map{0-9}<String,Long?>",
    *,
    new_type: str | None = None,
    key: str = "String",
    keys: int = 128,
    migrated: float = 0.3,
    ttl: str | None = None,
) -> Job:
    """A job that has begun to move its maps: the last ``migrated`` part of the keys has rows and a flag, no blob."""
    split = 1.0 - migrated
    new = new_type or type_.replace("?", "")
    states = (
        State("mainState", type_, ttl=ttl, share=(0.0, split)),
        State("newMainState", new, kind="MAP", ttl=ttl, share=(split, 1.0)),
        State("isMigratedState", "Boolean", ttl=ttl, share=(split, 1.0)),
    )
    return Job((Operator("main", key=key, keys=keys, states=states),))


SCALARS = (
    *("String", "Long", "Integer", "Short", "Byte", "Boolean", "Double", "Float", "Character", "BigInteger"),
    *("BigDecimal", "Date", "SqlDate", "SqlTime", "SqlTimestamp", "LocalDate", "LocalTime", "LocalDateTime", "Instant"),
    *("BooleanValue", "ByteValue", "ShortValue", "IntValue", "LongValue", "FloatValue", "DoubleValue", "CharValue"),
    *("StringValue", "NullValue", "Color", "TimeWindow", "GlobalWindow", "Tuple0"),
)
ARRAYS = (
    *("byte[]", "short[]", "int[]", "long[]", "float[]", "double[]", "boolean[]", "char[]"),
    *("String[]", "Long[]", "Color[]", "Address[]", "Tuple2<Long,String>[]", "long[][]"),
)
COMPOSITES = (
    "Tuple1<String>",
    "Tuple2<String?,Long>",
    "Tuple5<Integer,Boolean,Double,Tuple2<Long,String>,Instant>",
    "Tuple2<List<Integer>,Map<String,Long?>>",
    "Row<String?,Long?,Tuple2<Integer,String>?,Double?,Boolean?,Instant?,Short?>",
    "Row<Row<Long?>?,List<Row<String?>>>",
    "List<String?>",
    "List<List<Tuple2<Long,String>>>",
    "Map<String,Long?>",
    "Map<Tuple2<Integer,String>,List<Double>>",
    "Map<String,List<Tuple2<Long,Map<Integer,Boolean?>>>>",
    "Map<Color,Address>",
    "Map<String,Void>",
    "Map<Long,Row<String?,Integer?>?>",
    "Either<String,Long>",
    "Either<List<Long>,Either<Integer,Person>>",
    "Nullable<Long>",
    "PaddedNullable<Long>",
    "List<Nullable<Instant>>",
    "Map<String,PaddedNullable<Tuple2<Long,Integer>>>",
    "Address",
    "Person",
)
# Lists hold no nulls, and Flink finds no elements in a list of elements without bytes.
LIST_ELEMENTS = tuple(t for t in (*SCALARS, *COMPOSITES) if t != "NullValue" and not t.endswith("Nullable<Long>"))
SINCE_FLINK_2 = ("Variant", "Bitmap", "Set<String>", "Set<Tuple2<Long,String>>", "Tagged", "Map<String,Set<Long>>")
SCALA = (
    *("ScalaTuple2<String?,Long>", "ScalaTuple3<Integer,Option<String>,Tuple2<Long,String>>", "Option<Long>"),
    *(
        "ScalaEither<String,Option<Double>>",
        "ScalaEither<Nothing,Long>",
        "Option<Nothing>",
        "Try<Long>",
        "Suit",
        "Unit",
    ),
    *("Traversable<String?>", "Traversable<ScalaTuple2<String,Long>>", "Map<Suit,ScalaTuple2<Unit,Option<Suit>>>"),
)
AVRO = ("AvroOrder", "AvroReading", "List<AvroReading>", "Map<String,AvroOrder?>")
DECLARED = (
    *(f"{name}{{0-7}}<String,Long?>" for name in ("HintedMap", "HashMap", "LinkedHashMap", "TreeMap", "MapClass")),
    *("HashMapClass{0-7}<String,Long?>", "AnyMap{0-7}<String,Long?>"),
    *("HintedMap<String,Integer?>", "HashMap<Integer,Double?>", "HashMap<Long,String?>", "HashMap<String,Boolean>"),
    *("HintedMap<String,List<String>?>", "HashMap<String,List<String?>>", "HashMap<String,HashMap<String,Long?>>"),
    *("HintedMap<String,HintedMap<String,Long?>>", "HashMap<String,Date?>", "HashMap<String,BigDecimal?>"),
    *("HashMap<String,double[]?>", "HintedMap<String,double[]>", "HashMap<String,String{300-700}>"),
    *("HashMap<String,Tuple2<Long,String>>", "LinkedHashMap<Date,Float?>", "TreeMap<Long,Short?>"),
    *("HashMap<Character,BigInteger>", "HintedMap<Byte,Color?>", "HintedMap<String,Tuple2<Long,Long>?>"),
)
"""Declarations of maps; see `DeclaredMap.java`."""
_KRYO = "{type: kryo, kryo-type: registered, class: com.twitter.chill"
_REGISTERED_WITH_KRYO = (
    "[stateferry.flink.pojo.Opaque: {type: kryo},"
    f" com.google.protobuf.StringValue: {_KRYO}.protobuf.ProtobufSerializer}},"
    f" stateferry.flink.pojo.ThriftText: {_KRYO}.thrift.TBaseSerializer}}]"
)
_ANIMALS = ("Animal", "List<Animal>", "Map<String,Animal>")
KEYS = (
    *("String", "Long", "Integer", "Short", "Byte", "Boolean", "Double", "Float", "Character", "BigInteger"),
    *("BigDecimal", "Date", "SqlDate", "SqlTime", "SqlTimestamp", "LocalDate", "LocalTime", "LocalDateTime", "Instant"),
    *("Tuple1<Long>", "Tuple2<String,Long>", "Tuple3<Integer,Boolean,String>", "Tuple4<Short,Byte,Double,Float>"),
    *("Tuple5<Instant,LocalDate,BigInteger,Character,String>", "Tuple2<Tuple2<Long,Integer>,Tuple1<String>>"),
    *("Row<String?,Long?>", "Tuple2<List<Long>,String>", "Either<String,Long>", "List<String>", "Address"),
    *("LongValue", "StringValue", "IntValue"),
)
"""Types whose ``hashCode`` is the same in every JVM, so that they may be keys; that of ``Address`` is its own code."""


def _slug(type_: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in type_).strip("-")


def values(types: tuple[str, ...], *, kind: str = "VALUE", ttl: str | None = None) -> Job:
    """One state for each of many types."""
    states = tuple(
        State(f"{kind.lower()}-{i}-{_slug(type_)}", type_, kind=kind, ttl=ttl) for i, type_ in enumerate(types)
    )
    return Job((Operator("values", key="Long", keys=12, states=states),), parallelism=2)


def _declared(types: tuple[str, ...], *, ttl: str | None = None) -> Job:
    """Maps as people declare them, one state for each type; under time to live some of the maps are null."""
    (operator,) = values(tuple(type_ + ("?" if ttl else "") for type_ in types), ttl=ttl).operators
    states = (*operator.states, State("plain", "Map<String,Long>", ttl=ttl))
    return Job((replace(operator, uid="declared", states=states),), parallelism=2)


def kinds(key: str, namespace: str | None, *, ttl: str | None = None, keys: int = 40) -> Job:
    """Every kind of state in one namespace type, with timers there."""
    count = 1 if namespace is None else 3
    types = {
        "VALUE": "Map<String,Long?>",
        "MAP": "Map<String,Tuple2<Long,String>>",
        "LIST": "Tuple2<String,Integer>",
        "REDUCING": "Long",
        "AGGREGATING": "Tuple2<Long,String>",
    }
    states = tuple(
        State(f"{kind.lower()}-state", type_, kind=kind, ttl=ttl, namespace=namespace, namespaces=count)
        for kind, type_ in types.items()
    )
    timers = Timers(event=2, processing=1, far=1, namespace=namespace)
    return Job((Operator("kinds", key=key, keys=keys, states=states, timers=timers),))


def keys(type_: str) -> Job:
    """Few states and timers under keys of one type."""
    states = (
        State("map-in-value", "Map<String,Long>"),
        State("map", "Map<Long,String?>", kind="MAP"),
        State("windowed", "Long", namespace="TimeWindow", namespaces=2),
    )
    return Job((Operator("keys", key=type_, keys=60, states=states, timers=Timers(event=1)),))


_OPERATOR_STATES = (
    OperatorState("offsets", "Tuple2<String,Long>", elements=11),
    OperatorState("other-offsets", "Long", elements=2),
    OperatorState("members", "String", mode="UNION", elements=7),
    OperatorState("rules", "Map{2-4}<String,Tuple2<Long,String>>", mode="BROADCAST", elements=3),
    OperatorState("no-rules", "Map<String,Long>", mode="BROADCAST", elements=0),
    OperatorState("people", "Person", elements=4),
)
_WINDOWS = tuple(
    Operator(f"window-{name}", type="window", key="String", keys=15, function=function, assigner=assigner)
    for name, function, assigner in (
        ("reduce", "reduce", "tumbling"),
        ("aggregate", "aggregate", "tumbling"),
        ("process", "process", "tumbling"),
        ("session", "aggregate", "session"),
    )
)
_ELEMENT = "Tuple4<Integer,Integer,Long,Long>"
_WINDOW_STATES = {
    "window-reduce": ("REDUCING", _ELEMENT),
    "window-aggregate": ("AGGREGATING", "Tuple2<Long,Long>"),
    "window-process": ("LIST", _ELEMENT),
    "window-session": ("AGGREGATING", "Tuple2<Long,Long>"),
}


def windows_read_back(job: Job) -> Job:
    """The job that shows what window operators hold: operators of the same uids declare the states of these."""
    operators = []
    for operator in job.operators:
        kind, type_ = _WINDOW_STATES[operator.uid]
        states = [State("window-contents", type_, kind=kind, namespace="TimeWindow")]
        if operator.assigner == "session":
            states.append(State("merging-window-set", "Tuple2<TimeWindow,TimeWindow>", kind="LIST"))
        timers = Timers(service="window-timers", namespace="TimeWindow")
        operators.append(replace(operator, type="keyed", states=tuple(states), timers=timers))
    return replace(job, operators=tuple(operators))


_LEGACY_STRING_LONG = legacy()
_SPARSE = Operator("sparse", key="String", keys=3, states=(State("mainState", "Map<String,Long>"),))

SCENARIOS: Mapping[str, Job] = {
    "legacy-string-long": _LEGACY_STRING_LONG,
    "legacy-string-long-ttl": legacy(ttl="stamped"),
    "legacy-untouched": legacy(migrated=0.0),
    "legacy-long-tuple": legacy("Map{0-9}<Long,Tuple2<String,Double>>", key="Long"),
    "legacy-integer-row-ttl": legacy("Map{0-9}<Integer,Row<String?,Long?>>", key="Integer", ttl="stamped"),
    "legacy-tuple-pojo": legacy("Map{0-9}<Tuple2<String,Integer>,Person?>", key="Tuple2<String,Long>"),
    "legacy-pojo-list-ttl": legacy("Map{0-9}<String,List<Tuple2<Long,String>>>", key="Address", ttl="stamped"),
    "legacy-string-enum": legacy("Map{0-9}<Color,Color>"),
    "legacy-string-nullable-ttl": legacy("Map{0-9}<String,Nullable<Long>>", ttl="stamped"),
    "legacy-long-string-nulls-ttl": legacy(
        "Map{0-9}<Long,String?>", new_type="Map{0-9}<Long,String?>", key="Long", ttl="stamped"
    ),
    "legacy-ttl-by-flink": legacy("Map{0-9}<String,Long>", ttl="config"),
    "legacy-wide": replace(_LEGACY_STRING_LONG, parallelism=4, max_parallelism=300),
    "legacy-wider": replace(_LEGACY_STRING_LONG, parallelism=5, max_parallelism=4096),
    "legacy-default-max": replace(_LEGACY_STRING_LONG, max_parallelism=None),
    "legacy-snappy": replace(_LEGACY_STRING_LONG, snappy=True),
    "legacy-files-and-inlined": replace(legacy(keys=25), parallelism=5, inline_threshold=2600),
    "scalars": values(SCALARS),
    "scalars-ttl": values(SCALARS, ttl="stamped"),
    "arrays": values(ARRAYS),
    "composites": values(COMPOSITES),
    "composites-ttl": values(COMPOSITES, ttl="stamped"),
    "since-flink-2": values(SINCE_FLINK_2),
    "lists": values(LIST_ELEMENTS, kind="LIST"),
    "lists-ttl": values(("String", "Long", "Person", "Tuple2<String,Long>"), kind="LIST", ttl="stamped"),
    "maps": values(
        (
            "Map<String,Long>",
            "Map<Long,String?>",
            "Map<Color,Person?>",
            "Map<Tuple2<String,Long>,Row<Integer?,String?>>",
            "Map<Instant,List<Long>>",
            "Map<Address,Map<String,Long?>>",
            "Map<Double,BigDecimal>",
        ),
        kind="MAP",
    ),
    "map-nulls": values(("Map<String,Long?>", "Map<Long,Tuple2<Long,String>?>"), kind="MAP"),
    # The HashMap backend writes the header before it meets the values: it doesn't describe subclasses not registered.
    "subclasses": values(_ANIMALS),
    "one-subclass-registered": replace(values(_ANIMALS), registered=("Dog",)),
    "all-subclasses-registered": replace(values(_ANIMALS), registered=("Cat", "Dog")),
    "kryo": Job(
        (
            Operator(
                "kryo",
                key="Long",
                keys=20,
                states=(
                    State("opaque", "Opaque"),
                    State("opaque-in-map", "Map<String,Opaque>"),
                    State("plain", "Map<String,Long>"),
                ),
            ),
        )
    ),
    "kryo-registered": Job(
        (
            Operator(
                "kryo",
                key="Long",
                keys=20,
                states=(
                    State("opaque", "Opaque"),
                    State("protobuf", "ProtobufText"),
                    State("thrift-in-map", "Map<String,ThriftText>"),
                    State("plain", "Map<String,Long>"),
                ),
            ),
        ),
        settings={"pipeline.serialization-config": _REGISTERED_WITH_KRYO},
    ),
    "scala": values(SCALA),
    "scala-legacy": legacy(
        "Map{0-9}<ScalaTuple2<String,Integer>,Option<ScalaTuple2<Suit,Long>>>", key="ScalaTuple2<String,Long>"
    ),
    "avro": values(AVRO),
    "avro-legacy-ttl": legacy("Map{0-9}<String,AvroOrder>", keys=40, ttl="stamped"),
    "kinds": kinds("String", None),
    "kinds-ttl": kinds("Long", None, ttl="stamped"),
    "kinds-in-windows": kinds("String", "TimeWindow"),
    "kinds-in-windows-ttl": kinds("Tuple2<String,Long>", "TimeWindow", ttl="stamped"),
    "kinds-in-strings": kinds("String", "String"),
    "kinds-in-long-strings": kinds("String{200-70000}", "String{200-300}", keys=8),
    "kinds-long-in-strings-ttl": kinds("Long", "String", ttl="stamped"),
    "kinds-with-timers-on-the-heap": replace(
        kinds("String", "TimeWindow"), settings={"state.backend.rocksdb.timer-service.factory": "HEAP"}
    ),
    "kinds-in-global-window": kinds("String", "GlobalWindow"),
    "windows": Job(_WINDOWS),
    "operator-state": Job(
        (
            Operator("plain", type="plain", operator_states=_OPERATOR_STATES),
            Operator(
                "keyed",
                key="String",
                keys=20,
                states=(State("mainState", "Map<String,Long>"),),
                operator_states=_OPERATOR_STATES,
                timers=Timers(event=1),
            ),
        )
    ),
    "raw-state": Job(
        (
            Operator("plain", type="plain", operator_states=_OPERATOR_STATES[:1], raw_elements=7),
            Operator(
                "keyed",
                key="String",
                keys=20,
                states=(State("mainState", "Map<String,Long>"),),
                timers=Timers(event=1),
                raw_keyed=True,
                raw_elements=2,
            ),
            *_LEGACY_STRING_LONG.operators,
        )
    ),
    "several-operators": Job(
        (
            *_LEGACY_STRING_LONG.operators,
            Operator("other", name="An other one", key="Long", keys=50, states=(State("s", "Person"),), parallelism=2),
            Operator("wide", key="Integer", keys=50, states=(State("s", "Long"),), max_parallelism=512),
            Operator("stateless", type="plain"),
            Operator("numbers", type="source", parallelism=2),
        )
    ),
    "finished": Job(
        (
            Operator("partly", type="plain", finished=1, operator_states=_OPERATOR_STATES[:1]),
            Operator("wholly", type="plain", finished=3, operator_states=_OPERATOR_STATES[:1]),
            *_LEGACY_STRING_LONG.operators,
        )
    ),
    "sparse": Job((_SPARSE,), parallelism=4),
    "sparse-wide": Job((_SPARSE,), parallelism=4, max_parallelism=4096),
    "empty": Job((replace(_SPARSE, keys=0, timers=Timers(event=1)),), parallelism=2),
    **{f"key-{_slug(type_)}": keys(type_) for type_ in KEYS},
}

_HINTED = {"hint-map": "HintedMap{0-9}<String,Long?>", "hint-hash-map": "HashMap{0-9}<String,Long?>"}
DECLARED_MAPS: Mapping[str, Job] = {
    **{name: legacy(type_, new_type="Map{0-9}<String,Long>", keys=24) for name, type_ in _HINTED.items()},
    **{
        f"{name}-ttl": legacy(type_, new_type="Map{0-9}<String,Long>", keys=24, ttl="stamped")
        for name, type_ in _HINTED.items()
    },
    "declared": _declared(DECLARED),
    "declared-ttl": _declared(DECLARED, ttl="stamped"),
}
"""Jobs that hold maps as people declare them."""

KRYO_PARTS = {
    "1.20.0": ("Map<String,UUID?>", "Map{0-5}<Integer,UUID>", "Map<UUID,Long?>", "Map<UUID,UUID?>"),
    "2.3.0": (
        *("HintedMap<String,LocalDate?>", "HintedMap{0-5}<String,LocalDateTime>", "HintedMap<UUID,Long?>"),
        *("HintedMap<UUID,LocalTime?>", "Map<String,UUID?>"),
    ),
}
"""Maps by Flink's own map serializer with keys and values by Kryo."""


def with_kryo_parts(version: str, backend: str = "rocksdb", ttl: str | None = None, keys: int = 6) -> Job:
    """A job with such maps; under time to live some of those that may be null are."""
    types = (type_ + ("?" if ttl and type_.startswith("Hinted") else "") for type_ in KRYO_PARTS[version])
    states = tuple(State(f"old-{number}", type_, ttl=ttl) for number, type_ in enumerate(types))
    return Job((Operator("main", key="Long", keys=keys, states=states),), parallelism=2, backend=backend)


POJO_PARTS = (
    *("Map<String,Cart?>", "Map{0-5}<Integer,Visit>", "Map<Tuple2<String,UUID>,Ids?>"),
    *("Map<Long,Tuple2<UUID,Shelf>>", "Map<String,List<Visit>?>"),
)
"""Maps by Flink's own map serializer with keys and values that have parts by Kryo."""


def with_pojo_parts(backend: str = "rocksdb", ttl: str | None = None, keys: int = 6) -> Job:
    """A job with such maps. It runs on Flink 1 and 2, of which Flink 2 gives fewer parts to Kryo."""
    states = tuple(State(f"old-{number}", type_, ttl=ttl) for number, type_ in enumerate(POJO_PARTS))
    return Job((Operator("main", key="Long", keys=keys, states=states),), parallelism=2, backend=backend)


TOTALS = {"totals": "Totals", "typed": "TypedTotals", "kryo": "KryoTotals", "moved": "MovedTotals"}
"""POJOs with a map in the field `counts`, by state. The last one has it in Flink 1 only."""


def in_pojos(version: str, backend: str = "rocksdb", ttl: str | None = None, keys: int = 12) -> Job:
    """A job with maps in fields of POJOs. Under time to live some of the POJOs are null.

    The HashMap backend doesn't describe the subclasses of those that have some.
    """
    names = [name for name in TOTALS if backend == "rocksdb" or name in ("totals", "moved")]
    types = {name: TOTALS[name] + ("?" if ttl else "") for name in names if name != "moved" or version < "2"}
    states = tuple(State(name, type_, ttl=ttl) for name, type_ in types.items())
    return Job((Operator("main", key="String", keys=keys, states=states),), parallelism=2, backend=backend)


def beside_parts(backend: str = "rocksdb", ttl: str | None = None, keys: int = 12) -> Job:
    """A job with maps in fields of POJOs, beside POJOs with fields by Kryo; those of `inside` have such POJOs too."""
    types = {"visits": "VisitTotals", "inside": "VisitCounts"}
    states = tuple(State(name, type_ + ("?" if ttl else ""), ttl=ttl) for name, type_ in types.items())
    return Job((Operator("main", key="String", keys=keys, states=states),), parallelism=2, backend=backend)


def in_collections() -> Job:
    """A job with collections of POJOs, enums and objects by Kryo inside of its values, of a kind each."""
    states = (
        State("value", "Cart"),
        State("list", "Ids", kind="LIST"),
        State("map", "Map<String,Cart?>", kind="MAP"),
        State("aged", "Tuple2<Ids,Shelf>", ttl="stamped"),
    )
    elements = (OperatorState("split", "Ids", "SPLIT", 3), OperatorState("broadcast", "Map<Long,Cart>", "BROADCAST", 2))
    keyed = Operator("main", key="String", keys=6, states=states)
    return Job((keyed, Operator("plain", type="plain", operator_states=elements)), parallelism=2)


IN_OBJECTS = {"whole": "Generic<Totals>", "raw": "Generic<KryoTotals>"}
"""The same classes, whose objects Kryo writes as a whole, by state."""


def in_objects(version: str, backend: str = "rocksdb", ttl: str | None = None, keys: int = 12) -> Job:
    """A job with maps in fields of objects by Kryo. Under time to live some of the objects are null."""
    states = tuple(State(name, type_ + ("?" if ttl else ""), ttl=ttl) for name, type_ in IN_OBJECTS.items())
    operator = Operator("main", key="String", keys=keys, states=states)
    return Job((operator,), parallelism=2, backend=backend)


BACKENDS = ("rocksdb", "hashmap")
# Flink 1.20 knows none of these types; only RocksDB of Flink 2 lets a map hold nulls of types that have no null; and
# only RocksDB can have its timers elsewhere.
# Flink 2 has no Scala.
_ONLY_ON = {
    "scala": (("1.20.0", "rocksdb"),),
    "scala-legacy": (("1.20.0", "hashmap"),),
    "avro": (("2.3.0", "rocksdb"),),
    "avro-legacy-ttl": (("1.20.0", "hashmap"),),
    "since-flink-2": (("2.3.0", "rocksdb"), ("2.3.0", "hashmap")),
    "map-nulls": (("2.3.0", "rocksdb"),),
    "kinds-with-timers-on-the-heap": tuple((version, "rocksdb") for version in VERSIONS),
}


@dataclass(frozen=True)
class Case:
    """A scenario on one version of Flink and one backend."""

    version: str
    scenario: str
    job: Job


def _covering() -> Mapping[str, Case]:
    out = {}
    for i, (name, job) in enumerate(SCENARIOS.items()):
        pairs = _ONLY_ON.get(name, tuple((v, BACKENDS[(i + j) % 2]) for j, v in enumerate(VERSIONS)))
        for version, backend in pairs:
            out[f"{name}-{version}-{backend}"] = Case(version, name, replace(job, backend=backend))
    return out


COVERING = _covering()
"""Every scenario on every version that can hold it, the backends taken in turn."""
