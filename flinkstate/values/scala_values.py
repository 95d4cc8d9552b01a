"""Values of flink-scala as the values of Flink's own serializers that they become: plain code, for the proof."""

from __future__ import annotations

from typing import Any

from flinkstate.errors import RefusedError
from flinkstate.serializers.types import (
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OptionType,
    PojoType,
    Scalar,
    SetType,
    TraversableType,
    TupleType,
    type_name,
)
from flinkstate.values.java_values import EitherValue, PojoValue


def as_made(source: FlinkType, made: FlinkType, value: Any) -> Any:
    """Returns what a value of the one type is as a value of the other."""
    match source, made:
        case OptionType(inner), NullableType(of_value):
            return as_made(inner, of_value, value.value) if value.is_some else None
        case OptionType(inner), _:
            return as_made(inner, made, value.value) if value.is_some else None
        case CaseClassType(fields), TupleType():
            return tuple(map(as_made, fields, made.fields, value))
        case CaseClassType(fields, names=names), PojoType():
            types = {one.name: one.type for one in made.fields}
            parts = zip(names, fields, value, strict=True)
            found = {name: as_made(part, types[name], one) for name, part, one in parts}
            return PojoValue(made.class_name, {name: found[name] for name in types})
        case EitherType(left, right), EitherType():
            sides = (left, made.left) if value.is_left else (right, made.right)
            side = as_made(*sides, value.value)
            if side is None:
                raise RefusedError(f"null as a side of a {type_name(made)}")
            return EitherValue(side, value.is_left)
        case TraversableType(), NullableType(inner):
            return as_made(source, inner, value)
        case TraversableType(element), ListType(inner) | SetType(inner):
            return [_as_element(element, inner, one) for one in value]
        case TraversableType(CaseClassType((key, of_value))), MapType(new_key, new_value):
            if None in value:
                raise RefusedError(f"null as an entry of a {type_name(made)}")
            return [(_as_element(key, new_key, one), _as_element(of_value, new_value, other)) for one, other in value]
        case Scalar.UNIT, Scalar.VOID:
            return None
        case EnumType(), EnumType():
            return value
    if source != made and type_name(source) != type_name(made):
        raise RefusedError(f"a {type_name(made)} isn't made of a {type_name(source)} of flink-scala")
    return value


def _as_element(source: FlinkType, made: FlinkType, value: Any) -> Any:
    """As `as_made`, where Flink may have a flag for null."""
    if value is None:
        return None
    inner = made.value if isinstance(made, NullableType) and not isinstance(source, OptionType) else made
    return as_made(source, inner, value)
