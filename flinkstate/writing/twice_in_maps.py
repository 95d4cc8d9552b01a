"""Refuses a value with a map that has a key twice: Flink writes no such map, and would keep one of the two values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from flinkstate.errors import UsageError
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import (
    ArrayType,
    AvroRecordType,
    AvroUnionType,
    CollectionType,
    EitherType,
    FlinkType,
    MappingType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    TtlType,
    TupleType,
)
from flinkstate.values.codec_parts import as_pairs
from flinkstate.values.codecs import encode

# Two of these with the same bytes may be two keys to Java, which asks their class or compares references.
_OTHERWISE_EQUAL = (ArrayType, PrimitiveArrayType, PojoType, OpaqueType)


def refuse_twice(type_: FlinkType, value: Any) -> None:
    """Raises if a map in the value, which has been encoded, has a key twice."""
    if not _has_maps(type_) or value is None:
        return
    if isinstance(type_, MappingType):
        value = as_pairs(value)
        _refuse_twins(type_.key, [key for key, _ in value])
    for part, one in _parts(type_, value):
        refuse_twice(part, one)


@lru_cache(maxsize=512)
def _has_maps(type_: FlinkType) -> bool:
    return any(isinstance(part, MappingType) for part in with_parts(type_))


def _refuse_twins(type_: FlinkType, keys: list[Any]) -> None:
    if len(keys) < 2 or any(isinstance(part, _OTHERWISE_EQUAL) for part in with_parts(type_)):
        return
    written = [encode(type_, key) for key in keys]
    found, times = Counter(written).most_common(1)[0]
    if times > 1:
        key = keys[written.index(found)]
        raise UsageError(f"a map has the key {str(key)[:100]!r} {times} times, and Flink would keep one of its values")


def _parts(type_: FlinkType, value: Any) -> Iterator[tuple[FlinkType, Any]]:
    """Yields what a value consists of, with its types."""
    match type_:
        case MappingType(key, of_key):
            for pair in value:
                yield from zip((key, of_key), pair, strict=True)
        case CollectionType(element):
            yield from ((element, one) for one in value)
        case TupleType(fields):
            yield from zip(fields, value, strict=True)
        case RowType(fields):
            yield from zip(fields, value.fields, strict=True)
        case PojoType() | AvroRecordType():
            # An object of a subclass has the fields of another type.
            if value.class_name == type_.class_name or isinstance(type_, AvroRecordType):
                yield from ((field.type, value.fields[field.name]) for field in type_.fields)
        case NullableType(of_value):
            yield of_value, value
        case OptionType(of_value) | TtlType(of_value):
            yield of_value, value.value
        case EitherType(left, right):
            yield (left if value.is_left else right), value.value
        case AvroUnionType(branches):
            bare = type_.nullable
            yield (bare, value) if bare is not None else (branches[value.branch].type, value.value)
