"""Reads the snapshot of Flink's Avro serializer, and makes the type that its schema describes.

| version | body |
|---|---|
| 1 | utf schema |
| 2 | utf class, utf schema |
| 3 | class and schema as Flink writes a String: varint of UTF-16 units + 1, each unit a varint, low 7 bits first |

The schema is Avro's JSON. Flink doesn't use Avro's own binary form: numbers have their full width, and only the counts
of arrays and maps are varints (`types.py` has the layout of each part). A value of a logical type is shown as the
number or the bytes under it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.leaf_types import AvroOpaqueType
from flinkstate.serializers.types import (
    AvroArrayType,
    AvroBranch,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    EnumType,
    FlinkType,
    OpaqueType,
    PrimitiveArrayType,
    Scalar,
)

_PRIMITIVES: Mapping[str, FlinkType] = {
    "null": Scalar.AVRO_NULL,
    "boolean": Scalar.BOOLEAN,
    "int": Scalar.INTEGER,
    "long": Scalar.LONG,
    "float": Scalar.FLOAT,
    "double": Scalar.DOUBLE,
    "bytes": PrimitiveArrayType(Scalar.BYTE),
    "string": Scalar.AVRO_STRING,
}

# A name stands for its whole definition wherever it occurs, so a short schema can describe a huge type.
_MOST_PARTS = 10_000
_MOST_LEVELS = 64
_MOST_FIXED = 2**31 - 1
_MOST_CHARACTERS = 1 << 22
_FIRST_PIECE = 1 << 10
_MOST_PIECE = 1 << 16


class _UnreadableSchemaError(Exception):
    """A schema that isn't supported; the message says why."""


class _BeyondLimitsError(_UnreadableSchemaError):
    """A schema that Avro itself reads."""


def read_avro(reader: ByteReader, class_name: str, version: int) -> FlinkType:
    """Reads the body of the Avro serializer's snapshot. Makes an opaque type of a schema that isn't supported."""
    if not 1 <= version <= 3:
        raise reader.damaged(f"version 1 to 3 of {class_name}", f"{version}", position=reader.position - 4)
    text = reader.utf if version < 3 else lambda what: _flink_text(reader, what)
    record_class = text("the class of an Avro value") if version > 1 else None
    start = reader.position
    written = text("an Avro schema")
    if len(written) > _MOST_CHARACTERS:
        reason = f"written by Avro with a schema of more than {_MOST_CHARACTERS} characters"
        return OpaqueType(record_class or "an Avro value", reason)
    try:
        schema = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise reader.damaged("an Avro schema in JSON", str(error) or "too deep a one", position=start) from None
    try:
        found = avro_type(schema)
    except _UnreadableSchemaError as error:
        reason = f"written by Avro with a schema that is not read here: {error}"
        if record_class is not None and isinstance(error, _BeyondLimitsError):
            return AvroOpaqueType(record_class, reason, written)
        return OpaqueType(record_class or _name_in(schema), reason)
    return replace(found, java_class=record_class, schema=written) if isinstance(found, AvroRecordType) else found


def avro_type(schema: object) -> FlinkType:
    """Returns the type of the values that a parsed schema describes."""
    return _Types().type_of(schema, "", 0)[0]


def _name_in(schema: object) -> str:
    return str(schema.get("name", "a value")) if isinstance(schema, dict) else "a value"


