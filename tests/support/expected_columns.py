"""What `expected.jsonl` beside a golden savepoint says, as the columns in which batches and Spark show it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flinkstate.columns.arrow_types import CLASS, known_subclasses, pojo_fields, union_fields
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import (
    ArrayType,
    AvroArrayType,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TraversableType,
    TupleType,
)
from flinkstate.values.java_values import LocalDate
from tests.columns.test_columns import comparable, epoch_day, micros, plain, unrepresentable

CLASS_IN_JSON = "@class"
SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
_INSTANTS = (Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME, Scalar.SQL_TIMESTAMP, Scalar.INSTANT)
_FLOATS = (Scalar.FLOAT, Scalar.FLOAT_VALUE)
_NOTHING = (Scalar.VOID, Scalar.NULL_VALUE, Scalar.GLOBAL_WINDOW, Scalar.TUPLE0, Scalar.UNIT, Scalar.AVRO_NULL)


def expected_lines(case: str) -> list[dict[str, Any]]:
    lines = (SAVEPOINTS / case / "expected.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


def expected_rows(case: str, uid: str, state: KeyedState) -> list[dict[str, Any]]:
    """The state's rows in the form that `plain` gives Arrow's; raises if Arrow can't hold one of them."""
    of_state = (line for line in expected_lines(case) if (line["operator"], line["state"]) == (uid, state.name))
    return [_row(state, line) for line in of_state if "key" in line]


def _row(state: KeyedState, line: dict[str, Any]) -> dict[str, Any]:
    row = {"key_group": line["key_group"], "key": cell(state.key, line["key"])}
    if "namespace" in line:
        row["namespace"] = cell(state.namespace, line["namespace"])
    if state.user_key is not None:
        row["user_key"] = cell(state.user_key, line["user_key"])
    if state.value is not None:
        in_list = state.kind is StateKind.LIST
        row["value"] = cell(ListType(state.value) if in_list else state.value, line["value"])
    if "timestamp" in line:
        row["timestamp"] = line["timestamp"]
    return row


def cell(type_: FlinkType, said: Any) -> Any:
    if said is None or type_ in _NOTHING:
        return None
    match type_:
        case Scalar.STRING | Scalar.STRING_VALUE | Scalar.CHARACTER | Scalar.CHAR_VALUE:
            return "".join("\ufffd" if 0xD800 <= ord(unit) < 0xE000 else unit for unit in said)
        case Scalar.DOUBLE | Scalar.DOUBLE_VALUE:
            return comparable(float(said))
        case Scalar() if type_ in _FLOATS:
            return comparable(float(np.float32(float(said))))
        case Scalar.BIG_INTEGER:
            return str(said)
        case Scalar() if type_ in _INSTANTS:
            return _microseconds(said.removesuffix("Z"))
        case Scalar.LOCAL_DATE_TIME:
            return _microseconds(said)
        case Scalar.LOCAL_DATE:
            day = _day(said)
            return day if abs(day) < 2**31 else unrepresentable()
        case Scalar.VARIANT:
            return {name: base64.b64decode(part) for name, part in said.items()}
        case Scalar.BITMAP | PrimitiveArrayType(Scalar.BYTE) | AvroFixedType():
            return base64.b64decode(said)
        case Scalar() | EnumType():
            return said
        case ListType(element) | SetType(element) | ArrayType(element) | PrimitiveArrayType(element):
            return [cell(element, item) for item in said]
        case TraversableType(element) | AvroArrayType(element):
            return [cell(element, item) for item in said]
        case AvroMapType(value):
            return [(each, cell(value, other)) for each, other in said.items()]
        case AvroRecordType(_, described):
            return {part.name: cell(part.type, said[part.name]) for part in described}
        case AvroUnionType(branches):
            if type_.nullable is not None:
                return cell(type_.nullable, said)
            filled = [branch for branch in branches if branch.type is not Scalar.AVRO_NULL]
            return {
                column: cell(branch.type, said.get(branch.name))
                for column, branch in zip(union_fields(type_), filled, strict=True)
            }
        case OptionType(inner):
            return cell(inner, said.get("some"))
        case MapType(key, value):
            pairs: Iterable[Any] = said.items() if isinstance(said, dict) else said
            return [(cell(key, each), cell(value, other)) for each, other in pairs]
        case TupleType(fields):
            return _numbered(fields, said)
        case RowType(fields, has_kind):
            kind, parts = (said["kind"], said["fields"]) if isinstance(said, dict) else ("INSERT", said)
            return _numbered(fields, parts) | ({"kind": kind} if has_kind else {})
        case PojoType():
            # What it hasn't isn't null there but absent.
            known = [*known_subclasses(type_), type_]
            types = {field.name: field.type for pojo in known for field in pojo.fields}
            columns = dict.fromkeys(field.name for field in pojo_fields(type_))
            parts = {name: cell(types[name], part) for name, part in said.items() if name != CLASS_IN_JSON}
            named = {CLASS: said.get(CLASS_IN_JSON, type_.class_name)} if CLASS in columns else {}
            return columns | parts | named
        case NullableType(inner):
            return cell(inner, said)
        case EitherType(left, right):
            sides = zip(type_.sides, (left, right), strict=True)
            return {side: cell(inner, said.get(side)) for side, inner in sides}
    raise AssertionError(f"no column for {type_}")


def _numbered(fields: tuple[FlinkType, ...], said: list[Any]) -> dict[str, Any]:
    return {f"f{at}": cell(field, item) for at, (field, item) in enumerate(zip(fields, said, strict=True))}


def _day(text: str) -> int:
    year, month, day = text.lstrip("+-").split("-")
    sign = -1 if text.startswith("-") else 1
    return epoch_day(LocalDate(sign * int(year), int(month), int(day)))


def _microseconds(text: str) -> int:
    day, _, clock = text.partition("T")
    hour, minute, second = f"{clock}:00".split(":")[:3]
    whole, _, fraction = second.partition(".")
    seconds = _day(day) * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(whole)
    return micros(seconds, int(f"{fraction:0<9}"))


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    names, parts = batch.schema.names, [plain(column) for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]


def unordered(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The rows, whatever their order and that of the entries in their maps."""
    return sorted(repr(_ordered(row)) for row in rows)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        parts = [_ordered(part) for part in value]
        return sorted(parts, key=repr) if parts and isinstance(parts[0], tuple) else parts
    if isinstance(value, tuple):
        return tuple(_ordered(part) for part in value)
    return value
