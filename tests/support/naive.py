"""Plain twins: types and values drawn by hypothesis, and walks over blobs one value at a time, to compare with."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from flinkstate.serializers.types import (
    FLINK_EITHER,
    JOINED_ELEMENT,
    SCALA_EITHER,
    SCALA_TRY,
    ArrayType,
    AvroArrayType,
    AvroBranch,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    CountedType,
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
)
from flinkstate.values.codecs import decode
from flinkstate.values.java_values import (
    BigDecimal,
    EitherValue,
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    OptionValue,
    PojoValue,
    RowKind,
    RowValue,
    Singleton,
    SqlTimestamp,
    TimerValue,
    TimeWindow,
    TtlValue,
    UnionValue,
    Variant,
)

_BYTE, _SHORT = st.integers(-(2**7), 2**7 - 1), st.integers(-(2**15), 2**15 - 1)
_INTEGER, _LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_FLOAT, _DOUBLE = st.floats(width=32), st.floats()
_UNIT = st.characters(max_codepoint=0xFFFF, exclude_categories=())
# Two lone surrogates in the right order would be a character, which has one form only.
_TEXT = st.text(st.characters(exclude_categories=()), max_size=12).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)
_BIG_INTEGER = _BYTE | st.sampled_from((-(2**31), 2**32, -(2**96))) | st.integers(-(2**200), 2**200)
_MILLIS = st.integers(-(2**63) + 1001, 2**63 - 1) | st.integers(-(10**13), 10**13)
_NANO = st.sampled_from((0, 1, 999_999_999, 5_000_000, 7_000)) | st.integers(0, 999_999_999)
_DATE = st.builds(
    LocalDate,
    st.sampled_from((-999_999_999, 999_999_999, -1, 0, 9999, 10_000)) | st.integers(1900, 2100),
    st.integers(1, 12),
    st.integers(1, 28),
)
_TIME = st.builds(LocalTime, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), _NANO)
_BLOCK = st.binary(max_size=9)

_SCALARS: dict[Scalar, SearchStrategy[Any]] = {
    **dict.fromkeys((Scalar.BOOLEAN, Scalar.BOOLEAN_VALUE), st.booleans()),
    **dict.fromkeys((Scalar.BYTE, Scalar.BYTE_VALUE), _BYTE),
    **dict.fromkeys((Scalar.SHORT, Scalar.SHORT_VALUE), _SHORT),
    **dict.fromkeys((Scalar.INTEGER, Scalar.INT_VALUE), _INTEGER),
    **dict.fromkeys((Scalar.LONG, Scalar.LONG_VALUE), _LONG),
    **dict.fromkeys((Scalar.FLOAT, Scalar.FLOAT_VALUE), _FLOAT),
    **dict.fromkeys((Scalar.DOUBLE, Scalar.DOUBLE_VALUE), _DOUBLE),
    **dict.fromkeys((Scalar.CHARACTER, Scalar.CHAR_VALUE), _UNIT),
    **dict.fromkeys((Scalar.STRING, Scalar.STRING_VALUE), _TEXT),
    Scalar.BIG_INTEGER: _BIG_INTEGER,
    Scalar.BIG_DECIMAL: st.builds(BigDecimal, _BIG_INTEGER, _BYTE | _INTEGER),
    **dict.fromkeys((Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME), _MILLIS),
    Scalar.SQL_TIMESTAMP: st.builds(
        lambda millis, nano: SqlTimestamp(millis, millis % 1000 * 1_000_000 + nano % 1_000_000), _MILLIS, _NANO
    ),
    Scalar.INSTANT: st.builds(Instant, st.integers(-31_557_014_167_219_200, 31_556_889_864_403_199), _NANO),
    Scalar.LOCAL_DATE: _DATE,
    Scalar.LOCAL_TIME: _TIME,
    Scalar.LOCAL_DATE_TIME: st.builds(LocalDateTime, _DATE, _TIME),
    Scalar.VOID: st.nothing(),
    Scalar.TUPLE0: st.just(()),
    Scalar.VARIANT: st.builds(lambda value, names: Variant(value, b"\x01" + names), _BLOCK, _BLOCK),
    Scalar.BITMAP: _BLOCK,
    Scalar.NULL_VALUE: st.just(Singleton.NULL_VALUE),
    Scalar.VOID_NAMESPACE: st.just(Singleton.VOID_NAMESPACE),
    Scalar.TIME_WINDOW: st.builds(TimeWindow, _LONG, _LONG),
    Scalar.GLOBAL_WINDOW: st.just(Singleton.GLOBAL_WINDOW),
    Scalar.UNIT: st.just(Singleton.UNIT),
    Scalar.NOTHING: st.nothing(),
    Scalar.AVRO_NULL: st.nothing(),
    Scalar.AVRO_STRING: st.text(max_size=12),
}

# Whose serializers have a form for null.
OWN_NULL = (
    Scalar.STRING,
    Scalar.BIG_INTEGER,
    Scalar.BIG_DECIMAL,
    Scalar.DATE,
    Scalar.SQL_DATE,
    Scalar.SQL_TIME,
    Scalar.SQL_TIMESTAMP,
    Scalar.INSTANT,
    Scalar.LOCAL_DATE,
    Scalar.LOCAL_TIME,
    Scalar.LOCAL_DATE_TIME,
    Scalar.VOID,
)

_PRIMITIVES = (
    Scalar.BOOLEAN,
    Scalar.BYTE,
    Scalar.SHORT,
    Scalar.INTEGER,
    Scalar.LONG,
    Scalar.FLOAT,
    Scalar.DOUBLE,
    Scalar.CHARACTER,
    Scalar.STRING,
)


def values_of(type_: FlinkType) -> SearchStrategy[Any]:
    """What the type's serializer takes, null included where it has a form for it."""
    if type_ in (Scalar.VOID, Scalar.AVRO_NULL):
        return st.none()
    takes_null = type_ in OWN_NULL or isinstance(type_, PojoType | NullableType)
    return st.none() | present_values(type_) if takes_null else present_values(type_)


