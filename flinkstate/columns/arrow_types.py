"""The Arrow type of each of Flink's types, chosen so that Spark SQL shows the expected type.

| Flink | Arrow |
|---|---|
| Boolean, Byte, Short, Integer, Long, Float, Double, and the `...Value` of each | bool, int8 to int64, float, double |
| String, StringValue, Character, CharValue | string; a lone surrogate, which UTF-8 can't hold, becomes U+FFFD |
| BigInteger, BigDecimal | string, exactly as Java prints it: Arrow's decimal types are too small for some |
| Date, Instant, java.sql.Date, Time and Timestamp | timestamp[us, UTC]; nanoseconds are rounded down |
| LocalDateTime | timestamp[us] without a zone, rounded down |
| LocalDate | date32 |
| LocalTime | string as `LocalTime.toString` prints it, to the nanosecond |
| Enum | string: the constant's name |
| byte[], Bitmap | binary |
| List, Set, T[], long[], String[] and the like | list |
| Map | map; a null key is refused, because Arrow can't hold it |
| Tuple, Row | struct of f0, f1, ...; a row with a kind ends with `kind`: INSERT, UPDATE_AFTER and so on |
| POJO | struct of its fields; if subclasses are known also of their fields (null in others' values) and `class` |
| Either | struct of left, right, one of them null; of a Scala `Try` success, failure |
| Option | the value's own type; null for None |
| Traversable | list |
| Avro record | struct of its fields |
| Avro string, fixed; array, map | string, binary; list, map |
| Avro union | of null and one type: that type; else a struct of all branches but null, of which at most one is set |
| Variant | struct of value, metadata: binary, as in Spark's own variants |
| Ttl | struct of timestamp (int64, milliseconds), value |
| Timer | struct of timestamp (int64, milliseconds), key, namespace |
| TimeWindow | struct of start, end: int64 milliseconds, because a window may reach beyond a timestamp's range |
| Void, NullValue, VoidNamespace, GlobalWindow, Tuple0 | bool, always null (tables can't store Arrow's null type) |
| Unit, Nothing, Avro null | the same |

A date or time outside the range of its Arrow type is refused with its place. `raw=true` reads it as bytes.
"""

from __future__ import annotations

import pyarrow as pa

from flinkstate.errors import RefusedError
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import (
    AvroFixedType,
    AvroUnionType,
    CollectionType,
    EitherType,
    EnumType,
    FlinkType,
    MappingType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SequenceType,
    numbered,
    simple_name,
)

INSTANT = pa.timestamp("us", tz="UTC")
LOCAL_DATE_TIME = pa.timestamp("us")
TIME_WINDOW = pa.struct([("start", pa.int64()), ("end", pa.int64())])
VARIANT = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
ROW_KINDS = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
KIND = "kind"
CLASS = "class"

_SCALARS: dict[Scalar, pa.DataType] = {
    **dict.fromkeys((Scalar.BOOLEAN, Scalar.BOOLEAN_VALUE), pa.bool_()),
    **dict.fromkeys((Scalar.BYTE, Scalar.BYTE_VALUE), pa.int8()),
    **dict.fromkeys((Scalar.SHORT, Scalar.SHORT_VALUE), pa.int16()),
    **dict.fromkeys((Scalar.INTEGER, Scalar.INT_VALUE), pa.int32()),
    **dict.fromkeys((Scalar.LONG, Scalar.LONG_VALUE), pa.int64()),
    **dict.fromkeys((Scalar.FLOAT, Scalar.FLOAT_VALUE), pa.float32()),
    **dict.fromkeys((Scalar.DOUBLE, Scalar.DOUBLE_VALUE), pa.float64()),
    **dict.fromkeys((Scalar.CHARACTER, Scalar.CHAR_VALUE, Scalar.STRING, Scalar.STRING_VALUE), pa.string()),
    **dict.fromkeys((Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL, Scalar.AVRO_STRING), pa.string()),
    **dict.fromkeys((Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME, Scalar.SQL_TIMESTAMP, Scalar.INSTANT), INSTANT),
    Scalar.LOCAL_DATE: pa.date32(),
    Scalar.LOCAL_TIME: pa.string(),
    Scalar.LOCAL_DATE_TIME: LOCAL_DATE_TIME,
    Scalar.VARIANT: VARIANT,
    Scalar.BITMAP: pa.binary(),
    Scalar.TIME_WINDOW: TIME_WINDOW,
    # Always null.
    **dict.fromkeys((Scalar.VOID, Scalar.NULL_VALUE, Scalar.VOID_NAMESPACE, Scalar.GLOBAL_WINDOW), pa.bool_()),
    **dict.fromkeys((Scalar.TUPLE0, Scalar.UNIT, Scalar.NOTHING, Scalar.AVRO_NULL), pa.bool_()),
}


