"""Columns of the tables in Iceberg: their types, and the ids by which data files refer to them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

_FIELD_ID = b"PARQUET:field_id"


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Returns the columns, all optional, with ids that the table will replace by its own."""
    optional = pa.schema([field.with_nullable(True) for field in schema])
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(optional))


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