def _or_null(type_: FlinkType) -> SearchStrategy[Any]:
    return st.none() | present_values(type_)


@lru_cache(maxsize=1024)
def present_values(type_: FlinkType) -> SearchStrategy[Any]:
    match type_:
        case Scalar():
            return _SCALARS[type_]
        case PrimitiveArrayType(Scalar.BYTE):
            return _BLOCK
        case CountedType(element):
            return st.lists(values_of(element) if type_.flag is None else _or_null(element), max_size=4)
        case AvroArrayType(element):
            return st.lists(values_of(element), max_size=4)
        case AvroMapType(value):
            return st.lists(st.tuples(_SCALARS[Scalar.AVRO_STRING], values_of(value)), max_size=4)
        case AvroFixedType(_, size):
            return st.binary(min_size=size, max_size=size)
        case AvroUnionType():
            return _union_values(type_)
        case AvroRecordType(class_name, parts):
            drawn = st.tuples(*(values_of(part.type) for part in parts))
            part_names = [part.name for part in parts]
            return drawn.map(lambda values: PojoValue(class_name, dict(zip(part_names, values, strict=True))))
        case MapType(key, value):
            return st.lists(st.tuples(values_of(key), _or_null(value)), max_size=4)
        case TupleType(fields):
            return st.tuples(*map(values_of, fields))
        case RowType(fields, has_kind):
            kinds = st.sampled_from(RowKind) if has_kind else st.just(RowKind.INSERT)
            return st.builds(RowValue, st.tuples(*map(_or_null, fields)), kinds)
        case PojoType():
            names = [field.name for field in type_.fields]
            values = st.tuples(*(_or_null(field.type) for field in type_.fields))
            itself = values.map(lambda drawn: dict(zip(names, drawn, strict=True)))
            return st.one_of(
                st.builds(PojoValue, st.just(type_.class_name), itself), *map(present_values, type_.subclasses)
            )
        case NullableType(value):
            return present_values(value)
        case EitherType(left, right):
            sides = (st.builds(EitherValue, values_of(left), st.just(True)), values_of(right))
            return sides[0] | st.builds(EitherValue, sides[1], st.just(False))
        case OptionType(value):
            return st.builds(OptionValue, values_of(value), st.just(True)) | st.just(OptionValue(None, False))
        case EnumType(_, names):
            return st.sampled_from(names)
        case TtlType(value):
            return st.builds(TtlValue, _LONG, values_of(value))
        case TimerType(key, namespace):
            return st.builds(TimerValue, _LONG, values_of(key), values_of(namespace))
        case OpaqueType():
            raise ValueError(f"{type_.class_name} has no values here")