def arrow_type(type_: FlinkType) -> pa.DataType:
    """Returns the Arrow type of a type. Refuses opaque types."""
    match type_:
        case Scalar():
            return _SCALARS[type_]
        case PrimitiveArrayType(Scalar.BYTE):
            return pa.binary()
        case CollectionType(element):
            return pa.list_(arrow_type(element))
        case MappingType():
            return pa.map_(arrow_type(type_.key), arrow_type(type_.value))
        case SequenceType(parts=parts):
            return pa.struct(_fields(parts))
        case RowType(fields, has_kind):
            kind = [pa.field(KIND, pa.string())] if has_kind else []
            return pa.struct(_fields(numbered(fields)) + kind)
        case PojoType():
            return pa.struct(pojo_fields(type_))
        case NullableType(value) | OptionType(value):
            return arrow_type(value)
        case EitherType(left, right):
            return pa.struct(_fields(tuple(zip(type_.sides, (left, right), strict=True))))
        case EnumType():
            return pa.string()
        case AvroFixedType():
            return pa.binary()
        case AvroUnionType():
            return _union_type(type_)
        case OpaqueType(class_name, reason):
            raise RefusedError(f"{class_name} is {reason}: its values have no columns; read the state with raw=true")


def _union_type(type_: AvroUnionType) -> pa.DataType:
    if type_.nullable is not None:
        return arrow_type(type_.nullable)
    branches = list(zip(union_fields(type_), map(arrow_type, _filled(type_)), strict=True))
    return pa.struct(branches) if branches else pa.bool_()


def _filled(type_: AvroUnionType) -> list[FlinkType]:
    return [branch.type for branch in type_.branches if branch.type is not Scalar.AVRO_NULL]


def union_fields(type_: AvroUnionType) -> list[str]:
    """Returns the names of the columns of all branches but null: without packages, unless two would be the same."""
    names = [branch.name for branch in type_.branches if branch.type is not Scalar.AVRO_NULL]
    simple = [simple_name(name) for name in names]
    return simple if len(set(simple)) == len(names) else names


def _fields(parts: tuple[tuple[str, FlinkType], ...]) -> list[pa.Field]:
    return [pa.field(name, arrow_type(part)) for name, part in parts]


def pojo_fields(type_: PojoType) -> list[pa.Field]:
    """Returns the POJO's own fields; if subclasses are known also their further fields, and `class`."""
    fields = {field.name: arrow_type(field.type) for field in type_.fields}
    subclasses = known_subclasses(type_)
    for subclass in subclasses:
        for field in pojo_fields(subclass):
            fields[subclass_field(subclass, field, fields.get(field.name))] = field.type
    if subclasses:
        # `class` comes last, even if a subclass that has subclasses itself added it before.
        fields.pop(CLASS, None)
        fields[CLASS] = pa.string()
    return [pa.field(name, field_type) for name, field_type in fields.items()]


def subclass_field(subclass: PojoType, field: pa.Field, taken: pa.DataType | None) -> str:
    """Returns the column name of a subclass's field; `taken` is the type of the column that already has this name."""
    return field.name if taken in (None, field.type) else f"{field.name}_{subclass.class_name}"


def known_subclasses(type_: PojoType) -> list[PojoType]:
    """Returns the subclasses whose values have columns. Others (Kryo's) are refused only if a value of them occurs."""
    return [subclass for subclass in type_.subclasses if isinstance(subclass, PojoType) and not opaque_parts(subclass)]
