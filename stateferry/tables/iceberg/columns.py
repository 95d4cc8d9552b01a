"""Changes the columns of a table: on a run's branch first, and for `main` only when it moves to that run.

An Iceberg table has one current schema for all of its branches. So a run's commit adds its columns as a schema that its
snapshot names, and leaves the current one as it is; `show_columns_of` makes the run's columns the current ones.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
)

from flinkstate.errors import TransientError
from stateferry.tables.iceberg.types import iceberg_schema, shape

_ADDED_LAST = -1


def planned_columns(table: Table, schema: pa.Schema) -> Schema:
    """Returns the table's columns as they will be with this schema; the table stays as it is.

    A column with a new type gets a new id too, so that values in old files aren't taken for values of the new column.
    """
    present = {field.name: shape(field.field_type) for field in table.schema().fields}
    wanted = iceberg_schema(schema)
    shapes = {field.name: shape(field.field_type) for field in wanted.fields}
    leaving = [name for name in present if shapes.get(name) != present[name]]
    coming = [field for field in wanted.fields if field.name in leaving or field.name not in present]
    never_committed = table.transaction()
    with never_committed.update_schema(allow_incompatible_changes=True) as update:
        for name in leaving:
            update.delete_column(name)
    with never_committed.update_schema() as update:
        for field in coming:
            update.add_column(field.name, field.field_type)
    return never_committed.table_metadata.schema()


def write_with_columns(transaction: Transaction, table: Table, columns: Schema) -> None:
    """Makes the planned columns those of the snapshots that the transaction makes from here on."""
    if columns == table.schema():
        return
    last, present = table.metadata.last_column_id, table.schema().fields
    known = [schema_id for schema_id, schema in table.schemas().items() if schema == columns]
    if not known and any(field.field_id <= last for field in columns.fields if field not in present):
        raise TransientError(f"another writer has changed the columns of table {'.'.join(table.name())}: try again")
    requirements = (
        AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": last}),
    )
    if known:
        transaction._apply((_current(known[0]),), requirements)
        return
    added = columns.model_copy(update={"schema_id": 1 + max(table.schemas())})
    transaction._apply((AddSchemaUpdate(schema=added), _current(_ADDED_LAST)), requirements)


def leave_columns(transaction: Transaction, table: Table) -> None:
    """Gives the current columns back to `main`, at the end of a transaction."""
    before = table.schema().schema_id
    if transaction.table_metadata.current_schema_id != before:
        transaction._apply((_current(before),))


def show_columns_of(transaction: Transaction, table: Table, snapshot: Snapshot) -> None:
    """Makes the columns with which the snapshot was written the current ones."""
    if snapshot.schema_id is not None and snapshot.schema_id != table.schema().schema_id:
        transaction._apply((_current(snapshot.schema_id),))


def _current(schema_id: int) -> SetCurrentSchemaUpdate:
    return SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id})
