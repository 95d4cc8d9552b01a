"""Makes the rows of a keyed state from entries that the caller gives: Python values, Arrow's, or Flink's own bytes.

A row is written as in a canonical file: i32 length and key (key group, key, namespace, user key), i32 length and value.
All rows are in memory, as the bytes that will be written, until they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from flinkstate.basics.array_types import Codes
from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.key_group_check import hash_is_certain
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.batches import schema
from flinkstate.reading.entries import Entry
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    OpaqueType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    type_name,
)
from flinkstate.values.codec_parts import as_list
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import Singleton, TtlValue
from flinkstate.writing.twice_in_maps import refuse_twice

_AT_ONCE = 1 << 14
_OF_ANY_HASH = (EnumType, OpaqueType, ArrayType, PrimitiveArrayType, RowType)
_FIELDS = ("key_group", "key", "namespace", "user_key", "value", "timestamp")
# What Arrow hands to Python as the same values that Flink's bytes are decoded to.
_SAME_IN_ARROW = (
    *(Scalar.BOOLEAN, Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG, Scalar.FLOAT, Scalar.DOUBLE),
    *(Scalar.STRING, Scalar.VOID_NAMESPACE),
)

Given: TypeAlias = "Iterable[Entry | Mapping[str, Any]] | pa.Table | pa.RecordBatch | pa.RecordBatchReader"
# The rows of a state by key group.
NewRows = Mapping[int, list[bytes]]


def new_rows(
    state: KeyedState, entries: Given, max_parallelism: int, *, raw: bool = False, may_be_read: bool = False
) -> NewRows:
    """Returns the rows of these entries by key group. `raw`: they are Arrow's, with Flink's bytes in their columns.

    An entry's own key group counts only if the hash of such keys isn't certain. Entries that `may_be_read` from
    the state may have what Flink writes no more: a null in a MapState under time to live without a timestamp. Others
    are new: rows among their keys are hashed by position.
    """
    encoder = _Encoder(state, max_parallelism, raw=raw, may_be_read=may_be_read)
    parts = iter(_parts(state, entries, raw=raw))
    while some := list(islice(parts, _AT_ONCE)):
        encoder.add(some)
    return encoder.rows


def as_entries(rows: list[bytes]) -> tuple[Buffer, int]:
    """Returns the bytes of a key group's rows as a writer takes them, and where the last row begins."""
    # Of a bytearray, the array is one that compiled code knows already: it may be written to.
    data = np.frombuffer(bytearray().join(rows), np.uint8)
    return data, len(data) - len(rows[-1])


