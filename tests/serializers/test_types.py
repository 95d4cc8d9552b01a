"""The type tree: names as a developer writes them, Flink's lengths, and the parts nobody can read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.serializers.type_parts import fixed_length, opaque_parts
from flinkstate.serializers.types import (
    SCALA_TRY,
    ArrayType,
    AvroArrayType,
    AvroBranch,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    EitherType,
    EnumType,
    FlinkType,
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
    children,
    simple_name,
    type_name,
)
from flinkstate.values.codecs import encode
from tests.support.naive import flink_types, values_of

KRYO = OpaqueType("com.acme.Thing", "serialized by Kryo")
TUPLE2 = "org.apache.flink.api.java.tuple.Tuple2"


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (Scalar.STRING, "String"),
        (Scalar.SQL_DATE, "java.sql.Date"),
        (MapType(Scalar.STRING, TupleType((Scalar.LONG, Scalar.DOUBLE), TUPLE2)), "Map<String,Tuple2<Long,Double>>"),
        (ListType(SetType(Scalar.INTEGER)), "List<Set<Integer>>"),
        (PrimitiveArrayType(Scalar.INTEGER), "int[]"),
        (PrimitiveArrayType(Scalar.CHARACTER), "char[]"),
        (PrimitiveArrayType(Scalar.BYTE), "byte[]"),
        (PrimitiveArrayType(Scalar.STRING), "String[]"),
        (ArrayType(Scalar.INTEGER, "java.lang.Integer"), "Integer[]"),
        (RowType((Scalar.LONG, Scalar.STRING), True), "Row<Long,String>"),
        (PojoType("com.acme.Job$Reading", ()), "Reading"),
        (EnumType("com.acme.Color", ("RED",)), "Color"),
        (KRYO, "Thing"),
        (NullableType(Scalar.LONG, 8), "Long"),
        (EitherType(Scalar.LONG, Scalar.STRING), "Either<Long,String>"),
        (EitherType(Scalar.LONG, KRYO, SCALA_TRY), "Try<Long>"),
        (OptionType(Scalar.LONG), "Option<Long>"),
        (TraversableType(Scalar.LONG, ""), "Traversable<Long>"),
        (TupleType((Scalar.LONG,), "com.acme.Job$Purchase"), "Purchase<Long>"),
        (EnumType("com.acme.Suit$", ("HEARTS",), (4,)), "Suit"),
        (AvroRecordType("com.acme.Order", ()), "Order"),
        (AvroArrayType(AvroMapType(Scalar.AVRO_STRING)), "array<map<string>>"),
        (
            AvroUnionType((AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("int", Scalar.INTEGER))),
            "union<null,Integer>",
        ),
        (AvroFixedType("com.acme.Md5", 16), "Md5"),
        (TtlType(Scalar.LONG), "Ttl<Long>"),
        (TimerType(Scalar.LONG, Scalar.VOID_NAMESPACE), "Timer<Long,VoidNamespace>"),
    ],
)
def test_names(type_: FlinkType, name: str) -> None:
    assert type_name(type_) == name


def test_simple_names() -> None:
    assert [simple_name(name) for name in ("com.acme.A", "com.acme.A$B$C", "a.B$", "Bare")] == ["A", "C", "B", "Bare"]


@pytest.mark.parametrize(
    ("type_", "length"),
    [
        (Scalar.LONG, 8),
        (Scalar.STRING, None),
        (Scalar.TIME_WINDOW, 16),
        (TupleType((Scalar.LONG, Scalar.BYTE), TUPLE2), 9),
        (TupleType((Scalar.LONG, Scalar.STRING), TUPLE2), None),
        (TupleType((Scalar.LONG, Scalar.NULL_VALUE), TUPLE2), None),
        (TupleType((), "org.acme.Tuple"), 0),
        (EnumType("com.acme.Color", ("RED",)), 4),
        (NullableType(Scalar.LONG, 8), 9),
        (NullableType(Scalar.LONG, 0), None),
        (TtlType(Scalar.LONG), 16),
        (TtlType(Scalar.STRING), None),
        (TimerType(Scalar.LONG, Scalar.TIME_WINDOW), 32),
        (TimerType(Scalar.STRING, Scalar.TIME_WINDOW), None),
        (RowType((), True), None),
        (PojoType("A", ()), None),
        (EitherType(Scalar.LONG, Scalar.LONG), None),
        (OptionType(Scalar.LONG), None),
        (TupleType((Scalar.UNIT, Scalar.LONG), "scala.Tuple2"), 9),
        (TraversableType(Scalar.LONG, ""), None),
        (AvroRecordType("A", (AvroBranch("a", Scalar.LONG),)), None),
    ],
)
def test_lengths_are_those_of_flinks_serializers(type_: FlinkType, length: int | None) -> None:
    assert fixed_length(type_) == length


@given(st.data())
def test_a_fixed_length_is_the_length_of_every_value(data: st.DataObject) -> None:
    scalar = data.draw(st.sampled_from(Scalar))
    nested = TupleType((scalar, Scalar.LONG), TUPLE2)
    for type_ in (scalar, nested, TtlType(nested), TimerType(scalar, nested)):
        length = fixed_length(type_)
        if length is not None:
            assert len(encode(type_, data.draw(values_of(type_)))) == length


@given(flink_types())
def test_types_are_values(type_: FlinkType) -> None:
    assert hash(type_) == hash(type_)
    assert type_name(type_)
    assert opaque_parts(type_) == ()


def test_opaque_parts_are_found_wherever_they_hide() -> None:
    absent = OpaqueType("com.acme.Gone", "missing")
    pojo = PojoType("A", (PojoField("a", KRYO),), (Scalar.LONG, KRYO), (("B", absent),))
    type_ = MapType(ListType(KRYO), EitherType(TimerType(Scalar.LONG, NullableType(absent, 0)), TtlType(pojo)))
    assert opaque_parts(type_) == (KRYO, absent, KRYO, KRYO, absent)
    assert opaque_parts(RowType((SetType(KRYO), ArrayType(absent, "T")), False)) == (KRYO, absent)
    assert children(pojo) == (KRYO, Scalar.LONG, KRYO, absent)
