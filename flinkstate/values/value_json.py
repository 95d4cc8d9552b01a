"""Writes single values as JSON text, in the form that `stateferry dump` prints.

It makes text and not Python objects, so that integers of any length stay exact and a `Float` keeps its shortest form.
Every text is one line of valid JSON. Letters beyond ASCII stay as they are. Characters that are invisible or control a
terminal, and lone surrogates, are escaped.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from flinkstate.serializers.types import (
    AvroFixedType,
    AvroRecordType,
    AvroUnionType,
    CollectionType,
    EitherType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoType,
    MappingType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    ScalaType,
    TimerType,
    TtlType,
    TupleType,
)
from flinkstate.values.java_text import (
    big_decimal_text,
    instant_text,
    integer_text,
    local_date_text,
    local_date_time_text,
    local_time_text,
    millis_text,
    sql_timestamp_text,
)
from flinkstate.values.java_values import (
    EitherValue,
    OptionValue,
    PojoValue,
    RowKind,
    RowValue,
    Singleton,
    TimerValue,
    TtlValue,
)
from flinkstate.values.kryo_class_names import MAPS, ROW
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import PRIMITIVE_ARRAYS, SCALARS

JsonText = Callable[[Any], str]

# The member with the class of a POJO that is of a subclass. No Java field can have this name.
CLASS = "@class"


def value_json(type_: FlinkType, value: Any) -> str:
    """Returns a value of the type as JSON."""
    return json_text(type_)(value)


@lru_cache(maxsize=512)
def json_text(type_: FlinkType) -> JsonText:
    """Returns a function that turns values of the type into JSON; a caller with many values asks for it once."""
    text = _text_of(type_)
    return lambda value: "null" if value is None else text(value)


def string_json(value: str) -> str:
    """Returns a string as JSON; what is invisible or controls a terminal is escaped."""
    text = encode_basestring(value)
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def object_json(members: dict[str, str]) -> str:
    """Returns an object whose members' values are JSON text already."""
    return f"{{{','.join(f'{string_json(name)}:{value}' for name, value in members.items())}}}"


def _array(texts: Any) -> str:
    return f"[{','.join(texts)}]"


def _double(value: float) -> str:
    return repr(value) if math.isfinite(value) else _not_finite(value)


def _float(value: float) -> str:
    return str(np.float32(value)) if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _base64(value: bytes) -> str:
    return f'"{b64encode(value).decode("ascii")}"'


def _quoted(text: Callable[[Any], str]) -> JsonText:
    return lambda value: f'"{text(value)}"'


def _window(window: Any) -> str:
    return f'{{"start":{window.start},"end":{window.end}}}'


def _variant(variant: Any) -> str:
    return object_json({"value": _base64(variant.value), "metadata": _base64(variant.metadata)})


_SCALAR_TEXT: dict[Scalar, JsonText] = {
    **dict.fromkeys((Scalar.BOOLEAN, Scalar.BOOLEAN_VALUE), _boolean),
    **dict.fromkeys((Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG), str),
    **dict.fromkeys((Scalar.BYTE_VALUE, Scalar.SHORT_VALUE, Scalar.INT_VALUE, Scalar.LONG_VALUE), str),
    **dict.fromkeys((Scalar.FLOAT, Scalar.FLOAT_VALUE), _float),
    **dict.fromkeys((Scalar.DOUBLE, Scalar.DOUBLE_VALUE), _double),
    **dict.fromkeys((Scalar.CHARACTER, Scalar.CHAR_VALUE, Scalar.STRING, Scalar.STRING_VALUE), string_json),
    Scalar.BIG_INTEGER: integer_text,
    Scalar.BIG_DECIMAL: _quoted(lambda number: big_decimal_text(number.unscaled, number.scale)),
    **dict.fromkeys((Scalar.DATE, Scalar.SQL_DATE, Scalar.SQL_TIME), _quoted(millis_text)),
    Scalar.SQL_TIMESTAMP: _quoted(sql_timestamp_text),
    Scalar.INSTANT: _quoted(instant_text),
    Scalar.LOCAL_DATE: _quoted(local_date_text),
    Scalar.LOCAL_TIME: _quoted(local_time_text),
    Scalar.LOCAL_DATE_TIME: _quoted(local_date_time_text),
    Scalar.VARIANT: _variant,
    Scalar.BITMAP: _base64,
    Scalar.TUPLE0: lambda _: "[]",
    Scalar.TIME_WINDOW: _window,
    Scalar.GLOBAL_WINDOW: lambda _: "{}",
    Scalar.AVRO_STRING: string_json,
    Scalar.UNIT: lambda _: "{}",
    **dict.fromkeys(
        (Scalar.VOID, Scalar.NULL_VALUE, Scalar.VOID_NAMESPACE, Scalar.NOTHING, Scalar.AVRO_NULL), lambda _: "null"
    ),
}