def _union_values(type_: AvroUnionType) -> SearchStrategy[Any]:
    if type_.nullable is not None:
        return st.none() | values_of(type_.nullable)
    drawn: list[SearchStrategy[Any]] = [
        st.none() if branch.type is Scalar.AVRO_NULL else st.builds(UnionValue, st.just(number), values_of(branch.type))
        for number, branch in enumerate(type_.branches)
    ]
    return st.one_of(drawn)


def _composites(parts: SearchStrategy[FlinkType]) -> SearchStrategy[FlinkType]:
    few = st.lists(parts, max_size=4).map(tuple)
    return st.one_of(
        st.builds(ListType, parts),
        st.builds(SetType, parts),
        st.builds(MapType, parts, parts),
        st.builds(ArrayType, parts, st.just("com.acme.Part")),
        st.builds(TupleType, few, st.just("org.apache.flink.api.java.tuple.TupleN")),
        st.builds(RowType, st.lists(parts, max_size=9).map(tuple), st.booleans()),
        st.builds(_pojo, few, few, few),
        st.builds(NullableType, parts, st.integers(0, 9)),
        st.builds(EitherType, parts, parts, st.sampled_from((FLINK_EITHER, SCALA_EITHER, SCALA_TRY, JOINED_ELEMENT))),
        st.builds(OptionType, parts),
        st.builds(TraversableType, parts, st.just("implicitly[CanBuildFrom]")),
        _avro_records(),
        st.builds(TtlType, parts),
        st.builds(TimerType, parts, parts),
    )


def _branches(
    parts: SearchStrategy[FlinkType], names: str, *, least: int = 0
) -> SearchStrategy[tuple[AvroBranch, ...]]:
    few = st.lists(parts, min_size=least, max_size=4)
    return few.map(lambda types: tuple(AvroBranch(f"{names}{at}", type_) for at, type_ in enumerate(types)))


_AVRO_LEAVES: SearchStrategy[FlinkType] = st.one_of(
    st.sampled_from((Scalar.AVRO_NULL, Scalar.AVRO_STRING, Scalar.BOOLEAN, Scalar.INTEGER, Scalar.LONG, Scalar.DOUBLE)),
    st.sampled_from(
        (PrimitiveArrayType(Scalar.BYTE), AvroFixedType("com.acme.Md5", 3), AvroFixedType("com.acme.No", 0))
    ),
    st.just(EnumType("com.acme.Suit", ("HEARTS", "SPADES"))),
)


def _avro_composites(parts: SearchStrategy[FlinkType]) -> SearchStrategy[FlinkType]:
    filled = parts.filter(lambda type_: type_ is not Scalar.AVRO_NULL and not isinstance(type_, AvroUnionType))
    or_null = filled.map(lambda type_: (AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("other", type_)))
    several = _branches(filled, "com.acme.B", least=1)
    with_null = several.map(lambda branches: (*branches, AvroBranch("null", Scalar.AVRO_NULL)))
    return st.one_of(
        st.builds(AvroArrayType, parts),
        st.builds(AvroMapType, parts),
        st.builds(AvroUnionType, or_null | several | with_null),
        st.builds(AvroRecordType, st.just("com.acme.Inner"), _branches(parts, "field")),
    )


