"""Columns of the tables in Iceberg: their types, and the ids by which data files refer to them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

_FIELD_ID = b"PARQUET:field_id"
_PRIMITIVES: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Returns the columns, all optional, with ids that the table will replace by its own."""
    ids = count(1)
    return Schema(*(_nested(field, ids) for field in schema))


def _nested(field: pa.Field, ids: count[int]) -> NestedField:
    return NestedField(next(ids), field.name, _iceberg_type(field.type, ids), required=False)


def _iceberg_type(arrow: pa.DataType, ids: count[int]) -> IcebergType:
    if pa.types.is_struct(arrow):
        return StructType(*(_nested(field, ids) for field in arrow))
    if pa.types.is_map(arrow):
        key_id, value_id = next(ids), next(ids)
        key, value = _iceberg_type(arrow.key_type, ids), _iceberg_type(arrow.item_type, ids)
        return MapType(key_id, key, value_id, value, value_required=False)
    if pa.types.is_list(arrow):
        return ListType(next(ids), _iceberg_type(arrow.value_type, ids), element_required=False)
    if pa.types.is_fixed_size_binary(arrow):
        return FixedType(arrow.byte_width)
    return _PRIMITIVES[arrow]


def shape(type_: IcebergType) -> str:
    """Returns the type without ids; two columns with the same text have the same type."""
    match type_:
        case StructType(fields=fields):
            return f"struct<{', '.join(f'{field.name}: {shape(field.field_type)}' for field in fields)}>"
        case ListType(element_type=element):
            return f"list<{shape(element)}>"
        case MapType(key_type=key, value_type=value):
            return f"map<{shape(key)}, {shape(value)}>"
    return str(type_)


def with_field_ids(table: Schema, schema: pa.Schema) -> pa.Schema:
    """Returns the schema for data files, which refer to columns by the table's ids."""
    return pa.schema([_field(field, *_found(table.find_field(field.name))) for field in schema])


def _found(field: NestedField) -> tuple[int, IcebergType]:
    return field.field_id, field.field_type


def _field(field: pa.Field, id_: int, type_: IcebergType) -> pa.Field:
    return pa.field(field.name, _with_ids(field.type, type_), field.nullable, {_FIELD_ID: str(id_).encode()})


def _with_ids(arrow: pa.DataType, type_: Any) -> pa.DataType:
    match type_:
        case StructType():
            return pa.struct([_field(inner, *_found(field)) for inner, field in zip(arrow, type_.fields, strict=True)])
        case ListType():
            return pa.list_(_field(arrow.value_field, type_.element_id, type_.element_type))
        case MapType():
            key = _field(arrow.key_field, type_.key_id, type_.key_type)
            return pa.map_(key, _field(arrow.item_field, type_.value_id, type_.value_type))
    return arrow
