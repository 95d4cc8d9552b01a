"""The lines of Java that a job must declare. Whether they compile, and make these serializers, Flink says itself."""

from __future__ import annotations

import pytest

from flinkstate.errors import RefusedError
from flinkstate.serializers.types import (
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
)
from stateferry.look.declaration import declared, map_state_declaration, type_information

_TUPLE_2 = "org.apache.flink.api.java.tuple.Tuple2"
_LONGS = (Scalar.LONG, Scalar.LONG)


@pytest.mark.parametrize(
    ("type_", "expression"),
    [
        (Scalar.INTEGER, "Types.INT"),
        (Scalar.DATE, "BasicTypeInfo.DATE_TYPE_INFO"),
        (Scalar.STRING_VALUE, "Types.VALUE(org.apache.flink.types.StringValue.class)"),
        (PrimitiveArrayType(Scalar.CHARACTER), "PrimitiveArrayTypeInfo.CHAR_PRIMITIVE_ARRAY_TYPE_INFO"),
        (PrimitiveArrayType(Scalar.STRING), "Types.OBJECT_ARRAY(Types.STRING)"),
        (ArrayType(Scalar.LONG, "java.lang.Long"), "Types.OBJECT_ARRAY(Types.LONG)"),
        (MapType(Scalar.STRING, ListType(Scalar.SHORT)), "Types.MAP(Types.STRING, Types.LIST(Types.SHORT))"),
        (SetType(Scalar.BYTE), "Types.SET(Types.BYTE)"),
        (TupleType(_LONGS, _TUPLE_2), "Types.TUPLE(Types.LONG, Types.LONG)"),
        (RowType((Scalar.LONG, Scalar.STRING), True), "Types.ROW(Types.LONG, Types.STRING)"),
        (EitherType(Scalar.LONG, Scalar.FLOAT), "Types.EITHER(Types.LONG, Types.FLOAT)"),
        (EnumType("com.acme.Job$Color", ("RED",)), "Types.ENUM(com.acme.Job.Color.class)"),
        (PojoType("com.acme.Point", ()), "Types.POJO(com.acme.Point.class)"),
        (KryoType("java.util.UUID"), "Types.GENERIC(java.util.UUID.class)"),
        (KryoType("[[I"), "Types.GENERIC(int[][].class)"),
        (KryoType("[Lcom.acme.Job$Reading;"), "Types.GENERIC(com.acme.Job.Reading[].class)"),
        (
            NullableType(MapType(NullableType(Scalar.STRING, 0), Scalar.LONG), 0),
            "new NullableMapTypeInfo<>(Types.STRING, Types.LONG)",
        ),
        (
            NullableType(ListType(NullableType(ListType(NullableType(Scalar.LONG, 0)), 0)), 0),
            "new NullableListTypeInfo<>(new NullableListTypeInfo<>(Types.LONG))",
        ),
    ],
)
def test_a_type_as_an_expression_of_java(type_: FlinkType, expression: str) -> None:
    assert type_information(type_) == expression


@pytest.mark.parametrize(
    "type_",
    [
        Scalar.TIME_WINDOW,
        OptionType(Scalar.LONG),
        RowType((Scalar.LONG,), False),
        TupleType(_LONGS, "com.acme.CaseClass"),
        EnumType("com.acme.Scala", ("RED",), (3,)),
        PojoType("com.acme.Job$", ()),
        KryoType("[Lcom.acme.Job$;"),
        NullableType(Scalar.LONG, 8),
        MapType(NullableType(Scalar.STRING, 0), Scalar.LONG),
        NullableType(MapType(Scalar.STRING, Scalar.LONG), 0),
    ],
)
def test_a_type_without_an_expression(type_: FlinkType) -> None:
    with pytest.raises(RefusedError, match="Java has no"):
        type_information(type_)


def test_the_descriptor() -> None:
    map_ = MapType(Scalar.STRING, Scalar.LONG)
    expected = 'new MapStateDescriptor<>("a\\"\\u00fc", Types.STRING, Types.LONG)'
    assert map_state_declaration('a"ü', map_) == expected


def test_rows_whose_fields_may_have_names() -> None:
    map_ = MapType(Scalar.STRING, ListType(RowType((Scalar.LONG,), True)))
    assert "may have names" in declared("new", map_, map_)
    by_kryo = KryoMapType("java.util.HashMap", "", KryoType("java.util.HashMap"), map_)
    assert declared("new", map_, by_kryo).endswith("Types.STRING, Types.LIST(Types.ROW(Types.LONG)))")
