"""What a job must declare so that Flink takes a state: a line of Java, with the TypeInformation of each type.

The expressions need these imports:

    import org.apache.flink.api.common.state.*;
    import org.apache.flink.api.common.typeinfo.*;
    import org.apache.flink.api.java.typeutils.*;

Classes of the job and of other packages stand with their whole names.
"""

from __future__ import annotations

import re

from flinkstate.errors import RefusedError
from flinkstate.serializers.snapshot_classes import SCALAR_NAMES
from flinkstate.serializers.type_parts import kryo_map_of, with_parts
from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
    type_name,
)
from stateferry.look.balance.java_literals import is_flinks_tuple, java_literal

_CLASS = re.compile(r"[\w.$]+")
# `[[I` and `[Lcom.acme.Reading;` are names of classes of arrays.
_ARRAY = re.compile(r"(\[+)(?:([BCDFIJSZ])|L(.+);)")
_PRIMITIVES = dict(zip("BCDFIJSZ", ("byte", "char", "double", "float", "int", "long", "short", "boolean"), strict=True))
# `Types` has them by the names of their serializers, in capitals.
_SCALARS: dict[Scalar, str] = {
    scalar: re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()
    for scalar, name in SCALAR_NAMES.items()
    if scalar is not Scalar.DATE and not name.endswith("Value")
}
_VALUES = (
    *(Scalar.BOOLEAN_VALUE, Scalar.BYTE_VALUE, Scalar.SHORT_VALUE, Scalar.INT_VALUE, Scalar.LONG_VALUE),
    *(Scalar.FLOAT_VALUE, Scalar.DOUBLE_VALUE, Scalar.CHAR_VALUE, Scalar.STRING_VALUE),
)


def map_state_declaration(name: str, map_: MapType) -> str:
    """Returns the descriptor of a MapState, such as `new MapStateDescriptor<>("new", Types.STRING, Types.LONG)`."""
    parts = (java_literal(Scalar.STRING, name), type_information(map_.key), type_information(map_.value))
    return f"new MapStateDescriptor<>({', '.join(map(str, parts))})"


def declared(name: str, map_: MapType, stored: FlinkType | None) -> str:
    """Returns the same, or why Java has no such line; `stored` is the type of the values in which the maps are."""
    if kryo_map_of(stored) is None and any(isinstance(one, RowType) for one in with_parts(map_)):
        # A serializer of rows doesn't describe the names of their fields. Rows by Kryo have none if they become such.
        return f"{name} as the old job declares its key and value: fields of a Row may have names, which no header says"
    try:
        return map_state_declaration(name, map_)
    except RefusedError as error:
        return f"{name} as the old job declares its key and value: {error}"


def type_information(type_: FlinkType) -> str:
    """Returns the expression of a type's TypeInformation; raises `RefusedError` if Java has none for it."""
    match type_:
        case Scalar() if type_ in _SCALARS:
            return f"Types.{_SCALARS[type_]}"
        case Scalar.DATE:
            return "BasicTypeInfo.DATE_TYPE_INFO"
        case Scalar() if type_ in _VALUES:
            return f"Types.VALUE(org.apache.flink.types.{type_.label}.class)"
        case PrimitiveArrayType(Scalar.STRING):
            return "Types.OBJECT_ARRAY(Types.STRING)"
        case PrimitiveArrayType(element):
            # `Types.PRIMITIVE_ARRAY` is a `TypeInformation<?>`, with which no descriptor of such an array compiles.
            return f"PrimitiveArrayTypeInfo.{_SCALARS[element]}_PRIMITIVE_ARRAY_TYPE_INFO"
        case ArrayType(element):
            return f"Types.OBJECT_ARRAY({type_information(element)})"
        case ListType(element):
            return f"Types.LIST({type_information(element)})"
        case SetType(element):
            return f"Types.SET({type_information(element)})"
        case MapType(key, value):
            return f"Types.MAP({type_information(key)}, {type_information(value)})"
        case TupleType(fields) if is_flinks_tuple(type_):
            return f"Types.TUPLE({', '.join(map(type_information, fields))})"
        case RowType(fields, True):
            return f"Types.ROW({', '.join(map(type_information, fields))})"
        case EitherType(left, right, class_name) if class_name == FLINK_EITHER:
            return f"Types.EITHER({type_information(left)}, {type_information(right)})"
        case EnumType(class_name, ids=None):
            return f"Types.ENUM({_literal(class_name)})"
        case PojoType(class_name):
            return f"Types.POJO({_literal(class_name)})"
        case KryoMapType(class_name) | KryoType(class_name):
            return f"Types.GENERIC({_literal(class_name)})"
        case NullableType():
            return _nullable(type_)
    raise RefusedError(f"Java has no expression for the TypeInformation of {type_name(type_)}: it is the job's own")


def _nullable(type_: NullableType) -> str:
    """The collections of Flink 2 that may be null."""
    if type_.padding == 0:
        match type_.value:
            case MapType(NullableType(key), value):
                return f"new NullableMapTypeInfo<>({_wrapped(key)}, {type_information(value)})"
            case ListType(NullableType(element)):
                return f"new NullableListTypeInfo<>({_wrapped(element)})"
            case SetType(element):
                return f"new NullableSetTypeInfo<>({type_information(element)})"
    raise RefusedError(f"Java has no expression for the TypeInformation of a {type_name(type_)} that may be null")


def _wrapped(part: FlinkType) -> str:
    """What Flink makes nullable by itself, unless it is so already."""
    is_collection = isinstance(part, MapType | ListType | SetType)
    return type_information(NullableType(part, 0) if is_collection else part)


def _literal(class_name: str) -> str:
    """Returns `com.acme.Job.Reading.class` for `com.acme.Job$Reading`, and `int[][].class` for `[[I`."""
    array = _ARRAY.fullmatch(class_name)
    element = class_name if array is None else _PRIMITIVES.get(array[2]) or array[3]
    if not _CLASS.fullmatch(element) or element.endswith("$"):
        raise RefusedError(f"Java has no literal of the class {class_name}")
    dimensions = "" if array is None else "[]" * len(array[1])
    return f"{element.replace('$', '.')}{dimensions}.class"
