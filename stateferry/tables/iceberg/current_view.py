"""Writes the view `current_entry` beside a state's two tables: the current rows, without those that have expired.

A REST catalog makes and replaces views itself. Iceberg's JDBC catalog keeps views in the same table as Iceberg tables,
with another type. pyiceberg knows that but can't write views. A view is a file of metadata, here always with one
version, and a row in the catalog:

| in the file | |
|---|---|
| schemas | one: that of map_entry |
| versions | the SQL for Spark; its names are relative to the namespace of the tables |
| current-version-id | grows by one when the view is replaced |
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import select
from sqlalchemy.orm import Session

from flinkstate.files.storage import Location
from stateferry.basics.durations import now_ms
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.schemas import (
    CHUNK,
    KEY_LEDGER,
    KEY_RAW,
    MAP_ENTRY,
    NAMESPACE_RAW,
    RUN,
    TIMESTAMP,
    StateTables,
)

CURRENT_ENTRY = "current_entry"
_VIEW = "VIEW"
_SCHEMA_ID = 0


def current_entry_sql(columns: list[str], ttl: int | None) -> str:
    """Returns the SQL for Spark; `ttl` is in milliseconds, None if nothing expires."""
    key = [name for name in (CHUNK, KEY_RAW, NAMESPACE_RAW) if name in columns]
    lines = [
        f"SELECT {', '.join(f'entry.{name}' for name in columns)}",
        f"FROM {MAP_ENTRY} AS entry",
        f"JOIN (SELECT {', '.join(key)}, max({RUN}) AS {RUN} FROM {KEY_LEDGER} GROUP BY {', '.join(key)}) AS newest",
        "ON " + " AND ".join(f"entry.{name} = newest.{name}" for name in (*key, RUN)),
    ]
    if ttl is not None:
        lines.append(f"WHERE entry.{TIMESTAMP} > unix_millis(current_timestamp()) - {ttl}")
    return "\n".join(lines)


def put_current_view(home: TableHome, tables: StateTables, ttl: int | None) -> None:
    """Creates the view, or replaces it if it differs."""
    schema = home.catalog().load_table(tables.identifier(MAP_ENTRY)).schema()
    sql = current_entry_sql([field.name for field in schema.fields], ttl)
    columns = json.loads(schema.model_dump_json(by_alias=True)) | {"schema-id": _SCHEMA_ID}
    (_put_into_sql if home.rest is None else _put_into_rest)(home, tables, columns, sql)


def _put_into_rest(home: TableHome, tables: StateTables, columns: dict[str, Any], sql: str) -> None:
    catalog, name = home.rest_catalog(), tables.identifier(CURRENT_ENTRY)
    before = catalog.view(name)
    if before is not None and _says(before, columns, sql):
        return
    location = f"{home.folder}/{tables.folder}/{CURRENT_ENTRY}"
    made = _metadata(location, tables, columns, sql, before)
    (version,) = made["versions"]
    if before is None:
        catalog.make_view(name, location, columns, version)
    else:
        catalog.replace_view(name, before, columns, version)


def _put_into_sql(home: TableHome, tables: StateTables, columns: dict[str, Any], sql: str) -> None:
    with home.sql_at_once() as catalog, Session(catalog.engine) as session:
        namespace = catalog.namespace_to_string(tables.namespace)
        row = session.scalars(
            select(IcebergTables).where(
                IcebergTables.catalog_name == catalog.name,
                IcebergTables.table_namespace == namespace,
                IcebergTables.table_name == CURRENT_ENTRY,
            )
        ).one_or_none()
        before = json.loads(Location.of(row.metadata_location).read()) if row and row.metadata_location else None
        if before is not None and _says(before, columns, sql):
            return
        metadata = _metadata(f"{home.folder}/{tables.folder}/{CURRENT_ENTRY}", tables, columns, sql, before)
        version = int(metadata["current-version-id"])
        file = f"{metadata['location']}/metadata/{version:05}-{uuid.uuid4()}.metadata.json"
        location = Location.of(file)
        location.parent.make_folder()
        location.write_atomically(json.dumps(metadata).encode())
        if row is None:
            row = IcebergTables(catalog.name, namespace, CURRENT_ENTRY, None, None)
            session.add(row)
        row.previous_metadata_location, row.metadata_location = row.metadata_location, file
        row.iceberg_type = _VIEW
        session.commit()


def _says(metadata: dict[str, Any], columns: dict[str, Any], sql: str) -> bool:
    """Whether the view has this SQL and these columns; other tools may have added versions to it."""
    found = next(one for one in metadata["versions"] if one["version-id"] == metadata["current-version-id"])
    of_version = next(one for one in metadata["schemas"] if one["schema-id"] == found["schema-id"])
    return [one["sql"] for one in found["representations"]] == [sql] and of_version["fields"] == columns["fields"]


def _metadata(
    location: str, tables: StateTables, columns: dict[str, Any], sql: str, before: dict[str, Any] | None
) -> dict[str, Any]:
    number = 1 + (before["current-version-id"] if before else 0)
    made = {"version-id": number, "timestamp-ms": now_ms()}
    version = {
        "schema-id": _SCHEMA_ID,
        # A server would take two versions that differ by their numbers alone for one.
        "summary": {"engine-name": "stateferry", "version": str(number)},
        "default-namespace": tables.namespace,
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    return {
        "view-uuid": before["view-uuid"] if before else str(uuid.uuid4()),
        "format-version": 1,
        "location": location,
        "schemas": [columns],
        "current-version-id": number,
        "versions": [version | made],
        "version-log": [made],
        "properties": {},
    }
