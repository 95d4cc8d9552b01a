"""The columns of the two tables that follow a migrated state.

`map_entry` has a row for each entry of a key, written by the run in which the key last changed (or by a fold):

| column | |
|---|---|
| chunk, key_group | int |
| key, key_raw | the key as its type, and its bytes |
| namespace, namespace_raw | absent if the namespace is the void one |
| user_key, user_key_raw, value, value_raw | of the entry; a null value has neither |
| is_null | whether the value is null |
| timestamp | long, milliseconds; absent without time to live |
| run | long: the number of the run that wrote the row |

`key_ledger` has a row for each key and run that changed it; the row with the highest run is current. If a published run
has moved a key that hasn't changed, there is a second row of the same run, which is current and says is_migrated:

| column | |
|---|---|
| chunk, key_group, key, key_raw, namespace, namespace_raw | as above |
| origin | who moved the key's entries into the new form: `job` or `ferry`; `tombstone` if the key has vanished |
| is_migrated | whether its truth is in the new state: in the savepoint that the run published, else in its source |
| fingerprint | 16 bytes, which change if anything changes that the rows depend on |
| entries | long: the number of the key's rows in map_entry |
| content | long: the sum of their hashes, as the validation computes them, modulo 2^64 |
| oldest, newest | long: the bounds of their timestamps; absent without time to live, null without rows |
| timestamp | the latest timestamp of its blob and rows; absent without time to live |
| run | long |

A typed column is absent if its type has no Arrow type.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import pyarrow as pa

from flinkstate.columns.arrow_types import arrow_type
from flinkstate.errors import RefusedError
from flinkstate.serializers.type_parts import fixed_length
from flinkstate.serializers.types import FlinkType, Scalar
from stateferry.changes.rules import Rules
from stateferry.tables.iceberg.ledger import FINGERPRINT_BYTES

MAP_ENTRY, KEY_LEDGER = "map_entry", "key_ledger"
JOB, FERRY, TOMBSTONE = "job", "ferry", "tombstone"

CHUNK, KEY_GROUP, KEY, KEY_RAW = "chunk", "key_group", "key", "key_raw"
NAMESPACE, NAMESPACE_RAW = "namespace", "namespace_raw"
USER_KEY, USER_KEY_RAW, VALUE, VALUE_RAW = "user_key", "user_key_raw", "value", "value_raw"
IS_NULL, TIMESTAMP, RUN = "is_null", "timestamp", "run"
ORIGIN, IS_MIGRATED, FINGERPRINT, ENTRIES = "origin", "is_migrated", "fingerprint", "entries"
CONTENT, OLDEST, NEWEST = "content", "oldest", "newest"

# The columns whose smallest and largest values are kept for each file and row group, because rows are found by them.
# Keys are not among them: the hash spreads them over the key groups, so every file has small and large ones.
BOUNDED = (CHUNK, KEY_GROUP, TIMESTAMP, RUN)

# Columns without nulls: data files are written faster if they are declared so.
_ALWAYS = (CHUNK, KEY_GROUP, KEY_RAW, NAMESPACE_RAW, USER_KEY_RAW, IS_NULL, RUN, ORIGIN, IS_MIGRATED, ENTRIES, CONTENT)


@dataclass(frozen=True, slots=True)
class StateTables:
    """The names of the tables of one migrated state: a namespace of job, operator and new state."""

    job: str
    operator: str
    state: str

    @property
    def namespace(self) -> tuple[str, str, str]:
        """The namespace of the tables in the catalog."""
        return _as_name(self.job), _as_name(self.operator), _as_name(self.state)

    def identifier(self, table: str) -> tuple[str, ...]:
        return (*self.namespace, table)

    @property
    def folder(self) -> str:
        """The folder of the tables, relative to the folder of all tables."""
        return "/".join(self.namespace)

    def quoted(self, table: str) -> str:
        """The full name of a table for Spark's SQL."""
        return ".".join(f"`{part}`" for part in self.identifier(table))


def _as_name(text: str) -> str:
    """Returns the text if catalogs, paths and SQL can take it, else a plain form of it with a hash of the text."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:80]
    if plain == text and text:
        return text
    return f"{plain}_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def column_type(type_: FlinkType) -> pa.DataType | None:
    """Returns the Arrow type of a typed column, or None if there is none."""
    try:
        return _storable(arrow_type(type_))
    except RefusedError:
        return None


def _storable(type_: pa.DataType) -> pa.DataType:
    """Returns a type that tables can store: integers have at least 32 bits; a struct must have fields."""
    if pa.types.is_integer(type_) and type_.bit_width < 32:
        return pa.int32()
    if pa.types.is_struct(type_):
        if type_.num_fields == 0:
            raise RefusedError("a struct without fields, which tables can't store")
        return pa.struct([pa.field(field.name, _storable(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_storable(type_.key_type), _storable(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_storable(type_.value_type))
    return type_


def raw_type(type_: FlinkType) -> pa.DataType:
    """Returns the type of a column with the bytes of values."""
    return pa.binary(fixed_length(type_) or -1)


def entry_schema(rules: Rules) -> pa.Schema:
    """Returns the columns of `map_entry`."""
    map_type = rules.map_type
    return _schema(
        *_key_columns(rules),
        (USER_KEY, column_type(map_type.key)),
        (USER_KEY_RAW, raw_type(map_type.key)),
        (VALUE, column_type(map_type.value)),
        (VALUE_RAW, raw_type(map_type.value)),
        (IS_NULL, pa.bool_()),
        (TIMESTAMP, pa.int64() if rules.legacy.ttl else None),
        (RUN, pa.int64()),
    )


def ledger_schema(rules: Rules) -> pa.Schema:
    """Returns the columns of `key_ledger`."""
    return _schema(
        *_key_columns(rules),
        (ORIGIN, pa.string()),
        (IS_MIGRATED, pa.bool_()),
        (FINGERPRINT, pa.binary(FINGERPRINT_BYTES)),
        (ENTRIES, pa.int64()),
        (CONTENT, pa.int64()),
        (OLDEST, pa.int64() if rules.legacy.ttl else None),
        (NEWEST, pa.int64() if rules.legacy.ttl else None),
        (TIMESTAMP, pa.int64() if rules.legacy.ttl else None),
        (RUN, pa.int64()),
    )


def _key_columns(rules: Rules) -> list[tuple[str, pa.DataType | None]]:
    key, namespace = rules.legacy.key, rules.legacy.namespace
    columns = [(CHUNK, pa.int32()), (KEY_GROUP, pa.int32()), (KEY, column_type(key)), (KEY_RAW, pa.binary())]
    if namespace is not Scalar.VOID_NAMESPACE:
        columns += [(NAMESPACE, column_type(namespace)), (NAMESPACE_RAW, pa.binary())]
    return columns


def _schema(*columns: tuple[str, pa.DataType | None]) -> pa.Schema:
    return pa.schema([pa.field(name, type_, name not in _ALWAYS) for name, type_ in columns if type_ is not None])