def _text_of(type_: FlinkType) -> JsonText:
    match type_:
        case Scalar():
            return _SCALAR_TEXT[type_]
        case PrimitiveArrayType(Scalar.BYTE):
            return _base64
        case CollectionType(element):
            item = json_text(element)
            return lambda values: _array(map(item, values))
        case MappingType():
            return _map(type_.key, json_text(type_.value))
        case TupleType(fields):
            return _tuple(tuple(map(json_text, fields)))
        case RowType(fields):
            return _row(_tuple(tuple(map(json_text, fields))))
        case PojoType():
            return _pojo(type_)
        case NullableType(value):
            return json_text(value)
        case OptionType(value):
            return _option(json_text(value))
        case EitherType(left, right):
            return _either(json_text(left), json_text(right), type_.sides)
        case EnumType():
            return string_json
        case AvroFixedType():
            return _base64
        case AvroUnionType():
            return _union(type_)
        case AvroRecordType(_, parts):
            named = {part.name: json_text(part.type) for part in parts}
            return lambda record: object_json({name: text(record.fields[name]) for name, text in named.items()})
        case TtlType(value):
            return _ttl(json_text(value))
        case TimerType(key, namespace):
            return _timer(json_text(key), json_text(namespace))
        case KryoType():
            return _kryo
        case KryoCollectionType(made=made) | ScalaType(made=made):
            return json_text(made)
        case OpaqueType():
            return _opaque


def _map(key: FlinkType, value_text: JsonText) -> JsonText:
    key_text = json_text(key)
    bare_key = key.value if isinstance(key, NullableType) else key
    may_be_object = bare_key in (Scalar.STRING, Scalar.STRING_VALUE, Scalar.AVRO_STRING)

    def text(pairs: list[tuple[Any, Any]]) -> str:
        if may_be_object:
            keys = {key for key, _ in pairs}
            if len(keys) == len(pairs) and None not in keys:
                return f"{{{','.join(f'{string_json(key)}:{value_text(value)}' for key, value in pairs)}}}"
        return _array(f"[{key_text(key)},{value_text(value)}]" for key, value in pairs)

    return text


def _tuple(fields: tuple[JsonText, ...]) -> JsonText:
    return lambda values: _array(field(value) for field, value in zip(fields, values, strict=True))


def _row(fields: JsonText) -> JsonText:
    def text(row: RowValue) -> str:
        if row.kind is RowKind.INSERT:
            return fields(row.fields)
        return object_json({"kind": f'"{row.kind.name}"', "fields": fields(row.fields)})

    return text


def _pojo(type_: PojoType) -> JsonText:
    own = {field.name: json_text(field.type) for field in type_.fields}
    of_subclass = {
        subclass.class_name: json_text(subclass) for subclass in type_.subclasses if isinstance(subclass, PojoType)
    }

    def text(pojo: PojoValue) -> str:
        if pojo.class_name != type_.class_name:
            fields = of_subclass[pojo.class_name](pojo)[1:-1]
            return f"{{{','.join([f'{string_json(CLASS)}:{string_json(pojo.class_name)}', *filter(None, [fields])])}}}"
        return object_json({name: own[name](value) for name, value in pojo.fields.items()})

    return text


def _option(value: JsonText) -> JsonText:
    def text(option: OptionValue) -> str:
        return object_json({"some": value(option.value)} if option.is_some else {})

    return text


def _either(left: JsonText, right: JsonText, sides: tuple[str, str]) -> JsonText:
    def text(either: EitherValue) -> str:
        return object_json({sides[0]: left(either.value)} if either.is_left else {sides[1]: right(either.value)})

    return text


def _union(type_: AvroUnionType) -> JsonText:
    """Writes a union as Avro's own JSON does, but a union of a type and null without the type's name."""
    if type_.nullable is not None:
        return json_text(type_.nullable)
    branches = tuple((branch.name, json_text(branch.type)) for branch in type_.branches)

    def text(value: Any) -> str:
        name, branch_text = branches[value.branch]
        return object_json({name: branch_text(value.value)})

    return text


def _ttl(value: JsonText) -> JsonText:
    def text(ttl: TtlValue) -> str:
        return object_json({"timestamp": str(ttl.timestamp), "value": value(ttl.value)})

    return text


def _timer(key: JsonText, namespace: JsonText) -> JsonText:
    def text(timer: TimerValue) -> str:
        parts = {"timestamp": str(timer.timestamp), "key": key(timer.key)}
        if timer.namespace is not Singleton.VOID_NAMESPACE:
            parts["namespace"] = namespace(timer.namespace)
        return object_json(parts)

    return text


def _kryo(found: KryoObject | None) -> str:
    """Writes an object that Kryo wrote like a value of the type that it is in Flink."""
    if found is None:
        return "null"
    value = found.value
    if (type_ := SCALARS.get(found.class_name) or PRIMITIVE_ARRAYS.get(found.class_name)) is not None:
        return json_text(type_)(value)
    if isinstance(value, str):
        return string_json(value)
    if found.class_name == ROW:
        return _kryo_row(value)
    if isinstance(value, dict):
        return object_json({name: _kryo(part) for name, part in value.items()})
    if found.form not in MAPS:
        return _array(map(_kryo, value))
    keys = {key.value for key, _ in value if key is not None and SCALARS.get(key.class_name) is Scalar.STRING}
    if len(keys) == len(value):
        return object_json({key.value: _kryo(part) for key, part in value})
    return _array(f"[{_kryo(key)},{_kryo(part)}]" for key, part in value)


def _kryo_row(row: dict[str, KryoObject | None]) -> str:
    """Writes a Row like one by Flink's serializer; one whose fields have names as an object."""
    kind, names, fields = row["kind"], row["positionByName"], row["fieldByPosition"]
    if names is not None and fields is not None:
        named = {name.value: _kryo(fields.value[position.value]) for name, position in names.value}
        text = object_json(named)
    else:
        text = _kryo(row["fieldByName"] or fields)
    if kind is None or kind.value == RowKind.INSERT.name:
        return text
    return object_json({"kind": _kryo(kind), "fields": text})


def _opaque(value: object) -> str:
    raise TypeError("a value of an opaque type is never decoded")