def _parts(state: KeyedState, given: Given, *, raw: bool) -> Iterator[Mapping[str, Any]]:
    """Yields each entry's fields by their names."""
    if isinstance(given, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        _check_columns(state, given.schema, raw=raw)
        batches = [given] if isinstance(given, pa.RecordBatch) else given
        for batch in given.to_batches(max_chunksize=_AT_ONCE) if isinstance(given, pa.Table) else batches:
            yield from batch.to_pylist()
        return
    if raw:
        raise UsageError("raw entries are those of an Arrow table, batch or reader: give one, or no raw=True")
    if isinstance(given, (Mapping, str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(
            f"state {state.name}: expected entries, or a table, batch or reader of Arrow, found a {_class_of(given)}"
        )
    for entry in given:
        if isinstance(entry, Entry):
            yield {name: getattr(entry, name) for name in _FIELDS}
        elif isinstance(entry, Mapping):
            yield entry
        else:
            raise UsageError(
                f"state {state.name}: expected an Entry or a mapping with its fields, found a {_class_of(entry)}"
            )


def _check_columns(state: KeyedState, found: pa.Schema, *, raw: bool) -> None:
    if not raw:
        types = [type_ for type_ in (state.key, state.namespace, state.user_key, state.value) if type_ is not None]
        for type_ in types:
            for part in with_parts(type_):
                if not (part in _SAME_IN_ARROW or isinstance(part, (ListType, MapType, PrimitiveArrayType))):
                    raise RefusedError(
                        f"state {state.name} has values of the type {type_name(part)}, which Arrow holds in another "
                        "form: give entries, or a table that was read with raw=True, together with raw=True"
                    )
    for field in schema(state, raw=raw):
        if field.name == "key_group" or (raw and field.name == "timestamp"):
            continue
        if field.name not in found.names:
            known = ", ".join(found.names) or "none"
            raise UsageError(f"state {state.name}: expected a column {field.name}, found the columns: {known}")
        if found.field(field.name).type != field.type:
            raise UsageError(
                f"state {state.name}: expected the column {field.name} as {field.type}, "
                f"found {found.field(field.name).type}"
            )


class _Encoder:
    """Gathers the rows of a state by key group. Two of one key (and namespace and user key) are refused."""

    def __init__(self, state: KeyedState, max_parallelism: int, *, raw: bool, may_be_read: bool) -> None:
        if state.kind is StateKind.TIMERS or state.asynchronous:
            what = "has timers" if state.kind is StateKind.TIMERS else "is asynchronous (V2) state"
            raise RefusedError(f"state {state.name} {what}, which can't be written from entries")
        self.rows: dict[int, list[bytes]] = {}
        self._state, self._max_parallelism, self._raw = state, max_parallelism, raw
        self._why_unknown = unstable_reason(state.key)
        if self._why_unknown is None and may_be_read and not hash_is_certain(state.key):
            self._why_unknown = "a row has another one if the job sets its fields by field name"
        self._bare_nulls = state.kind is StateKind.MAP and (may_be_read or not state.ttl)
        self._prefix = key_group_prefix_bytes(max_parallelism)
        # The hash of an enum, or of an array inside of a key, is another one in each JVM, and so may be that of a class
        # that isn't known. A row has two, by names and by places. Flink itself may have such a key in two key groups.
        moves = any(isinstance(part, _OF_ANY_HASH) for part in with_parts(state.key))
        self._same_from = 0 if moves else self._prefix
        self._seen: set[bytes] = set()

    def add(self, entries: list[Mapping[str, Any]]) -> None:
        keys = [self._part(entry, "key", self._state.key) for entry in entries]
        for entry, key, key_group in zip(entries, keys, self._key_groups(entries, keys), strict=True):
            whole = key_group.to_bytes(self._prefix, "big") + self._whole_key(entry, key)
            same = whole[self._same_from :]
            if same in self._seen:
                raise UsageError(f"state {self._state.name}: two entries with the same key: {_shown(entry)}")
            self._seen.add(same)
            value = self._value(entry)
            row = len(whole).to_bytes(4, "big") + whole + len(value).to_bytes(4, "big") + value
            self.rows.setdefault(key_group, []).append(row)

    def _part(self, entry: Mapping[str, Any], name: str, type_: FlinkType) -> bytes:
        unknown = [field for field in entry if field not in _FIELDS]
        if unknown:
            raise UsageError(f"an entry has no field {unknown[0]!r}. {there_are(unknown[0], _FIELDS)}")
        if name not in entry:
            raise UsageError(f"state {self._state.name}: an entry without {name}: {_shown(entry)}")
        return self._encoded(type_, entry[name])

    def _encoded(self, type_: FlinkType, value: Any) -> bytes:
        if self._raw:
            return self._raw_bytes(value)
        try:
            written = encode(type_, value)
            refuse_twice(type_, value)
            return written
        except (UsageError, RefusedError) as error:
            raise type(error)(f"state {self._state.name}: {error}") from error

    def _raw_bytes(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise UsageError(f"state {self._state.name}: expected Flink's bytes, found {value!r} in a raw table")
        return value

    def _key_groups(self, entries: list[Mapping[str, Any]], keys: list[bytes]) -> list[int]:
        if self._why_unknown is None:
            codes = self._hash_codes(entries, keys)
            return [int(group) for group in assign_to_key_groups(codes, self._max_parallelism)]
        for entry in entries:
            group = entry.get("key_group")
            if not isinstance(group, int) or not 0 <= group < self._max_parallelism:
                raise UsageError(
                    f"state {self._state.name}: the hash of its keys ({type_name(self._state.key)}) can't be computed: "
                    f"{self._why_unknown}. Give each entry the key_group that it was read with, "
                    f"from 0 to {self._max_parallelism - 1}; found {group!r}"
                )
        return [entry["key_group"] for entry in entries]

    def _hash_codes(self, entries: list[Mapping[str, Any]], keys: list[bytes]) -> Codes:
        ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
        data = np.frombuffer(b"".join(keys), np.uint8)
        try:
            return hash_codes(self._state.key, data, np.append(0, ends[:-1]), ends)
        except DamagedError as error:
            if len(keys) > 1:
                for entry, key in zip(entries, keys, strict=True):
                    self._hash_codes([entry], [key])
            raise UsageError(
                f"state {self._state.name}: no key of the type {type_name(self._state.key)}: {error}: "
                f"{_shown(entries[0])}"
            ) from error

    def _whole_key(self, entry: Mapping[str, Any], key: bytes) -> bytes:
        state = self._state
        void = state.namespace is Scalar.VOID_NAMESPACE
        given = entry.get("namespace")
        if void and given is not None and given is not Singleton.VOID_NAMESPACE:
            raise UsageError(f"state {state.name} has no namespaces: {_shown(entry)}")
        namespace = b"\x00" if void else self._part(entry, "namespace", state.namespace)
        parts = [_with_length(part) for part in (key, namespace)] if state.has_suffixes else [key, namespace]
        if state.user_key is not None:
            parts.append(self._part(entry, "user_key", state.user_key))
        elif entry.get("user_key") is not None:
            raise UsageError(f"state {state.name} is no MapState, and has no user keys: {_shown(entry)}")
        return b"".join(parts)

    def _value(self, entry: Mapping[str, Any]) -> bytes:
        state, stored = self._state, self._state.stored_value
        if stored is None or "value" not in entry:
            raise UsageError(f"state {state.name}: an entry without value: {_shown(entry)}")
        value, timestamp = entry["value"], entry.get("timestamp")
        if self._raw:
            return self._raw_bytes(value)
        if self._bare_nulls and value is None and timestamp is None:
            # With a timestamp it is a null that the serializer of the values has written.
            return b"\x01"
        if not state.ttl and timestamp is not None:
            raise UsageError(f"state {state.name} has no time to live, and so no timestamps: {_shown(entry)}")
        if state.kind is StateKind.LIST:
            self._check_list(value)
            stamps = timestamp if state.ttl else [None] * len(value)
            if not isinstance(stamps, list) or len(stamps) != len(value):
                raise UsageError(f"state {state.name} needs a timestamp for each element: {_shown(entry)}")
            return b",".join(map(self._element, value, stamps))
        null_flag = b"\x00" if state.kind is StateKind.MAP else b""
        return null_flag + self._element(value, timestamp)

    def _check_list(self, value: Any) -> None:
        try:
            len(as_list(value))
        except (TypeError, ValueError):
            raise UsageError(f"state {self._state.name}: expected a list, found {value!r:.100}") from None

    def _element(self, value: Any, timestamp: int | None) -> bytes:
        stored = self._state.stored_value
        assert stored is not None
        if self._state.ttl and timestamp is None:
            raise UsageError(
                f"state {self._state.name} has a time to live, so each value needs the timestamp of its last access, "
                f"in milliseconds: {str(value)[:100]!r} has none"
            )
        return self._encoded(stored, value if timestamp is None else TtlValue(timestamp, value))


def _with_length(part: bytes) -> bytes:
    length = len(part)
    return part + length.to_bytes(max((length.bit_length() + 7) // 8, 1), "little")


def _class_of(given: object) -> str:
    return type(given).__name__


def _shown(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={str(value)[:60]!r}" for name, value in entry.items() if value is not None)