def avro_types() -> SearchStrategy[FlinkType]:
    """What a schema's parts may be."""
    return st.recursive(_AVRO_LEAVES, _avro_composites, max_leaves=4)


def _avro_records() -> SearchStrategy[FlinkType]:
    parts = avro_types()
    return st.builds(AvroRecordType, st.just("com.acme.Outer"), _branches(parts, "field"))


def _pojo(fields: tuple[FlinkType, ...], registered: tuple[FlinkType, ...], others: tuple[FlinkType, ...]) -> FlinkType:
    def plain(class_name: str, types: tuple[FlinkType, ...]) -> PojoType:
        return PojoType(class_name, tuple(PojoField(f"field{index}", type_) for index, type_ in enumerate(types)))

    tagged = tuple(plain(f"com.acme.Tagged{index}", (*fields, type_)) for index, type_ in enumerate(registered))
    named = tuple(plain(f"com.acme.Näme${index}", (*fields, type_)) for index, type_ in enumerate(others))
    own = plain("com.acme.Base", fields)
    return PojoType(own.class_name, own.fields, tagged, tuple((subclass.class_name, subclass) for subclass in named))


def flink_types(*, max_leaves: int = 8) -> SearchStrategy[FlinkType]:
    """Every kind of type except opaque ones."""
    leaves: SearchStrategy[FlinkType] = st.one_of(
        # Of a Nothing there are no values to draw.
        st.sampled_from([scalar for scalar in Scalar if scalar is not Scalar.NOTHING]),
        st.builds(PrimitiveArrayType, st.sampled_from(_PRIMITIVES)),
        st.just(EnumType("com.acme.Color", ("RED", "GREEN", "BLUE"))),
        st.just(EnumType("com.acme.Weekday$", ("MON", "TUE", "SUN"), (1, 2, -7))),
    )
    return st.recursive(leaves, _composites, max_leaves=max_leaves)


def map_entries(type_: MapType, blob: bytes) -> list[tuple[bytes, bytes | None]]:
    """The bytes of each key and value, None for a null value."""
    entries: list[tuple[bytes, bytes | None]] = []
    position = 4
    for _ in range(int.from_bytes(blob[:4], "big")):
        _, key_end = decode(type_.key, blob, position)
        key = blob[position:key_end]
        position = key_end + 1
        if blob[key_end]:
            entries.append((key, None))
            continue
        _, end = decode(type_.value, blob, position)
        entries.append((key, blob[position:end]))
        position = end
    return entries


def avro_items(type_: AvroArrayType | AvroMapType, raw: bytes) -> list[tuple[bytes, bytes]]:
    """The bytes of each key, empty in an array, and of each element or value."""
    items: list[tuple[bytes, bytes]] = []
    position = 0
    while True:
        count, shift = 0, 0
        while True:
            byte, position = raw[position], position + 1
            count |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if count == 0:
            assert position == len(raw)
            return items
        for _ in range(count):
            start = middle = position
            if isinstance(type_, AvroMapType):
                _, middle = decode(Scalar.AVRO_STRING, raw, start)
                _, position = decode(type_.value, raw, middle)
            else:
                _, position = decode(type_.element, raw, middle)
            items.append((raw[start:middle], raw[middle:position]))


def list_elements(element: FlinkType, blob: bytes) -> list[bytes]:
    """The bytes of each element of a `List`."""
    elements = []
    position = 4
    for _ in range(int.from_bytes(blob[:4], "big")):
        _, end = decode(element, blob, position)
        elements.append(blob[position:end])
        position = end
    return elements


def list_state_elements(element: FlinkType, raw: bytes) -> list[bytes]:
    """The bytes of each element of a list state, which has delimiters but no count."""
    elements = []
    position = 0
    while True:
        _, end = decode(element, raw, position)
        elements.append(raw[position:end])
        if end == len(raw):
            return elements
        assert raw[end : end + 1] == b","
        position = end + 1
