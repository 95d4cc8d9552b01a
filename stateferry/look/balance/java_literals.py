"""Keys as Java writes them: their types, and single keys as literals.

Boxed numbers (but not Float and Double, whose text has several forms), String, Character, Boolean and tuples of these
have literals. Keys of other types are known to Java as objects, by their hash alone.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeGuard

from flinkstate.serializers.types import FlinkType, Scalar, TupleType

_TUPLE = re.compile(r"org\.apache\.flink\.api\.java\.tuple\.Tuple[1-9][0-9]?", re.ASCII)
_NAMES = {
    Scalar.INTEGER: "Integer",
    Scalar.LONG: "Long",
    Scalar.STRING: "String",
    Scalar.SHORT: "Short",
    Scalar.BYTE: "Byte",
    Scalar.BOOLEAN: "Boolean",
    Scalar.CHARACTER: "Character",
}


def java_type(type_: FlinkType) -> str:
    """Returns the class of such keys, `Object` for one without literals."""
    if isinstance(type_, Scalar):
        return _NAMES.get(type_, "Object")
    if is_flinks_tuple(type_):
        fields = [java_type(field) for field in type_.fields]
        if "Object" not in fields:
            return f"{type_.class_name}<{', '.join(fields)}>"
    return "Object"


def java_literal(type_: FlinkType, value: Any) -> str | None:
    """Returns a key, as JSON has it, as an expression of Java; None if there is no literal of it."""
    if is_flinks_tuple(type_):
        fields = [java_literal(field, part) for field, part in zip(type_.fields, value, strict=True)]
        return None if None in fields else f"{type_.class_name}.of({', '.join(filter(None, fields))})"
    if value is None or not isinstance(type_, Scalar) or type_ not in _NAMES:
        return None
    match type_:
        case Scalar.STRING:
            # JSON's escapes of what isn't ASCII are Java's too.
            return json.dumps(value)
        case Scalar.BOOLEAN:
            return str(value).lower()
        case Scalar.CHARACTER:
            return f"(char) {ord(value)}"
        case Scalar.LONG:
            return f"{value}L"
        case Scalar.SHORT | Scalar.BYTE:
            return f"({_NAMES[type_].lower()}) {value}"
        case _:
            return str(value)


def is_flinks_tuple(type_: FlinkType) -> TypeGuard[TupleType]:
    """Whether these are tuples as Java has them; a case class of Scala has the same bytes."""
    return isinstance(type_, TupleType) and _TUPLE.fullmatch(type_.class_name) is not None
