"""The types that people write."""

from __future__ import annotations

import pytest

from flinkstate.errors import UsageError
from flinkstate.serializers.type_text import parse_map_type, type_text
from flinkstate.serializers.types import (
    ArrayType,
    EitherType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    TupleType,
    type_name,
)

_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
STRING, LONG = Scalar.STRING, Scalar.LONG
TYPES: dict[str, FlinkType] = {
    "Map<String, Long>": MapType(STRING, LONG),
    " java.util.HashMap< java.lang.String ,java.lang.Long > ": MapType(STRING, LONG),
    "TreeMap<Integer,List<java.util.Date>>": MapType(Scalar.INTEGER, ListType(Scalar.DATE)),
    "Map<String, Map<String, double[]>>": MapType(STRING, MapType(STRING, PrimitiveArrayType(Scalar.DOUBLE))),
    "Map<String, String[]>": MapType(STRING, PrimitiveArrayType(STRING)),
    "Map<String, BigDecimal[]>": MapType(STRING, ArrayType(Scalar.BIG_DECIMAL, "java.math.BigDecimal")),
    "Map<java.sql.Timestamp, java.sql.Date>": MapType(Scalar.SQL_TIMESTAMP, Scalar.SQL_DATE),
    "Map<String, java.sql.Time[]>": MapType(STRING, ArrayType(Scalar.SQL_TIME, "java.sql.Time")),
    "Map<Tuple1<Long>, org.apache.flink.api.java.tuple.Tuple2<String, List<Long>>>": MapType(
        TupleType((LONG,), f"{_TUPLE}1"), TupleType((STRING, ListType(LONG)), f"{_TUPLE}2")
    ),
    "Map<Row<Long>, org.apache.flink.types.Row<String, Row<Long, Long, String>>>": MapType(
        RowType((LONG,), True), RowType((STRING, RowType((LONG, LONG, STRING), True)), True)
    ),
    "Map<String, org.apache.flink.types.Either<Long, List<String>>>": MapType(
        STRING, EitherType(LONG, ListType(STRING))
    ),
    f"Map<String,Tuple25<{','.join(['Long'] * 25)}>>": MapType(STRING, TupleType((LONG,) * 25, f"{_TUPLE}25")),
}


@pytest.mark.parametrize("text", TYPES)
def test_a_type_is_read(text: str) -> None:
    found = parse_map_type(text)
    assert found == TYPES[text]
    assert parse_map_type(type_name(found)) == found
    assert parse_map_type(type_text(found)) == found


def test_what_stays_kryos_inside_of_others_is_written_with_its_class() -> None:
    text = "Map<String,Tuple2<Long,List<Kryo<java.util.UUID>>>>"
    found = parse_map_type(text)
    assert found.value == TupleType((LONG, ListType(KryoType("java.util.UUID"))), f"{_TUPLE}2")
    assert type_text(found) == text


NO_TYPES = {
    "": "expected a type, found 'the end'",
    "Map<String, ?>": "expected a type, found '?>'. A wildcard doesn't say",
    "Map<String, >": "expected a type, found '>'",
    "Long": "expected a map",
    "Map": "expected Map<K, V>, found 'the end'",
    "List": "expected List<E>",
    "Map<String>": "expected 2 types in Map<...>",
    "Map<String, Tuple3>": "expected Tuple3<T0, T1, T2>",
    "Map<String, Tuple3<Long, Long>>": "expected 3 types in Tuple3<...>",
    "Map<String, Long": "expected > behind Map<...",
    "Map<String, Long>>": "expected the end behind the type",
    "Map<String, long>": "expected long[] or Long",
    "Map<String, Lnog>": "Did you mean Long?",
    "Map<String, com.acme.Order>": "no type 'Order' is known here",
    "Map<String, List<Long>[]>": "only arrays of scalar types",
    "Map<String, " * 50 + "Long" + ">" * 50: "nested more than 32 deep",
}


@pytest.mark.parametrize("text", NO_TYPES)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_map_type(text)
    assert NO_TYPES[text] in str(refused.value)