class _Types:
    """The types that a schema has named so far, each with its number of parts."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[FlinkType, int]] = {}
        self._open: set[str] = set()

    def type_of(self, schema: object, namespace: str, level: int) -> tuple[FlinkType, int]:
        if level > _MOST_LEVELS:
            raise _BeyondLimitsError(f"it is more than {_MOST_LEVELS} levels deep")
        if isinstance(schema, str):
            found = self._by_name(schema, namespace)
        elif isinstance(schema, list):
            found = self._union(schema, namespace, level)
        elif isinstance(schema, dict):
            found = self._of_object(schema, namespace, level)
        else:
            raise _UnreadableSchemaError(f"{str(schema)[:40]!r} is no type")
        if found[1] > _MOST_PARTS:
            raise _BeyondLimitsError(f"it has more than {_MOST_PARTS} parts")
        return found

    def _by_name(self, name: str, namespace: str) -> tuple[FlinkType, int]:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name], 1
        full_name = with_namespace(name, namespace)
        for known in (full_name, name):
            if known in self._open:
                raise _BeyondLimitsError(f"{known} contains itself")
            if known in self._named:
                return self._named[known]
        raise _UnreadableSchemaError(f"{full_name[:100]!r} is not defined in it")

    def _of_object(self, schema: Mapping[str, object], namespace: str, level: int) -> tuple[FlinkType, int]:
        kind = schema.get("type")
        if kind == "array":
            element, parts = self.type_of(schema.get("items"), namespace, level + 1)
            return AvroArrayType(element), parts + 1
        if kind == "map":
            value, parts = self.type_of(schema.get("values"), namespace, level + 1)
            return AvroMapType(value), parts + 1
        if kind not in ("record", "error", "enum", "fixed"):
            return self.type_of(kind, namespace, level + 1)
        name = _text(schema.get("name"), "a name")
        given = schema.get("namespace")
        full_name = with_namespace(name, given if isinstance(given, str) else namespace)
        if kind == "enum":
            symbols = tuple(_text(symbol, "a symbol") for symbol in _list(schema.get("symbols"), "symbols"))
            found: tuple[FlinkType, int] = EnumType(full_name, symbols), 1
        elif kind == "fixed":
            found = AvroFixedType(full_name, _size(schema.get("size"))), 1
        else:
            self._open.add(full_name)
            found = self._record(full_name, _list(schema.get("fields"), "fields"), level)
            self._open.remove(full_name)
        self._named[full_name] = found
        return found

    def _record(self, full_name: str, fields: Sequence[object], level: int) -> tuple[FlinkType, int]:
        namespace = full_name.rpartition(".")[0]
        described, total = [], 1
        for field in fields:
            if not isinstance(field, dict):
                raise _UnreadableSchemaError(f"a field of {full_name} is no object")
            type_, parts = self.type_of(field.get("type"), namespace, level + 1)
            described.append(AvroBranch(_text(field.get("name"), "a field's name"), type_))
            total += parts
        return AvroRecordType(full_name, tuple(described)), total

    def _union(self, branches: Sequence[object], namespace: str, level: int) -> tuple[FlinkType, int]:
        described, total = [], 1
        for branch in branches:
            type_, parts = self.type_of(branch, namespace, level + 1)
            described.append(AvroBranch(_branch_name(type_), type_))
            total += parts
        return AvroUnionType(tuple(described)), total


def _branch_name(type_: FlinkType) -> str:
    """Returns a branch's name, as in Avro's own JSON."""
    match type_:
        case AvroArrayType():
            return "array"
        case AvroMapType():
            return "map"
        case AvroRecordType(name) | EnumType(name) | AvroFixedType(name):
            return name
    return next((name for name, primitive in _PRIMITIVES.items() if primitive == type_), "union")


def with_namespace(name: str, namespace: str | None) -> str:
    """Returns a name in a schema with its namespace, which it may have itself."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _UnreadableSchemaError(f"it lacks {what}")
    return value


def _list(value: object, what: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise _UnreadableSchemaError(f"it lacks {what}")
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= _MOST_FIXED:
        raise _UnreadableSchemaError("it lacks the size of a fixed type")
    return value


def _flink_text(reader: ByteReader, what: str) -> str:
    start = reader.position
    units = _varint(reader, what) - 1
    if units < 0:
        raise reader.damaged(what, "null", position=start)
    room = reader.limit - reader.position
    if units > room:
        raise reader.damaged(f"{what} of at most {room} characters, which fit into the bytes that follow", f"{units}")
    encoded, size = bytearray(), _FIRST_PIECE
    while units:
        # The portions grow, so that reading soon stops where the bytes only look like a schema.
        portion = _wide_units(reader, min(units, size), what)
        encoded += portion.astype("<u2").tobytes()
        units -= len(portion)
        size = min(2 * size, _MOST_PIECE)
    return encoded.decode("utf-16-le", "surrogatepass")


def _wide_units(reader: ByteReader, most: int, what: str) -> npt.NDArray[np.int64]:
    """Reads the next UTF-16 units, at least one and at most `most`. Refuses NUL, which JSON doesn't have."""
    size = min(3 * most, reader.limit - reader.position)
    data = np.frombuffer(reader.data, np.uint8, size, reader.position)
    ends = np.flatnonzero(data < 0x80)[:most]
    if not len(ends):
        raise reader.damaged(f"a character of {what}", f"{size} bytes that don't end one")
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    units: npt.NDArray[np.int64] = data[starts].astype(np.int64) & 0x7F
    for place in (1, 2):
        longer = lengths > place
        units[longer] |= (data[starts[longer] + place].astype(np.int64) & 0x7F) << 7 * place
    wrong = (lengths > 3) | (units > 0xFFFF) | (units == 0)
    if wrong.any():
        reader.position += int(starts[int(wrong.argmax())])
        raise reader.damaged(f"a character in {what}", "more than 16 bits, or NUL")
    reader.position += int(ends[-1]) + 1
    return units


def _varint(reader: ByteReader, what: str) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = reader.take(1, what)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise reader.damaged(f"a number of at most 5 bytes in {what}", "more")
