"""Serializer snapshots: laid out here by hand as Flink does, read, built again, damaged, and unknown."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.keyed.header import KeyedHeader
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers import snapshots
from flinkstate.serializers.built_snapshots import (
    described_as,
    kryo_snapshot,
    map_snapshot,
    simple_snapshot,
    ttl_snapshot,
)
from flinkstate.serializers.snapshots import SerializerSnapshot, SnapshotParser
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import (
    SCALA_EITHER,
    SCALA_TRY,
    ArrayType,
    AvroArrayType,
    AvroBranch,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TimerType,
    TraversableType,
    TtlType,
    TupleType,
)
from flinkstate.serializers.unknown_ends import Rest
from flinkstate.values.codecs import encode
from tests.support.samples import list_snapshot, timer_snapshot

BASE = "org.apache.flink.api.common.typeutils.base."
RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
STATE = "org.apache.flink.runtime.state."
OPERATORS = "org.apache.flink.streaming.api.operators."
WINDOWS = "org.apache.flink.streaming.api.windowing.windows."
SCALA = "org.apache.flink.api.scala.typeutils."
AVRO_CLASS = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")


def i32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def snapshot(class_name: str, version: int, body: bytes = b"") -> bytes:
    return utf(class_name) + i32(version) + body


def nested(*parts: bytes) -> bytes:
    return i32(1333245, 1, len(parts)) + b"".join(parts)


def composite(class_name: str, outer_version: int, outer: bytes, *parts: bytes) -> bytes:
    return snapshot(class_name, 3, i32(911108, outer_version) + outer + nested(*parts))


def frame(content: bytes | None) -> bytes:
    return b"\0" if content is None else b"\1" + i32(len(content)) + content


def optional_map(*entries: tuple[str, bytes | None, bytes | None]) -> bytes:
    framed = b"".join(utf(name) + frame(key) + frame(value) for name, key, value in entries)
    return bytes.fromhex("000004f2c69a3d70") + i32(len(entries)) + framed


def pojo(
    class_name: str,
    fields: list[tuple[str, bytes | None]],
    registered: list[tuple[str, bytes | None]],
    others: list[tuple[str, bytes | None]],
) -> bytes:
    field_map = optional_map(*((name, utf(class_name) + utf(name), value) for name, value in fields))
    subclass_maps = [optional_map(*((name, b"", value) for name, value in some)) for some in (registered, others)]
    return snapshot(RUNTIME + "PojoSerializerSnapshot", 2, utf(class_name) + field_map + b"".join(subclass_maps))


# As Flink 2.3.0 writes them.
SIMPLE: dict[str, FlinkType] = {
    **{
        f"{BASE}{name}Serializer${name}SerializerSnapshot": scalar
        for name, scalar in {
            "String": Scalar.STRING,
            "Long": Scalar.LONG,
            "Int": Scalar.INTEGER,
            "Short": Scalar.SHORT,
            "Byte": Scalar.BYTE,
            "Boolean": Scalar.BOOLEAN,
            "Double": Scalar.DOUBLE,
            "Float": Scalar.FLOAT,
            "Char": Scalar.CHARACTER,
            "Void": Scalar.VOID,
            "BigInt": Scalar.BIG_INTEGER,
            "BigDec": Scalar.BIG_DECIMAL,
            "Date": Scalar.DATE,
            "SqlDate": Scalar.SQL_DATE,
            "SqlTime": Scalar.SQL_TIME,
            "SqlTimestamp": Scalar.SQL_TIMESTAMP,
            "LocalDate": Scalar.LOCAL_DATE,
            "LocalTime": Scalar.LOCAL_TIME,
            "LocalDateTime": Scalar.LOCAL_DATE_TIME,
            "Instant": Scalar.INSTANT,
            "BooleanValue": Scalar.BOOLEAN_VALUE,
            "ByteValue": Scalar.BYTE_VALUE,
            "ShortValue": Scalar.SHORT_VALUE,
            "IntValue": Scalar.INT_VALUE,
            "LongValue": Scalar.LONG_VALUE,
            "FloatValue": Scalar.FLOAT_VALUE,
            "DoubleValue": Scalar.DOUBLE_VALUE,
            "CharValue": Scalar.CHAR_VALUE,
            "StringValue": Scalar.STRING_VALUE,
            "NullValue": Scalar.NULL_VALUE,
            "Variant": Scalar.VARIANT,
            "Bitmap": Scalar.BITMAP,
        }.items()
    },
    **{
        f"{BASE}array.{name}Serializer${name}SerializerSnapshot": PrimitiveArrayType(element)
        for name, element in {
            "BytePrimitiveArray": Scalar.BYTE,
            "ShortPrimitiveArray": Scalar.SHORT,
            "IntPrimitiveArray": Scalar.INTEGER,
            "LongPrimitiveArray": Scalar.LONG,
            "FloatPrimitiveArray": Scalar.FLOAT,
            "DoublePrimitiveArray": Scalar.DOUBLE,
            "BooleanPrimitiveArray": Scalar.BOOLEAN,
            "CharPrimitiveArray": Scalar.CHARACTER,
            "StringArray": Scalar.STRING,
        }.items()
    },
    WINDOWS + "TimeWindow$Serializer$TimeWindowSerializerSnapshot": Scalar.TIME_WINDOW,
    WINDOWS + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": Scalar.GLOBAL_WINDOW,
    STATE + "VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot": Scalar.VOID_NAMESPACE,
    SCALA + "UnitSerializer$UnitSerializerSnapshot": Scalar.UNIT,
    SCALA + "NothingSerializerSnapshot": Scalar.NOTHING,
    RUNTIME + "Tuple0SerializerSnapshot": Scalar.TUPLE0,
}

STRING, LONG = (
    snapshot(next(name for name, known in SIMPLE.items() if known is scalar), 3)
    for scalar in (Scalar.STRING, Scalar.LONG)
)
MAP = composite(BASE + "MapSerializerSnapshot", 1, b"", STRING, LONG)
TTL = composite(STATE + "ttl.TtlStateFactory$TtlSerializerSnapshot", 2, b"", LONG, MAP)
TUPLE2 = "org.apache.flink.api.java.tuple.Tuple2"
ROW_CLASS = RUNTIME + "RowSerializer$RowSerializerSnapshot"
ENUM = snapshot(
    BASE + "EnumSerializer$EnumSerializerSnapshot", 3, utf("com.acme.Color") + i32(2) + utf("RED") + utf("BLUE")
)
CAT = pojo("com.acme.Cat", [("name", STRING)], [], [])
DOG = pojo("com.acme.Dog", [("bites", LONG), ("name", STRING)], [], [])
ANIMAL = pojo("com.acme.Animal", [("name", STRING)], [("com.acme.Cat", CAT)], [("com.acme.Dog", DOG)])
KRYO = snapshot(
    RUNTIME + "kryo.KryoSerializerSnapshot",
    2,
    utf("com.acme.Thing")
    + optional_map(("com.acme.Thing", b"\0" * 9, b"some registration"), ("gone", None, None))
    + optional_map()
    + optional_map(),
)
KRYO_TYPE = KryoType(
    "com.acme.Thing",
    registrations=(
        KryoRegistration("com.acme.Thing", "one that the header doesn't name"),
        KryoRegistration("gone", "one that was missing"),
    ),
)
NAME_FIELD = PojoField("name", Scalar.STRING)
CAT_TYPE = PojoType("com.acme.Cat", (NAME_FIELD,))
DOG_TYPE = PojoType("com.acme.Dog", (PojoField("bites", Scalar.LONG), NAME_FIELD))
MAP_TYPE = MapType(Scalar.STRING, Scalar.LONG)

SCHEMA = (
    '{"type":"record","name":"Order","namespace":"com.acme","fields":['
    '{"name":"id","type":"long"},{"name":"note","type":["null","string"],"default":null},'
    '{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":['
    '{"name":"suit","type":{"type":"enum","name":"Suit","symbols":["HEARTS","SPADES"]}},'
    '{"name":"hash","type":{"type":"fixed","name":"Md5","namespace":"org.other","size":16}}]}}},'
    '{"name":"best","type":["Line","null","int",{"type":"map","values":"com.acme.Suit"}]},'
    '{"name":"at","type":{"type":"int","logicalType":"date"}},{"name":"raw","type":"bytes"}]}'
)
SUIT = EnumType("com.acme.Suit", ("HEARTS", "SPADES"))
LINE = AvroRecordType(
    "com.acme.Line", (AvroBranch("suit", SUIT), AvroBranch("hash", AvroFixedType("org.other.Md5", 16)))
)
ORDER = AvroRecordType(
    "com.acme.Order",
    (
        AvroBranch("id", Scalar.LONG),
        AvroBranch(
            "note", AvroUnionType((AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("string", Scalar.AVRO_STRING)))
        ),
        AvroBranch("lines", AvroArrayType(LINE)),
        AvroBranch(
            "best",
            AvroUnionType(
                (
                    AvroBranch("com.acme.Line", LINE),
                    AvroBranch("null", Scalar.AVRO_NULL),
                    AvroBranch("int", Scalar.INTEGER),
                    AvroBranch("map", AvroMapType(SUIT)),
                )
            ),
        ),
        AvroBranch("at", Scalar.INTEGER),
        AvroBranch("raw", PrimitiveArrayType(Scalar.BYTE)),
    ),
)


def avro(schema: str, version: int = 3) -> bytes:
    if version == 3:
        return snapshot(AVRO_CLASS, 3, encode(Scalar.STRING, "com.acme.Order") + encode(Scalar.STRING, schema))
    return snapshot(AVRO_CLASS, version, (utf("com.acme.Order") if version == 2 else b"") + utf(schema))


STRUCTURED: dict[str, tuple[bytes, FlinkType]] = {
    "case class": (
        composite(SCALA + "ScalaCaseClassSerializerSnapshot", 2, utf("com.acme.Purchase"), LONG, STRING),
        CaseClassType((Scalar.LONG, Scalar.STRING), "com.acme.Purchase"),
    ),
    "scala tuple": (
        composite(SCALA + "Tuple2CaseClassSerializerSnapshot", 2, utf("scala.Tuple2"), LONG, STRING),
        CaseClassType((Scalar.LONG, Scalar.STRING), "scala.Tuple2"),
    ),
    "option": (composite(SCALA + "ScalaOptionSerializerSnapshot", 2, b"", LONG), OptionType(Scalar.LONG)),
    "scala either": (
        composite(SCALA + "ScalaEitherSerializerSnapshot", 1, b"", LONG, STRING),
        EitherType(Scalar.LONG, Scalar.STRING, SCALA_EITHER),
    ),
    "try": (
        composite(SCALA + "ScalaTrySerializerSnapshot", 2, b"", LONG, KRYO),
        EitherType(Scalar.LONG, KRYO_TYPE, SCALA_TRY),
    ),
    "traversable": (
        composite(SCALA + "TraversableSerializerSnapshot", 2, utf("implicitly[Cbf]"), LONG),
        TraversableType(Scalar.LONG, "implicitly[Cbf]"),
    ),
    "scala enumeration": (
        snapshot(
            SCALA + "ScalaEnumSerializerSnapshot",
            3,
            utf("com.acme.Suit$") + i32(2) + utf("HEARTS") + i32(7) + utf("SPADES") + i32(-1),
        ),
        EnumType("com.acme.Suit$", ("HEARTS", "SPADES"), (7, -1)),
    ),
    "avro": (avro(SCHEMA), ORDER),
    "avro of version 2": (avro(SCHEMA, 2), ORDER),
    "avro of version 1": (avro(SCHEMA, 1), ORDER),
    "avro, wide text": (
        avro('{"type":"record","name":"Ö","fields":[{"name":"日","type":"int"}]}'),
        AvroRecordType("Ö", (AvroBranch("日", Scalar.INTEGER),)),
    ),
    "map": (MAP, MAP_TYPE),
    "list": (composite(BASE + "ListSerializerSnapshot", 1, b"", STRING), ListType(Scalar.STRING)),
    "array list": (composite(STATE + "ArrayListSerializerSnapshot", 1, b"", STRING), ListType(Scalar.STRING)),
    "set": (composite(BASE + "SetSerializerSnapshot", 1, b"", STRING), SetType(Scalar.STRING)),
    "array": (
        composite(BASE + "GenericArraySerializerSnapshot", 1, utf("java.lang.Long"), LONG),
        ArrayType(Scalar.LONG, "java.lang.Long"),
    ),
    "ttl": (TTL, TtlType(MAP_TYPE)),
    "timer": (
        composite(OPERATORS + "TimerSerializerSnapshot", 2, b"", STRING, LONG),
        TimerType(Scalar.STRING, Scalar.LONG),
    ),
    "tuple": (
        composite(RUNTIME + "TupleSerializerSnapshot", 2, utf(TUPLE2), STRING, LONG),
        TupleType((Scalar.STRING, Scalar.LONG), TUPLE2),
    ),
    "row": (composite(ROW_CLASS, 4, b"\1", STRING, LONG), RowType((Scalar.STRING, Scalar.LONG), True)),
    "row without kind": (composite(ROW_CLASS, 4, b"\0", STRING), RowType((Scalar.STRING,), False)),
    "row of version 3": (composite(ROW_CLASS, 3, b"", STRING), RowType((Scalar.STRING,), True)),
    "row of version 2": (composite(ROW_CLASS, 2, b"", STRING), RowType((Scalar.STRING,), False)),
    "nullable": (
        composite(RUNTIME + "NullableSerializer$NullableSerializerSnapshot", 2, i32(8), LONG),
        NullableType(Scalar.LONG, 8),
    ),
    "either": (
        composite(RUNTIME + "JavaEitherSerializerSnapshot", 1, b"", STRING, LONG),
        EitherType(Scalar.STRING, Scalar.LONG),
    ),
    "interval join": (
        composite(OPERATORS + "co.IntervalJoinOperator$BufferEntrySerializerSnapshot", 2, b"", STRING),
        TupleType((Scalar.BOOLEAN, Scalar.STRING), OPERATORS + "co.IntervalJoinOperator$BufferEntry"),
    ),
    "older composite": (
        snapshot(RUNTIME + "TupleSerializerSnapshot", 2, utf(TUPLE2) + nested(LONG)),
        TupleType((Scalar.LONG,), TUPLE2),
    ),
    "enum": (ENUM, EnumType("com.acme.Color", ("RED", "BLUE"))),
    "pojo": (
        ANIMAL,
        PojoType("com.acme.Animal", (NAME_FIELD,), (CAT_TYPE,), (("com.acme.Dog", DOG_TYPE),)),
    ),
    "pojo with a field that went missing": (
        pojo("com.acme.A", [("missing-field-at-0", None)], [], []),
        PojoType(
            "com.acme.A",
            (
                PojoField(
                    "missing-field-at-0",
                    OpaqueType(
                        "missing-field-at-0", "its class or serializer was missing when the savepoint was written"
                    ),
                ),
            ),
        ),
    ),
    "kryo": (KRYO, KRYO_TYPE),
}


def only_reading(raw: bytes, *, position: int = 0) -> SerializerSnapshot:
    found, end = SnapshotParser(raw, "file").read(position)
    assert end == len(raw)
    return found


@pytest.mark.parametrize(("class_name", "type_"), SIMPLE.items())
def test_simple_snapshots(class_name: str, type_: FlinkType) -> None:
    raw = snapshot(class_name, 3)
    assert only_reading(b"??" + raw, position=2) == SerializerSnapshot(class_name, 3, type_, (), raw)
    assert isinstance(type_, Scalar | PrimitiveArrayType)
    assert simple_snapshot(type_).raw == raw
    older = snapshot(class_name, 2, utf("com.acme.OldSerializer"))
    assert (only_reading(older).type, only_reading(older).raw) == (type_, older)
    for version in (1, 4, -1):
        with pytest.raises(DamagedError, match="version 2 or 3"):
            only_reading(snapshot(class_name, version, utf("x")))


def test_every_scalar_has_a_snapshot() -> None:
    parts_of_avro = {Scalar.AVRO_NULL, Scalar.AVRO_STRING}
    assert {type_ for type_ in SIMPLE.values() if isinstance(type_, Scalar)} == set(Scalar) - parts_of_avro


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}', "Node contains itself"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}', "'B' is not defined in it"),
        ('{"type":"record","name":"A"}', "it lacks fields"),
        ('{"type":"fixed","name":"A","size":-1}', "it lacks the size"),
        ('{"type":"enum","name":"A","symbols":[1]}', "it lacks a symbol"),
        ("7", "'7' is no type"),
        ('{"type":"array","items":' * 70 + '"int"' + "}" * 70, "more than 64 levels deep"),
        ('"int"' + " " * (1 << 22), "more than 4194304 characters"),
    ],
)
def test_a_schema_that_is_not_understood_leaves_the_value_opaque(schema: str, reason: str) -> None:
    type_ = only_reading(avro(schema)).type
    assert isinstance(type_, OpaqueType)
    assert type_.class_name == "com.acme.Order"
    assert reason in type_.reason


def test_a_schema_cannot_grow_without_end() -> None:
    """Each record holds the one before it twice: forty of them would be a million million parts."""
    records = '{"type":"record","name":"R0","fields":[]}'
    for level in range(1, 40):
        twice = f'{{"name":"a","type":{records}}},{{"name":"b","type":"R{level - 1}"}}'
        records = f'{{"type":"record","name":"R{level}","fields":[{twice}]}}'
    type_ = only_reading(avro(records)).type
    assert isinstance(type_, OpaqueType)
    assert "more than 10000 parts" in type_.reason


@pytest.mark.parametrize(
    ("text", "offset"), [(b"\0", 0), (b"[[\0", 2), (b"\xff\xff\xff\x7f", 0), (b"[" * 5000 + b"\0", 5000)]
)
def test_damage_to_the_text_of_a_schema_is_placed(text: bytes, offset: int) -> None:
    head = snapshot(AVRO_CLASS, 3, encode(Scalar.STRING, "com.acme.Order") + b"\xff\xff\x03")
    raw = head + text + b"x" * 0xFFFF
    with pytest.raises(DamagedError, match="an Avro schema") as caught:
        only_reading(raw)
    assert caught.value.offset == len(head) + offset


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "", '{"type":}'])
def test_a_schema_that_is_no_json_is_damage(text: str) -> None:
    with pytest.raises(DamagedError, match="an Avro schema in JSON"):
        only_reading(avro(text))


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_snapshots(name: str) -> None:
    raw, type_ = STRUCTURED[name]
    found = only_reading(raw)
    assert found.type == type_
    assert found.raw == raw
    assert all(part.raw in raw for part in found.nested)


def test_a_map_in_an_interval_join_is_described_as_what_it_becomes() -> None:
    made = NullableType(MapType(NullableType(Scalar.STRING, 0), Scalar.LONG), 0)
    by_kryo = kryo_snapshot("java.util.Map")
    entry = OPERATORS + "co.IntervalJoinOperator$BufferEntry"
    raw = composite(f"{entry}SerializerSnapshot", 2, b"", by_kryo.raw)
    assert isinstance(by_kryo.type, KryoType)
    type_ = TupleType((Scalar.BOOLEAN, KryoCollectionType.of(by_kryo.type, made)), entry)
    assert described_as(only_reading(raw), type_).type == TupleType((Scalar.BOOLEAN, made), entry)


@pytest.mark.parametrize("name", [BASE + "ListSerializerSnapshot", STATE + "ArrayListSerializerSnapshot"])
def test_a_list_stays_one_of_its_serializer(name: str) -> None:
    """Flink refuses a state whose list has another serializer than before."""
    made = NullableType(MapType(NullableType(Scalar.STRING, 0), Scalar.LONG), 0)
    by_kryo = kryo_snapshot("java.util.Map")
    assert isinstance(by_kryo.type, KryoType)
    found = only_reading(composite(name, 1, b"", by_kryo.raw))
    described = described_as(found, ListType(KryoCollectionType.of(by_kryo.type, made)))
    assert described.type == ListType(made)
    assert described.class_name == name


def test_composers_give_flinks_bytes() -> None:
    text, number = simple_snapshot(Scalar.STRING), simple_snapshot(Scalar.LONG)
    built = {
        "map": map_snapshot(text, number),
        "list": list_snapshot(text),
        "ttl": ttl_snapshot(map_snapshot(text, number)),
        "timer": timer_snapshot(text, number),
    }
    for name, composed in built.items():
        assert composed == only_reading(STRUCTURED[name][0])


@given(
    st.recursive(
        st.sampled_from(list(SIMPLE.values())), lambda parts: st.lists(parts, min_size=1, max_size=2), max_leaves=9
    )
)
def test_composed_is_parsed_alike(shape: object) -> None:
    def build(part: object) -> SerializerSnapshot:
        if not isinstance(part, list):
            assert isinstance(part, Scalar | PrimitiveArrayType)
            return simple_snapshot(part)
        parts = [build(inner) for inner in part]
        return (
            ttl_snapshot(list_snapshot(parts[0])) if len(parts) == 1 else timer_snapshot(parts[0], map_snapshot(*parts))
        )

    built = build(shape)
    assert only_reading(built.raw) == built


DAMAGED: dict[str, bytes] = {
    "version 1 to 3": snapshot(BASE + "MapSerializerSnapshot", 4, i32(911108, 1) + nested(STRING, LONG)),
    "outer version 1 to 1": composite(BASE + "MapSerializerSnapshot", 2, b"", STRING, LONG),
    "outer version 1 to 4": composite(ROW_CLASS, 0, b"\1", STRING),
    "2 nested serializers": composite(BASE + "MapSerializerSnapshot", 1, b"", STRING),
    "supports row kind: 0 or 1": composite(ROW_CLASS, 4, b"\2", STRING),
    "a null padding": composite(RUNTIME + "NullableSerializer$NullableSerializerSnapshot", 2, i32(-1), LONG),
    "the class of a serializer snapshot": snapshot("two words", 3),
    "the number of enum constants": snapshot(
        BASE + "EnumSerializer$EnumSerializerSnapshot", 3, utf("C") + i32(2**31 - 1)
    ),
    "version 3 of": snapshot(BASE + "EnumSerializer$EnumSerializerSnapshot", 2, utf("C") + i32(0)),
    f"version 3 of {SCALA}": snapshot(SCALA + "ScalaEnumSerializerSnapshot", 2, utf("C") + i32(0)),
    "the number of an enumeration's constants": snapshot(
        SCALA + "ScalaEnumSerializerSnapshot", 3, utf("C") + i32(2) + utf("A") + i32(1)
    ),
    f"version 1 to 3 of {AVRO_CLASS}": avro(SCHEMA).replace(b"Snapshot\0\0\0\3", b"Snapshot\0\0\0\4", 1),
    "an Avro schema of at most": avro(SCHEMA)[:-1],
    "version 2 of": snapshot(RUNTIME + "PojoSerializerSnapshot", 3, ANIMAL[-200:]),
    "a serializer snapshot for 'a' of": pojo("A", [("a", LONG + b"\0")], [], []),
}


@pytest.mark.parametrize("expected", DAMAGED)
def test_damage_is_named(expected: str) -> None:
    with pytest.raises(DamagedError) as caught:
        SnapshotParser(DAMAGED[expected], "some-file", base=1000).read(0)
    assert expected in caught.value.expected
    assert caught.value.file == "some-file"
    assert caught.value.offset is not None
    assert 1000 <= caught.value.offset <= 1000 + len(DAMAGED[expected])


@pytest.mark.parametrize("name", STRUCTURED)
def test_truncation_at_every_byte(name: str) -> None:
    raw = STRUCTURED[name][0]
    for end in range(len(raw)):
        for data, limit in ((raw[:end], None), (raw, end)):
            with pytest.raises(DamagedError) as caught:
                SnapshotParser(data, "file", limit=limit).read(0)
            assert caught.value.offset is not None
            assert 0 <= caught.value.offset <= end


@pytest.mark.part
@pytest.mark.parametrize("name", STRUCTURED)
def test_flips_are_errors_or_other_snapshots(name: str) -> None:
    """What a flip can change unseen is carried byte for byte: what a frame keeps for Flink alone."""
    raw, type_ = STRUCTURED[name]
    carried = 0
    for position in range(len(raw)):
        flipped = bytearray(raw)
        flipped[position] ^= 1 << position % 8
        try:
            found, end = SnapshotParser(bytes(flipped), "file").read(0)
        except StateferryError:
            continue
        assert found.raw == flipped[:end]
        carried += end == len(raw) and found.type == type_
    # In a POJO its fields' declaring classes, in Kryo's snapshot all but the value's class, in a schema what says
    # nothing of the values.
    assert (carried > 0) == ("pojo" in name or "avro" in name or name in ("kryo", "try"))


UNKNOWN_CLASS = "com.acme.OwnSerializer$Snapshot"
UNKNOWN = snapshot(UNKNOWN_CLASS, 7, b"\xff\xfe\0\0\x01body\xff")


STATE_DESCRIPTION = utf("mainState") + i32(0, 0, 1) + utf("VALUE_SERIALIZER") + i32(2) + STRING
FOLLOWING: list[tuple[bytes, Rest]] = [
    (b"", Rest()),
    (utf("VALUE_SERIALIZER") + i32(2) + STRING, Rest(serializers=1)),
    (STATE_DESCRIPTION, Rest(states=1)),
    (struct.pack(">h", 1) + STATE_DESCRIPTION, Rest(lists=1)),
    (struct.pack(">h", 0), Rest(lists=1)),
]


@pytest.mark.parametrize(("following", "rest"), FOLLOWING)
def test_an_unknown_snapshot_ends_where_what_has_to_follow_begins(following: bytes, rest: Rest) -> None:
    found, end = SnapshotParser(UNKNOWN + following, "file").read(0, rest)
    assert end == len(UNKNOWN)
    assert found.raw == UNKNOWN
    assert found.type == OpaqueType(UNKNOWN_CLASS, "a serializer that is not one of Flink's own")


@pytest.mark.parametrize(
    "raw",
    [
        composite(BASE + "MapSerializerSnapshot", 1, b"", STRING, UNKNOWN),
        composite(BASE + "MapSerializerSnapshot", 1, b"", UNKNOWN, LONG),
        composite(BASE + "MapSerializerSnapshot", 1, b"", UNKNOWN, UNKNOWN),
        composite(RUNTIME + "TupleSerializerSnapshot", 2, utf(TUPLE2), UNKNOWN, LONG, UNKNOWN, STRING),
        TTL[: -len(MAP)] + composite(BASE + "ListSerializerSnapshot", 1, b"", UNKNOWN),
    ],
)
def test_unknown_snapshots_inside_composites(raw: bytes) -> None:
    for following, rest in FOLLOWING:
        found, end = SnapshotParser(raw + following, "file").read(0, rest)
        assert end == len(raw)
        assert found.raw == raw
        assert {part.class_name for part in opaque_parts(found.type)} == {UNKNOWN_CLASS}


def test_an_unknown_snapshot_in_a_frame_ends_with_it() -> None:
    found = only_reading(pojo("com.acme.A", [("own", UNKNOWN), ("name", STRING)], [], []))
    assert isinstance(found.type, PojoType)
    own, name = found.type.fields
    assert isinstance(own.type, OpaqueType)
    assert name == NAME_FIELD
    assert [part.raw for part in found.nested] == [UNKNOWN, STRING]


def test_text_is_no_unknown_snapshot() -> None:
    with pytest.raises(DamagedError, match="that is a small number"):
        only_reading(utf("b") + b"ody of something")


@pytest.mark.parametrize(
    "raw",
    [
        # The body of the first, and a second one in it.
        composite(
            BASE + "MapSerializerSnapshot",
            1,
            b"",
            snapshot(UNKNOWN_CLASS, 7, snapshot("com.acme.Other", 1)),
            snapshot("com.acme.Last", 1),
        ),
        # The list, or its element behind a body that ends with the list's head.
        composite(
            BASE + "MapSerializerSnapshot", 1, b"", UNKNOWN, composite(BASE + "ListSerializerSnapshot", 1, b"", STRING)
        ),
    ],
)
def test_what_can_be_read_in_several_ways_is_refused_by_name(raw: bytes) -> None:
    for following, rest in FOLLOWING:
        with pytest.raises(RefusedError, match=r"file: .* in more than one way.*com\.acme\.OwnSerializer\$Snapshot"):
            SnapshotParser(raw + following, "file").read(0, rest)


def nest(levels: int) -> bytes:
    raw = LONG
    for _ in range(levels - 1):
        raw = composite(BASE + "ListSerializerSnapshot", 1, b"", raw)
    return raw


def nest_pojos(levels: int) -> bytes:
    raw = LONG
    for _ in range(levels - 1):
        raw = pojo("A", [("a", raw)], [], [])
    return raw


@pytest.mark.parametrize("make", [nest, nest_pojos])
def test_depth_is_bounded(make: Callable[[int], bytes]) -> None:
    assert only_reading(make(64)).raw == make(64)
    for levels in (65, 400):
        with pytest.raises(DamagedError, match="nested at most 64 deep"):
            only_reading(make(levels))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_MOST_COPIED", 3 * len(MAP) // 2)
    with pytest.raises(RefusedError, match=f"file: the serializer snapshots up to offset {len(MAP)} are more than"):
        only_reading(MAP)
    monkeypatch.undo()
    monkeypatch.setattr(snapshots, "_MOST_SNAPSHOTS", 2)
    with pytest.raises(RefusedError, match=f"file: the serializer snapshots up to offset {len(MAP)} are more than"):
        only_reading(MAP)


@given(st.binary(max_size=80), st.sampled_from(sorted(STRUCTURED)), st.integers(0, 400))
def test_splices_never_crash(noise: bytes, name: str, position: int) -> None:
    raw = STRUCTURED[name][0]
    spliced = raw[:position] + noise + raw[position + len(noise) :]
    try:
        found, end = SnapshotParser(spliced, "file").read(0)
    except StateferryError:
        return
    assert found.raw == spliced[:end]


SAVEPOINTS = sorted(
    path.parent.name
    for path in (Path(__file__).parents[1] / "savepoints").glob("*/_metadata")
    if not path.parent.name.startswith(("native-", "checkpoint-", "heap-"))
)


def headers(case: str) -> Iterator[KeyedHeader]:
    savepoint = Savepoint.open(str(Path(__file__).parents[1] / "savepoints" / case))
    for operator in savepoint.keyed_operators():
        for file in savepoint.open_files(operator):
            yield file.header


def test_there_are_savepoints_of_flink() -> None:
    assert sum(1 for case in SAVEPOINTS for _ in headers(case)) > len(SAVEPOINTS) > 10


@pytest.mark.parametrize("case", SAVEPOINTS)
def test_snapshots_that_flink_wrote(case: str) -> None:
    for header in headers(case):
        assert_composed(header)


def assert_composed(header: KeyedHeader) -> None:
    described = [header.key_serializer, *(part for state in header.states for _, part in state.serializers)]
    for written in described:
        assert only_reading(written.raw) == written
        if isinstance(written.type, Scalar | PrimitiveArrayType):
            assert simple_snapshot(written.type) == written
        if isinstance(written.type, MapType):
            assert map_snapshot(*written.nested) == written
        if isinstance(written.type, TtlType):
            assert ttl_snapshot(written.nested[1]) == written
        if isinstance(written.type, TimerType):
            assert timer_snapshot(*written.nested) == written
